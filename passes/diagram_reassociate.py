"""`diagram-reassociate`: products of products are multiplied in the order, and in the chunks, that take least time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import TypeAlias

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block
from xdsl.passes import ModulePass
from xdsl.utils.exceptions import PassFailedException

from treadle.compiler.errors import Refusal
from treadle.compiler.machines import machine_of
from treadle.compiler.sizes import default_sizes
from treadle.dialects.diagram import ContractOp
from treadle.dialects.diagram.array import axes_of
from treadle.dialects.diagram.read import with_fitting
from treadle.passes._functions import erase_dead, functions, kernels, label, note
from treadle.passes.products import chunked, orders, references
from treadle.passes.products.chains import Chain, chains_from
from treadle.passes.products.chunked import Chunking, cut_of
from treadle.passes.products.conditions import Order, order_of
from treadle.passes.products.trial import Trials, multiplied_now, multiplied_otherwise

PASS = "diagram-reassociate"

Orders: TypeAlias = tuple[Order, ...]
"""Of positions, for each of some sums; none where all positions count."""

LENGTHS = (64, 128, 256)
"""Of chunks, that are tried: what tiles of tensor cores have, and what a group may hold. Longer ones are where the
longest so far is the best: states are added up in time that grows with the square of their number."""

WORTH = 0.9
"""Of the time of the program as it is, what another order may take."""

NO_SLOWER = 1.02
"""Of two times this near to each other none is the longer one."""

LONG = 4096
"""What an axis that is known only at launch has at least, where another order must be no slower."""


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

    Nothing is rounded to 16 bits that the program does not round: states stay in f32, and are multiplied as tf32 where
    the program rounds to 16 bits what is not made any more, else in f32.

    Done where the cost model finds that it takes at most nine tenths of the time at the sizes that the program states,
    and no more where axes known only at launch are long. `sums` names sums by their results, for which the model is not
    asked; what no law allows is refused then."""

    name = PASS

    chunk: int | None = None
    """Elements of a chunk; without, the best of 64, 128 and 256."""
    sums: tuple[str, ...] = ()
    """Only these sums, named by their results, and without asking the cost model."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.chunk is not None and self.chunk < 1:
            raise PassFailedException(f"a chunk has at least one element, not {self.chunk}")
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
        """The names of the sums of products that were met."""
        met: set[str | None] = set()
        for inner in [each for each in block.ops if isinstance(each, ContractOp)]:
            if inner.parent is not block or not (chains := chains_from(inner)):
                continue
            met |= {chain.outer.result.name_hint for chain in chains}
            asked = [chain for chain in chains if chain.outer.result.name_hint in self.sums]
            if self.sums and not asked:
                continue
            found = _orders(chains)
            if isinstance(found, str):
                if asked:
                    raise Refusal(asked[0].outer, found)
                note(function, f"decline {PASS}", _names(chains), orders.LAW, found)
                continue
            self._choose(Trials(module, function, chains), found, bool(asked))
        return met

    def _choose(self, trials: Trials, found: Orders, asked: bool) -> None:
        function, chains = trials.function, trials.chains
        lengths = (None,) if not found else LENGTHS if self.chunk is None else (self.chunk,)
        chosen = _by_estimate(trials, found, lengths, asked)
        subject, law = _names(chains), _law(found, chains)
        if isinstance(chosen, str):
            note(function, f"decline {PASS}", subject, law, chosen)
            return
        length, reason = chosen
        _rewrite(found, length, function.body.block, chains)
        note(function, PASS, subject if length is None else f"{subject} in chunks of {length}", law, reason)


def _orders(chains: Sequence[Chain]) -> Orders | str:
    """The order under which each of some sums goes, none where there is no condition; or why they cannot be written
    otherwise."""
    if (reason := next((reason for chain in chains if (reason := chain.why_not())), None)) is not None:
        return reason
    found: list[Order] = []
    for chain in chains if any(chain.conditions for chain in chains) else ():
        order = order_of(chain)
        if isinstance(order, str):
            return order
        found.append(order)
    return tuple(found)


def _by_estimate(
    trials: Trials, found: Orders, lengths: Sequence[int | None], asked: bool
) -> tuple[int | None, str] | str:
    """How long chunks are (None for none), and why; or why the program stays as it is."""
    if asked and len(lengths) == 1:
        return lengths[0], ""
    block = trials.function.body.block
    stated = with_fitting(block, default_sizes(trials.function))
    if unknown := [axis for axis in trials.symbolic() if axis not in stated]:
        return (lengths[0], "") if asked else f"no likely size of '{unknown[0]}' is stated"
    sizes = {axis: stated[axis] for axis in trials.symbolic()}
    if not asked and (reason := _why_no_less(trials, found, sizes)) is not None:
        return reason
    best, length = _fastest(trials, found, lengths, sizes)
    said = f"estimated {_in_us(best)}"
    if asked:
        return length, said
    whole = trials.time(sizes)
    compared = f"{said}{_in_chunks(length)}, {_in_us(whole)} as it is{_at(sizes)}"
    if best > WORTH * whole:
        return f"another order must save a tenth; {compared}"
    longer = {axis: max(size, LONG) for axis, size in sizes.items()}
    if longer != sizes and trials.time(longer, partial(_rewrite, found, length)) > NO_SLOWER * trials.time(longer):
        return f"it must be no slower where axes are long; {compared}"
    return length, compared


def _fastest(
    trials: Trials, found: Orders, lengths: Sequence[int | None], sizes: Mapping[str, int]
) -> tuple[float, int | None]:
    """The best length of chunks, and the time that it takes."""
    timed = [(trials.time(sizes, partial(_rewrite, found, length)), length) for length in lengths]
    best, length = min(timed, key=lambda each: each[0])
    while length is not None and len(lengths) > 1 and length >= max(each for each in lengths if each is not None):
        longer = trials.time(sizes, partial(_rewrite, found, 2 * length))
        if longer >= best:
            break
        best, length = longer, 2 * length
    return best, length


def _why_no_less(trials: Trials, found: Orders, sizes: Mapping[str, int]) -> str | None:
    """Why another order can save nothing, as far as counting tells."""
    machine, now = machine_of(trials.module), multiplied_now(trials.chains, sizes)
    if not found and multiplied_otherwise(trials.chains, sizes) >= now:
        return "another order takes no fewer multiplications"
    if 2 * now / machine.tensor_flops("f16") <= machine.launch:
        return f"its products take less time than a launch{_at(sizes)}"
    return None


def _rewrite(found: Orders, length: int | None, block: Block, chains: Sequence[Chain]) -> None:
    if length is None:
        for chain in chains:
            orders.reorder(chain)
    for order in dict.fromkeys(found):
        assert length is not None
        taken = {axis for op in block.ops for value in (*op.operands, *op.results) for axis in axes_of(value.type)}
        own = [chain for chain, its in zip(chains, found, strict=True) if its == order]
        chunking = Chunking(cut_of(order, own[0], length, taken))
        for chain in own:
            chunking.sum(chain)
        chunking.finish(block, [chain.outer for chain in own])
    erase_dead(block)


def _law(found: Orders, chains: Sequence[Chain]) -> str:
    laws = chunked.LAW if found else orders.LAW
    return f"{laws}; {references.LAW}" if any(chain.weights.has_power for chain in chains) else laws


def _names(chains: Sequence[Chain]) -> str:
    sums = ", ".join(label(chain.outer.result) for chain in chains)
    return f"{sums} of {label(chains[0].inner.result)}"


def _in_chunks(length: int | None) -> str:
    return "" if length is None else f" in chunks of {length}"


def _in_us(time: float) -> str:
    return f"{time:.3g} us" if time < inf else "no kernels that fit"


def _at(sizes: Mapping[str, int]) -> str:
    return f" at {', '.join(f'{axis} = {size}' for axis, size in sizes.items())}" if sizes else ""
