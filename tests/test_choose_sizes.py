"""Choosing sizes: every choice can be lowered and fits, overrides are checked, refusals give numbers."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.utils.exceptions import PassFailedException

from roads import compiled
from treadle.compiler.cost import estimate, footprint, plan_of, product_axes
from treadle.compiler.cost.reading.sketch import axes_of_kernel
from treadle.compiler.machines import load_machine, write_machine
from treadle.compiler.source import parse_module, verify_module
from treadle.dialects.diagram import ContractOp
from treadle.dialects.diagram.array import SizesAttr, axes_of, format_of
from treadle.dialects.hierarchy import KernelOp, ScheduleAttr
from treadle.dialects.hierarchy.schedule import derivation_of
from treadle.passes.hierarchy_choose_sizes import HierarchyChooseSizesPass, likely_sizes

HERE = Path(__file__).parent / "decorated"
KERNELS = sorted(path.stem for path in HERE.glob("*.mlir"))
SIZES = {
    "default": {},
    "one": dict.fromkeys("abcdhijkmnopqrstuvwxyz", 1) | {"row": 1},
    "seven": dict.fromkeys("abchijkmnopqx", 7) | {"row": 7},
    "odd": dict.fromkeys("abchijkmnopqx", 129) | {"row": 1001},
    "huge": dict.fromkeys("hijkmnopqx", 65537) | {"row": 10**6, "a": 10**5, "b": 3, "c": 10**5},
    "nothing": dict.fromkeys("abchijkmnopqx", 0) | {"row": 0},
}


def module_of(name: str, sizes: Mapping[str, int] | None = None, machine: str = "a100", **replaced: int) -> ModuleOp:
    """A decorated kernel; `sizes` replaces defaults, `d=256` a static size."""
    text = (HERE / f"{name}.mlir").read_text()
    for old, new in {"64": replaced.get("d")}.items():
        if new is not None:
            text = text.replace(f"x{old}x", f"x{new}x").replace(f"= {old}", f"= {new}")
    module = parse_module(text)
    write_machine(module, load_machine(machine))
    function = function_in(module)
    defaults = function.attributes["sizes"]
    assert isinstance(defaults, SizesAttr)
    known = defaults.as_dict()
    function.attributes["sizes"] = SizesAttr({axis: (sizes or {}).get(axis, size) for axis, size in known.items()})
    return module


def function_in(module: ModuleOp) -> FuncOp:
    (function,) = (op for op in module.ops if isinstance(op, FuncOp))
    return function


def kernel_in(module: ModuleOp) -> KernelOp:
    (kernel,) = (op for op in module.walk() if isinstance(op, KernelOp))
    return kernel


def chosen(module: ModuleOp, group: str | None = None, stream: str | None = None) -> ScheduleAttr:
    HierarchyChooseSizesPass(group, stream).apply(Context(), module)
    verify_module(module)
    schedule = kernel_in(module).schedule
    assert schedule is not None
    return schedule


def is_power_of_two(size: int) -> bool:
    return size > 0 and size & (size - 1) == 0


def check_products(kernel: KernelOp, schedule: ScheduleAttr) -> None:
    group, stream, warps = (part.as_dict() for part in (schedule.group, schedule.stream, schedule.warps))
    products = [op for op in kernel.walk() if isinstance(op, ContractOp)]
    roles = product_axes(kernel, group)
    if roles.row is None:
        assert warps == {}
        assert set(group.values()) <= {1}
        return
    assert next(iter(warps)) == roles.row
    for op in products:
        assert roles.row in axes_of(op.result.type)
        assert (roles.row in axes_of(op.lhs.type)) != (roles.row in axes_of(op.rhs.type))
    assert group[roles.row] // warps[roles.row] in ((16, 32, 64) if roles.splits_columns else (16, 32))
    assert group[roles.row] % warps[roles.row] == 0
    if roles.column is not None:
        assert group[roles.column] <= 256
        assert group[roles.column] % (16 * warps.get(roles.column, 1)) == 0
    assert set(warps) <= {roles.row, roles.column}
    assert all(size == 1 for axis, size in group.items() if axis not in (roles.row, roles.column))
    half = any(str(format_of(op.lhs.type)) != "f32" for op in products)
    assert all(size % (16 if half else 8) == 0 for size in stream.values())


def check_lanes(kernel: KernelOp, schedule: ScheduleAttr) -> None:
    cut = {**schedule.group.as_dict(), **schedule.stream.as_dict()}
    assert all(is_power_of_two(size) for size in cut.values())
    for axis, warps in schedule.warps.as_dict().items():
        assert axis in schedule.whole.as_dict() or cut[axis] % warps == 0


def check(module: ModuleOp, machine: str) -> None:
    kernel = kernel_in(module)
    schedule = kernel.schedule
    assert schedule is not None
    assert schedule.is_decided
    limits = load_machine(machine).limits
    plan = plan_of(kernel)
    needs = footprint(plan, load_machine(machine))
    assert needs.registers_per_thread <= needs.most_registers <= limits.registers_per_thread
    assert needs.shared_bytes <= limits.shared_per_block
    assert 1 <= needs.warps <= (16 if plan.has_products else 32)
    shared = {} if plan.has_products else {**schedule.stream.as_dict(), **schedule.whole.as_dict()}
    assert set(schedule.warps.as_dict()) <= {*schedule.group.as_dict(), *shared}
    assert needs.blocks_on(load_machine(machine)) >= 1
    (check_products if plan.has_products else check_lanes)(kernel, schedule)


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("name", KERNELS)
def test_every_choice_can_be_lowered_and_fits(name: str, sizes: str, machine: str):
    module = module_of(name, SIZES[sizes], machine)
    before = kernel_in(module).schedule
    schedule = chosen(module)
    check(module, machine)
    assert before is not None
    assert schedule.group.axes == before.group.axes
    assert schedule.stream.axes == before.stream.axes
    assert schedule.whole == before.whole


@pytest.mark.parametrize("d", [1, 7, 16, 24, 40, 80, 96, 128, 192, 256])
@pytest.mark.parametrize("name", ["attention", "f32_attention"])
@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_widths_of_attention(name: str, d: int, machine: str):
    module = module_of(name, machine=machine, d=d)
    chosen(module)
    check(module, machine)


def test_small_axes_get_small_tiles():
    """No smaller than four warps have rows: they share the copies."""
    schedule = chosen(module_of("attention", {"q": 7, "x": 1}))
    assert schedule.group.as_dict() == {"b": 1, "h": 1, "q": 64}
    assert schedule.warps.as_dict() == {"q": 4}
    assert schedule.stream.as_dict() == {"x": 16}


@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_fewer_rows_take_no_longer(machine: str):
    times: list[float] = []
    for q in (1, 7, 21, 63):
        module = module_of("attention", {"q": q, "x": 333}, machine)
        chosen(module)
        kernel = kernel_in(module)
        assert kernel.schedule is not None
        sizes = likely_sizes(axes_of_kernel(kernel), function_in(module))
        found = estimate(plan_of(kernel), load_machine(machine), sizes)
        assert found is not None
        times.append(found.time_us)
    assert times == sorted(times)


def test_large_products_have_large_square_tiles():
    sizes = dict.fromkeys("abc", 8192)
    schedule = chosen(module_of("matmul", sizes, "h100"))
    tiles = schedule.group.as_dict()
    assert tiles["a"] * tiles["c"] >= 128 * 128
    assert 0.5 <= tiles["a"] / tiles["c"] <= 2


def test_few_rows_are_cut_finer_than_many():
    few = chosen(module_of("matmul", dict.fromkeys("abc", 512))).group.as_dict()
    many = chosen(module_of("matmul", dict.fromkeys("abc", 8192))).group.as_dict()
    assert few["a"] * few["c"] < many["a"] * many["c"]


def test_elementwise_moves_sixteen_bytes_a_lane():
    schedule = chosen(module_of("elementwise"))
    assert (schedule.group.as_dict(), schedule.warps.as_dict()) == ({"m": 1, "n": 1024}, {"n": 4})


def test_short_rows_fill_a_warp_together():
    schedule = chosen(module_of("short_rows"))
    (axis, warps), *rest = schedule.warps.as_dict().items()
    tiles = schedule.group.as_dict()
    assert (axis, rest, tiles["n"]) == ("m", [], 8)
    assert tiles["m"] * tiles["n"] == warps * 128


def test_rows_of_softmax_lie_one_to_a_warp():
    schedule = chosen(module_of("softmax", {"row": 100_000, "x": 4096}))
    assert schedule.group.as_dict()["row"] >= schedule.warps.as_dict()["row"]
    assert schedule.stream.as_dict()["x"] % 128 == 0


def test_without_rows_there_is_one_warp():
    assert chosen(module_of("dots")).warps.as_dict() == {}


def test_warps_share_the_one_row_that_there_is():
    schedule = chosen(module_of("total"))
    (axis, count), *rest = schedule.warps.as_dict().items()
    assert (axis, rest) == ("n", [])
    assert count > 1
    assert schedule.stream.as_dict()["n"] % (32 * count) == 0


def test_derivation_says_what_and_why():
    module = module_of("attention")
    schedule = chosen(module)
    (step,) = derivation_of(function_in(module).attributes)
    rewrite, subject, law, reason = step.texts()
    assert (rewrite, subject, law) == ("choose sizes", "@attention", "cost model")
    assert f"q = {schedule.group.as_dict()['q']}" in reason
    assert re.search(r"estimated [\d.]+ us on a100, bound by ", reason)
    assert re.search(r"about \d+ of 255 registers a thread, [\d.]+ of 163 KiB shared memory", reason)


def test_docstring_shows_what_the_pass_does():
    before, after = (
        parse_module(dedent(text))
        for text in re.findall(r"```\n(.*?)```", dedent(HierarchyChooseSizesPass.__doc__ or ""), re.DOTALL)
    )
    assert chosen(before) == kernel_in(after).schedule


# -- sizes from outside ---------------------------------------------------------------------------


def test_overrides_are_kept():
    schedule = chosen(module_of("matmul"), "a=32,c=256", "b=16")
    assert schedule.group.as_dict() == {"a": 32, "c": 256}
    assert schedule.stream.as_dict() == {"b": 16}


def test_rows_that_are_no_power_of_two_can_be_asked_for():
    schedule = chosen(module_of("attention"), "q=48")
    assert (schedule.group.as_dict()["q"], schedule.warps.as_dict()) == (48, {"q": 3})


def test_stated_sizes_are_kept_and_decided_kernels_left_alone():
    text = (HERE / "matmul.mlir").read_text()
    assert chosen(parse_module(text.replace("a = ?", "a = 32"))).group.as_dict()["a"] == 32
    decided = text.replace("[a = ?, c = ?], stream = [b = ?]", "[a = 16, c = 16], stream = [b = 16], warps = [a = 1]")
    module = parse_module(decided)
    schedule = chosen(module)
    assert (schedule.group.as_dict(), schedule.warps.as_dict()) == ({"a": 16, "c": 16}, {"a": 1})
    assert derivation_of(function_in(module).attributes) == ()


@pytest.mark.parametrize(
    ("name", "group", "stream", "message"),
    [
        (
            "attention",
            "z=64",
            None,
            r"option 'group' names axis 'z', which no kernel treats so \(axes: 'b', 'h', 'q'\)",
        ),
        ("attention", None, "q=64", r"option 'stream' names axis 'q'.* \(axes: 'x'\)"),
        ("many_columns", None, "k=64", r"option 'stream' names axis 'k'.* \(axes: none\)"),
        (
            "attention",
            "q=40",
            None,
            r"axis 'q' cannot have pieces of 40 in @attention: rows of products lie 16.*; near are 32 and 48$",
        ),
        ("attention", "q=1024", None, r"in at most 16 warps"),
        ("attention", "b=2", None, r"both operands of a product have it"),
        ("many_columns", "i=2", None, r"lie along other axes: use 1"),
        ("matmul", "c=24", None, r"columns of products: use a multiple of 16"),
        ("attention", None, "x=24", r"use a multiple of 16"),
        ("f32_attention", None, "x=12", r"use a multiple of 8"),
        ("softmax", "row=3", None, r"pieces are powers of two"),
        ("attention", "q", None, r"entry 'q': write axis=number"),
        ("attention", "q=0", None, r"with a number from 1 on"),
        ("attention", "q=-16", None, r"write axis=number"),
        ("attention", "q=16,q=32", None, r"names axis 'q' twice"),
        (
            "elementwise",
            "n=4096",
            None,
            r"axis 'n' cannot have pieces of 4096 in @\w+: it can have 32, 64, 128.* 2048$",
        ),
        ("elementwise", "m=64,n=4096", None, r"axis 'n' .* beside m = 64: it can have 32, 64, 128"),
    ],
)
def test_overrides_are_checked(name: str, group: str | None, stream: str | None, message: str):
    with pytest.raises(PassFailedException, match=message):
        chosen(module_of(name), group, stream)


# -- what cannot be -------------------------------------------------------------------------------


def test_a_whole_axis_that_is_too_large_is_refused_with_numbers():
    with pytest.raises(PassFailedException) as caught:
        chosen(module_of("attention", d=8192))
    message = str(caught.value)
    assert "kernel @attention does not fit a100: even its smallest candidate" in message
    assert re.search(r"about \d{3} registers a thread \(level register: at most 255\)", message)
    assert re.search(r"\d+ bytes of shared memory \(level shared: at most 166912 a block\)", message)
    assert "axis 'd' (size 8192) is held whole by every group: make it smaller, or symbolic" in message


def test_an_override_that_does_not_fit_is_named():
    with pytest.raises(PassFailedException, match="leave the choice of a, c to the cost model"):
        chosen(module_of("matmul"), "a=16,c=4096")


def test_a_whole_axis_without_size_is_refused():
    text = (HERE / "total.mlir").read_text().replace("stream = [n = ?]", "whole = [n = ?]")
    with pytest.raises(PassFailedException, match="axis 'n' is held whole by every group, but its size is known only"):
        chosen(parse_module(text))


@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_a_whole_axis_without_elements(machine: str):
    """A softmax over nothing, and a sum of its powers, which is 0: no schedule names the axis, and tiles have it."""
    text = """
    !a = tensor<5x0xf32, #diagram.array<[m, x]>>
    !b = tensor<5xf32, #diagram.array<[m]>>
    func.func @rows(%A: !a, %B: !b) -> (!a, !b) {
      %m = diagram.reduce max %A over [x] : !a -> !b
      %e = diagram.map (%a = %A : !a, %b = %m : !b) -> !a {
        %s = arith.subf %a, %b : f32
        %p = math.exp %s : f32
        diagram.yield %p : f32
      }
      %l = diagram.reduce add %e over [x] : !a -> !b
      %y = diagram.map (%a = %e : !a, %b = %l : !b) -> !a {
        %share = arith.divf %a, %b : f32
        diagram.yield %share : f32
      }
      %n = diagram.map (%a = %B : !b, %b = %l : !b) -> !b {
        %s = arith.addf %a, %b : f32
        diagram.yield %s : f32
      }
      func.return %y, %n : !a, !b
    }"""
    compiled(dedent(text), machine=machine).check({})


def test_an_axis_without_default_is_chosen_for_all_the_same():
    module = module_of("attention")
    del function_in(module).attributes["sizes"]
    chosen(module)
    check(module, "a100")


@pytest.mark.parametrize("name", KERNELS)
def test_time_is_printed(name: str, capsys: pytest.CaptureFixture[str]):
    module = module_of(name)
    start = time.perf_counter()
    chosen(module)
    with capsys.disabled():
        print(f"\n{name}: {1000 * (time.perf_counter() - start):.1f} ms", end="")
