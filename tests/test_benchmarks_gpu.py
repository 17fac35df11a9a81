"""`benchmarks/gpu.py`: its logic without a GPU."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarking import BENCHMARKS, benchmark, run_of, told
from treadle.compiler.source import parse_module
from treadle.runtime import gpu as runtime_gpu
from treadle.runtime.inputs import axis_sizes, make_inputs
from treadle.runtime.interpreter import entry_function, run_function
from treadle.runtime.verify import verify

gpu = benchmark("gpu")

from speed import cases, kernels  # noqa: E402  (benchmarks/gpu.py makes it importable)

checks, preparing, programs = sys.modules["checks"], sys.modules["preparing"], sys.modules["programs"]


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


def test_suites_of_modules_run_on_the_device() -> None:
    """Each part of each file is a command of its own, and files that would leave out everything are none of them."""
    commands = checks.suite_commands()
    assert len(commands) == sum(checks.SUITES.values())
    for file, parts in checks.SUITES.items():
        assert "device: str" in (checks.ROOT / "tests" / file).read_text(encoding="utf-8")
        for part in range(1, parts + 1):
            command = commands[f"{file} --device cuda --part {part}/{parts}"]
            assert command[1:3] == ["-m", "pytest"]
            assert f"tests/{file}" in command
            assert "--all --device cuda --part" in " ".join(command)


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
        examples = [file for file in files if file.startswith("examples/")]
        assert {f"examples/{path.name}" for path in programs.EXAMPLES.glob("*.mlir")} == set(examples)
        assert files[: len(examples)] == ["examples/matmul.mlir", *examples[1:]]
    assert "h100" in commands[0]


def test_every_program_of_the_tests_runs_behind_the_examples() -> None:
    """But for one that calls a function, which is no kernel by itself; each is prepared as it runs."""
    listed = [program for program, _ in checks.runs() if program.startswith("tests/programs/")]
    there = {path.relative_to(checks.ROOT).with_suffix("").as_posix() for path in programs.OF_TESTS.rglob("*.mlir")}
    assert there - {*listed} == {"tests/programs/around_a_boundary"}
    assert len(listed) == len({*listed})
    assert {Path(program).parent.name for program in listed} == {"programs", "found", "gradients"}
    commands = checks.test_commands(["h100"])
    prepared = {each.text for each in preparing.programs_of(("tests",), ["h100"])}
    for program in listed:
        command = commands[f"run {program} for h100"]
        text = (checks.ROOT / command[command.index("run") + 1]).read_text(encoding="utf-8")
        assert text in prepared


@pytest.mark.sample(2)
@pytest.mark.parametrize("program", [*programs.of_tests()])
def test_programs_of_the_tests_are_kernels_of_every_machine(program: str) -> None:
    for each in preparing.of_runs([(program, ())], ["h100", "a100"]):
        assert "__global__" in each.cuda()


@pytest.mark.parametrize("name", sorted(set(checks.LARGE) - {"softmax"}))
def test_large_sizes_are_those_of_persistent_grids(name: str) -> None:
    """At which the blocks of a machine of 132 processors, one on each or several, take several pieces each."""
    from treadle.compiler.pipeline import Options, print_cuda, run_pipeline
    from treadle.compiler.sizes import set_default_sizes

    module = parse_module(programs.example(name))
    function = entry_function(module)
    sizes = {axis: int(size) for axis, size in (each.split("=") for each in checks.LARGE[name])}
    set_default_sizes(function, axis_sizes(function, sizes))
    run_pipeline(module, Options("h100"))
    found = re.search(r"// Launch: min\(pieces, (\d+)\) blocks", print_cuda(module))
    assert found is not None
    assert int(found[1]) in (132, 264, 396)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        *checks.OF_EIGHT_BITS.items(),
        *((name, ()) for name in programs.of_tests() if "xf8" in programs.example(name)),
        pytest.param("attention_f8", checks.LARGE["attention_f8"], marks=pytest.mark.full),  # twelve million scores
    ],
)
def test_sums_of_fourteen_bits_can_be_verified(name: str, given: tuple[str, ...]) -> None:
    """Else a run on a GPU would tell next to nothing of products of 8 bits: the result is right, and seen to be."""
    module = parse_module(programs.example(name))
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
    given = [program for program in preparing.programs_of(("tests",), ["h100"]) if "@softmax_rows" in program.text]
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
    """The same text, made for the very sizes: a product of 4096 has as many turns, whatever it is given."""
    from treadle.compiler.bench import gpu as recorder

    (program, *_) = preparing.programs_of(("speed",), ["h100"], preparing.Chosen(quick=True))
    compiled: list[str] = [program.cuda()]

    def record(text: str, *_: Any) -> Any:
        compiled.append(text)
        raise ValueError("enough")

    monkeypatch.setattr(recorder, "Recorder", record)
    with pytest.raises(ValueError, match="enough"):
        kernels.prepare_treadle(next(iter(cases.cases(True))), [], "NVIDIA H100 80GB HBM3")
    one, other = compiled
    assert one == other
    assert "turns = (4096 + 63) / 64;" in one


def test_what_is_prepared_is_what_is_predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rates, and a kernel for all lengths of each program."""
    from treadle.compiler.bench import gpu as device
    from treadle.compiler.cli.bench import PROGRAMS
    from treadle.compiler.machines import load_machine

    prepared = preparing.programs_of(("predict",), ["h100"])
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
    prepared = preparing.programs_of(("launch",), ["h100", "a100"])
    assert len(prepared) == len(launch_time.CASES) + 1
    assert [each.machine for each in preparing.programs_of(("launch",), ["a100"])].count("h100") == 0


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


def test_a_run_goes_on_after_failures(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    commands = {"wrong": told("raise SystemExit('no')"), "late": told("import time; time.sleep(60)"), "right": told("")}
    code, kept = run_of(commands, monkeypatch, tmp_path, "--limit", "5", "--workers", "2")
    assert code == 1
    assert {each["what"]: each["ok"] for each in kept["tests"]} == {"wrong": False, "late": False, "right": True}
    assert kept["not run"] == ["speed", "launch", "tune", "ablation", "predict", "sanitizer"]


def test_suites_come_after_the_tests_and_have_longer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Deriving kernels takes longer than a test may."""
    waits = told("import time; time.sleep(3)")
    given = ("--limit", "2", "--workers", "1")
    code, kept = run_of({"test": waits}, monkeypatch, tmp_path, *given, suites={"suite": waits})
    assert code == 1
    assert [(each["what"], each["ok"]) for each in kept["tests"]] == [("test", False), ("suite", True)]


def test_tests_are_chosen_by_their_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    commands, suites = {"run one": told(""), "run other": told("")}, {"test_one.py": told("")}
    code, kept = run_of(commands, monkeypatch, tmp_path, "--tests", "one", suites=suites)
    assert code == 0
    assert [each["what"] for each in kept["tests"]] == ["run one", "test_one.py"]


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


def test_each_part_has_its_share_of_the_minutes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What one leaves the next ones have; a part that is not wanted has none."""
    run = object.__new__(gpu.Run)
    monkeypatch.setattr(gpu, "monotonic", lambda: 100.0)
    run.end, run.shares = 1000.0, gpu.SHARES
    ends = run._ends(gpu.PARTS)
    assert list(ends) == list(gpu.PARTS)
    assert list(ends.values()) == sorted(ends.values())
    assert ends["speed"] == pytest.approx(100 + 900 * gpu.SHARES["speed"])
    assert sum(gpu.SHARES.values()) == pytest.approx(1)
    assert ends["tests"] == pytest.approx(1000)
    assert run._ends(("tests",)) == {"tests": pytest.approx(1000)}
    run.end = inf
    assert set(run._ends(gpu.PARTS).values()) == {inf}
    assert sum(gpu.UNMEASURED.values()) == pytest.approx(1)


def test_other_ways_are_compiled_beforehand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are tried beside the model's choice; of which `treadle tune` compiles none again."""
    case = cases.product(256)
    monkeypatch.setattr(preparing, "tuned", lambda: [case])
    own, *ways = preparing.programs_of(["tune"], ["h100"])
    assert own.cuda() != ways[0].cuda()
    told = [each.what for each in ways]
    assert len(told) > preparing.OTHERS
    assert all(what.startswith("@matmul with m = ") for what in told[: preparing.OTHERS])
    assert all(what.startswith("without ") for what in told[preparing.OTHERS :])


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
