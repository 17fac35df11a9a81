"""`benchmarks/gpu.py`: its logic without a GPU and without measuring; that the others compute what treadle does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import inf, prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarking import BENCHMARKS, benchmark
from treadle.compiler.source import parse_module
from treadle.dialects.diagram.array import axes_of, format_of
from treadle.runtime import gpu as runtime_gpu
from treadle.runtime.inputs import axis_sizes, make_inputs
from treadle.runtime.interpreter import entry_function, run_function
from treadle.runtime.verify import verify

gpu = benchmark("gpu")

from speed import cases, clock, goals, kernels, measured  # noqa: E402  (benchmarks/gpu.py makes it importable)
from speed.pool import LENGTH  # noqa: E402

checks, preparing = sys.modules["checks"], sys.modules["preparing"]


def test_importing_needs_nothing() -> None:
    said = "import sys; sys.path.insert(0, sys.argv[1]); import gpu, checks; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", said, BENCHMARKS], capture_output=True, text=True, check=True)
    assert not {"pycuda", "pycuda.autoprimaryctx", "torch", "triton"} & set(done.stdout.split())


def test_without_a_gpu_it_says_so_and_writes_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runtime_gpu, "missing_for_gpu", lambda: "no GPU: there is no driver")
    monkeypatch.setattr(gpu, "Run", lambda *_: pytest.fail("there is nothing to run on"))
    before = set((BENCHMARKS / "results").iterdir())
    assert gpu.main([]) == 0
    assert capsys.readouterr().out == "no GPU: there is no driver: nothing was tested or measured\n"
    assert set((BENCHMARKS / "results").iterdir()) == before


# -- cases ---------------------------------------------------------------------------------------------


def test_cases() -> None:
    every = list(cases.cases(quick=False))
    assert {case.kind for case in every} == set(kernels.PEERS)
    attention = [case for case in every if case.kind.endswith("attention")]
    assert {case.sizes["b"] * case.sizes["q"] for case in attention} == {16384}
    assert {case.sizes["h"] * case.sizes["d"] for case in attention} == {2048}
    assert {case.sizes["d"] for case in attention} == {64, 128, 256}
    assert {case.sizes["m"] for case in every if case.kind == "product"} == {1024, 2048, 4096, 8192, 16384}
    for case in every:
        function = entry_function(parse_module(case.program))
        sizes = axis_sizes(function, {})
        assert {axis: sizes[axis] for axis in case.sizes} == case.sizes
        # What is left open is all that the program does not say itself.
        assert case.open_sizes.keys() == {axis for axis in case.sizes if axis not in "d"}


def test_work() -> None:
    case = cases.attention(2, 3, 7, 64)
    assert case.flop == 4 * 2 * 3 * 7 * 7 * 64
    assert cases.attention(2, 3, 7, 64, causal=True).flop == case.flop // 2
    assert cases.product(4).flop == 2 * 64
    assert cases.layer(2, 3, 4).flop == 2 * 2 * 3 * 4
    assert cases.swiglu(4).flop == 2 * cases.layer(4, 4, 4).flop
    assert (case.rate(1e-3), case.unit) == (case.flop / 1e9, "TFLOP/s")
    for rows in (cases.softmax(1024), cases.rms_norm(1024)):
        function = entry_function(parse_module(rows.program))
        arrays = [*function.function_type.inputs, *function.function_type.outputs]
        moved = sum(prod(rows.sizes[axis] for axis in axes_of(each)) * format_of(each).size for each in arrays)
        assert rows.rate(1.0) == pytest.approx(moved / 1e12)


SMALL = [
    cases.attention(1, 2, 33, 64),
    cases.attention(1, 2, 33, 64, causal=True),
    cases.product(40),
    cases.layer(40, 24, 56),
    cases.swiglu(40),
    replace(cases.mixed_attention(16384), sizes={"b": 1, "h": 2, "q": 33, "x": 40, "d": 128}),
]
ROWS = [cases.softmax, cases.rms_norm]


@pytest.mark.parametrize("who", ["SDPA flash", "SDPA flash in f16", "cuBLAS", kernels.UNFUSED])
def test_the_others_compute_the_same(who: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's functions, on its CPU, beside the reference."""
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(cases, "ROW_ELEMENTS", 2000)
    compared = 0
    for case in (*SMALL, *(row(100) for row in ROWS)):
        maker = kernels.PEERS[case.kind].get(who)
        if maker is None:
            continue
        inputs = kernels.inputs_of(case)
        (expected,) = run_function(parse_module(case.program), inputs).results
        arrays = [torch.from_numpy(kernels.sixteen_bits(each)) for each in inputs]
        theirs = maker(torch, case, arrays)().float().numpy()
        assert theirs.shape == np.shape(expected)
        assert measured.largest_difference(theirs, np.asarray(expected)) < 0.02 * np.abs(expected).max()
        compared += 1
    assert compared


def test_large_inputs_are_drawn_from_a_pool() -> None:
    """Standard normal numbers; no two arrays, nor rows of one, are the same."""
    q, k, _ = kernels.inputs_of(cases.attention(1, 16, 4096, 128))
    assert q.size > LENGTH
    for each in (q, k):
        assert (each.mean(dtype=np.float64), each.std(dtype=np.float64)) == pytest.approx((0, 1), abs=0.01)
        assert len(np.unique(each.reshape(-1, 128)[:, :4], axis=0)) == 16 * 4096
    assert np.abs(np.einsum("hqd,hqd->hq", q[0, :, :64], k[0, :, :64]).mean()) < 2
    assert (k == kernels.inputs_of(cases.attention(1, 16, 4096, 128))[1]).all()


def test_weights_are_so_small_that_results_are_finite() -> None:
    case = replace(cases.swiglu(4096), sizes={"t": 16, "i": 4096, "j": 16})
    x, w, v = kernels.inputs_of(case)
    assert (w.std(), v.std()) == pytest.approx((1 / 64, 1 / 64), rel=0.02)
    assert {each.dtype for each in (x, w, v)} == {np.dtype(np.float16)}
    (result,) = run_function(parse_module(case.program), [x, w, v]).results
    assert np.abs(result).max() < 100
    named = {name for case in cases.cases(quick=False) for name in case.factors}
    assert named == {"%W", "%V"}


# -- the clock -----------------------------------------------------------------------------------------


@dataclass
class Clock:
    """A device on which a call takes a known time, the first one much longer."""

    seconds: float
    repeats: list[int] = field(default_factory=list[int])

    def __call__(self, call: Callable[[], Any], repeats: int) -> float:
        for _ in range(repeats):
            call()
        self.repeats.append(repeats)
        return repeats * self.seconds + (1.0 if len(self.repeats) == 1 else 0.0)


def test_short_kernels_are_repeated() -> None:
    quick = Clock(1e-4)
    sample = clock.measure(lambda: None, quick, samples=5, least=0.02)
    assert sample.median == pytest.approx(1e-4)
    assert quick.repeats[-5:] == [200] * 5
    slow = Clock(0.5)
    assert clock.measure(lambda: None, slow, samples=3, least=0.02).median == pytest.approx(0.5)
    assert slow.repeats[-3:] == [1] * 3


# -- who is measured, and the goals --------------------------------------------------------------------


def prepared(result: Any) -> Callable[[], Any]:
    return lambda: kernels.Prepared(lambda: None, lambda: result)


def failing() -> Any:
    raise kernels.NotHere("cuDNN is not installed\nand more")


def test_who_fails_is_told_and_stops_nobody() -> None:
    case = cases.attention(1, 1, 100, 64)
    one, other = np.array([0, 64, 0], np.float16), np.array([0, 64.5, 0], np.float16)
    makers = {"treadle": prepared(other), "SDPA flash": prepared(one), "SDPA cuDNN": failing}
    found = measured.measure_case(case, makers, Clock(1e-3), measured.largest_difference)
    by_name = {each.who: each for each in found.measured}
    assert [each.who for each in found.measured][-1] == "treadle"  # compared with the others
    assert (by_name["treadle"].error, by_name["SDPA flash"].error) == (0.5, 0)
    assert found.rates["treadle"] == pytest.approx(case.flop / 1e-3 / 1e12)
    assert by_name["SDPA cuDNN"].as_json(case) == {
        "who": "SDPA cuDNN",
        "not measured": "NotHere: cuDNN is not installed",
    }
    text = measured.table([found])
    assert "not measured" in text
    assert "1.00" in text


def test_what_is_wrong_has_no_time() -> None:
    case = cases.attention(1, 1, 100, 64)
    right, nearly, wrong = np.array([1, -2.0]), np.array([1, -1.97]), np.array([1, np.nan])
    for ours, rated in ((nearly, True), (wrong, False), (right + 1, False)):
        makers = {"treadle": prepared(ours), "SDPA flash": prepared(right)}
        found = measured.measure_case(case, makers, Clock(1e-3), measured.largest_difference)
        assert ("treadle" in found.rates) == rated
        assert ("WRONG" in measured.table([found])) != rated


def test_who_compiles_for_minutes_comes_last() -> None:
    """A case has a limit, and treadle is what it is for."""
    makers = {who: prepared(np.ones(3)) for who in ("FlexAttention", "treadle", "Triton", "SDPA cuDNN", "SDPA flash")}
    found = measured.measure_case(cases.attention(1, 1, 8, 64), makers, Clock(1e-3), measured.largest_difference)
    order = ["SDPA cuDNN", "SDPA flash", "treadle", "FlexAttention", "Triton"]
    assert [each.who for each in found.measured] == order


def test_who_never_ends_is_told_before_it_begins() -> None:
    case, kept = cases.attention(1, 1, 100, 64), []
    makers = {"treadle": prepared(np.ones(3)), "SDPA flash": prepared(np.ones(3))}
    measured.measure_case(case, makers, Clock(1e-3), measured.largest_difference, kept.append)
    reasons = [[(each.who, each.reason) for each in found.measured] for found in kept]
    assert reasons == [
        [("SDPA flash", "it did not end")],
        [("SDPA flash", ""), ("treadle", "it did not end")],
        [("SDPA flash", ""), ("treadle", "")],
    ]


def found(case: Any, **rates: float) -> Any:
    """Kernels that take so many milliseconds."""
    sample = sys.modules["results"].Sample
    return measured.Found(case, [measured.Measured(who, sample((ms / 1e3,))) for who, ms in rates.items()])


def test_goals() -> None:
    goal = goals.Goal("rows beside the copy", 0.95, lambda case: bool(case.bytes), ("copy",))
    case = cases.softmax(1024)
    judged = goal.judge([found(case, treadle=1.0, copy=0.9, eager=0.1), found(cases.product(8), treadle=1.0)])
    assert str(judged) == f"rows beside the copy: at least 0.95: met at 0 of 1, least 0.90 ({case})"
    anyone = goals.Goal("rows beside anyone", 1.0, lambda case: True)
    # A copy computes nothing: nobody is compared with it unasked.
    judged = anyone.judge([found(case, treadle=1.0, copy=0.1, eager=2.0), found(cases.product(8), cuBLAS=1.0)])
    assert judged.ratios == {str(case): 2.0}
    layers = [found(cases.layer(t, 64, 64), treadle=1.0, eager=ms) for t, ms in ((64, 1.1), (96, 1.2), (128, 1.4))]
    told = "least 1.10 (layer t 64, i 64, o 64), most 1.40 (layer t 128, i 64, o 64)"
    assert str(anyone.judge(layers)).endswith(told)
    assert str(judged).endswith("; 1 not measured")
    assert str(anyone.judge([])).endswith("not measured")
    assert all(any(goal.holds_for(case) for case in cases.cases(quick=False)) for goal in goals.GOALS)


def test_a_goal_may_be_a_rate() -> None:
    """No peer has a kernel for two formats: the goal is a part of what the machine could do."""
    (goal,) = [each for each in goals.GOALS if each.rate is not None]
    case = cases.mixed_attention(4096)
    ms = case.flop / 990e12 * 1e3
    judged = goal.judge([found(case, treadle=ms), found(cases.attention(4, 16, 4096, 128), treadle=ms)])
    assert (judged.met, judged.cases) == (1, 1)
    assert judged.ratios[str(case)] == pytest.approx(0.75)
    assert goal.judge([found(case, cuBLAS=ms)]).ratios == {}


# -- commands ------------------------------------------------------------------------------------------


def test_commands() -> None:
    commands = checks.test_commands(["h100", "a100"])
    assert "pytest" in commands
    assert all((checks.ROOT / part).exists() for command in commands.values() for part in command if "/" in part)
    checked = checks.sanitizer_commands("compute-sanitizer", ["h100"])
    assert len(checked) == len(checks.TOOLS) * len(checks.SMALL)
    command = checked["racecheck matmul m=70 n=72 k=200 for h100"]
    assert command[:5] == ["compute-sanitizer", "--tool", "racecheck", "--error-exitcode", "9"]
    assert "k=200" in command
    command = checked["memcheck matmul m=70 n=72 k=200 for h100"]
    assert command[5:7] == ["--report-api-errors", "no"]
    command = checked["initcheck matmul m=70 n=72 k=200 for h100"]
    assert [Path(part).name for part in command[1:3]] == ["initcheck.py", "compute-sanitizer"]


COPY = """========= Host API uninitialized memory access
=========     at access by cuMemcpyDtoH_v2 source
=========     Saved host backtrace up to driver entry point at error
=========         Host Frame: copy_out in gpu.py:221
=========
"""
READ = """========= Uninitialized __global__ memory read of size 4 bytes
=========     at some_kernel+0x70 in some.cu:8
=========     by thread (65,0,0) in block (0,0,0)
=========     Address 0x7f4e28000400
=========
"""


@pytest.mark.parametrize(
    ("said", "status", "code"),
    [
        ("", 0, 0),
        (COPY * 3, 0, 0),
        (COPY, 1, 1),  # the result was wrong
        (COPY + READ + COPY, 0, 9),
        (READ, 1, 9),
        ("========= ERROR SUMMARY: 460 errors were not printed. Use --print-limit\n", 0, 8),
        (None, 0, 8),  # no tool
    ],
)
def test_of_uninitialised_memory_what_kernels_read_counts(
    said: str | None, status: int, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the tool prints it: of right results that tensor copies stored it says that copies to the host read them."""
    initcheck = benchmark("initcheck")
    text = "" if said is None else f"========= COMPUTE-SANITIZER\n{said}verified\n========= ERROR SUMMARY: 3 errors\n"
    tool = tmp_path / "compute-sanitizer"
    tool.write_text(f"#!{sys.executable}\nimport sys\nsys.stdout.write({text!r})\nsys.exit({status})\n")
    tool.chmod(0o755)
    assert initcheck.main([str(tool), "program"]) == code
    told = capsys.readouterr().out
    assert ("some_kernel" in told) == (code == 9)
    assert "cuMemcpyDtoH" not in told


def test_every_example_runs_with_the_kernels_of_every_machine() -> None:
    """Those of a device's own generation come first: without a machine to choose, none of them would run."""
    commands = list(checks.test_commands(["h100", "a100"]).values())[1:]
    for machine in ("h100", "a100"):
        files = [command[command.index("run") + 1] for command in commands if machine in command]
        assert {f"examples/{path.name}" for path in sys.modules["programs"].EXAMPLES.glob("*.mlir")} == set(files)
        assert files[0] == "examples/matmul.mlir"
    assert "h100" in commands[0]


@pytest.mark.parametrize("name", sorted(set(checks.LARGE) - {"softmax"}))
def test_large_sizes_are_those_of_persistent_grids(name: str) -> None:
    """At which blocks of a machine of 132 processors take several pieces each."""
    from treadle.compiler.pipeline import Options, print_cuda, run_pipeline
    from treadle.compiler.sizes import set_default_sizes

    module = parse_module(sys.modules["programs"].example(name))
    function = entry_function(module)
    sizes = {axis: int(size) for axis, size in (each.split("=") for each in checks.LARGE[name])}
    set_default_sizes(function, axis_sizes(function, sizes))
    run_pipeline(module, Options("h100"))
    assert "// Launch: min(pieces, 132) blocks" in print_cuda(module)


@pytest.mark.parametrize(
    ("name", "given"), [*checks.OF_EIGHT_BITS.items(), ("attention_f8", checks.LARGE["attention_f8"])]
)
def test_sums_of_fourteen_bits_can_be_verified(name: str, given: tuple[str, ...]) -> None:
    """Else a run on a GPU would tell next to nothing of products of 8 bits: the result is right, and seen to be."""
    module = parse_module(sys.modules["programs"].example(name))
    function = entry_function(module)
    sizes = {axis: int(size) for axis, size in (each.split("=") for each in given)}
    inputs = make_inputs(function, axis_sizes(function, sizes), seed=0)
    (result,) = run_function(module, inputs).results
    (verdict,) = verify(module, inputs, [np.asarray(result).astype(np.float16)], "gpu", sizes=sizes, coarse=inf)
    assert verdict.ok, verdict


@pytest.mark.parametrize(
    ("device", "capability", "machines"),
    [
        ("NVIDIA H100 80GB HBM3", (9, 0), ["h100", "a100"]),
        ("NVIDIA H200", (9, 0), ["h200", "a100"]),
        ("NVIDIA A100-SXM4-80GB", (8, 0), ["a100"]),
        ("NVIDIA GeForce RTX 5090", (12, 0), ["a100"]),
    ],
)
def test_the_machines_of_a_device(device: str, capability: tuple[int, int], machines: list[str]) -> None:
    assert preparing.machines_for(preparing.machine_of_device(device), capability) == machines


def test_what_is_prepared_is_what_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The same text as `treadle run` has compiled, with the sizes of the program or others."""
    from treadle.compiler.cli.run import Execution
    from treadle.compiler.main import main
    from treadle.runtime import nvcc

    compiled: list[tuple[str, str]] = []
    made = nvcc.Cubin(tmp_path / "made.cubin", "")
    made.path.write_bytes(b"code")
    monkeypatch.setattr(nvcc, "compile_cubin", lambda *given: (compiled.append(given), made)[1])
    given = [
        program for program in preparing.programs_of(("tests",), ["h100"], True) if "@softmax_rows" in program.text
    ]
    assert [program.sizes for program in given] == [{}, {"row": 3001, "x": 4104}]
    for program in given:
        assert preparing.compile_one(program, (9, 0)) == ("made.cubin", 4)
    printed: list[str] = []

    def backend(self: Any, module: Any, name: str) -> Any:
        printed.append(sys.modules["treadle.compiler.pipeline"].print_cuda(module))
        raise ValueError("enough")

    monkeypatch.setattr(Execution, "_backend", backend)
    for sizes in ((), ("row=3001", "x=4104")):
        command = checks.treadle_run("softmax", sizes, "h100")[3:]
        command[command.index("gpu")] = "emulator"
        main(command)
    assert [text for text, _ in compiled] == printed
    assert {target for _, target in compiled} == {"sm_90a"}


def test_what_is_prepared_is_what_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same text, made for the very sizes: a product of 4096 is shared by clusters, which must divide the grid."""
    from treadle.compiler.bench import gpu as recorder

    (program, *_) = preparing.programs_of(("speed",), ["h100"], True)
    compiled: list[str] = [program.cuda()]

    def record(text: str, *_: Any) -> Any:
        compiled.append(text)
        raise ValueError("enough")

    monkeypatch.setattr(recorder, "Recorder", record)
    with pytest.raises(ValueError, match="enough"):
        kernels.prepare_treadle(next(iter(cases.cases(True))), [], "NVIDIA H100 80GB HBM3")
    one, other = compiled
    assert one == other
    assert "__cluster_dims__(2, 1, 1)" in one


def test_what_is_prepared_is_what_is_predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rates, and a kernel for all lengths of each program."""
    from treadle.compiler.bench import gpu as device
    from treadle.compiler.cli.bench import PROGRAMS
    from treadle.compiler.machines import load_machine

    prepared = preparing.programs_of(("predict",), ["h100"], True)
    asked: list[str] = []

    def record(text: str, *_: Any) -> Any:
        asked.append(text)
        raise ValueError("enough")

    monkeypatch.setattr(device, "Recorder", record)
    monkeypatch.setattr(device, "GpuBackend", record)
    there = object.__new__(device.Gpu)
    there._compiled = {}
    (first, *_) = (each for each in prepared if "@rms_norm" in getattr(each, "text", ""))
    with pytest.raises(ValueError, match="enough"):
        there.rates(load_machine("h100"))
    with pytest.raises(ValueError, match="enough"):
        there.seconds(checks.programs.EXAMPLES / "rms_norm.mlir", first.sizes, first.sizes, load_machine("h100"))
    assert asked == [prepared[0].cuda(), first.cuda()]
    assert len(prepared) == 1 + len(PROGRAMS)


def test_what_is_launched_is_prepared() -> None:
    launch_time = benchmark("launch_time")
    prepared = preparing.programs_of(("launch",), ["h100", "a100"], True)
    assert len(prepared) == len(launch_time.CASES) + 1
    assert [each.machine for each in preparing.programs_of(("launch",), ["a100"], True)].count("h100") == 0


def test_what_is_packed_is_found_where_it_is_unpacked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whole, so that nothing is compiled again; a cubin that was cut off is."""
    from treadle.runtime import cache

    carried, made = sys.modules["carried"], list[str]()

    def make(path: Path) -> None:
        made.append(path.name)
        path.write_bytes(b"code")
        (path.parents[1] / path.name).with_suffix(".log").write_text("said", encoding="utf-8")

    def found(folder: str) -> Path:
        monkeypatch.setenv("TREADLE_CACHE", str(tmp_path / folder))
        (cache.cache_directory() / "cubin").mkdir(mode=0o700, exist_ok=True)
        return cache.cached_file(cache.cache_directory() / "cubin" / "some.cubin", make)

    found("here").with_name("other.cubin").write_bytes(b"not packed")
    archive = tmp_path / "prepared.tar.xz"
    assert carried.pack(["some.cubin"], archive) == archive.stat().st_size
    monkeypatch.setenv("TREADLE_CACHE", str(tmp_path / "there"))
    carried.unpack(archive)
    path = found("there")
    assert made == ["some.cubin"]
    assert path.read_bytes() == b"code"
    assert path.with_suffix(".log").read_text(encoding="utf-8") == "said"
    assert not path.with_name("other.cubin").exists()
    path.write_bytes(b"co")
    assert found("there").read_bytes() == b"code"
    assert len(made) == 2
    assert carried.judged(64 * 2**20) == "64.0 MiB"
    assert "MORE than the 64 MiB" in carried.judged(65 * 2**20)


def told(script: str) -> list[str]:
    return [sys.executable, "-c", script]


def run_of(
    commands: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch, folder: Path, *given: str
) -> tuple[int, Any]:
    """What a run on a device gives, and writes."""
    from treadle.runtime import gpu_facts

    monkeypatch.setattr(runtime_gpu, "missing_for_gpu", lambda: None)
    monkeypatch.setattr(gpu_facts, "gpus", lambda: (gpu_facts.Gpu("NVIDIA H100", (9, 0), 2**36),))
    monkeypatch.setattr(gpu_facts, "driver_facts", lambda: None)
    monkeypatch.setattr(checks, "test_commands", lambda machines: commands)
    monkeypatch.setattr(sys.modules["results"], "RESULTS", folder)
    code = gpu.main([*given] if "--only" in given else ["--only", "tests", *given])
    (path,) = folder.glob("gpu-*.json")
    return code, json.loads(path.read_text(encoding="utf-8"))


def test_a_run_goes_on_after_failures(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    commands = {"wrong": told("raise SystemExit('no')"), "late": told("import time; time.sleep(60)"), "right": told("")}
    code, kept = run_of(commands, monkeypatch, tmp_path, "--limit", "5", "--workers", "2")
    assert code == 1
    assert {each["what"]: each["ok"] for each in kept["tests"]} == {"wrong": False, "late": False, "right": True}
    assert kept["not run"] == ["speed", "launch", "tune", "predict", "sanitizer"]


def test_what_was_found_is_written_before_what_follows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The second command reads what the first one gave, from the file of results."""
    read = f"import pathlib; print(next(pathlib.Path({str(tmp_path)!r}).glob('gpu-*.json')).read_text()); exit(1)"
    code, kept = run_of(
        {"first": told("print('found')"), "second": told(read)}, monkeypatch, tmp_path, "--workers", "1"
    )
    assert code == 1
    assert '"what": "first"' in kept["tests"][1]["said"]


def test_nothing_begins_when_the_time_is_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    code, kept = run_of({"any": told("")}, monkeypatch, tmp_path, "--minutes", "0")
    assert code == 1
    assert kept["tests"][0]["said"] == "not run: the time is over"


SPEED = f"""
import pickle, sys, time
sys.path.insert(0, {str(BENCHMARKS)!r})
import results
from speed import cases, measured
number, file = int(sys.argv[1]), sys.argv[2]
case = list(cases.cases(True))[number]
others = [measured.Measured("cuBLAS", results.Sample((1e-3,)))]
ours = measured.Measured("treadle", results.Sample((5e-4,)), 0.0, launched=("a_kernel",))
late = measured.Measured("treadle", reason="it did not end")
with open(file, "wb") as kept:
    pickle.dump(measured.Found(case, [*others, ours if number == 0 else late]), kept)
if number == 1:
    time.sleep(60)
"""


def test_cases_that_hang_leave_what_they_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The first two are products: one is measured, and in the other our kernel waits for ever."""
    products = [cases.product(4096), cases.product(8192)]
    monkeypatch.setattr(cases, "cases", lambda quick: products)
    monkeypatch.setattr(kernels, "SLOW", ())
    monkeypatch.setattr(gpu, "CASE_LIMIT", 5)
    monkeypatch.setattr(preparing, "prepare", lambda *_: 0)
    monkeypatch.setattr(gpu.Run, "_case", lambda self, number, file, alone: [*told(SPEED), str(number), str(file)])
    code, kept = run_of({}, monkeypatch, tmp_path, "--only", "speed")
    assert code == 1
    first, second, failed = kept["speed"]
    assert first["kernels"][1]["launched"] == ["a_kernel"]
    assert [each.get("not measured") for each in second["kernels"]] == [None, "it did not end"]
    assert failed["said"].endswith("no end after 5 s")
    (judged,) = [each for each in kept["goals"] if each["goal"].startswith("products")]
    assert judged["ratios"] == {"product m 4096, n 4096, k 4096": 2.0}


def test_rounds() -> None:
    """A few of each kind first, without those who compile for a minute; everything is measured with them in the end."""
    listed = list(cases.cases(quick=False))
    few = len(list(cases.cases(quick=True)))
    asked = list(gpu.rounds(listed, quick=False))
    assert asked[:few] == [(number, True) for number in range(few)] == list(gpu.rounds(listed, quick=True))
    assert sorted(number for number, alone in asked if alone) == list(range(len(listed)))
    slow = {number for number, alone in asked if not alone}
    assert {listed[number].kind for number in set(range(len(listed))) - slow} == {
        "product of 8 bits",
        "mixed attention",
    }
    assert asked.index((0, False)) < asked.index((few, True))


def test_each_part_has_its_share_of_the_minutes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What one leaves the next ones have; a part that is not wanted has none."""
    run = object.__new__(gpu.Run)
    monkeypatch.setattr(gpu, "monotonic", lambda: 100.0)
    run.end = 1000.0
    ends = run._ends(gpu.PARTS)
    assert list(ends) == list(gpu.PARTS)
    assert list(ends.values()) == sorted(ends.values())
    assert ends["speed"] == pytest.approx(100 + 900 * gpu.SHARES["speed"])
    assert sum(gpu.SHARES.values()) == pytest.approx(1)
    assert ends["tests"] == pytest.approx(1000)
    assert run._ends(("tests",)) == {"tests": pytest.approx(1000)}
    run.end = inf
    assert set(run._ends(gpu.PARTS).values()) == {inf}


def test_other_ways_are_compiled_beforehand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are tried beside the model's choice; of which `treadle tune` compiles none again."""
    case = cases.product(256)
    monkeypatch.setattr(preparing, "tuned", lambda: [case])
    own, *ways = preparing.programs_of(["tune"], ["h100"], quick=False)
    assert own.cuda() != ways[0].cuda()
    told = [each.what for each in ways]
    assert len(told) > preparing.OTHERS
    assert all(what.startswith("@matmul with m = ") for what in told[: preparing.OTHERS])
    assert all(what.startswith("without ") for what in told[preparing.OTHERS :])


def test_attention_in_triton_is_attention() -> None:
    """Its interpreter, where Triton is: lengths that no block divides, and blocks of which rows see all, some and no
    columns."""
    pytest.importorskip("triton", reason="Triton is not installed")
    script = f"""
import sys, torch
sys.path.insert(0, {str(BENCHMARKS)!r})
from speed.triton_attention import LOG2_E, forward
for q, x, causal in ((70, 130, False), (128, 128, False), (100, 100, True)):
    Q, K, V = (torch.randn(2, 2, length, 64).half() for length in (q, x, x))
    for rows, columns in ((32, 64), (64, 32)):
        O = torch.full_like(Q, torch.nan)
        sizes = dict(CAUSAL=causal, WIDTH=64, ROWS=rows, COLUMNS=columns)
        forward[(-(-q // rows), 4)](Q, K, V, O, LOG2_E / 8, q, x, **sizes)
        wanted = torch.nn.functional.scaled_dot_product_attention(Q.float(), K.float(), V.float(), is_causal=causal)
        torch.testing.assert_close(O.float(), wanted, atol=2e-3, rtol=2e-3)
"""
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr


def test_processes_of_a_command_end_with_it(tmp_path: Path) -> None:
    """A tool that starts a program does not leave it behind."""
    pid = tmp_path / "pid"
    child = f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    both = told(f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])")
    done = checks.run_one("both", both, 5)
    assert not done.ok
    until = time.monotonic() + 20
    while (gone := not _is_running(int(pid.read_text()))) is False and time.monotonic() < until:
        time.sleep(0.01)
    assert gone


def _is_running(pid: int) -> bool:
    """A process that has ended stays known until somebody has asked for its status."""
    try:
        return ") Z" not in Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False


def test_a_command_that_fails_is_told() -> None:
    good = checks.run_one("good", [sys.executable, "-c", "print('fine')"], 30)
    bad = checks.run_one("bad", [sys.executable, "-c", "raise SystemExit('no such thing')"], 30)
    late = checks.run_one("late", [sys.executable, "-c", "import time; time.sleep(30)"], 0.5)
    assert (good.ok, bad.ok, late.ok) == (True, False, False)
    assert good.as_json()["said"] == "fine"
    assert bad.as_json()["said"] == "no such thing"
    assert "no end after" in late.tail
