"""Rows that a block holds whole, or is fed with several warps along them: each element is loaded once where that is
possible, warps that share a row exchange their parts of what is reduced, and the results are those of the reference."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from roads import Road, compiled
from treadle.compiler.cost import plan_of
from treadle.compiler.cost.levels.memory import footprint
from treadle.compiler.explain import explain
from treadle.compiler.machines import load_machine
from treadle.compiler.pipeline import (
    LAST_DECORATING_PASS,
    Options,
    pipeline,
    print_cuda,
    run_passes,
    run_pipeline,
)
from treadle.compiler.source import parse_module
from treadle.dialects import cuda
from treadle.dialects.cuda import kernel_names
from treadle.dialects.hierarchy import KernelOp
from treadle.passes.kernels.roles import ROW_LIMIT, Refusal, part_of_kernel, roles_of
from treadle.runtime.backend import has_host_compiler
from treadle.runtime.emulator.backend import EmulatorBackend
from treadle.runtime.emulator.errors import EmulationError
from treadle.runtime.host import execute

needs_compiler = pytest.mark.skipif(not has_host_compiler(), reason="no C++ compiler is installed")

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
MACHINES = ("a100", "h100")
STREAMING = ("streaming", "hierarchy-split-streams")
"""The passes that feed a kernel a row in pieces, or cut it."""
ONE_PASS = ("softmax", "log_softmax", "rms_norm", "layer_norm")
"""Programs of rows that save as much as they load."""


def static(name: str, size: int, rows: int = 8192) -> str:
    """An example of rows with so many elements, known when it is compiled, and so many rows by default."""
    text = (EXAMPLES / f"{name}.mlir").read_text()
    (row, axis), sizes = axes_of_example(name)

    def with_size(found: re.Match[str]) -> str:
        axes = [each.strip() for each in found[3].split(",")]
        extents = [str(size) if each == axis else "?" for each in axes]
        return f"tensor<{'x'.join([*extents, found[2]])}, #diagram.array<[{found[3]}]"

    text = re.sub(r"tensor<((?:\?x)+)(\w+), #diagram\.array<\[([^\]]*)\]", with_size, text)
    return text.replace(f"#diagram.sizes<{sizes}>", f"#diagram.sizes<{row} = {rows}>")


def symbolic(name: str, size: int, rows: int = 16384) -> str:
    """An example of rows of any length, compiled for so many elements."""
    (row, axis), sizes = axes_of_example(name)
    text = (EXAMPLES / f"{name}.mlir").read_text()
    return text.replace(f"#diagram.sizes<{sizes}>", f"#diagram.sizes<{row} = {rows}, {axis} = {size}>")


def axes_of_example(name: str) -> tuple[tuple[str, str], str]:
    found = re.search(r"#diagram\.sizes<([^>]*)>", (EXAMPLES / f"{name}.mlir").read_text())
    assert found is not None
    row, axis = (each.split("=")[0].strip() for each in found[1].split(","))
    return (row, axis), found[1]


@cache
def road(text: str, machine: str) -> Road:
    return compiled(text, machine=machine)


def kernels_of(text: str, machine: str) -> Iterator[KernelOp]:
    module = parse_module(text, "rows")
    run_pipeline(module, Options(machine=machine), last=LAST_DECORATING_PASS)
    yield from (op for op in module.walk() if isinstance(op, KernelOp))


# -- what is loaded ---------------------------------------------------------------------------------


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    ("name", "size"),
    [*((name, size) for name in ONE_PASS for size in (257, 1000, 4096, 8192)), ("softmax", 16384), ("softmax", 32768)],
)
def test_rows_are_loaded_once(name: str, size: int, machine: str) -> None:
    """A row is loaded once and saved once: nothing but that crosses, beside a number for each column."""
    module = parse_module(static(name, size), name)
    run_pipeline(module, Options(machine=machine), last=LAST_DECORATING_PASS)
    (row, axis), _ = axes_of_example(name)
    (kernel,) = explain(module, load_machine(machine), {row: 8192}).kernels
    assert kernel.stream == []
    plan = plan_of(next(op for op in module.walk() if isinstance(op, KernelOp)))
    of_rows = [each for each in plan.transfers if set(each.axes) == {row, axis}]
    assert sorted(each.saves for each in of_rows) == [False, True]
    assert all(each.values({row: 8192, axis: size}) == 8192 * size for each in of_rows)


@pytest.mark.parametrize(("machine", "size"), [("a100", 65536), ("h100", ROW_LIMIT + 1)])
def test_a_row_that_nothing_holds_is_streamed(machine: str, size: int) -> None:
    """65536 numbers of f32 are more than a multiprocessor holds; clusters hold more (`test_rows_clusters`)."""
    (kernel,) = kernels_of(static("softmax", size), machine)
    assert kernel.schedule is not None
    assert list(kernel.schedule.stream.as_dict()) == ["x"]


def test_two_long_axes_are_not_both_held() -> None:
    text = """
    !A = tensor<1024x1024xf32, #diagram.array<[a, b]>>
    !a = tensor<1024xf32, #diagram.array<[a]>>
    !s = tensor<f32, #diagram.array<[]>>
    func.func @f(%A: !A) -> !s {
      %m = diagram.reduce max %A over [b] : !A -> !a
      %s = diagram.reduce add %m over [a] : !a -> !s
      func.return %s : !s
    }
    """
    module = parse_module(text, "two")
    run_pipeline(module, Options(machine="h100"), last="fusion")
    for kernel in (op for op in module.walk() if isinstance(op, KernelOp)):
        roles = roles_of(part_of_kernel(kernel))
        assert not isinstance(roles, Refusal)
        assert np.prod(list(roles.whole.values()), dtype=int) <= ROW_LIMIT


@pytest.mark.parametrize("machine", MACHINES)
def test_what_a_row_was_read_for_stays_in_l2(machine: str) -> None:
    """Of rows of any length, so few are under way that a second stream finds them in L2: several warps share each."""
    (kernel,) = kernels_of(symbolic("softmax", 16384), machine)
    assert kernel.schedule is not None
    warps, group = kernel.schedule.warps.as_dict(), kernel.schedule.group.as_dict()
    assert warps.get("x", 1) > 1
    limits, under_way = load_machine(machine), group["row"] * 16384 * 4
    blocks = footprint(plan_of(kernel), limits).blocks_on(limits)
    assert 2 * limits.sms * blocks * under_way <= limits.levels["l2"].capacity


# -- right ------------------------------------------------------------------------------------------


@needs_compiler
@pytest.mark.sample(8)
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("rows", [1, 3, 8])
@pytest.mark.parametrize("size", [257, 1000, 1024, 4097, 12345])
@pytest.mark.parametrize("name", [*ONE_PASS, "softmax_bounded"])
def test_rows_held_whole_equal_the_reference(name: str, size: int, rows: int, machine: str) -> None:
    (row, _), _ = axes_of_example(name)
    road(static(name, size), machine).check({row: rows}, seed=size)


@needs_compiler
@pytest.mark.sample(6)
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("size", [1, 127, 1000, 8192, 8193, 20000])
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_streams_along_which_warps_lie_equal_the_reference(name: str, size: int, machine: str) -> None:
    found = road(symbolic(name, 16384), machine)
    assert any(isinstance(op, cuda.PartsOp) for op in found.module.walk())
    found.check({"row": 3, "x": size}, seed=size)


@needs_compiler
@pytest.mark.parametrize("machine", MACHINES)
def test_rows_equal_pytorch(machine: str) -> None:
    found = road(static("softmax", 4097), machine)
    given = np.random.default_rng(5).standard_normal((5, 4097)).astype(np.float32) * 8
    (made,) = found.run([given])
    wanted = torch.softmax(torch.from_numpy(given).double(), -1).numpy()
    np.testing.assert_allclose(made, wanted, rtol=3e-6, atol=1e-9)


@needs_compiler
@pytest.mark.parametrize("machine", MACHINES)
def test_rows_of_rare_values(machine: str) -> None:
    """What stands beyond the end of a row for nothing is no element: of a row of -inf there is no number, as in the
    plain form, and of any other there is."""
    found = road(static("softmax", 1000), machine)
    given = np.full((4, 1000), -np.inf, np.float32)
    given[1, 999] = 3
    given[2] = -3e38
    given[3, ::7] = np.nan
    with np.errstate(invalid="ignore"):
        (made,) = found.run([given])
    assert np.isnan(made[0]).all()
    assert made[1, 999] == 1
    assert not made[1, :999].any()
    np.testing.assert_allclose(made[2], np.full(1000, 1e-3), rtol=1e-6)
    assert np.isnan(made[3]).all()


SUM_OF_POWERS = """
!A = tensor<?x{size}xf32, #diagram.array<[row, x]>>
!n = tensor<?xi32, #diagram.array<[row]>>
!r = tensor<?xf32, #diagram.array<[row]>>
func.func @sums(%A: !A, %n: !n) -> !r attributes {{sizes = #diagram.sizes<row = 8192>}} {{
  %S = diagram.where %A if "{condition}" with (n = %n : !n) : !A
  %m = diagram.reduce max %S over [x] : !A -> !r
  %E = diagram.map (%s = %S : !A, %top = %m : !r) -> !A {{
    %z = arith.subf %s, %top : f32
    %e = math.exp %z : f32
    diagram.yield %e : f32
  }}
  %l = diagram.reduce add %E over [x] : !A -> !r
  func.return %l : !r
}}
"""


@needs_compiler
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("condition", ["x < n[row]", "x >= n[row]"])
@pytest.mark.parametrize("size", [200, 1000])
def test_a_row_of_which_nothing_is_left_has_the_sum_0(size: int, condition: str, machine: str) -> None:
    """The maximum of nothing is -inf, as that of elements that are all -inf is, whose powers are no numbers: no number
    in the place of absent elements may take the one for the other, whether a row is streamed or held whole."""
    rows = np.random.default_rng(size).standard_normal((4, size)).astype(np.float32)
    bounds = np.array([0, 7, size, size + 30], np.int32)
    at = np.arange(size)
    kept = at < bounds[:, None] if condition == "x < n[row]" else at >= bounds[:, None]
    top = np.where(kept, rows, -np.inf).max(1, keepdims=True, initial=-np.inf)
    with np.errstate(invalid="ignore"):
        wanted = np.where(kept, np.exp(rows.astype(np.float64) - top), 0).sum(1)
    module = parse_module(SUM_OF_POWERS.format(size=size, condition=condition), "sums")
    passes = [each for each in pipeline(Options(machine=machine)) if each.name not in STREAMING]
    run_passes(module, passes)
    held = print_cuda(module)
    assert "// streaming" not in held
    with np.errstate(invalid="ignore"):
        (made,) = execute(module, [rows, bounds], EmulatorBackend(held, kernel_names(module)))
        (streamed,) = road(SUM_OF_POWERS.format(size=size, condition=condition), machine).run([rows, bounds])
    np.testing.assert_allclose(np.asarray(made), wanted, rtol=1e-5)
    np.testing.assert_allclose(np.asarray(streamed), wanted, rtol=1e-5)


# -- the machine -------------------------------------------------------------------------------------


@needs_compiler
@pytest.mark.parametrize("barrier", [0, 1])
def test_a_missing_barrier_between_warps_is_caught(barrier: int) -> None:
    """The parts of a row are read when all warps have written theirs."""
    found = road(static("softmax", 4096), "h100")
    exchange = re.compile(r"(store_shared\(&\w+\[[^;]*;\n)\s*barrier_block\(\);\n")
    places = list(exchange.finditer(found.text))
    assert len(places) == 2
    start, end = places[barrier].end(1), places[barrier].end()
    (name,) = [kernel.sym_name.data for kernel in found.kernels]
    backend = EmulatorBackend(found.text[:start] + found.text[end:], [name])
    given = [np.asarray(each) for each in found.inputs({"row": 3})]
    with pytest.raises(EmulationError):
        execute(found.module, given, backend)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("size", [1000, 4096, 16384])
@pytest.mark.parametrize("name", ["softmax", "layer_norm"])
def test_shared_memory_is_what_the_model_says(name: str, size: int, machine: str) -> None:
    found = road(static(name, size), machine)
    (kernel,) = found.kernels
    (decorated,) = kernels_of(static(name, size), machine)
    assert footprint(plan_of(decorated), load_machine(machine)).shared_bytes == kernel.shared_bytes.data


# -- rows that one kernel cannot hold ------------------------------------------------------------------


def in_rounds(size: int, rounds: int) -> str:
    """Each round needs the extremum of what the one before made of it: fed in pieces, all are made again each time."""
    a, m = f"tensor<?x{size}xf32, #diagram.array<[row, x]>>", "tensor<?xf32, #diagram.array<[row]>>"
    lines: list[str] = []
    for i in range(rounds):
        lines.append(f"  %m{i} = diagram.reduce {('max', 'min')[i % 2]} %v{i} over [x] : {a} -> {m}")
        lines.append(f"  %v{i + 1} = diagram.map (%a = %v{i} : {a}, %b = %m{i} : {m}) -> {a} {{")
        lines.append("    %d = arith.subf %a, %b : f32\n    %e = math.tanh %d : f32\n    diagram.yield %e : f32\n  }")
    body, made = "\n".join(lines), [f"%v{i}" for i in range(1, rounds + 1)]
    types = ", ".join([a] * rounds)
    return f"func.func @f(%v0: {a}) -> ({types}) {{\n{body}\n  func.return {', '.join(made)} : {types}\n}}\n"


@needs_compiler
@pytest.mark.parametrize(
    ("size", "machine", "kernels"), [(1000, "a100", 1), (60000, "a100", 2), (60000, "h100", 1), (ROW_LIMIT, "h100", 2)]
)
def test_rows_that_no_kernel_holds_are_left_to_several(size: int, machine: str, kernels: int) -> None:
    found = road(in_rounds(size, 6), machine)
    assert (len(found.kernels) > 1) == (kernels > 1)
    found.check({"row": 1}, seed=1)
