"""The scripts of `benchmarks/`: their logic, without a GPU and without measuring."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarking import BENCHMARKS, benchmark
from treadle.compiler.source import parse_module
from treadle.runtime import gpu as runtime_gpu
from treadle.runtime.inputs import axis_sizes
from treadle.runtime.interpreter import entry_function

gpu, programs, results = benchmark("gpu"), benchmark("programs"), benchmark("results")


def test_importing_needs_nothing() -> None:
    assert not {"pycuda.autoprimaryctx", "triton"} & set(sys.modules)


@pytest.mark.parametrize("name", sorted(path.stem for path in BENCHMARKS.glob("*.py")))
def test_every_script_is_told_in_the_readme(name: str) -> None:
    assert f"`{name}.py`" in (BENCHMARKS / "README.md").read_text(encoding="utf-8")


# -- programs and results ------------------------------------------------------------------------------


def test_programs_at_other_sizes() -> None:
    function = entry_function(parse_module(programs.attention(128, {"b": 1, "h": 2, "q": 3, "x": 4})))
    assert axis_sizes(function, {}) == {"b": 1, "h": 2, "q": 3, "x": 4, "d": 128, "e": 128}
    assert "0.08838834764831845" in programs.attention(128)
    assert programs.attention(64) == (programs.EXAMPLES / "attention.mlir").read_text(encoding="utf-8")
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


# -- the GPU script ------------------------------------------------------------------------------------


def test_without_a_gpu_it_says_so_and_writes_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runtime_gpu, "missing_for_gpu", lambda: "no GPU: there is no driver")
    monkeypatch.setattr(gpu, "run_parts", lambda *_: pytest.fail("there is nothing to run on"))
    before = set((BENCHMARKS / "results").iterdir())
    assert gpu.main([]) == 0
    assert capsys.readouterr().out == "no GPU: there is no driver: nothing was tested or measured\n"
    assert set((BENCHMARKS / "results").iterdir()) == before


def test_cases() -> None:
    every = gpu.cases(quick=False)
    assert {case.kind for case in every} == set(gpu.PEERS)
    assert {case.sizes["b"] * case.sizes["q"] for case in every if case.kind == "attention"} == {16384}
    case = gpu.Case("attention", {"b": 2, "h": 3, "q": 5, "x": 7, "d": 64})
    assert case.flop == 4 * 2 * 3 * 5 * 7 * 64
    assert case.shapes == ((2, 3, 5, 64), (2, 3, 7, 64), (2, 3, 7, 64))
    assert gpu.Case("matmul", {"m": 2, "n": 3, "k": 4}).flop == 48
    assert gpu.Case("matmul", {"m": 2, "n": 3, "k": 4}).shapes == ((2, 4), (4, 3))
    for case in gpu.cases(quick=True):
        function = entry_function(parse_module(case.program))
        sizes = axis_sizes(function, {})
        assert {axis: sizes[axis] for axis in case.sizes} == case.sizes


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
    clock = Clock(1e-4)
    sample = gpu.measure(lambda: None, clock, samples=5, least=0.02)
    assert sample.median == pytest.approx(1e-4)
    assert clock.repeats[-5:] == [200] * 5
    slow = Clock(0.5)
    assert gpu.measure(lambda: None, slow, samples=3, least=0.02).median == pytest.approx(0.5)
    assert slow.repeats[-3:] == [1] * 3


def prepared(result: Any) -> Callable[[], Any]:
    return lambda: gpu.Prepared(lambda: None, lambda: result)


def failing() -> Any:
    raise gpu.NotHere("cuDNN is not installed\nand more")


def test_who_fails_is_told_and_stops_nobody() -> None:
    case = gpu.Case("attention", {"b": 1, "h": 1, "q": 100, "x": 100, "d": 64})
    one, other = np.zeros(3, np.float16), np.array([0, 0.5, 0], np.float16)
    makers = {"treadle": prepared(other), "SDPA flash": prepared(one), "SDPA cuDNN": failing}
    found = gpu.measure_case(case, makers, Clock(1e-3), gpu.largest_difference)
    by_name = {each.who: each for each in found}
    assert [each.who for each in found][-1] == "treadle"  # compared with the others
    assert by_name["treadle"].error == 0.5
    assert by_name["SDPA flash"].error == 0
    assert by_name["treadle"].tflops(case) == pytest.approx(case.flop / 1e-3 / 1e12)
    assert by_name["SDPA cuDNN"].as_json(case) == {
        "who": "SDPA cuDNN",
        "not measured": "NotHere: cuDNN is not installed",
    }
    text = gpu.speed_lines([(case, found)])
    assert "not measured" in text
    assert "100 %" in text


def test_what_kernels_are_made_for() -> None:
    assert gpu.treadle_arch((9, 0)) == "sm_90a"
    assert gpu.treadle_arch((8, 0)) == gpu.treadle_arch((8, 9)) == gpu.treadle_arch((12, 0)) == "sm_80"


def test_commands() -> None:
    commands = gpu.test_commands()
    assert "pytest" in commands
    assert all((gpu.ROOT / part).exists() for command in commands.values() for part in command if "/" in part)
    checked = gpu.sanitizer_commands("compute-sanitizer")
    assert len(checked) == len(gpu.TOOLS) * len(gpu.SMALL)
    command = checked["racecheck matmul"]
    assert command[:5] == ["compute-sanitizer", "--tool", "racecheck", "--error-exitcode", "9"]
    assert "k=200" in command


def test_a_command_that_fails_is_told() -> None:
    good = gpu.run_one("good", [sys.executable, "-c", "print('fine')"], 30)
    bad = gpu.run_one("bad", [sys.executable, "-c", "raise SystemExit('no such thing')"], 30)
    late = gpu.run_one("late", [sys.executable, "-c", "import time; time.sleep(30)"], 0.5)
    assert (good.ok, bad.ok, late.ok) == (True, False, False)
    assert "said" not in good.as_json()
    assert bad.as_json()["said"] == "no such thing"
    assert "no end after" in late.tail
