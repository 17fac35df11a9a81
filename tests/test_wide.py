"""Kernels whose groups hold a long axis whole, or repeat a product along columns that none holds: made where the model
finds them no slower than two, what they do again is told and counted, and what is computed stays the same."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
import test_counts
import test_counts_clusters
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.arg_spec import ArgSpec

from roads import Road, compiled
from treadle.compiler.explain import explain
from treadle.compiler.machines import load_machine
from treadle.compiler.pipeline import LAST_DECORATING_PASS, Options, pipeline, run_passes, run_pipeline
from treadle.compiler.source import parse_module
from treadle.dialects.diagram.operation import DiagramOperation
from treadle.dialects.hierarchy import KernelOp
from treadle.dialects.hierarchy.schedule import derivation_of
from treadle.passes._parts import part_of
from treadle.passes.kernels.roles import WHOLE_LIMIT, Refusal, not_grouped, part_of_kernel, repeated_products, roles_of
from treadle.passes.kernels.short_parts import GRANULE, lengths
from treadle.runtime.backend import has_host_compiler
from treadle.runtime.interpreter import entry_function

needs_compiler = pytest.mark.skipif(not has_host_compiler(), reason="no C++ compiler is installed")

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"

LOG_SUM_EXP = """
!X = tensor<?x{d}xf16, #diagram.array<[t, d]>>
!W = tensor<{v}x{d}xf16, #diagram.array<[v, d]>>
!S = tensor<?x{v}xf32, #diagram.array<[t, v]>>
!L = tensor<?xf32, #diagram.array<[t]>>

func.func @loss(%X: !X, %W: !W) -> !L attributes {{sizes = #diagram.sizes<t = 8192{stated}>}} {{
  %S = diagram.contract %X, %W over [d] accumulate f32 : !X, !W -> !S
  %m = diagram.reduce max %S over [v] : !S -> !L
  %E = diagram.map (%s = %S : !S, %top = %m : !L) -> !S {{
    %z = arith.subf %s, %top : f32
    %e = math.exp %z : f32
    diagram.yield %e : f32
  }}
  %l = diagram.reduce add %E over [v] : !S -> !L
  %L = diagram.map (%top = %m : !L, %sum = %l : !L) -> !L {{
    %log = math.log %sum : f32
    %y = arith.addf %top, %log : f32
    diagram.yield %y : f32
  }}
  func.return %L : !L
}}
"""


def attention(name: str, d: int, e: int, size: int = 4096) -> str:
    """An example of attention with heads of these widths, at a long size."""
    text = (EXAMPLES / f"{name}.mlir").read_text(encoding="utf-8")
    for axis, width in (("d", d), ("e", e)):
        text = re.sub(rf"x64x(f\d+, #diagram\.array<\[[^]]*, {axis}\]>)", rf"x{width}x\1", text)
    return re.sub(r"\b(q|x) = \d+", rf"\1 = {size}", text)


def log_sum_exp(d: int, v: int | None) -> str:
    stated = ", v = 50257" if v is None else ""
    return LOG_SUM_EXP.format(d=d, v="?" if v is None else v, stated=stated)


def scheduled(text: str, machine: str) -> ModuleOp:
    module = parse_module(text)
    run_pipeline(module, Options(machine=machine), last=LAST_DECORATING_PASS)
    return module


@cache
def road(text: str, machine: str) -> Road:
    return compiled(text, machine=machine)


def kernels(module: ModuleOp) -> list[KernelOp]:
    return [op for op in module.walk() if isinstance(op, KernelOp)]


def told(module: ModuleOp, rewrite: str, law: str = "cost model") -> list[str]:
    steps = (step.texts() for step in derivation_of(entry_function(module).attributes))
    return [reason for each, _, of, reason in steps if (each, of) == (rewrite, law)]


HELD = "a group holds all {} of 'd'"
REPEATED = "every group along 'e' repeats %S"
TOGETHER = {
    "a long depth on h100": (attention("attention", 512, 128), "h100", [HELD.format(512)]),
    "long rows of values on h100": (attention("attention", 256, 512), "h100", [REPEATED]),
    "both on h100": (attention("attention", 320, 320), "h100", [REPEATED, HELD.format(320)]),
    "a window on a100": (attention("attention_window", 320, 320), "a100", [REPEATED, HELD.format(320)]),
    "a window on h100": (attention("attention_window", 320, 320), "h100", [REPEATED, HELD.format(320)]),
    "causal on h100": (attention("attention_causal", 320, 320), "h100", [REPEATED, HELD.format(320)]),
    "lengths on h100": (attention("attention_lengths", 320, 320), "h100", [REPEATED, HELD.format(320)]),
    "log-sum-exp on h100": (log_sum_exp(512, None), "h100", [HELD.format(512)]),
}
"""A program of two kernels otherwise, the machine, and what its one kernel does."""

APART = {
    "both on a100": (attention("attention", 320, 320), "a100", [REPEATED, HELD.format(320)]),
    "twice as wide on h100": (attention("attention", 512, 512), "h100", [REPEATED, HELD.format(512)]),
    "log-sum-exp on a100": (log_sum_exp(512, None), "a100", [HELD.format(512)]),
}

IN_PARTS = {
    "on a100": (log_sum_exp(768, 50304), "a100", 128),
    "on h100": (log_sum_exp(768, 50304), "h100", 192),
    "the last one longer on a100": (log_sum_exp(768, 50257), "a100", 72),
    "the last one longer on h100": (log_sum_exp(768, 50257), "h100", 201),
    "of a depth that nothing holds": (log_sum_exp(4096, 50304), "h100", 192),
}
"""A program, the machine, and the length of the parts that groups hold whole."""


def times(reason: str) -> tuple[float, float]:
    found = re.search(r"estimated (\S+) us together, (\S+) us apart", reason)
    assert found is not None
    return float(found[1]), float(found[2])


@pytest.mark.parametrize("case", TOGETHER)
def test_one_kernel_is_made_where_it_takes_no_more_time(case: str) -> None:
    text, machine, done = TOGETHER[case]
    module = scheduled(text, machine)
    (kernel,), (reason,) = kernels(module), told(module, "fusion")
    together, apart = times(reason)
    assert together <= apart
    assert explain(module, load_machine(machine)).time_us == pytest.approx(together, rel=0.006)
    assert reason.startswith("; ".join(done))
    part, schedule = part_of_kernel(kernel), kernel.schedule
    assert schedule is not None
    assert [axis for axis in schedule.group.as_dict() if repeated_products(part, axis)] == ["e"] * (REPEATED in done)
    repeats = told(module, "tiling", "group partition: weaved over it")
    assert sum("each group repeats %S" in reason for reason in repeats) == (REPEATED in done)


@pytest.mark.parametrize("case", APART)
def test_two_kernels_stay_apart_where_one_takes_longer(case: str) -> None:
    text, machine, done = APART[case]
    module = scheduled(text, machine)
    (reason,) = told(module, "keep apart")
    together, apart = times(reason)
    assert together > apart
    assert explain(module, load_machine(machine)).time_us == pytest.approx(apart, rel=0.006)
    assert reason.startswith("; ".join(done))
    assert len(kernels(module)) == 2


@pytest.mark.parametrize("case", IN_PARTS)
def test_parts_are_held_whole_where_a_depth_is_not(case: str) -> None:
    text, machine, length = IN_PARTS[case]
    module = scheduled(text, machine)
    parts, merge = kernels(module)
    schedule, merging = parts.schedule, merge.schedule
    assert schedule is not None
    assert merging is not None
    assert list(schedule.stream.as_dict()) == ["d"]
    assert length <= schedule.whole.as_dict()["v_in"] < length + 16
    assert "v_part" in {**merging.stream.as_dict(), **merging.whole.as_dict()}
    (reason,) = (each for each in told(module, "hierarchy-split-streams", "merge of %m, %l") if each)
    assert "short enough to be held whole" in reason
    together, apart = times(told(module, "fusion")[0])
    assert together <= apart


def test_sizes_that_nobody_states_leave_two_kernels() -> None:
    """At which the one kernel might take longer."""
    text = re.sub(r" *attributes \{sizes[^}]*\}", "", attention("attention", 320, 320))
    assert len(kernels(scheduled(text, "h100"))) == 2


def test_what_somebody_asks_for_is_made_whatever_it_takes() -> None:
    text, machine, _ = APART["log-sum-exp on a100"]
    module, specs = parse_module(text), list(pipeline(Options(machine=machine)))
    names = [each.name for each in specs]
    specs[names.index("fusion")] = ArgSpec("fusion", {"operations": ("m", "E", "l", "L")})
    run_passes(module, specs[: names.index("fusion") + 1])
    assert len(kernels(module)) == 1


def test_an_axis_that_groups_can_hold_repeats_nothing() -> None:
    (kernel,) = kernels(scheduled(attention("attention", 256, 256, 16384), "h100"))
    part = part_of_kernel(kernel)
    assert not_grouped(part, "e", WHOLE_LIMIT) is not None
    assert not repeated_products(part, "e")
    assert roles_of(part) == roles_of(part, wide=True)


def test_what_a_result_lacks_is_never_cut() -> None:
    """Every group would save it again: a log-sum-exp beside the values has none of their columns, of which there are
    more than several warps share."""
    module = parse_module(attention("attention_lse", 320, 768))
    run_pipeline(module, Options(machine="h100"), last="diagram-compose-maps")
    part = part_of(op for op in module.walk() if isinstance(op, DiagramOperation) and op.results)
    roles = roles_of(part, wide=True)
    assert isinstance(roles, Refusal)
    assert "which every group of it would save again; a group would hold all of it" in roles.reason


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("size", [333, 500, 512, 600, 1061, 32000, 50257, 50304, 151936])
def test_parts_that_groups_hold(size: int, whole: bool) -> None:
    """The last one, too, and in whole columns of products where tensor maps describe it."""
    found = list(lengths(size, whole))
    assert found
    for length in found:
        longest = size - (size // length - 1) * length
        assert length <= longest <= WHOLE_LIMIT
        assert not whole or longest % GRANULE == 0


SIZES = [{"q": 67, "x": 333}, {"q": 3, "x": 1}, {"q": 130, "x": 0}, {"q": 200, "x": 256}]


@needs_compiler
@pytest.mark.parametrize("case", [*TOGETHER, *APART])
def test_the_same_is_computed_at_any_size(case: str) -> None:
    text, machine, _ = (TOGETHER | APART)[case]
    made = road(text, machine)
    for size in SIZES:
        given = size | {"t": size["q"], "v": size["x"]}
        made.check({axis: given.get(axis, 2) for axis in made.symbolic})


@needs_compiler
@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("v", [600, 1061])
def test_parts_compute_the_same_at_any_size(machine: str, v: int) -> None:
    made = road(log_sum_exp(768, v).replace("t = 8192", "t = 65536"), machine)
    assert any("parts" in op.sym_name.data for op in made.kernels)
    for t in (67, 3, 0, 128):
        made.check({"t": t})


@needs_compiler
@pytest.mark.parametrize("kind", ["dividing", "odd"])
@pytest.mark.parametrize("name", ["attention_window", "log_sum_exp"])
def test_counts_of_repeated_products_are_predicted(name: str, kind: str, tmp_path: Path) -> None:
    """On an A100, where threads copy and load: values, bytes, matrix reads and products."""
    path = tmp_path / f"{name}.mlir"
    text = (
        log_sum_exp(768, 1152).replace("t = 8192", "t = 65536") if name == "log_sum_exp" else attention(name, 320, 320)
    )
    path.write_text(text, encoding="utf-8")
    test_counts.test_interpreter_counts_what_is_predicted(path, kind)
    test_counts.test_emulator_counts_what_is_predicted(path, kind)


@needs_compiler
@pytest.mark.parametrize("kind", ["dividing", "odd"])
@pytest.mark.parametrize("axis", ["q", "e"])
def test_blocks_that_repeat_a_product_bring_each_other_its_operands(axis: str, kind: str, tmp_path: Path) -> None:
    """On an H100, in clusters along the rows, which share keys and values, and along the columns of the result, which
    share queries and keys."""
    path = tmp_path / "attention.mlir"
    path.write_text(attention("attention", 320, 320), encoding="utf-8")
    test_counts_clusters.hold_counts_against_predictions(str(path.with_suffix("")), ((axis, 2),), kind)
