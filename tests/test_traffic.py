"""Device memory over a whole launch: no less than every array once, and what the blocks of each round read together."""

from __future__ import annotations

from dataclasses import replace
from math import exp
from pathlib import Path

import pytest
from xdsl.dialects.builtin import ModuleOp

from treadle.compiler.cost import Plan, plan_of
from treadle.compiler.cost.timing.traffic import crossing_bytes, traffic_clocks
from treadle.compiler.explain import explain
from treadle.compiler.machines import Machine, load_machine
from treadle.compiler.pipeline import LAST_HIERARCHY_PASS, Options, run_pipeline
from treadle.compiler.source import load_module, parse_module
from treadle.dialects.hierarchy import KernelOp

EXAMPLES = sorted((Path(__file__).resolve().parents[1] / "examples").glob("*.mlir"))


def hierarchy_of(name: str, machine: str = "a100") -> ModuleOp:
    module = load_module(EXAMPLES[0].parent / f"{name}.mlir")
    run_pipeline(module, Options(machine=machine), last=LAST_HIERARCHY_PASS)
    return module


def plan_of_kernel(module: ModuleOp) -> Plan:
    (kernel,) = (op for op in module.walk() if isinstance(op, KernelOp))
    return plan_of(kernel)


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_nothing_is_read_for_less_than_once(path: Path, machine: str):
    module = hierarchy_of(path.stem, machine)
    for sizes in ({}, {"q": 4096, "x": 4096}):
        for kernel in explain(module, load_machine(machine), sizes).kernels:
            assert kernel.units_us["device memory"] >= kernel.limits_us["device memory"] * (1 - 1e-9), kernel.name


@pytest.mark.parametrize("name", ["attention_window", "attention_causal", "attention_segments"])
def test_nothing_is_read_for_no_blocks(name: str):
    module = hierarchy_of(name)
    for sizes in ({"q": 0}, {"q": 0, "x": 0}, {"b": 0, "h": 0}):
        (kernel,) = explain(module, load_machine("a100"), sizes).kernels
        assert kernel.units_us["device memory"] == 0


WINDOWS = """
!X = tensor<?x?xf32, #diagram.array<[t, c]>>
!V = tensor<?x4x?xf32, #diagram.array<[t, k, c]>>
!W = tensor<4x?xf32, #diagram.array<[k, c]>>
func.func @windows(%X: !X, %W: !W) -> !X attributes {sizes = #diagram.sizes<t = 65536, c = 1024>} {
  %V = diagram.read %X at "PLACE, c" padded : !X -> !V
  %P = diagram.map (%v = %V : !V, %w = %W : !W) -> !V {
    %p = arith.mulf %v, %w : f32
    diagram.yield %p : f32
  }
  %Y = diagram.reduce add %P over [k] : !V -> !X
  func.return %Y : !X
}
"""


@pytest.mark.parametrize(("place", "rows"), [("t + k - 3", 65539), ("t + 2 * k", 65542), ("3 * t + k", 196609)])
def test_what_lies_in_several_windows_comes_once(place: str, rows: int):
    """From device memory; from L2 each window comes by itself."""
    module = parse_module(WINDOWS.replace("PLACE", place))
    run_pipeline(module, Options(machine="h100"), last=LAST_HIERARCHY_PASS)
    (kernel,) = explain(module, load_machine("h100")).kernels
    bytes = kernel.units_us["device memory"] * 1e-6 * load_machine("h100").levels["device"].bandwidth
    assert bytes == pytest.approx(4 * 1024 * (rows + 65536), rel=0.01)
    assert kernel.links[1].bytes >= 4 * 1024 * 5 * 65536


def without_cache(machine: Machine) -> Machine:
    return replace(machine, levels={**machine.levels, "l2": replace(machine.levels["l2"], capacity=0)})


def read_in_rounds(length: int, piece: int, fed: int, at_a_time: int, window: int) -> int:
    """Keys that rounds of so many blocks of queries read, each round those that any of its queries sees, in whole
    pieces of the stream."""
    read = 0
    for first in range(0, length, piece * at_a_time):
        last = min(first + piece * at_a_time, length) - 1
        start = max(first - window + 1, 0) // fed * fed
        read += min(-(-(last + 1) // fed) * fed, length) - start
    return read


@pytest.mark.parametrize("at_a_time", [1, 2, 4, 16, 96])
@pytest.mark.parametrize(
    ("name", "window", "off"), [("attention_window", 128, 0.01), ("attention_causal", 10**9, 0.05)]
)
def test_blocks_of_a_round_read_together(name: str, window: int, off: float, at_a_time: int):
    plan = plan_of_kernel(hierarchy_of(name))
    piece = next(int(pieces.size) for pieces in plan.groups if pieces.axis == "q")
    fed = next(int(pieces.size) for pieces in plan.streams)
    machine, length = without_cache(load_machine("a100")), 96 * piece
    sizes = {"b": 1, "h": 1, "q": length, "x": length, "d": 64, "e": 64}
    clocks = traffic_clocks(plan, machine, sizes, at_a_time, False, 0)["device memory"]
    rows = read_in_rounds(length, piece, fed, at_a_time, window)
    moved = clocks * machine.bytes_per_clock("device")
    assert moved == pytest.approx(2 * 2 * 64 * (length + rows), rel=off)


def softmax(rows: int, length: int, at_a_time: int) -> float:
    """Bytes from device memory of a softmax that reads each row twice, in whole arrays."""
    plan, machine = plan_of_kernel(hierarchy_of("softmax", "h100")), load_machine("h100")
    sizes = {"row": rows, "x": length}
    clocks = traffic_clocks(plan, machine, sizes, at_a_time, False, 0)["device memory"]
    return clocks * machine.bytes_per_clock("device") / (4 * rows * length)


def test_what_is_read_again_is_there_with_the_probability_that_nothing_replaced_it():
    """Rows of 32 KiB, as many written: 792 at a time are 52 MB, as much as L2 has. An H100 counted 667 MB with 8192
    rows, and what it had not written yet."""
    plan = plan_of_kernel(hierarchy_of("softmax", "h100"))
    (rows_of_block,) = (int(pieces.size) for pieces in plan.groups)
    of_l2 = load_machine("h100").levels["l2"].capacity
    for at_a_time in (8, 64, 792 // rows_of_block):
        since = at_a_time * rows_of_block * 2 * 32768
        assert softmax(8192, 8192, at_a_time) == pytest.approx(3 - exp(-since / of_l2), rel=1e-6)
    assert 667e6 < softmax(8192, 8192, 792 // rows_of_block) * 4 * 8192 * 8192 < 667e6 + of_l2
    assert softmax(1024, 1024, 792) == 2  # nothing was replaced of what fits


def test_reads_of_blocks_in_step_are_coalesced():
    """Of a product in one wave; not of blocks that begin when others end, nor of what blocks read by themselves."""
    plan, machine = plan_of_kernel(hierarchy_of("matmul", "h100")), load_machine("h100").as_sustained()
    sizes = {"m": 1024, "n": 1024, "k": 1024}
    blocks, saved = plan.blocks(sizes), 2 * 1024 * 1024
    asked = crossing_bytes(plan, sizes)

    def given(slots: int, turns: bool) -> float:
        return traffic_clocks(plan, machine, sizes, slots, turns, 0)["L2"] * machine.bytes_per_clock("l2")

    assert given(blocks, False) == pytest.approx(saved + 0.6 * (asked - saved))
    assert given(blocks // 2, True) == given(blocks, False)
    assert given(blocks - 1, False) == pytest.approx(asked)
    alone = plan_of_kernel(hierarchy_of("softmax", "h100"))
    of_rows = {"row": 1024, "x": 1024}
    moved = traffic_clocks(alone, machine, of_rows, 10**6, False, 0)["L2"] * machine.bytes_per_clock("l2")
    assert moved == pytest.approx(crossing_bytes(alone, of_rows))


CHOSEN = """
!X = tensor<?x1024xf16, #diagram.array<[s, c]>>
!chosen = tensor<?x16xi32, #diagram.array<[t, n]>>
!R = tensor<?x16x1024xf16, #diagram.array<[t, n, c]>>
!Y = tensor<?x1024xf16, #diagram.array<[t, c]>>
func.func @chosen(%X: !X, %chosen: !chosen) -> !Y attributes {sizes = #diagram.sizes<t = 65536, s = ROWS>} {
  %R = diagram.read %X at "chosen[t, n], c" padded with (chosen = %chosen : !chosen) : !X -> !R
  %Y = diagram.reduce max %R over [n] : !R -> !Y
  func.return %Y : !Y
}
"""


@pytest.mark.parametrize(("rows", "held"), [(100, 1.0), (20000, 1.0), (51200, 0.5), (4 * 10**6, 0.0)])
def test_what_data_choose_again_is_there_with_the_probability_that_l2_holds_it(rows: int, held: float):
    """16 of `rows` rows of 2 KiB for each of 65536: 2 GiB from L2. An array that fits comes from device memory once; of
    one twice as large, half of what is chosen again does; of one larger than all that is chosen, no more than that."""
    module = parse_module(CHOSEN.replace("ROWS", str(rows)))
    run_pipeline(module, Options(machine="h100"), last=LAST_HIERARCHY_PASS)
    machine = load_machine("h100")
    (kernel,) = explain(module, machine).kernels
    asked, array, beside = 2048 * 65536 * 16, 2048 * rows, 65536 * (2048 + 4 * 16)
    once = min(array, asked)
    bytes = kernel.units_us["device memory"] * 1e-6 * machine.levels["device"].bandwidth
    assert bytes == pytest.approx(beside + once + (asked - once) * (1 - held), rel=1e-3)
    least = kernel.limits_us["device memory"] * 1e-6 * machine.levels["device"].bandwidth
    assert least == pytest.approx(beside + once, rel=1e-3)
    assert kernel.links[1].bytes >= asked
