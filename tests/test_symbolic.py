"""Costs as expressions: the closed forms of the theory, exact counts at every size, and the leading terms."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from itertools import product
from math import log, prod
from pathlib import Path
from typing import Any

import pytest
import sympy
from xdsl.dialects.builtin import ModuleOp

from treadle.compiler.cost import are_of_warpgroups, peak_memory, plan_of, transfer_bytes, transfer_values
from treadle.compiler.cost.kernel.issue import PRODUCT_FLOP, SHARED_BYTES
from treadle.compiler.cost.symbolic.costs import (
    SymbolicCosts,
    axis_symbol,
    closed,
    group_symbol,
    stream_symbol,
    symbolic_costs,
    value_at,
    warps_symbol,
)
from treadle.compiler.cost.symbolic.leading import MEMORY, leading_terms
from treadle.compiler.machines import load_machine
from treadle.compiler.pipeline import LAST_HIERARCHY_PASS, Options, run_pipeline
from treadle.compiler.source import load_module, parse_module
from treadle.dialects.diagram.array import DYNAMIC, level_of, sizes_of
from treadle.dialects.diagram.contract import is_multiplied
from treadle.dialects.hierarchy import KernelOp, LoadOp

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.mlir"))

PRODUCT = """
!A = tensor<?x?xf16, #diagram.array<[a, b]>>
!B = tensor<?x?xf16, #diagram.array<[b, c]>>
!C = tensor<?x?xf32, #diagram.array<[a, c]>>
func.func @product(%A: !A, %B: !B) -> !C attributes {sizes = #diagram.sizes<a = 512, b = 512, c = 512>} {
  %C = diagram.contract %A, %B over [b] accumulate f32 : !A, !B -> !C
  func.return %C : !C
}
"""


def attention(queries: str, keys: str) -> str:
    """Attention whose queries and keys have these axes beside `d`; `x` is the axis of the keys."""

    def array(axes: str, format: str) -> str:
        names = axes.split()
        dims = "x".join("64" if axis in "de" else "?" for axis in names)
        return f"tensor<{dims}x{format}, #diagram.array<[{', '.join(names)}]>>"

    sizes = ", ".join(f"{axis} = 256" for axis in f"{queries} x".split())
    return f"""
!Q = {array(f"{queries} d", "f16")}
!K = {array(f"{keys} x d", "f16")}
!V = {array(f"{keys} x e", "f16")}
!S = {array(f"{queries} x", "f32")}
!P = {array(f"{queries} x", "f16")}
!O = {array(f"{queries} e", "f32")}
func.func @attention(%Q: !Q, %K: !K, %V: !V) -> !O attributes {{sizes = #diagram.sizes<{sizes}>}} {{
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %P = diagram.apply @softmax(%S) over [x] : (!S) -> !S
  %P16 = diagram.cast %P : !S -> !P
  %O = diagram.contract %P16, %V over [x] accumulate f32 : !P, !V -> !O
  func.return %O : !O
}}
"""


def explicit(module: ModuleOp, machine: str = "a100") -> list[KernelOp]:
    run_pipeline(module, Options(machine=machine), last=LAST_HIERARCHY_PASS)
    return [op for op in module.walk() if isinstance(op, KernelOp)]


def costs_of(text: str) -> SymbolicCosts:
    (kernel,) = explicit(parse_module(text))
    return symbolic_costs(kernel)


def of_heads(expression: Any, *heads: str) -> Any:
    """The theory's case: values as wide as keys, and one head to a group."""
    whole = {group_symbol(head): 1 for head in heads}
    return sympy.expand(expression.subs({axis_symbol("e"): axis_symbol("d"), **whole}))


a, b, c, d, g, h, q, x = map(axis_symbol, "abcdghqx")
g_a, g_c, g_g, g_q = map(group_symbol, "acgq")
s_b, s_x = map(stream_symbol, "bx")


# -- closed forms -----------------------------------------------------------------------------------


def test_matrix_product():
    costs = costs_of(PRODUCT)
    assert costs.transfer("device") == a * b * sympy.ceiling(c / g_c) + b * c * sympy.ceiling(a / g_a) + a * c
    assert closed(costs.transfer("device")) == sympy.expand(a * b * c * (1 / g_a + 1 / g_c) + a * c)
    assert costs.peak("chip") == sympy.expand(g_a * g_c + s_b * (g_a + g_c))
    assert costs.transfer_of_group("device") == g_a * b + b * g_c + g_a * g_c
    assert costs.operations["tensor f16"] == 2 * a * b * c
    least = leading_terms(costs)
    assert sympy.expand(sum(t.alpha * MEMORY ** (-t.beta) for t in least.terms)) == 2 * a * b * c / sympy.sqrt(
        MEMORY
    ) + (a * c)


def check_memory_of_attention(costs: SymbolicCosts, rows: Any, *heads: str) -> None:
    """In the largest column: the closed form, scores, and a state of some numbers a row."""
    columns = [of_heads(column, *heads) for column in costs.memory["chip"]]
    beyond = [sympy.expand(column - (2 * rows * d + 2 * s_x * d + rows * s_x)) for column in columns]
    state = [sympy.simplify(more / rows) for more in beyond]
    assert any(numbers.is_Integer for numbers in state)
    # The other columns hold one of keys and values only, and a few numbers a row more.
    assert all(numbers.is_Integer or sympy.simplify(numbers + s_x * d / rows).is_Integer for numbers in state)


def test_attention():
    costs = costs_of(attention("q", ""))
    assert of_heads(closed(costs.transfer("device"))) == sympy.expand(2 * q * d + 2 * x * d * q / g_q)
    check_memory_of_attention(costs, g_q)
    assert of_heads(costs.operations["tensor f16"]) == 4 * q * x * d
    least = leading_terms(costs)
    assert [(of_heads(term.alpha), term.beta) for term in least.terms] == [(4 * x * q * d**2, 1), (2 * q * d, 0)]


def test_attention_of_many_heads():
    costs = costs_of(attention("h q", "h"))
    assert of_heads(closed(costs.transfer("device")), "h") == sympy.expand(h * (2 * q * d + 2 * x * d * q / g_q))
    check_memory_of_attention(costs, g_q, "h")
    least = leading_terms(costs)
    assert [(of_heads(t.alpha), t.beta) for t in least.terms] == [(4 * h * x * q * d**2, 1), (2 * h * q * d, 0)]


def test_attention_of_grouped_queries():
    """`g` query heads share one head of keys and values; H is of one such head."""
    costs = costs_of(attention("g q", ""))
    found = of_heads(closed(costs.transfer("device")))
    assert found == sympy.expand(2 * q * g * d + 2 * x * d * q * g / (g_q * g_g))
    check_memory_of_attention(costs, g_q * g_g)
    least = leading_terms(costs)
    assert [(of_heads(t.alpha), t.beta) for t in least.terms] == [(4 * x * q * g * d**2, 1), (2 * q * g * d, 0)]


# -- exactness --------------------------------------------------------------------------------------


def sizes_for(kernel: KernelOp, size: int) -> dict[str, int]:
    axes = {axis: n for value in (*kernel.inputs, *kernel.outputs) for axis, n in sizes_of(value.type).items()}
    return {axis: size + i if n == DYNAMIC else n for i, (axis, n) in enumerate(axes.items())}


@pytest.mark.sample(8)
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_expressions_have_the_values_that_are_counted(path: Path):
    for kernel in explicit(load_module(path)):
        costs, plan = symbolic_costs(kernel), plan_of(kernel).unlimited()
        for size in (1, 64, 131):
            sizes = sizes_for(kernel, size)
            for level in ("device", "shared", "register"):
                assert value_at(costs.chosen(costs.transfer(level)), sizes) == transfer_values(plan, level, sizes)
                assert value_at(costs.chosen(costs.transfer_bytes(level)), sizes) == transfer_bytes(plan, level, sizes)
        for level, memory in peak_memory(kernel).items():
            assert value_at(costs.chosen(costs.peak(level)), sizes) >= memory.values
        # Where sizes divide, a group's part times the groups is the whole.
        chosen = costs.pieces
        whole = {axis: chosen.get(group_symbol(axis), chosen.get(stream_symbol(axis), 16)) * 4 for axis in sizes}
        blocks = plan.blocks(whole)
        assert value_at(costs.chosen(costs.transfer_of_group("device")), whole) * blocks == transfer_values(
            plan, "device", whole
        )


@pytest.mark.sample(12, each=False)
@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_operations_are_those_that_warps_issue(path: Path, machine: str):
    """Tensor FLOP and bytes through shared memory of warps and of warpgroups, at sizes that the pieces divide."""
    of_machine = load_machine(machine)
    for kernel in explicit(load_module(path), machine):
        costs, plan = symbolic_costs(kernel, of_machine), plan_of(kernel).unlimited()
        chosen = costs.pieces
        sizes = {
            axis: 2 * int(chosen.get(group_symbol(axis), chosen.get(stream_symbol(axis), 0))) or size
            for axis, size in sizes_for(kernel, 64).items()
        }
        issued = Counter[str]()
        for issue in plan.issues:
            times = plan.blocks(sizes) * plan.warp_count * prod(pieces.count(sizes) for pieces in issue.streams)
            issued[issue.kind] += times * issue.count
        flop = {kind: count for kind, count in issued.items() if kind.startswith("products")}
        for kind, count in flop.items():
            of_format = costs.chosen(costs.operations[f"tensor {kind.split()[1]}"])
            assert value_at(of_format, sizes) == count * PRODUCT_FLOP[kind.split()[1]]
        # Products in f32 read their operands otherwise.
        if not flop or any(work.format == "f32" for work in plan.work):
            continue
        of_groups = bool(are_of_warpgroups(plan, of_machine))
        read, beside = ("operands", ("ldmatrix", "shared")) if of_groups else ("ldmatrix", ("shared",))
        moved, more = (sum(issued[kind] * SHARED_BYTES[kind] for kind in kinds) for kinds in ((read, "copies"), beside))
        found = value_at(costs.chosen(costs.operations["shared"]), sizes)
        of_words = any(work.format == "tf32" for work in plan.work)  # operands that lanes may read word by word
        near = [op for op in kernel.walk() if isinstance(op, LoadOp) and is_near(op)]
        if all(is_multiplied(op.result) for op in near) and not of_words:
            assert found == moved
        else:  # lanes that share an element of a line ask for it each
            assert moved <= found <= moved + more


def is_near(load: LoadOp) -> bool:
    return level_of(load.result.type) == "shared"


def test_warpgroups_read_keys_once_for_four_warps():
    """In symbols: `w_q / 4` warpgroups of a block, where each of `w_q` warps reads for itself on an A100."""
    (kernel,) = explicit(load_module(EXAMPLES[0].parent / "attention.mlir"), "h100")
    alone, grouped = (symbolic_costs(kernel, load_machine(name)).operations["shared"] for name in ("a100", "h100"))
    b, h, q, x, d, e = map(axis_symbol, "bhqxde")
    g_q, s_x, w_q = group_symbol("q"), stream_symbol("x"), warps_symbol("q")
    pieces, steps = sympy.ceiling(q / g_q), sympy.ceiling(x / s_x)
    brought = 2 * b * h * (q * d + x * (d + e) * pieces)
    assert sympy.expand(alone - brought - 2 * b * h * (q * d + w_q * x * (d + e) * pieces)) == 0
    assert sympy.expand(grouped - brought - 2 * b * h * (q * d * steps + w_q / 4 * x * (d + e) * pieces)) == 0


def least_transfer(costs: SymbolicCosts, sizes: Mapping[str, int], memory: int) -> float:
    """H at the best pieces of powers of two whose groups fit, found by trying all."""
    transfer, held = (
        expression.subs({axis_symbol(axis): size for axis, size in sizes.items()})
        for expression in (leading_terms(costs).transfer, costs.peak("chip"))
    )
    pieces = [*costs.groups.values(), *costs.streams.values()]
    free = [piece for piece in pieces if transfer.has(piece)]
    fixed = {piece: 1 for piece in pieces if piece not in free}
    values = sympy.lambdify(free, transfer.subs(fixed))
    fits = sympy.lambdify(free, held.subs(fixed))
    steps = [2 ** (i / 4) for i in range(130)]
    return min(values(*each) for each in product(steps, repeat=len(free)) if fits(*each) <= memory)


@pytest.mark.sample(8)
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_leading_terms_are_what_searching_finds(path: Path):
    """H falls with the derived slope where memory is large, and is near the derived value."""
    for kernel in explicit(load_module(path)):
        costs = symbolic_costs(kernel)
        least = leading_terms(costs)
        sizes = {axis: 2**12 if size == DYNAMIC else size for axis, size in axes_of_kernel(kernel).items()}
        moving = [term for term in least.terms if term.beta != 0]
        rest = value_at(sum((t.alpha for t in least.terms if t.beta == 0), sympy.Integer(0)), sizes)
        if not moving:
            assert not least.transfer.free_symbols & set(costs.groups.values())
            whole = value_at(closed(costs.transfer("device")).subs(dict.fromkeys(costs.groups.values(), 64)), sizes)
            assert whole == pytest.approx(rest, rel=0.1)  # what is left out is an axis smaller
            continue
        (term,) = moving
        few, many = 2**24, 2**28
        low, high = (least_transfer(costs, sizes, memory) - rest for memory in (few, many))
        assert log(low / high) / log(many / few) == pytest.approx(float(term.beta), abs=0.1)
        alpha = float(term.alpha.subs({axis_symbol(axis): size for axis, size in sizes.items()}))
        assert high == pytest.approx(alpha * many ** -float(term.beta), rel=0.25)


def axes_of_kernel(kernel: KernelOp) -> dict[str, int]:
    return {axis: size for value in (*kernel.inputs, *kernel.outputs) for axis, size in sizes_of(value.type).items()}


def test_the_exponents_of_products_and_attention():
    assert leading_terms(costs_of(PRODUCT)).beta == sympy.Rational(1, 2)
    assert leading_terms(costs_of(attention("q", ""))).beta == 1


def test_choosing_sizes_does_not_import_sympy():
    program = (
        "import sys; from treadle.compiler.pipeline import Options, run_pipeline; "
        "from treadle.compiler.source import load_module; "
        f"run_pipeline(load_module({str(EXAMPLES[0])!r}), Options()); "
        "assert not {'sympy', 'rich'} & sys.modules.keys(), 'imported'"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
