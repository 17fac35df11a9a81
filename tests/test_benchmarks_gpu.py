"""`benchmarks/gpu.py`: its logic without a GPU and without measuring; that the others compute what treadle does."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from benchmarking import BENCHMARKS, benchmark
from treadle.compiler.source import parse_module
from treadle.runtime import gpu as runtime_gpu
from treadle.runtime.inputs import axis_sizes
from treadle.runtime.interpreter import entry_function, run_function

gpu = benchmark("gpu")

from speed import cases, clock, goals, kernels, measured  # noqa: E402  (benchmarks/gpu.py makes it importable)

checks = sys.modules["checks"]


def test_importing_needs_nothing() -> None:
    said = "import sys; sys.path.insert(0, sys.argv[1]); import gpu, checks; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", said, BENCHMARKS], capture_output=True, text=True, check=True)
    assert not {"pycuda", "pycuda.autoprimaryctx", "torch", "triton"} & set(done.stdout.split())


def test_without_a_gpu_it_says_so_and_writes_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runtime_gpu, "missing_for_gpu", lambda: "no GPU: there is no driver")
    monkeypatch.setattr(gpu, "run_parts", lambda *_: pytest.fail("there is nothing to run on"))
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


def test_work() -> None:
    case = cases.attention(2, 3, 7, 64)
    assert case.flop == 4 * 2 * 3 * 7 * 7 * 64
    assert cases.attention(2, 3, 7, 64, causal=True).flop == case.flop // 2
    assert cases.product(4).flop == 2 * 64
    assert cases.swiglu(4).flop == 2 * cases.layer(4).flop
    assert (case.rate(1e-3), case.unit) == (case.flop / 1e9, "TFLOP/s")
    assert cases.softmax(1024).rate(1.0) == pytest.approx(2**29 / 1e12)


SMALL = [
    cases.attention(1, 2, 33, 64),
    cases.attention(1, 2, 33, 64, causal=True),
    cases.product(40),
    cases.layer(40),
    cases.swiglu(40),
]
ROWS = [cases.softmax, cases.rms_norm]


@pytest.mark.parametrize("who", ["SDPA flash", "cuBLAS", kernels.UNFUSED])
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
        theirs = maker(torch, case, [torch.from_numpy(each) for each in inputs])().float().numpy()
        assert theirs.shape == np.shape(expected)
        assert measured.largest_difference(theirs, np.asarray(expected)) < 0.02 * np.abs(expected).max()
        compared += 1
    assert compared


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
    one, other = np.zeros(3, np.float16), np.array([0, 0.5, 0], np.float16)
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
    assert str(judged).endswith("; 1 not measured")
    assert str(anyone.judge([])).endswith("not measured")
    assert all(any(goal.holds_for(case) for case in cases.cases(quick=False)) for goal in goals.GOALS)


# -- commands ------------------------------------------------------------------------------------------


def test_commands() -> None:
    commands = checks.test_commands()
    assert "pytest" in commands
    assert all((checks.ROOT / part).exists() for command in commands.values() for part in command if "/" in part)
    checked = checks.sanitizer_commands("compute-sanitizer")
    assert len(checked) == len(checks.TOOLS) * len(checks.SMALL)
    command = checked["racecheck matmul"]
    assert command[:5] == ["compute-sanitizer", "--tool", "racecheck", "--error-exitcode", "9"]
    assert "k=200" in command


def test_a_command_that_fails_is_told() -> None:
    good = checks.run_one("good", [sys.executable, "-c", "print('fine')"], 30)
    bad = checks.run_one("bad", [sys.executable, "-c", "raise SystemExit('no such thing')"], 30)
    late = checks.run_one("late", [sys.executable, "-c", "import time; time.sleep(30)"], 0.5)
    assert (good.ok, bad.ok, late.ok) == (True, False, False)
    assert "said" not in good.as_json()
    assert bad.as_json()["said"] == "no such thing"
    assert "no end after" in late.tail
