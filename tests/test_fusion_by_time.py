"""What could be one kernel is cut, and products are made again, where the model finds that faster, and nowhere else;
what is computed stays the same."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache

import pytest
import random_prefixes
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation

import treadle
import treadle.language as tl
from random_diagrams import random_program
from roads import Road, compiled
from treadle.compiler.explain import explain
from treadle.compiler.machines import load_machine
from treadle.compiler.pipeline import LAST_DECORATING_PASS, Options, pipeline, run_passes, run_pipeline
from treadle.compiler.sizes import axes_of_function, default_sizes
from treadle.compiler.source import parse_module
from treadle.dialects import cuda
from treadle.dialects.diagram import ContractOp
from treadle.dialects.diagram.array import axes_of
from treadle.dialects.hierarchy import KernelOp
from treadle.dialects.hierarchy.schedule import derivation_of
from treadle.passes import fusion
from treadle.passes._functions import functions
from treadle.passes.kernels import cuts as proposals
from treadle.passes.kernels.sized import Sized
from treadle.runtime.backend import has_host_compiler
from treadle.runtime.interpreter import entry_function
from treadle.runtime.verify import verify

needs_compiler = pytest.mark.skipif(not has_host_compiler(), reason="no C++ compiler is installed")

Sizes = dict[str, int]


@treadle.kernel("t i, i o -> t o")
def activated(X: tl.Array, W: tl.Array) -> tl.Array:
    return tl.contract(tl.gelu(X.to("f32")).to("f16"), W, over="i")


@treadle.kernel("t i, i j, i j -> t j")
def normed_gate(X: tl.Array, W: tl.Array, V: tl.Array) -> tl.Array:
    x = X.to("f32")
    normal = (x * tl.rsqrt(tl.sum(x * x, over="i") + 1e-5)).to("f16")
    return tl.silu(tl.contract(normal, W, over="i")) * tl.contract(normal, V, over="i")


@treadle.kernel("t i, i o -> t o")
def converted(X: tl.Array, W: tl.Array) -> tl.Array:
    return tl.contract(X.to("f16"), W.to("f16"), over="i")


@treadle.kernel("t i -> t i")
def shares(X: tl.Array) -> tl.Array:
    return tl.softmax(X.to("f32"), over="i")


@treadle.kernel("t i, i o, t o -> t o", static="o")
def added_and_normed(X: tl.Array, W: tl.Array, R: tl.Array) -> tl.Array:
    y = tl.contract(X, W, over="i") + R
    return y * tl.rsqrt(tl.mean(y * y, over="o") + 1e-5)


@treadle.kernel("t d, d f -> t f, f", static="d f")
def activated_and_summed(X: tl.Array, W: tl.Array) -> tuple[tl.Array, tl.Array]:
    y = tl.silu(tl.contract(X, W, over="d"))
    return y, tl.sum(y, over="t")


@treadle.kernel("q d, x d, x e -> q e", static="d e")
def attention(Q: tl.Array, K: tl.Array, V: tl.Array) -> tl.Array:
    scores = tl.contract(Q, K, over="d") * 0.0625
    return tl.contract(tl.softmax(scores, over="x").to("f16"), V, over="x")


@treadle.kernel("h q d, h x d, h x e, d, d -> h q e", static="d e")
def normed_attention(Q: tl.Array, K: tl.Array, V: tl.Array, gain_q: tl.Array, gain_k: tl.Array) -> tl.Array:
    def normed(X: tl.Array, gain: tl.Array) -> tl.Array:
        x = X.to("f32")
        return (x * tl.rsqrt(tl.mean(x * x, over="d") + 1e-6) * gain).to("f16")

    scores = tl.contract(normed(Q, gain_q), normed(K, gain_k), over="d") * 0.125
    return tl.contract(tl.softmax(scores, over="x").to("f16"), V, over="x")


@treadle.kernel("n d, m d -> n, m", static="d")
def both_ways(A: tl.Array, B: tl.Array) -> tuple[tl.Array, tl.Array]:
    scores = tl.contract(A, B, over="d") * 0.25
    along, across = tl.max(scores, over="m"), tl.max(scores, over="n")
    rows = tl.log(tl.sum(tl.exp(scores - along), over="m")) + along
    return rows, tl.log(tl.sum(tl.exp(scores - across), over="n")) + across


@treadle.kernel("n d, m d, n -> n, m", static="d")
def balanced(A: tl.Array, B: tl.Array, start: tl.Array) -> tuple[tl.Array, tl.Array]:
    scores = tl.contract(A, B, over="d") * 0.25
    first = scores + start
    most = tl.max(first, over="n")
    v = -(tl.log(tl.sum(tl.exp(first - most), over="n")) + most)
    second = scores + v
    most = tl.max(second, over="m")
    return -(tl.log(tl.sum(tl.exp(second - most), over="m")) + most), v


@treadle.kernel("q d, x d, x e -> q e", static="d e")
def regression(X: tl.Array, Y: tl.Array, V: tl.Array) -> tl.Array:
    """By a Gaussian kernel of distances."""
    squares = tl.sum(X * X, over="d") + tl.sum(Y * Y, over="d")
    near = tl.exp((2 * tl.contract(X, Y, over="d") - squares) / 64)
    return tl.contract(near.to("f16"), V, over="x") / tl.sum(near, over="x")


@treadle.kernel("i j, i -> j, i j")
def balanced_columns(C: tl.Array, f: tl.Array) -> tuple[tl.Array, tl.Array]:
    """Half a step of Sinkhorn's iteration, and the plan that it gives."""
    g = -tl.logsumexp(f - C, over="i")
    return g, tl.exp(f + g - C)


@treadle.kernel("h x d -> h x d, h x, h d", static="d")
def smoothed_keys(K: tl.Array) -> tuple[tl.Array, tl.Array, tl.Array]:
    """In 8 bits, without their mean, with the scale of each: the largest of a row is no sum that others wait for."""
    mean = tl.mean(K, over="x")
    rest = K - mean
    scale = tl.maximum(tl.max(tl.abs(rest), over="d"), 1e-6) / 127
    return tl.round(rest / scale).to("i8"), scale, mean


@treadle.kernel("n c -> c", static="n c")
def variances(X: tl.Array) -> tl.Array:
    return tl.var(X, over="n")


WIDE = {"t": 16384, "i": 4096, "o": 4096}
FEW = {"t": 8, "i": 262144}
SQUARE = {"i": 4096, "j": 4096}
HEADS = {"h": 32, "q": 4096, "x": 4096, "d": 64, "e": 64}
CUT = {
    "activated on a100": (activated, ["f16"] * 2, WIDE, "a100", 2),
    "activated on h100": (activated, ["f16"] * 2, WIDE, "h100", 2),
    "normed_gate on h100": (normed_gate, ["f16"] * 3, {"t": 16384, "i": 4096, "j": 11008}, "h100", 2),
    "converted on h100": (converted, ["f32"] * 2, WIDE, "h100", 3),
    "shares on a100": (shares, ["f16"], FEW, "a100", 3),
    "shares on h100": (shares, ["f16"], FEW, "h100", 3),
    "added_and_normed on a100": (added_and_normed, ["f16"] * 3, {"t": 16384, "i": 4096, "o": 128}, "a100", 2),
    "normed_attention on a100": (normed_attention, ["f16"] * 5, HEADS, "a100", 2),
    "normed_attention on h100": (normed_attention, ["f16"] * 5, HEADS, "h100", 3),
    "activated_and_summed on h100": (activated_and_summed, ["f16"] * 2, {"t": 65536, "d": 64, "f": 128}, "h100", 3),
    "regression on h100": (regression, ["f16"] * 3, {"q": 16384, "x": 16384, "d": 64, "e": 64}, "h100", 3),
    "smoothed_keys on h100": (smoothed_keys, ["f16"], {"h": 16, "x": 8192, "d": 64}, "h100", 3),
    "balanced_columns on a100": (balanced_columns, ["f32"] * 2, SQUARE, "a100", 3),
    "balanced_columns on h100": (balanced_columns, ["f32"] * 2, SQUARE, "h100", 3),
}
"""A program, the formats of its arguments, the sizes that it states, the machine, and how many kernels: where rows are
few, the axis that is streamed is cut into parts, too."""


def text(program: treadle.language.NamedKernel, formats: list[str], sizes: Sizes, fixed: tuple[str, ...] = ()) -> str:
    return str(program.trace(formats, dict(sizes), {*program.static, *fixed}))


@lru_cache(maxsize=8)
def scheduled(source: str, machine: str) -> ModuleOp:
    module = parse_module(source)
    run_pipeline(module, Options(machine=machine), last=LAST_DECORATING_PASS)
    return module


def cuts(module: ModuleOp) -> list[str]:
    return cuts_of(entry_function(module))


def cuts_of(function: FuncOp) -> list[str]:
    steps = derivation_of(function.attributes)
    return [step.reason.data for step in steps if (step.rewrite.data, step.law.data) == ("keep apart", "cost model")]


def kernels(module: ModuleOp) -> list[KernelOp]:
    return [op for op in module.walk() if isinstance(op, KernelOp)]


def products(kernel: KernelOp) -> int:
    return sum(isinstance(op, ContractOp) for op in kernel.walk())


@pytest.mark.parametrize("case", CUT)
def test_a_cut_saves_a_tenth_and_says_so(case: str) -> None:
    program, formats, sizes, machine, count = CUT[case]
    module = scheduled(text(program, formats, sizes), machine)
    (reason,) = cuts(module)
    told = re.search(r"estimated (\S+) us apart, (\S+) us as one kernel", reason)
    assert told is not None
    apart, together = map(float, told.groups())
    assert len(kernels(module)) == count
    assert apart <= 0.9 * together
    assert explain(module, load_machine(machine)).time_us == pytest.approx(apart, rel=0.006)


@pytest.mark.parametrize("case", CUT)
def test_small_sizes_stay_one_kernel(case: str) -> None:
    program, formats, sizes, machine, _ = CUT[case]
    small = {axis: min(size, 200) for axis, size in sizes.items()}
    for fixed in ((), tuple(sizes)):
        module = scheduled(text(program, formats, small, fixed), machine)
        assert not cuts(module)
        assert len(kernels(module)) == 1


def test_a_cut_that_saves_too_little_is_told() -> None:
    program, formats, _, machine, _ = CUT["normed_attention on a100"]
    module = scheduled(text(program, formats, {**HEADS, "q": 1024, "x": 1024}), machine)
    steps = derivation_of(entry_function(module).attributes)
    (declined,) = (step for step in steps if step.rewrite.data == "decline fusion")
    told = re.search(r"estimated (\S+) us apart, (\S+) us as one kernel", declined.reason.data)
    assert told is not None
    apart, together = map(float, told.groups())
    assert apart > 0.9 * together
    assert declined.subject.data.endswith("from %mul_e, %sum_b, %rsqrt_b, %mul_h, %mul_h_f16")
    assert len(kernels(module)) == 1


@needs_compiler
@pytest.mark.parametrize("case", CUT)
def test_a_cut_computes_the_same_at_any_size(case: str) -> None:
    program, formats, sizes, machine, count = CUT[case]
    road: Road = compiled(text(program, formats, sizes), machine=machine)
    assert len(road.kernels) >= count
    for size in (
        {"t": 70, "i": 200, "o": 136, "j": 152, "h": 2, "q": 130, "x": 200},
        {"t": 33, "i": 77, "o": 45, "j": 1, "h": 1, "q": 7, "x": 331},
        {"t": 1, "i": 1000, "o": 8},
    ):
        road.check({axis: size.get(axis, 9) for axis in road.symbolic})


@needs_compiler
@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_sums_that_wait_for_others_are_cut_where_groups_are_few(machine: str) -> None:
    """No axis is cut into parts of which a sum waits for another one that no law repairs; of each alone it is."""
    sizes = {"n": 32768, "c": 64}
    source = text(variances, ["f16"], sizes)
    module = scheduled(source, machine)
    (reason,) = cuts(module)
    assert "few groups would be fed 'n' for" in reason
    assert len(kernels(module)) == 4
    road = compiled(source, machine=machine)
    (verdict,) = verify(road.algorithm, inputs := road.inputs(sizes), road.run(inputs, checks=False), "emulator")
    assert verdict.ok, verdict


AGAIN = {
    "both ways on h100": (both_ways, ["f16"] * 2, 256, "h100"),
    "balanced on a100": (balanced, ["f16", "f16", "f32"], 64, "a100"),
    "balanced on h100": (balanced, ["f16", "f16", "f32"], 64, "h100"),
}
"""A program of two kernels that need the same scores, the formats of its arguments, its depth, and the machine."""


def made_again(module: ModuleOp) -> list[str]:
    steps = derivation_of(entry_function(module).attributes)
    return [step.subject.data for step in steps if step.rewrite.data == "diagram-recompute"]


@pytest.mark.parametrize("case", AGAIN)
def test_scores_are_made_again_where_that_saves_time(case: str) -> None:
    program, formats, depth, machine = AGAIN[case]
    algorithm = text(program, formats, {"n": 16384, "m": 16384, "d": depth})
    module, saving = scheduled(algorithm, machine), parse_module(algorithm, "saving.mlir")
    assert made_again(module)
    assert all(len(axes_of(value.type)) == 1 for kernel in kernels(module) for value in kernel.outputs)
    specs = [each for each in pipeline(Options(machine=machine)) if each.name != "diagram-recompute"]
    run_passes(saving, specs[: [each.name for each in specs].index(LAST_DECORATING_PASS) + 1])
    again, saved = (explain(each, load_machine(machine)).time_us for each in (module, saving))
    assert again is not None
    assert saved is not None
    assert again <= 0.9 * saved


@needs_compiler
@pytest.mark.parametrize("case", AGAIN)
def test_what_is_made_again_is_the_same_at_any_size(case: str) -> None:
    program, formats, depth, machine = AGAIN[case]
    road = compiled(text(program, formats, {"n": 16384, "m": 16384, "d": depth}), machine=machine)
    assert len(road.kernels) >= 2
    for n, m in ((70, 90), (33, 129), (1, 200), (130, 1)):
        road.check({"n": n, "m": m})


OF_A_DIFFERENCE: dict[str, tuple[Callable[[tl.Array], tl.Array], bool]] = {
    "power": (lambda below: tl.exp(-below), True),
    "share": (lambda below: tl.exp(-below) / 3.0, True),
    "root": (tl.sqrt, False),
    "logarithm": (lambda below: tl.log(below + 1e-6), False),
    "division": (lambda below: 1.0 / (below + 1e-6), False),
    "comparison": (lambda below: tl.where(below > 0.0, 0.0, 1.0), False),
    "comparison of a maximum": (lambda below: tl.where(tl.max(below, over="n") > 0.0, below, 1.0), False),
}
"""What is made of the difference of an element and the maximum of its row, and whether it passes roundings on."""


@pytest.mark.parametrize("made", OF_A_DIFFERENCE)
def test_what_a_rounding_decides_is_made_of_one_product(made: str) -> None:
    """The maximum of one product less an element of another may be below zero by a rounding, and has no root."""
    of_a_difference, is_steady = OF_A_DIFFERENCE[made]

    @treadle.kernel("n d, m d -> n, m", static="d")
    def away_from_the_nearest(A: tl.Array, B: tl.Array) -> tuple[tl.Array, tl.Array]:
        scores = tl.contract(A, B, over="d")
        most = tl.max(scores, over="m")
        return most, tl.sum(of_a_difference(most - scores), over="n")

    module = scheduled(text(away_from_the_nearest, ["f16"] * 2, {"n": 16384, "m": 16384, "d": 64}), "h100")
    assert bool(made_again(module)) == is_steady
    assert any(len(axes_of(value.type)) == 2 for kernel in kernels(module) for value in kernel.outputs) != is_steady


def test_operands_of_attention_are_made_apart_where_warpgroups_multiply() -> None:
    """Products of warpgroups read what is brought; single warps read the left operand that they made."""
    program, formats, sizes, *_ = CUT["normed_attention on h100"]
    on_h100, on_a100 = (scheduled(text(program, formats, sizes), machine) for machine in ("h100", "a100"))
    (told,) = cuts(on_h100)
    assert "products would not be brought" in told
    assert [*map(products, kernels(on_h100))] == [0, 0, 2]
    assert [*map(products, kernels(on_a100))] == [0, 2]
    module = parse_module(text(program, formats, sizes))
    run_passes(module, pipeline(Options(machine="h100")))
    assert any(isinstance(op, cuda.RolesOp) for op in module.walk())


def test_scores_of_any_length_are_not_saved() -> None:
    """Whatever the model says: what is as large as two axes that only the launch knows has no room."""
    sizes = {"q": 16384, "x": 16384, "d": 256, "e": 256}
    module = scheduled(text(attention, ["f16"] * 3, sizes), "a100")
    assert not cuts(module)
    assert not any({"q", "x"} <= {*axes_of(value.type)} for kernel in kernels(module) for value in kernel.outputs)


def test_a_kernel_that_more_rows_would_fill_is_cut_only_if_that_never_costs() -> None:
    """Powers of 8 rows: few groups at these sizes, and as much to read at any."""
    few = scheduled(text(shares, ["f16"], FEW), "a100")
    many = scheduled(text(shares, ["f16"], {"t": 4096, "i": 262144}), "a100")
    assert cuts(few)
    assert not cuts(many)


@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_few_rows_of_fixed_sizes_are_cut_where_holding_them_takes_longer(machine: str) -> None:
    """Groups could hold rows of a fixed size whole, so no axis is streamed yet. Blocks of a cluster share a row."""
    sizes = {"t": 7, "i": 100_000}
    module = scheduled(text(shares, ["f32"], sizes, fixed=tuple(sizes)), machine)
    if machine == "h100":
        assert not cuts(module)
        assert len(kernels(module)) == 1
        return
    (told,) = cuts(module)
    assert "few groups would hold all of 'i', or be fed it again" in told
    assert len(kernels(module)) == 3


RANDOM = [range(start, start + 10) for start in range(30000, 30040, 10)]
"""Of each ten the first program that has a cut is run."""


def fewest_for_most(
    module: ModuleOp, function: FuncOp, limit: int, parts: Sequence[frozenset[Operation]], sizes: Sizes
) -> float:
    """A clock by which more parts are always faster."""
    return 1 / len(parts)


def some_sizes(function: FuncOp) -> Sizes:
    """As if the program stated them all."""
    return dict.fromkeys(axes_of_function(function), 50) | default_sizes(function)


@needs_compiler
@pytest.mark.parametrize("seeds", RANDOM, ids=lambda seeds: str(seeds.start))
def test_any_cut_that_is_tried_computes_the_same(monkeypatch: pytest.MonkeyPatch, seeds: range) -> None:
    """Random programs, small as they are, with every cut made that may be tried, through all levels."""
    limits = {"WIDEST": 1, "SLOWEST": 10**9, "MORE_MEMORY": 10**9}
    for name, value in limits.items():
        monkeypatch.setattr(proposals, name, value)
    monkeypatch.setattr(Sized, "least_time", 1.0)
    monkeypatch.setattr(fusion, "_time", fewest_for_most)
    monkeypatch.setattr(fusion, "default_sizes", some_sizes)

    def tried(seed: int) -> bool:
        text = random_program(seed)
        module = parse_module(text) if text is not None else ModuleOp([])
        run_pipeline(module, Options(machine="h100"), last="fusion")
        return any(cuts_of(function) for function in functions(module))

    seed = next(filter(tried, seeds), None)
    assert seed is not None
    assert random_prefixes.check(seed, Counter()) is None
