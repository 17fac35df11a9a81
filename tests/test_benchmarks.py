"""The scripts of `benchmarks/`: their logic, without a GPU and without measuring."""

from __future__ import annotations

import ctypes
import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarking import BENCHMARKS, benchmark
from treadle.compiler.source import parse_module
from treadle.runtime.inputs import axis_sizes
from treadle.runtime.interpreter import entry_function

programs, results = benchmark("programs"), benchmark("results")


def test_importing_needs_nothing() -> None:
    said = "import sys; sys.path.insert(0, sys.argv[1]); import programs, results; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", said, BENCHMARKS], capture_output=True, text=True, check=True)
    assert not {"pycuda", "pycuda.autoprimaryctx", "torch", "triton"} & set(done.stdout.split())


@pytest.mark.parametrize("name", sorted(path.stem for path in BENCHMARKS.glob("*.py")))
def test_every_script_is_told_in_the_readme(name: str) -> None:
    assert f"`{name}.py`" in (BENCHMARKS / "README.md").read_text(encoding="utf-8")


# -- programs and results ------------------------------------------------------------------------------


def test_programs_at_other_sizes() -> None:
    function = entry_function(parse_module(programs.attention(128, {"b": 1, "h": 2, "q": 3, "x": 4})))
    assert axis_sizes(function, {}) == {"b": 1, "h": 2, "q": 3, "x": 4, "d": 128, "e": 128}
    assert "0.08838834764831845" in programs.attention(128)
    assert programs.attention(64) == (programs.EXAMPLES / "attention.mlir").read_text(encoding="utf-8")
    assert "0.0625" in programs.attention(256, example="attention_causal")
    assert "bf16" in programs.matmul(format="bf16")
    parse_module(programs.matmul({"m": 1, "n": 2, "k": 3}, "bf16")).verify()


def test_a_result_is_kept(tmp_path: Path) -> None:
    path = results.write("speed", {"seconds": 1}, "NVIDIA H100 80GB", tmp_path)
    assert path.name.startswith("speed-nvidia-h100-80gb-")
    data = json.loads(path.read_text(encoding="utf-8"))
    assert (data["what"], data["machine"], data["seconds"]) == ("speed", "NVIDIA H100 80GB", 1)
    assert "core" in results.machine_in_words()


def test_a_table() -> None:
    assert results.table(["", "s"], [["long name", "1"], ["x", "22"]]) == "            s\nlong name   1\nx          22"
    assert results.goal(1.0, 1.5) == "goal 1.5: met"
    assert results.goal(2.0, 1.5) == "goal 1.5: not met"


@pytest.mark.parametrize("path", sorted((BENCHMARKS / "results").glob("*.json")), ids=lambda path: path.stem)
def test_kept_results_name_no_host_and_no_path(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert json.loads(text)["machine"]
    assert not re.search(r"(?<![\w.])(/[\w.-]+){2,}", text), "an absolute path"


# -- what a launch takes -------------------------------------------------------------------------------


def test_launches_are_timed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """All but the driver is called, tensor maps included; how long it takes is no matter of a test."""
    launch_time = benchmark("launch_time")
    monkeypatch.setattr(launch_time, "CASES", {("matmul", "h100"): {"m": 128, "n": 128, "k": 64}})
    monkeypatch.setattr(launch_time, "RUNS", 3)
    found = launch_time.measure(launch_time.NONE)
    assert [each["what"].partition(" ")[2] for each in found] == [
        "on tensors",
        "as a function",
        "as an operator",
        "as an operator of torch.ops",
    ]
    for each in found:
        assert each["later_us"]["runs"] == each["empty_us"]["runs"] == 3
        assert ("empty_operator_us" in each) == ("operator" in each["what"])
        assert 0 < each["later_us"]["median"] < each["first_us"]
        assert each["at_once"]
    assert launch_time.report(found, launch_time.NONE)["driver"] == "not called"
    assert "matmul on tensors for h100" in capsys.readouterr().out


def test_runs_of_launches_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """What slows a machine for a moment is not to be seen in one of them alone."""
    launch_time = benchmark("launch_time")
    monkeypatch.setattr(launch_time, "CALLS", 2)
    monkeypatch.setattr(launch_time, "RUNS", 3)
    called: list[str] = []
    samples = launch_time.Clock(launch_time.NONE)([lambda: called.append("a"), lambda: called.append("b")])
    assert "".join(called) == "aabb" * 3
    assert [len(each.seconds) for each in samples] == [3, 3]


def test_the_drivers_part_of_a_launch_is_no_part_of_the_goal(capsys: pytest.CaptureFixture[str]) -> None:
    launch_time = benchmark("launch_time")
    later, driver = ({"median": us, "least": us, "most": us, "runs": 3} for us in (12.5, 4.0))
    case = {"what": "f on tensors", "machine": "a100", "first_us": 99, "later_us": later, "driver_us": driver}
    for which, said in ((launch_time.GPU, "8.5 us; goal 10: met"), (launch_time.STAND_IN, "12.5 us; goal 10: not met")):
        launch_time.report([case], which)
        assert said in capsys.readouterr().out


def test_the_driver_is_launched_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    launch_time, launched = benchmark("launch_time"), list[tuple[int, int]]()
    kernel = launch_time.kernel_of("softmax", "a100")
    functions = SimpleNamespace(_start=lambda launch: lambda pointer, stream: launched.append((pointer, stream)))
    monkeypatch.setattr(kernel, "backend", lambda name, checks: SimpleNamespace(functions=functions))
    given = launch_time.tensors_for(kernel, {"row": 8, "x": 64}, "cpu")
    launch = launch_time.driver_alone(kernel, given, launch_time.STAND_IN)
    for _ in range(3):
        launch()
    assert len(launched) == 4, "once to write the addresses"
    assert len(set(launched)) == 1
    source = ctypes.c_uint64.from_address(ctypes.c_uint64.from_address(launched[0][0]).value).value
    assert source == given[0].data_ptr()
    assert launch_time.driver_alone(kernel, given, launch_time.NONE) is None


def test_what_pytorch_takes_at_the_least_is_timed_alone() -> None:
    launch_time = benchmark("launch_time")
    kernel = launch_time.kernel_of(None, "a100")
    given = launch_time.halves("cpu")
    (made,) = launch_time.allocating(kernel, given)()
    assert (made.shape, made.dtype) == ((64, 64), given[0].dtype)
    empty = launch_time.empty_operator(given)
    assert empty() is empty(), "nothing is made"
