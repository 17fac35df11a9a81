"""`treadle compile --report` and `treadle run --report`: what is said, and what is true of it today."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from benchmarking import benchmark
from treadle.compiler import main as cli
from treadle.compiler.cli import report_code
from treadle.compiler.cli.report_traffic import memory_lines
from treadle.compiler.gates.alignment import alignment_lines, variants
from treadle.compiler.gates.traffic import Traffic, check_traffic, traffic_lines, traffic_of
from treadle.compiler.pipeline import Options, print_cuda, run_pipeline
from treadle.compiler.sass import DisassemblerUnavailable, find_disassembler
from treadle.compiler.source import parse_module
from treadle.dialects.cuda import KernelOp, kernel_names
from treadle.runtime.backend import has_host_compiler
from treadle.runtime.emulator import LaunchReport, OperationCount
from treadle.runtime.emulator.backend import EmulatorBackend
from treadle.runtime.host import execute
from treadle.runtime.inputs import axis_sizes, make_inputs
from treadle.runtime.interpreter import entry_function

programs = benchmark("programs")
needs_compiler = pytest.mark.skipif(not has_host_compiler(), reason="no C++ compiler is installed")
needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
needs_disassembler = pytest.mark.skipif(find_disassembler() is None, reason="cuobjdump is not installed")

TEXT = """// a title
template <int ALIGNED>
__device__ __forceinline__ void first_body(
    const float* a) {
  use(a);
}

extern "C" __global__ void __launch_bounds__(128) first(
    const float* a) {
  first_body<16>(a);
}

extern "C" __global__ void __launch_bounds__(128) second(
    const float* a) {
  use(a), and_more(a);
}
"""


def launch(*operations: OperationCount) -> LaunchReport:
    return LaunchReport(0, 0, 0, 0, 0.0, operations, {})


# -- traffic -------------------------------------------------------------------------------------------


def test_operations_are_told_by_line_and_kernel() -> None:
    load = OperationCount(5, "load_global", 4, 2048, 64, 0, 64)
    found = traffic_of(TEXT, [launch(load, OperationCount(15, "store_shared", 2, 256, 0, 3, 0)), launch(load)])
    assert found == [
        Traffic("first", 5, "use(a);", "load_global", 8, 4096, 128, 0, 128),  # of both launches
        Traffic("second", 15, "use(a), and_more(a);", "store_shared", 2, 256, 0, 3, 0),
    ]
    assert found[0].fewest_sectors == 128


def test_a_table_of_operations() -> None:
    operations = [
        Traffic("first", 5, "use(a);", "load_global", 8, 1024, 40, 0, 32),
        Traffic("first", 5, "use(a);", "store_shared", 8, 1024, 0, 7, 0),
        Traffic("first", 6, "wait();", "barrier_block", 8, 0, 0, 0, 0),
    ]
    text = "\n".join(traffic_lines(operations))
    assert re.search(r"@first\n.*requests.*\n  5: use\(a\);\n +load_global +8 +1,024 +40 +5.00 +32 +0\n", text)
    assert re.search(r"store_shared +8 +1,024 +7\n", text)
    assert "wait" not in text  # it touches no memory
    assert "1,024 bytes in 40 sectors of 32 bytes; the fewest are 32" in text
    assert [each.ok for each in check_traffic(operations)] == [False, False]
    assert text.count("not met") == 2
    assert list(traffic_lines([])) == []


def test_tensor_copies_are_told_apart() -> None:
    """Boxes ask for each of their sectors once: what two of them share no instruction spares, and it fails no gate. At
    16 bytes a thread there is nothing to hold them against."""
    operations = [
        Traffic("first", 5, "use(a);", "tensor_load", 3, 6144, 200, 0, 196),
        Traffic("first", 6, "use(a);", "store_matrix", 4, 2048, 0, 1, 0),
        Traffic("first", 7, "use(a);", "tensor_store", 1, 2048, 64, 0, 64),
    ]
    text = "\n".join(traffic_lines(operations))
    assert re.search(r"tensor_load +3 +6,144 +200 +66.67 +196", text)
    boxes = "the fewest of boxes; of rows that are not cut"
    loaded = f"loaded from device memory: 6,144 bytes in 200 sectors of 32 bytes; {boxes} 196; 192 full ones"
    assert re.search(rf"{loaded} would hold so many bytes\n +by 3 tensor copies", text)
    assert re.search(r"stored to device memory: 2,048 bytes in 64 sectors .*\n +by 1 tensor copies", text)
    assert "in 0 sectors" not in text
    assert "shared memory: 4 requests, 1 bank conflicts" in text
    assert [(each.name, each.ok) for each in check_traffic(operations)][1:] == [("sectors beyond the fewest", True)]
    assert "'treadle compile --report' says" not in text
    more = Traffic("first", 8, "use(b);", "load_global", 1, 128, 8, 0, 4)
    assert [(each.name, each.ok) for each in check_traffic([*operations, more])][1:] == [
        ("sectors beyond the fewest", False)
    ]
    assert "'treadle compile --report' says which accesses ask for them, and why" in "\n".join(traffic_lines([more]))
    loads = [*operations, Traffic("first", 8, "use(a);", "load_global", 1, 128, 4, 0, 4)]
    assert "128 bytes in 4 sectors" in "\n".join(traffic_lines(loads))


def test_conflicts_of_copies_are_explained() -> None:
    """Those of lines that go to device memory or come from there, whatever instruction it is that meets a bank."""
    store = Traffic("first", 5, "store(a);", "store_global", 8, 1024, 40, 0, 32)
    load, other = (Traffic("first", line, "store(a);", "load_shared", 8, 1024, 0, 7, 0) for line in (5, 6))
    assert "copies meet a bank twice" in "\n".join(traffic_lines([store, load]))
    assert "copies meet a bank twice" not in "\n".join(traffic_lines([store, other]))


def test_what_was_not_counted_is_said() -> None:
    assert "not known" in "".join(memory_lines(None, None))
    assert "not known" in "".join(memory_lines(TEXT, None))
    assert "without checks" in "".join(memory_lines(TEXT, [launch()]))


@needs_compiler
def test_run_report(capsys: pytest.CaptureFixture[str]) -> None:
    size = ["--size", "m=40", "--size", "n=40", "--size", "k=200"]
    file = str(programs.EXAMPLES / "matmul.mlir")
    assert cli.main(["run", file, "--backend", "emulator", "--report", *size]) == 0
    said = capsys.readouterr().out
    assert "@matmul_kernel" in said
    assert re.search(r"load_matrix +\d", said)
    assert "stored to device memory: 3,200 bytes in" in said
    assert said.rstrip().splitlines()[-1].startswith("verified (emulator)")
    assert cli.main(["run", file, "--backend", "emulator", "--report", "--no-checks", *size]) == 0
    assert "without checks nothing is counted" in capsys.readouterr().out
    assert cli.main(["run", file, "--backend", "interpreter", "--report", *size]) == 0
    assert "the emulator counts it" in capsys.readouterr().out


CASES = {
    "attention d 64": (programs.attention(64), {"b": 1, "h": 2, "q": 256, "x": 256}),
    "attention d 64, a rest": (programs.attention(64), {"b": 1, "h": 2, "q": 200, "x": 333}),
    "attention d 128": (programs.attention(128), {"b": 1, "h": 2, "q": 256, "x": 256}),
    "matmul 256": (programs.matmul({"m": 256, "n": 256, "k": 256}), {"m": 256, "n": 256, "k": 256}),
    # As many rows as warpgroups are worth with one step: of 256, single warps take pieces of 32.
    "matmul k 64": (programs.matmul({"m": 1024, "n": 1024, "k": 64}), {"m": 256, "n": 256, "k": 64}),
    "matmul k 128": (programs.matmul({"m": 256, "n": 256, "k": 128}), {"m": 256, "n": 256, "k": 128}),
    "attention with a bias": (programs.attention(64, example="attention_bias"), {"b": 1, "h": 2, "q": 256, "x": 256}),
    "a residual": (
        (programs.EXAMPLES / "matmul_residual.mlir").read_text(encoding="utf-8"),
        {"t": 256, "j": 256, "i": 128},
    ),
    "matmul made for 4096": (programs.matmul({"m": 4096, "n": 4096, "k": 4096}), {"m": 256, "n": 256, "k": 256}),
}


@pytest.mark.sample(7)
@needs_compiler
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", CASES)
def test_no_bank_conflict_and_the_fewest_sectors(name: str, arch: str) -> None:
    text, sizes = CASES[name]
    module = parse_module(text)
    function = entry_function(module.clone())
    inputs = make_inputs(function, axis_sizes(function, sizes), 0)
    run_pipeline(module, Options(arch=arch))
    printed = print_cuda(module)
    backend = EmulatorBackend(printed, kernel_names(module))
    execute(module, inputs, backend)
    operations = traffic_of(printed, backend.reports)
    has_roles = arch == "sm_90a"
    means = {"tensor_load", "wgmma"} if has_roles else {"load_matrix", "copy_async"}
    kinds = {each.kind for each in operations}
    assert kinds >= means
    assert kinds & {"store_global", "tensor_store"}
    for gate in check_traffic(operations):
        assert gate.ok, "\n".join(traffic_lines(operations))


@needs_compiler
@pytest.mark.parametrize("name", ["l2_norm_matmul", "rms_norm_matmul", "quantised_matmul", "softmax_matmul"])
def test_computed_operands_meet_no_bank_conflict(name: str) -> None:
    """Operands that other threads computed, and values for each row that change threads, go through shared memory."""
    module = parse_module((programs.EXAMPLES / f"{name}.mlir").read_text(encoding="utf-8"))
    function = entry_function(module.clone())
    inputs = make_inputs(function, axis_sizes(function, {}), 0)
    run_pipeline(module, Options())
    printed = print_cuda(module)
    backend = EmulatorBackend(printed, kernel_names(module))
    execute(module, inputs, backend)
    # Copies of rows that are no whole sectors are dealt by sectors, whatever banks they meet in.
    # What is loaded through a tile on the way spares more sectors than it meets conflicts (`passes/staging/costs.py`).
    found = [each for each in traffic_of(printed, backend.reports) if each.kind != "copy_async"]
    others = [each for each in found if "_staged[" not in each.text]
    conflicts, *_ = check_traffic(others)
    assert {"store_shared", "load_matrix"} <= {each.kind for each in others}
    assert conflicts.ok, str(conflicts)


@needs_compiler
def test_narrow_accesses_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    """Rows of 65 elements of 2 bytes divide by no vector; rows of 66 by 4 bytes."""
    file = str(programs.EXAMPLES / "matmul.mlir")
    for columns, aligned in ((65, 0), (66, 4)):
        size = ["--size", "m=40", "--size", f"n={columns}", "--size", "k=130"]
        assert cli.main(["run", file, "--backend", "emulator", "--report", *size]) == 0
        said = capsys.readouterr().out
        name = f"aligned_{aligned}" if aligned else "strided"
        assert f"@matmul_kernel ran as @matmul_kernel_{name}: " in said
        assert (f"divide by {aligned} bytes only" if aligned else "rows that divide by no vector") in said
        assert "sectors beyond the fewest: 0, at most 0: met" in said
        assert re.search(r"sectors of 32 bytes; the fewest are [\d,]+; [\d,]+ full ones would hold so many", said)
        found = re.search(r"stored .*\n +by (\d+) requests of a warp; at 16 bytes a thread (\d+) would do", said)
        assert found is not None
        assert int(found[1]) * max(aligned, 2) >= 16 * int(found[2]) - 16


def test_what_alignment_costs() -> None:
    module = parse_module(programs.matmul())
    run_pipeline(module, Options())
    (kernel,) = (op for op in module.body.block.ops if isinstance(op, KernelOp))
    sectors, wide, middle, narrow = variants(kernel)
    assert [each.bytes_a_thread for each in (sectors, wide, middle, narrow)] == [16, 16, 4, 2]
    assert sectors.traffic.requests < wide.traffic.requests < middle.traffic.requests < narrow.traffic.requests
    assert all(each.traffic.is_fewest for each in (sectors, wide, middle, narrow))
    assert sectors.traffic.sectors < wide.traffic.sectors
    assert sectors.traffic.bytes == wide.traffic.bytes == middle.traffic.bytes == narrow.traffic.bytes
    assert [each.waits for each in (sectors, wide, middle, narrow)] == [False, False, False, True]
    lines = list(alignment_lines(kernel))
    assert lines[0].startswith("@matmul_kernel, to 32 bytes: 16 bytes a thread at most")
    assert lines[3].startswith("@matmul_kernel_strided, any strides: 2 bytes a thread at most, ")
    assert "too narrow for asynchronous copies" in lines[3]
    assert not any("the fewest are" in line for line in lines)


def test_rows_that_are_no_whole_sectors() -> None:
    """Where rows are said to begin with sectors they do so, and share none, however long they are."""
    module = parse_module(programs.attention(40))
    run_pipeline(module, Options())
    for kernel in (op for op in module.body.block.ops if isinstance(op, KernelOp)):
        assert all(each.traffic.is_fewest for each in variants(kernel))
        assert not any("overlap" in line for line in alignment_lines(kernel))


def kernel_of(example: str) -> KernelOp:
    module = parse_module((programs.EXAMPLES / f"{example}.mlir").read_text(encoding="utf-8"))
    run_pipeline(module, Options(arch="sm_80"))
    (kernel,) = (op for op in module.body.block.ops if isinstance(op, KernelOp))
    return kernel


@pytest.mark.parametrize("example", ["softmax", "attention_sink"])
def test_rows_in_registers_cost_no_sector_again(example: str) -> None:
    """Where a lane keeps its own neighbours, rows go through shared memory for narrower vectors."""
    kernel = kernel_of(example)
    assert all(each.traffic.is_fewest for each in variants(kernel))
    assert not any("the fewest are" in line for line in alignment_lines(kernel))


def test_what_numbers_in_registers_cost() -> None:
    """A number that each warp needs beside products is asked for again: the report says how often."""
    kernel = kernel_of("attention_lengths")
    moved = variants(kernel)[-1].traffic
    assert moved.sectors > moved.fewest_sectors
    *_, any_strides, why = list(alignment_lines(kernel))
    assert f"{moved.sectors:,} sectors, the fewest are {moved.fewest_sectors:,} (" in any_strides
    assert why.startswith(
        "  len[b] loaded: 4 sectors, the fewest are 1: a tile on the way would spare 3 and 4 requests"
    )


@pytest.mark.parametrize(("d", "is_fewest"), [(64, True), (128, False)])
def test_what_boxes_cost(d: int, is_fewest: bool) -> None:
    """Rows of 256 bytes come in two boxes, which share a sector where rows begin in the middle of one; rows of 128 in
    one."""
    module = parse_module(programs.attention(d))
    run_pipeline(module, Options(arch="sm_90a"))
    kernel = next(op for op in module.body.block.ops if isinstance(op, KernelOp))
    by_lanes = next(op for op in module.walk() if isinstance(op, KernelOp) and op.sym_name.data.endswith("by_lanes"))
    (entry,) = variants(kernel)
    lines = list(alignment_lines(kernel))
    assert all(each.traffic.is_fewest for each in variants(by_lanes))
    assert not any("loaded: " in line for line in alignment_lines(by_lanes))
    assert entry.boxes.is_fewest == is_fewest
    assert f"{entry.boxes.requests} tensor copies, {entry.boxes.sectors:,} sectors" in lines[0]
    assert any("boxes have at most 128 bytes" in line for line in lines) != is_fewest
    assert ("the fewest of boxes (" in lines[0]) != is_fewest


# -- machine code --------------------------------------------------------------------------------------


@needs_nvcc
@needs_disassembler
def test_compile_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(programs.EXAMPLES / "matmul.mlir")
    assert cli.main(["compile", file, "-o", str(tmp_path / "out.cu"), "--report"]) == 0
    said = capsys.readouterr().out
    assert "counted for whole tiles of dense arrays, 4096 elements along an axis known only at launch" in said
    assert re.search(r"\d+ registers, 0 bytes spilled", said)
    assert re.search(r"an SM holds \d+ blocks, \d+ warps", said)
    assert re.search(r"products +\d+ +1.00 a product  HMMA \d+", said)
    assert "bytes spilled: 0, at most 0: met" in said
    assert re.search(r"other instructions a product: [\d.]+, at most 1.2: (not )?met", said)
    otherwise = said[said.index("the same for arrays that are aligned otherwise") :]
    assert re.findall(r"@matmul_kernel_(\w+): \d+ registers, 0 bytes spilled a thread", otherwise)[0] == "strided"


@needs_nvcc
def test_without_a_disassembler(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(cubin: Path) -> None:
        raise DisassemblerUnavailable("cuobjdump was not found")

    monkeypatch.setattr("treadle.compiler.gates.code.disassemble", missing)
    monkeypatch.setattr("treadle.compiler.gates.code._reader", lambda: "never")  # nothing is known from another test
    file = str(programs.EXAMPLES / "matmul.mlir")
    assert cli.main(["compile", file, "-o", str(tmp_path / "out.cu"), "--report"]) == 0
    said = capsys.readouterr().out
    assert re.search(r"\d+ registers, 0 bytes spilled", said)
    assert "the instructions are not known" in said


def test_without_nvcc() -> None:
    module = parse_module(programs.matmul())
    (said,) = report_code.code_lines(module, "nvcc was not found")
    assert said.startswith("  not known (registers")
    assert said.endswith("nvcc was not found")
