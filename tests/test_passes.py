"""Every pass keeps what a program computes: it is run after each pass, at sizes that divide nothing."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp, UnknownLoc
from xdsl.utils.arg_spec import ArgSpec
from xdsl.utils.exceptions import PassFailedException

from treadle.compiler.errors import TreadleError
from treadle.compiler.pipeline import make_pass, run_passes
from treadle.compiler.source import load_module, make_context, parse_module
from treadle.dialects.diagram import RecurrenceOp, SwapOp
from treadle.dialects.diagram.array import is_array, sizes_of
from treadle.dialects.hierarchy import KernelOp, StreamOp
from treadle.dialects.hierarchy.schedule import UNDECIDED, ScheduleAttr, derivation_of
from treadle.runtime.interpreter import run_function
from treadle.runtime.interpreter.run import entry_function

ROOT = Path(__file__).parent.parent
PROGRAMS = {
    path.stem: path for path in sorted([*(ROOT / "examples").glob("*.mlir"), *(ROOT / "tests/programs").glob("*.mlir")])
}
RUNNABLE = [name for name in PROGRAMS if name != "around_a_boundary"]

PASSES = (
    "diagram-expand-laws",
    "diagram-chunk-recurrences",
    "diagram-raise-scans",
    "diagram-split-orders",
    "diagram-raise-masks",
    "diagram-raise-scatters",
    "diagram-merge-axes",
    "diagram-split-depths",
    "diagram-distribute-products",
    "diagram-hoist-factors",
    "diagram-reassociate",
    "diagram-bubble-up-reads",
    "diagram-compose-maps",
    "diagram-raise-swaps",
    "diagram-copy-operands",
    "diagram-merge-free-axes",
    "diagram-merge-depths",
    "diagram-repeat-operands",
    "diagram-merge-reduced-axes",
    "diagram-tile-windows",
    "diagram-find-ranges",
    "diagram-widen-operands",
    "diagram-recompute",
    "fusion",
    "streaming",
    "tiling",
    "decide",
    "hierarchy-expand-streams",
)


def apply(module: ModuleOp, name: str, **options: str) -> None:
    if name == "decide":
        decide(module)
    else:
        make_pass(ArgSpec(name, {key: (value,) for key, value in options.items()})).apply(make_context(), module)
    module.verify()


def kernels(module: ModuleOp) -> list[KernelOp]:
    return [op for op in module.walk() if isinstance(op, KernelOp)]


def decide(module: ModuleOp, group: int = 4, stream: int = 5) -> None:
    """Sizes that divide nothing, so that there are edges everywhere; of a recurrence one position at a time."""
    for kernel in kernels(module):
        piece = 1 if any(isinstance(op, RecurrenceOp) for op in kernel.body.block.ops) else stream
        old = kernel.schedule
        assert old is not None
        assert UNDECIDED not in old.whole.as_dict().values()
        swapped = {op.axis.data: 2 * op.length for op in kernel.walk() if isinstance(op, SwapOp)}
        groups = {axis: swapped.get(axis, group) for axis in old.group.as_dict()}
        streams = dict.fromkeys(old.stream.as_dict(), piece)
        kernel.properties["schedule"] = ScheduleAttr(groups, streams, old.whole.as_dict())


@lru_cache(16)
def _lowered(name: str, last: str, sizes: str) -> ModuleOp:
    module = load_module(PROGRAMS[name])
    if sizes:
        make_pass(ArgSpec("diagram-set-sizes", {"sizes": tuple(sizes.split(","))})).apply(make_context(), module)
    for step in PASSES[: PASSES.index(last) + 1]:
        apply(module, step)
    return module


def lowered(name: str, last: str = PASSES[-1], sizes: str = "") -> ModuleOp:
    """A program after the pass `last`; whoever asks may change it."""
    return _lowered(name, last, sizes).clone()


def small(sizes: Mapping[str, int]) -> dict[str, int]:
    """Sizes of a program, small and odd."""
    return {axis: size if size < 40 else 13 + size % 12 for axis, size in sizes.items()}


def inputs(module: ModuleOp, sizes: Mapping[str, int], seed: int = 0) -> list[np.ndarray]:
    function = entry_function(module)
    random = np.random.default_rng(seed)
    given = []
    for argument in function.body.block.args:
        shape = [sizes[axis] if size < 0 else size for axis, size in sizes_of(argument.type).items()]
        given.append(random.standard_normal(shape) if is_array(argument.type) else np.float64(-0.7))
    return given


def default_sizes(module: ModuleOp) -> dict[str, int]:
    sizes = entry_function(module).attributes.get("sizes")
    return sizes.as_dict() if sizes is not None else {}


def steps(module: ModuleOp, rewrite: str = "") -> list[tuple[str, str, str, str]]:
    texts = [step.texts() for step in derivation_of(entry_function(module).attributes)]
    return [text for text in texts if rewrite in ("", text[0])]


@lru_cache(4)
def after_each_pass(name: str) -> list[tuple[str, ModuleOp]]:
    """A program before the first pass and after each; not to be changed."""
    module = load_module(PROGRAMS[name])
    found = [("nothing", module.clone())]
    for step in PASSES:
        apply(module, step)
        found.append((step, module.clone()))
    return found


def check(name: str, sizes: Mapping[str, int], given: list[np.ndarray]) -> None:
    (_, first), *others = after_each_pass(name)
    wanted = run_function(first, given, sizes=sizes).results
    for step, module in others:
        got = run_function(module, given, sizes=sizes).results
        for i, (one, other) in enumerate(zip(wanted, got, strict=True)):
            np.testing.assert_allclose(other, one, rtol=1e-9, atol=1e-9, err_msg=f"result {i} after {step}")


@pytest.mark.sample(14)
@pytest.mark.parametrize("name", RUNNABLE)
def test_every_pass_keeps_the_results(name: str) -> None:
    module = load_module(PROGRAMS[name])
    sizes = small(default_sizes(module))
    check(name, sizes, inputs(module, sizes))


@pytest.mark.sample(9)
@pytest.mark.parametrize("name", RUNNABLE)
def test_an_empty_axis(name: str) -> None:
    """Each symbolic axis in turn has no element."""
    module = load_module(PROGRAMS[name])
    for axis in default_sizes(module):
        sizes = {**small(default_sizes(module)), axis: 0}
        with np.errstate(all="ignore"):
            check(name, sizes, inputs(module, sizes))


# -- rows of -inf -----------------------------------------------------------------------------------------------------


def test_rows_of_minus_infinity_followed_by_finite_chunks() -> None:
    """Where the plain form is defined the streamed one is, and they agree."""
    name = "biased_attention"
    sizes = {"q": 9, "x": 37}
    given = inputs(load_module(PROGRAMS[name]), sizes)
    bias = given[3]
    bias[0, :5] = -np.inf  # the first chunk of the stream
    bias[1, :21] = -np.inf  # several
    bias[2, 30:] = -np.inf  # the last
    bias[3, ::2] = -np.inf
    bias[4, :] = -300.0  # finite, and far from what stands for a neutral state
    bias[5, :35] = -np.inf
    bias[5, 35:] = -1000.0
    wanted = run_function(load_module(PROGRAMS[name]), given).results
    assert all(np.isfinite(result).all() for result in wanted)
    with np.errstate(invalid="raise"):
        got = run_function(lowered(name), given).results
    for one, other in zip(wanted, got, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-9)


def test_a_negative_runtime_scale() -> None:
    sizes = {"q": 9, "x": 37}
    given = inputs(load_module(PROGRAMS["runtime_scale"]), sizes)
    for scale in (-3.0, 0.0, 2.5):
        check("runtime_scale", sizes, [*given[:3], np.float64(scale)])


# -- what is derived --------------------------------------------------------------------------------------------------


def laws(name: str) -> dict[str, str]:
    """Law by value, as `streaming` recorded it, of what is fed along an axis."""
    found = steps(lowered(name, "streaming"), "streaming")
    return {subject.split()[0]: law for _, subject, law, _ in found if " along " in subject}


def test_online_softmax_is_derived() -> None:
    assert laws("attention") == {"%S_max": "associativity of max", "%l": "cascade", "%A_sum": "cascade"}
    assert len(kernels(lowered("attention", "fusion"))) == 1


def test_one_stream_of_attention_holds_everything() -> None:
    module = lowered("attention")
    streams = [op for op in module.walk() if isinstance(op, StreamOp)]
    assert len(streams) == 1
    hints = [op.results[0].name_hint for op in streams[0].step.block.ops if op.results]
    assert hints == [
        "K_piece",
        "S",
        "S_max_new",
        "S_max_safe",
        "e",
        "repair",
        "l_repaired",
        "l_new",
        "P16",
        "V_piece",
        "A_sum_repaired",
        "A_sum_new",
    ]


@pytest.mark.parametrize(
    ("name", "law"),
    [
        ("softmax", {"%m": "associativity of max", "%l": "cascade", "%P": "recomputation"}),
        ("log_sum_exp", {"%m": "associativity of max", "%l": "cascade"}),
        ("sigmoid_attention", {"%l": "associativity of add", "%O": "cascade"}),
        ("rms_norm_product", {"%total": "associativity of add", "%Y_sum": "linearity of the contraction"}),
        ("rms_gain_product", {"%total": "associativity of add", "%Y": "recomputation"}),
        ("variance", {"%total": "associativity of add", "%v": "recomputation", "%N": "recomputation"}),
        ("negative_scale", {"%m": "associativity of max", "%l": "recomputation", "%n": "associativity of max"}),
        ("spherical_attention", {"%n": "associativity of add", "%O_sum": "linearity of the contraction"}),
    ],
)
def test_laws(name: str, law: dict[str, str]) -> None:
    assert laws(name) == law


def test_a_stream_for_each_round() -> None:
    def streams(name: str) -> int:
        return sum(isinstance(op, StreamOp) for op in lowered(name).walk())

    assert streams("attention") == 1
    assert streams("softmax") == 2
    assert streams("variance") == 3
    assert streams("sin2cos2") == 0


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("matmul_epilogue", 1),
        ("batched_matmul", 1),
        ("two_kernels", 2),
        ("mlp", 1),
        ("sin2cos2", 1),
        ("biased_attention", 1),
        ("weights_too", 1),
        ("around_a_boundary", 2),
        ("sum_of_squares", 2),
    ],
)
def test_count_of_kernels(name: str, count: int) -> None:
    module = lowered(name, "fusion")
    assert len(kernels(module)) == count
    names = [kernel.kernel_name.data for kernel in kernels(module)]
    function = entry_function(module).sym_name.data
    assert names == ([function] if count == 1 else [f"{function}_{n + 1}" for n in range(count)])


@pytest.mark.parametrize("name", PROGRAMS)
def test_only_what_is_used_outside_leaves_a_kernel(name: str) -> None:
    for kernel in kernels(lowered(name, "fusion")):
        assert all(output.uses for output in kernel.outputs)


def test_a_static_axis_needs_no_guard() -> None:
    assert "diagram.extent" in str(lowered("attention"))
    assert "diagram.extent" not in str(lowered("attention", sizes="x=333"))
    assert "diagram.extent" in str(lowered("attention", sizes="x=0"))


@pytest.mark.parametrize("name", ["attention", "two_kernels", "rms_norm_product", "variance"])
def test_static_sizes(name: str) -> None:
    """All sizes static: other axes are whole or streamed, the results are the same."""
    plain = load_module(PROGRAMS[name])
    sizes = small(default_sizes(plain))
    given = inputs(plain, sizes)
    wanted = run_function(plain, given, sizes=sizes).results
    got = run_function(lowered(name, sizes=",".join(f"{a}={n}" for a, n in sizes.items())), given).results
    for one, other in zip(wanted, got, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-9, atol=1e-9)


# -- refusals ---------------------------------------------------------------------------------------------------------


def test_streaming_refuses_what_is_not_reduced() -> None:
    module = lowered("attention", "fusion")
    with pytest.raises(PassFailedException, match="axis 'q' is reduced in no kernel"):
        apply(module, "streaming", axis="q")
    with pytest.raises(PassFailedException, match="no kernel @nothing"):
        apply(module, "streaming", kernel="nothing")
    with pytest.raises(PassFailedException, match=r"cannot stream 'd'.*known only at launch"):
        apply(module, "streaming", axis="d")


def test_tiling_refuses_what_is_not_weaved() -> None:
    module = lowered("attention", "streaming")
    with pytest.raises(PassFailedException, match="axis 'x' is reduced by %S_max"):
        apply(module, "tiling", axis="x")
    with pytest.raises(PassFailedException, match="axis 'e' is not in the product %S"):
        apply(module, "tiling", axis="e")
    with pytest.raises(PassFailedException, match="there is no axis 'z'"):
        apply(module, "tiling", axis="z")


def test_an_undecided_schedule_is_not_expanded() -> None:
    with pytest.raises(PassFailedException, match="not decided"):
        apply(lowered("attention", "tiling"), "hierarchy-expand-streams")


def test_unknown_law() -> None:
    text = PROGRAMS["softmax"].read_text().replace("@softmax(", "@sparsemax(")
    with pytest.raises(PassFailedException, match=r"no law for .sparsemax. on axis .x.: .*known laws: .*softmax"):
        apply(parse_module(text), "diagram-expand-laws")


def test_why_kernels_are_kept_apart() -> None:
    [(_, subject, law, reason)] = steps(lowered("two_kernels", "fusion"), "keep apart")
    assert subject == "%Y from %Z, %relu, %H"
    assert law == "no role for an axis"
    assert reason.startswith("'i', reduced by %Z, and 'j', reduced by %Y, are both known only at launch")


# -- locations and names ----------------------------------------------------------------------------------------------


@pytest.mark.sample(22)
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_operation_has_a_location(name: str) -> None:
    for op in lowered(name).walk():
        if op.name.startswith(("diagram.", "hierarchy.")) and not op.name.endswith("yield"):
            assert not isinstance(op.location, UnknownLoc), op


@pytest.mark.sample(9)
@pytest.mark.parametrize("name", RUNNABLE)
def test_only_the_ir_carries_state(name: str) -> None:
    """One process a pass: printed and read again after each, the result is the same."""
    module = load_module(PROGRAMS[name])
    for step in PASSES:
        module = parse_module(str(module))
        apply(module, step)
    assert str(module) == str(lowered(name))


# -- short axes and many rounds ---------------------------------------------------------------------------------------

ROWS = "tensor<?x{n}xf32, #diagram.array<[t, i]>>"


def repeated_softmax(n: str, rounds: int) -> str:
    rows = ROWS.format(n=n)
    lines = [f"%v{i + 1} = diagram.apply @softmax(%v{i}) over [i] : ({rows}) -> {rows}" for i in range(rounds)]
    body = "\n".join(lines)
    return f"func.func @f(%v0: {rows}) -> {rows} {{\n{body}\nfunc.return %v{rounds} : {rows}\n}}"


def test_a_short_axis_is_held_whole_rather_than_fed_again() -> None:
    module = parse_module(repeated_softmax("64", 5))
    for step in PASSES:
        apply(module, step)
    [kernel] = kernels(module)
    assert kernel.schedule is not None
    assert kernel.schedule.whole.as_dict() == {"i": 64}
    assert not any(isinstance(op, StreamOp) for op in module.walk())


def test_a_long_axis_is_not_fed_without_end() -> None:
    given = [np.random.default_rng(3).standard_normal((5, 23))]
    wanted = run_function(parse_module(repeated_softmax("?", 5)), given).results
    module = parse_module(repeated_softmax("?", 5))
    for step in PASSES:
        apply(module, step)
    streams = [sum(isinstance(op, StreamOp) for op in kernel.walk()) for kernel in kernels(module)]
    assert len(streams) > 1
    assert max(streams) == 3
    assert any("would be fed 4 times" in reason for *_, reason in steps(module, "keep apart"))
    np.testing.assert_allclose(run_function(module, given).results[0], wanted[0], rtol=1e-9)


def test_integers_and_constants() -> None:
    """A maximum and a sum of integers along a stream, and a constant array that leaves the function."""
    text = """
!X = tensor<?x?xi32, #diagram.array<[i, j]>>
!r = tensor<?xi32, #diagram.array<[i]>>
!c = tensor<?xf32, #diagram.array<[i]>>
func.func @f(%X: !X) -> (!r, !r, !c) {
  %m = diagram.reduce max %X over [j] : !X -> !r
  %D = diagram.map (%x = %X : !X, %r = %m : !r) -> !X {
    %d = arith.subi %x, %r : i32
    diagram.yield %d : i32
  }
  %s = diagram.reduce add %D over [j] : !X -> !r
  %c = diagram.fill 2.0 : f32 -> !c
  func.return %m, %s, %c : !r, !r, !c
}
"""
    given = [np.random.default_rng(3).integers(-9, 9, (5, 23))]
    wanted = run_function(parse_module(text), given).results
    module = parse_module(text)
    for step in PASSES:
        apply(module, step)
    for one, other in zip(wanted, run_function(module, given).results, strict=True):
        np.testing.assert_array_equal(other, one)


@pytest.mark.parametrize(
    "name",
    [
        "warp-specialization",
        "pipelining",
        "cuda-store-tensors",
        "cuda-persist",
        "cuda-overlap-pieces",
        "cuda-ping-pong",
        "cuda-speculate",
        "coalescing",
    ],
)
def test_a_pass_on_kernels_of_threads_refuses_what_is_above(name: str) -> None:
    module = load_module(ROOT / "examples" / "softmax.mlir")
    run_passes(module, [ArgSpec("set-machine", {"name": ("h100",)})])
    with pytest.raises(TreadleError, match="is not lowered to threads yet: run convert-hierarchy-to-cuda"):
        run_passes(module, [ArgSpec(name, {})])
