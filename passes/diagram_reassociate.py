"""`diagram-reassociate`: products of products are multiplied in the order, and in the chunks, that take least time."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block
from xdsl.passes import ModulePass
from xdsl.utils.exceptions import PassFailedException

from treadle.compiler.errors import Refusal
from treadle.dialects.diagram import ContractOp, ReduceOp, WhereOp
from treadle.passes._functions import functions, kernels, label, note
from treadle.passes.products import chunked_decays, chunked_prefixes, chunked_products, orders, references
from treadle.passes.products.chains import Chain
from treadle.passes.products.decayed import Decayed
from treadle.passes.products.factors import Products
from treadle.passes.products.lengths import Orders, by_estimate, in_chunks, orders_of, rewrite
from treadle.passes.products.prefixes import Prefix
from treadle.passes.products.trial import Sums, Trials, sums_from

PASS = "diagram-reassociate"


@dataclass(frozen=True)
class DiagramReassociatePass(ModulePass):
    """Multiply first what a sum of products sums, where that takes less time.

    Before:

    ```
    !A = tensor<8192x64xf16, #diagram.array<[q, d]>>
    !B = tensor<8192x64xf16, #diagram.array<[x, d]>>
    !C = tensor<8192x64xf16, #diagram.array<[x, e]>>
    !S = tensor<8192x8192xf32, #diagram.array<[q, x]>>
    !S16 = tensor<8192x8192xf16, #diagram.array<[q, x]>>
    !O = tensor<8192x64xf32, #diagram.array<[q, e]>>
    func.func @f(%A: !A, %B: !B, %C: !C) -> !O {
      %S = diagram.contract %A, %B over [d] accumulate f32 : !A, !B -> !S
      %S16 = diagram.cast %S : !S -> !S16
      %O = diagram.contract %S16, %C over [x] accumulate f32 : !S16, !C -> !O
      func.return %O : !O
    }
    ```

    After:

    ```
    !A = tensor<8192x64xf16, #diagram.array<[q, d]>>
    !A32 = tensor<8192x64xf32, #diagram.array<[q, d]>>
    !B = tensor<8192x64xf16, #diagram.array<[x, d]>>
    !C = tensor<8192x64xf16, #diagram.array<[x, e]>>
    !M = tensor<64x64xf32, #diagram.array<[d, e]>>
    !O = tensor<8192x64xf32, #diagram.array<[q, e]>>
    func.func @f(%A: !A, %B: !B, %C: !C) -> !O {
      %O_state = diagram.contract %B, %C over [x] accumulate f32 : !B, !C -> !M
      %A32 = diagram.cast %A : !A -> !A32
      %O = diagram.contract %A32, %O_state over [d] accumulate f32 as tf32 : !A32, !M -> !O
      func.return %O : !O
    }
    ```

    Legal by associativity, `(A B) C = A (B C)`, where nothing but casts and factors stands between the products. A sum
    of a product without a third factor, `sum_x A B`, is of the same kind.

    Powers of sums, `exp(u[q] + v[x])`, stand between, too: told from a reference, the largest v of what is summed, they
    are `exp(u + r) exp(v - r)`. The second is at most 1 and the first is the largest power of the row, so that none is
    beyond f32 where the program's are not, whatever u and v are.

    A condition that orders positions (`x <= q`) splits the sum at the borders of chunks: positions of earlier chunks
    all count, and in the chunk of q those that the condition leaves. So `(A B) C` over earlier chunks is `A` times the
    sum of their states `B C`, and `A B` is made within chunks alone, of `chunk` elements.

    Decays may vary along the axis that the first product sums, `exp(u[q, d] + v[x, d])`: that product is a map and a
    sum then. States decay for each d by itself. A chunk is in parts of 16 positions, of which those before the part of
    q are told from the largest v of these, as a product of two arrays; only pairs in one part are made as they stand.

    A sum under an order of something that is the same for all rows, `sum_{x <= q} W[q, x] A[x]` with W a power of a sum
    (or 1: a cumulative sum), splits in the same way: chunks are summed once, for all rows behind them. What adds up the
    states of chunks is such a sum, over chunks `c' < c`, and may be made in chunks of chunks itself.

    Nothing is rounded to 16 bits that the program does not round: states stay in f32, and are multiplied as tf32 where
    the program rounds to 16 bits what is not made any more, else in f32.

    Done where the cost model finds that it takes at most nine tenths of the time at the sizes that the program states,
    and no more where axes known only at launch are long. `sums` names sums by their results, for which the model is not
    asked; what no law allows is refused then."""

    name = PASS

    chunk: tuple[int, ...] = ()
    """Elements of a chunk, chunks in a chunk of these, and so on; without, what the cost model finds best."""
    parts: int = 1
    """As how many numbers of tf32 states are multiplied, where they are: 2 are for inputs whose sums cancel. With
    decays along what the first product sums, 2 are f32."""
    sums: tuple[str, ...] = ()
    """Only these sums, named by their results, and without asking the cost model."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.chunk and min(self.chunk) < 1:
            raise PassFailedException(f"a chunk has at least one element, not {min(self.chunk)}")
        if self.parts not in (1, 2):
            raise PassFailedException(f"states are multiplied in 1 part or in 2, not in {self.parts}")
        names = {value.name_hint for each in op.walk() for value in each.results}
        if unknown := [name for name in self.sums if name not in names]:
            raise PassFailedException(f"there is no sum %{unknown[0]}")
        met: set[str | None] = set()
        for function in functions(op):
            if len(function.body.blocks) == 1 and not kernels(function):
                met |= self._in_block(op, function, function.body.block)
        if missing := [name for name in self.sums if name not in met]:
            raise PassFailedException(f"%{missing[0]} is no sum of a product, or of that times numbers")

    def _in_block(self, module: ModuleOp, function: func.FuncOp, block: Block) -> set[str | None]:
        """The names of the sums that were met."""
        met: set[str | None] = set()
        for start in [each for each in block.ops if isinstance(each, ContractOp | ReduceOp | WhereOp)]:
            if start.parent is block and (sums := sums_from(start)):
                met |= {each.outer.result.name_hint for each in sums}
                self._consider(module, function, sums)
        return met

    def _consider(self, module: ModuleOp, function: func.FuncOp, sums: Sums) -> None:
        asked = [each for each in sums if each.outer.result.name_hint in self.sums]
        if self.sums and not asked:
            return
        found = orders_of(sums)
        if not isinstance(found, str):
            self._choose(Trials(module, function, sums), found, bool(asked))
        elif asked:
            raise Refusal(asked[0].outer, found)
        else:
            note(function, f"decline {PASS}", _names(sums), orders.LAW, found)

    def _choose(self, trials: Trials, found: Orders, asked: bool) -> None:
        function, sums = trials.function, trials.chains
        chosen = by_estimate(trials, found, self.chunk, self.parts, asked)
        subject, law = _names(sums), _law(found, sums)
        if isinstance(chosen, str):
            note(function, f"decline {PASS}", subject, law, chosen)
            return
        lengths, reason = chosen
        rewrite(found, self.parts, lengths, function.body.block, sums)
        note(function, PASS, f"{subject}{in_chunks(lengths)}", law, reason)


def _law(found: Orders, sums: Sums) -> str:
    law = _law_of(found, sums[0])
    return f"{law}; {references.LAW}" if any(each.weights.has_power for each in sums) else law


def _law_of(found: Orders, first: Products) -> str:
    if isinstance(first, Prefix):
        return chunked_prefixes.LAW
    if isinstance(first, Decayed):
        return chunked_decays.LAW
    return chunked_products.LAW if found else orders.LAW


def _names(sums: Sums) -> str:
    """What is summed, of which product or under which condition."""
    names, first = ", ".join(label(each.outer.result) for each in sums), sums[0]
    if isinstance(first, Chain | Decayed):
        return f"{names} of {label(first.inner.result)}"
    return f"{names} under '{first.where.condition.text.data}'"
