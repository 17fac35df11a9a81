"""`benchmarks/speed`: without a GPU and without measuring; that the others compute what treadle does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from math import inf, prod
from multiprocessing import Pipe
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarking import BENCHMARKS, benchmark, run_of, told
from treadle.compiler.source import parse_module
from treadle.dialects.diagram.array import axes_of, format_of
from treadle.runtime import gpu as runtime_gpu
from treadle.runtime.inputs import axis_sizes
from treadle.runtime.interpreter import entry_function, run_function

gpu = benchmark("gpu")

from speed import ahead, cases, child, clock, goals, kernels, measured, watch  # noqa: E402  (gpu.py makes it importable)
from speed import found as found_of  # noqa: E402
from speed.conditions import Conditions  # noqa: E402
from speed.kept import Kept  # noqa: E402
from speed.news import Job  # noqa: E402
from speed.pool import LENGTH  # noqa: E402

preparing, questions = sys.modules["preparing"], benchmark("questions")


# -- cases ---------------------------------------------------------------------------------------------


def test_cases() -> None:
    every = list(cases.cases(quick=False))
    assert {case.kind for case in every} | {each.case.kind for each in questions.questions()} == set(kernels.PEERS)
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
    cases.distances(40),
    replace(cases.attention_of_eight_bits(16384), sizes={"b": 1, "h": 2, "q": 33, "x": 48, "d": 128}),
    replace(cases.attention_of_eight_bits(16384, "x e"), sizes={"b": 1, "h": 2, "q": 33, "x": 48, "d": 128}),
    replace(cases.grouped_queries(16384), sizes={"b": 1, "h": 2, "g": 4, "q": 9, "x": 40, "d": 128}),
    replace(cases.packed_attention(16384), sizes={"b": 1, "h": 2, "q": 33, "x": 40, "d": 128}),
    replace(cases.generation(16, 4096), sizes={"b": 1, "h": 2, "g": 4, "q": 1, "x": 40, "d": 128}),
    replace(cases.latent_attention(64, 4096), sizes={"b": 2, "h": 5, "x": 40}),
    replace(cases.mixed_attention(16384), sizes={"b": 1, "h": 2, "q": 33, "x": 40, "d": 128}),
    cases.low_rank_update(40),
    cases.products_added_up(40),
    cases.products_of_a_batch(3, 40, 24),
    cases.projection_of_heads(2, 3, 9, 8, 40),
    cases.divergence(9, 40),
    cases.stick_breaking(2, 33),
    cases.cumulative_sums(9, 40),
    cases.attention_backward(1, 2, 33, 64),
    cases.dropped_attention(2, 33),
    cases.routing(40, 24),
    cases.nearest(9, 40, 24),
    cases.rotated_projection(40, 24, 3),
    cases.delta_rule(2, 20),
    cases.sorted_experts(40, 3, 16, 24),
    cases.summed_heads(9, 40, 3, 16),
    cases.projected_attention(1, 2, 33, 16),
]
ROWS = [cases.softmax, cases.rms_norm]


@pytest.mark.parametrize(
    "who", ["SDPA flash", "SDPA flash in f16", "SDPA masked", "cuBLAS", kernels.UNFUSED, "one product"]
)
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
        expected = kernels.as_one(run_function(parse_module(case.program), inputs).results)
        arrays = [torch.from_numpy(kernels.sixteen_bits(each)) for each in inputs]
        theirs = kernels.on_host(maker(torch, case, arrays)()).astype(np.float32)
        assert theirs.shape == np.shape(expected)
        assert measured.largest_difference(theirs, np.asarray(expected)) < 0.02 * np.abs(expected).max()
        compared += 1
    assert compared


def test_gradients_of_flash_attention_are_asked_for_as_pytorch_takes_them() -> None:
    """By an operator of which there is none on a CPU; that it is called rightly, tensors without numbers tell."""
    torch = pytest.importorskip("torch")
    case = cases.attention_backward(1, 2, 64, 64)
    arrays = [torch.empty(each.shape, dtype=torch.float16, device="meta") for each in kernels.inputs_of(case)]
    results = kernels.PEERS[case.kind]["flash backward"](torch, case, arrays)()
    assert [each.shape for each in results] == [each.shape for each in arrays[:3]]


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
    """A device on which a call takes a known time; what it ran, and how often."""

    seconds: float
    ran: list[tuple[Any, int]] = field(default_factory=list[tuple[Any, int]])

    def __call__(self, call: Callable[[], Any], repeats: int) -> float:
        self.ran.append((call(), repeats))
        return repeats * self.seconds


def test_short_kernels_are_repeated() -> None:
    assert clock.repeats_of(lambda: None, Clock(1e-4)) == 200
    assert clock.repeats_of(lambda: None, Clock(0.5)) == 1
    assert clock.repeats_of(lambda: None, Clock(0.0)) > 1000


def test_who_is_measured_has_warmed_up_the_chip(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many calls before the first event as between both."""
    done: list[str] = []

    class Event:
        def record(self) -> None:
            done.append("event")

        def synchronize(self) -> None:
            done.append("wait")

        def time_till(self, end: Any) -> float:
            return 20.0

    monkeypatch.setattr(runtime_gpu, "driver", lambda: SimpleNamespace(Event=Event))
    assert clock.cuda_timer()(lambda: done.append("call"), 2) == 0.02
    assert done == ["call", "call", "event", "call", "call", "event", "wait"]


def test_everybody_has_a_turn_in_each_round() -> None:
    """In another order, which is the same in each run; nobody is first more often than others."""
    names = ["treadle", "cuBLAS", "Triton"]
    asked = list(clock.turns(names))
    rounds = [asked[i : i + 3] for i in range(0, len(asked), 3)]
    assert len(rounds) == clock.ROUNDS
    assert all(sorted(each) == sorted(names) for each in rounds)
    assert Counter(each[0] for each in rounds) == dict.fromkeys(names, clock.ROUNDS // 3)
    assert asked == list(clock.turns(names))
    assert list(clock.turns([])) == []


# -- who is measured, and the goals --------------------------------------------------------------------


def prepared(result: Any, call: Callable[[], Any] = lambda: None) -> Callable[[], Any]:
    return lambda: kernels.Prepared(call, lambda: result)


def failing() -> Any:
    raise kernels.NotHere("cuDNN is not installed\nand more")


def test_who_fails_is_told_and_stops_nobody() -> None:
    case = cases.attention(1, 1, 100, 64)
    one, other = np.array([0, 64, 0], np.float16), np.array([0, 64.5, 0], np.float16)
    makers = {"treadle": prepared(other), "SDPA flash": prepared(one), "SDPA cuDNN": failing}
    found = measured.measure_case(case, makers, Clock(1e-3))
    by_name = {each.who: each for each in found.measured}
    assert [each.who for each in found.measured][-1] == "treadle"  # compared with the others
    assert (by_name["treadle"].error, by_name["SDPA flash"].error) == (0.5, 0)
    assert found.rates["treadle"] == pytest.approx(case.flop / 1e-3 / 1e12)
    assert by_name["SDPA cuDNN"].as_json(case) == {
        "who": "SDPA cuDNN",
        "not measured": "NotHere: cuDNN is not installed",
    }
    text = found_of.table([found])
    assert "not measured" in text
    assert "1.00" in text


def test_what_is_wrong_has_no_time() -> None:
    case = cases.attention(1, 1, 100, 64)
    right, nearly, wrong = np.array([1, -2.0]), np.array([1, -1.97]), np.array([1, np.nan])
    for ours, rated in ((nearly, True), (wrong, False), (right + 1, False)):
        makers = {"treadle": prepared(ours), "SDPA flash": prepared(right)}
        found = measured.measure_case(case, makers, Clock(1e-3))
        assert ("treadle" in found.rates) == rated
        assert ("WRONG" in found_of.table([found])) != rated


def test_who_compiles_for_minutes_comes_last() -> None:
    """A case has a limit, and treadle is what it is for."""
    makers = {who: prepared(np.ones(3)) for who in ("FlexAttention", "treadle", "Triton", "SDPA cuDNN", "SDPA flash")}
    found = measured.measure_case(cases.attention(1, 1, 8, 64), makers, Clock(1e-3))
    order = ["SDPA cuDNN", "SDPA flash", "treadle", "FlexAttention", "Triton"]
    assert [each.who for each in found.measured] == order


def test_all_are_prepared_before_anybody_is_measured() -> None:
    """Then in turns, each as often as its time asks for."""
    case, device = cases.product(8), Clock(1e-3)
    made: list[str] = []

    def make(who: str) -> Callable[[], Any]:
        return lambda: (made.append(who), prepared(np.ones(3), lambda: (who, len(made)))())[1]

    found = measured.measure_case(case, {who: make(who) for who in ("treadle", "cuBLAS")}, device)
    assert made == ["cuBLAS", "treadle"]
    samples = [who for (who, ready), repeats in device.ran if repeats == 20 and ready == 2]
    assert samples == list(clock.turns(["cuBLAS", "treadle"]))
    assert len(device.ran) == len(samples) + 2
    assert found.span is not None
    assert [len(each.seconds.seconds) for each in found.measured if each.seconds] == [clock.ROUNDS] * 2


def test_each_step_is_told_before_it_begins() -> None:
    """Who is at work, for how long at most, and what is known."""
    case, told = cases.attention(1, 1, 100, 64), list[Any]()
    makers = {who: prepared(np.ones(3)) for who in ("treadle", "SDPA flash", "FlexAttention")}
    found = measured.measure_case(case, makers, Clock(1e-3), told.append)
    assert [(news.at, news.limit) for news in told[:3]] == [
        ("SDPA flash", measured.PREPARE_LIMIT),
        ("treadle", measured.PREPARE_LIMIT),
        ("FlexAttention", measured.COMPILE_LIMIT),
    ]
    assert [each.who for each in told[2].found.measured] == ["SDPA flash", "treadle"]
    assert {news.limit for news in told[3:-1]} == {measured.SAMPLE_LIMIT}
    assert [news.at for news in told[3:-1]] == list(clock.turns(["SDPA flash", "treadle", "FlexAttention"]))
    assert (told[-1].at, told[-1].found) == ("", found)


def test_who_fails_while_it_is_measured_is_told() -> None:
    """Once: it has no further turn."""
    runs = iter(range(100))

    def call() -> None:
        if next(runs) == 3:
            raise RuntimeError("out of luck")

    makers = {"treadle": prepared(np.ones(3), call), "cuBLAS": prepared(np.ones(3))}
    found = measured.measure_case(cases.product(8), makers, Clock(1e-3))
    assert {each.who: each.reason for each in found.measured} == {"cuBLAS": "", "treadle": "RuntimeError: out of luck"}
    assert next(runs) == 4


def test_a_device_that_does_nothing_more_ends_the_process() -> None:
    def gone() -> None:
        raise ValueError("illegal address")

    with pytest.raises(ValueError, match="illegal address"):
        measured.measure_case(cases.product(8), {"cuBLAS": failing}, Clock(1e-3), sound=gone)


def found(case: Any, **rates: float) -> Any:
    """Kernels that take so many milliseconds."""
    sample = sys.modules["results"].Sample
    return found_of.Found(case, [found_of.Measured(who, sample((ms / 1e3,))) for who, ms in rates.items()])


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


# -- processes ----------------------------------------------------------------------------------------


SPEED = f"""
import os, sys, time
from multiprocessing.connection import Connection
sys.path.insert(0, {str(BENCHMARKS)!r})
import results
from speed.found import Found, Measured
from speed.news import News
jobs = Connection(int(sys.argv[1]))
others = [Measured("cuBLAS", results.Sample((1e-3,)))]
ours = Measured("treadle", results.Sample((5e-4,)), 0.0, launched=("a_kernel",))
while True:
    try:
        job = jobs.recv()
    except EOFError:
        break
    size = job.case.sizes["m"]
    if size == 1024:
        sys.exit("no such case")
    if "treadle" not in job.without and size != 4096:
        jobs.send(News("treadle", 2 if size == 8192 else 60, Found(job.case, others)))
        print("on the way", flush=True)
        if size == 8192:
            time.sleep(60)
        if size == 2048:
            print("illegal address", flush=True)
            os._exit(7)
    every = others if "treadle" in job.without else [*others, ours]
    jobs.send(News(found=Found(job.case, every, (0.0, float(os.getpid())))))
"""


def speed_of(
    sizes: Sequence[int], monkeypatch: pytest.MonkeyPatch, folder: Path, *given: str
) -> tuple[int, dict[str, Any], Any]:
    """What a run on a device writes of products of these sizes, by case, and all that it writes."""
    products = [cases.product(size) for size in sizes]
    monkeypatch.setattr(cases, "cases", lambda quick: products)
    monkeypatch.setattr(kernels, "SLOW", ())
    monkeypatch.setattr(preparing, "prepare", lambda *_: 0)
    monkeypatch.setattr(gpu.Run, "_child", lambda self, descriptor: [*told(SPEED), str(descriptor)])
    code, kept = run_of({}, monkeypatch, folder, "--only", "speed", *given)
    return code, {each.get("case", each.get("what")): each for each in kept["speed"]}, kept


def reasons(case: dict[str, Any]) -> dict[str, str | None]:
    return {each["who"]: each.get("not measured") for each in case["kernels"]}


def test_a_case_that_hangs_is_measured_without_who_hangs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """And so is all that follows, in another process."""
    code, found, kept = speed_of((4096, 8192, 16384), monkeypatch, tmp_path)
    assert code == 1
    first, second, third = (f"product m {size}, n {size}, k {size}" for size in (4096, 8192, 16384))
    assert found[first]["kernels"][1]["launched"] == ["a_kernel"]
    assert reasons(found[second]) == {"cuBLAS": None, "treadle": "it did not end"}
    assert reasons(found[third]) == {"cuBLAS": None, "treadle": None}
    assert found[f"{second}: treadle"]["said"] == "on the way\nit did not end"
    (judged,) = [each for each in kept["goals"] if each["goal"].startswith("products")]
    assert judged["ratios"] == {first: 2.0}


def test_a_process_that_ends_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Who was at work, or nobody, as where a case cannot even be begun; another process goes on."""
    code, found, _ = speed_of((2048, 1024, 4096), monkeypatch, tmp_path)
    assert code == 1
    ended, never, right = (f"product m {size}, n {size}, k {size}" for size in (2048, 1024, 4096))
    assert reasons(found[ended]) == {"cuBLAS": None, "treadle": "its process ended (7): illegal address"}
    assert not found[f"{ended}: treadle"]["ok"]
    assert found[never]["said"].endswith("its process ended (1): no such case")
    assert reasons(found[right]) == {"cuBLAS": None, "treadle": None}


def test_one_process_measures_all_that_goes_well(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    processes: set[float] = set()

    def during(self: Conditions, span: tuple[float, float] | None) -> dict[str, float]:
        processes.update(span[1:] if span else ())
        return {"watts": 700.0}

    monkeypatch.setattr(Conditions, "during", during)
    code, found, _ = speed_of((4096, 16384), monkeypatch, tmp_path)
    assert (code, len(found), len(processes)) == (0, 2, 1)
    assert [each["watts"] for each in found.values()] == [700.0] * 2


def test_a_case_that_the_time_ends_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As is what was not begun; neither went wrong. The hour is over as soon as the first peer is prepared."""
    passed, keep = [0.0], Kept.found

    def found_late(self: Kept, found: Any, whole: bool) -> None:
        passed[0] = 3600.0
        keep(self, found, whole)

    monkeypatch.setattr(Kept, "found", found_late)
    for module in (gpu, watch):
        monkeypatch.setattr(module, "monotonic", lambda: time.monotonic() + passed[0])
    code, found, kept = speed_of((8192, 4096), monkeypatch, tmp_path, "--minutes", "60")
    cut_off = "product m 8192, n 8192, k 8192"
    assert (code, list(found)) == (0, [cut_off])
    assert reasons(found[cut_off]) == {"cuBLAS": None, "treadle": "the time is over"}
    assert kept["speed, not begun"] == ["product m 4096, n 4096, k 4096"]


def test_a_part_of_a_case_does_not_replace_the_whole(tmp_path: Path) -> None:
    """As when those who compile for a minute are measured with all others again, and the time ends that."""
    case, kept = cases.product(8), Kept({}, lambda: None, Conditions())
    kept.found(found(case, treadle=1.0), False)
    kept.found(found(case, treadle=2.0, cuBLAS=2.0), True)
    kept.found(found(case, cuBLAS=3.0), False)
    assert kept.cases[str(case)].rates.keys() == {"treadle", "cuBLAS"}
    kept.found(found(case, treadle=2.0, cuBLAS=2.0, Triton=1.0), True)
    assert kept.cases[str(case)].rates.keys() == {"treadle", "cuBLAS", "Triton"}


def test_a_child_measures_what_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until there is no more, and gives back the memory of each case."""
    done: list[Any] = []
    device = SimpleNamespace(name=lambda: "NVIDIA H100")
    there = SimpleNamespace(Context=SimpleNamespace(get_device=lambda: device, synchronize=lambda: None))
    monkeypatch.setattr(runtime_gpu, "driver", lambda: there)
    monkeypatch.setattr(child, "measure_one_case", lambda job, *_: done.append((str(job.case), job.without)))
    monkeypatch.setattr(kernels, "free_memory", lambda: done.append("freed"))
    ours, theirs = Pipe()
    with theirs:
        with ours:
            ours.send(Job(cases.product(8), ("cuBLAS",)))
            ours.send(Job(cases.product(16)))
        child.serve(theirs)
    assert done == [
        ("product m 8, n 8, k 8", ("cuBLAS",)),
        "freed",
        ("product m 16, n 16, k 16", ()),
        "freed",
    ]


def test_what_a_child_says_last_is_what_went_wrong() -> None:
    """And not what libraries say of it as the process ends."""
    script = f"""
import atexit, sys
sys.path.insert(0, {str(BENCHMARKS)!r})
import gpu
from speed import child
def serve(connection):
    print("on the way")
    raise ValueError("illegal address")
child.serve = serve
atexit.register(print, "terminate called")
gpu.measure_in_child(None, None)
"""
    done = subprocess.run(told(script), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 1
    first, *_, last = done.stdout.splitlines()
    assert (first, last) == ("on the way", "ValueError: illegal address")


def test_what_a_case_had_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of PyTorch, where it is in use, and of its compiler, which would else go over to code for any size."""
    done: list[str] = []
    monkeypatch.setitem(sys.modules, "torch._dynamo", SimpleNamespace(reset=lambda: done.append("reset")))
    monkeypatch.setitem(
        sys.modules, "torch", SimpleNamespace(cuda=SimpleNamespace(empty_cache=lambda: done.append("emptied")))
    )
    kernels.free_memory()
    assert done == ["reset", "emptied"]
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.delitem(sys.modules, "torch._dynamo")
    kernels.free_memory()
    assert len(done) == 2


SMI = f"""#!{sys.executable}
import datetime, sys, time
assert "--id=0" in sys.argv
for i in range(1000):
    now = datetime.datetime.now().strftime("%Y/%m/%d %H:%M:%S.%f")[:-3]
    print(now + (", 1755, 690.25" if i != 1 else ", [N/A], 690.25"), flush=True)
    time.sleep(0.02)
"""


def test_clock_and_power_are_noted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of the time of a case; nothing where nvidia-smi is not there, or tells none."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with Conditions() as none:
        assert none.during((0.0, inf)) == {}
    tool = tmp_path / "nvidia-smi"
    tool.write_text(SMI, encoding="utf-8")
    tool.chmod(0o755)
    begin, until = time.time(), time.monotonic() + 20
    with Conditions() as conditions:
        while not (noted := conditions.during((begin - 1, inf))) and time.monotonic() < until:
            time.sleep(0.01)
    assert noted == {"clock MHz": 1755, "watts": 690.2}
    assert conditions.during((begin - 20, begin - 10)) == conditions.during(None) == {}


def test_who_compiles_for_a_minute_does_so_beforehand(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each case has everybody; our kernel in Triton, one for all lengths. Only who tries no ways out finds more than
    Triton's machine code."""
    listed, begun = list(cases.cases(quick=False)), list[tuple[list[list[str]], str]]()

    class Process:
        def __init__(self, command: list[str], env: dict[str, str], **_: Any):
            begun.append((json.loads(command[-1]), env["TORCHINDUCTOR_CACHE_DIR"]))

        def wait(self, *_: float) -> None:
            return None

        kill = wait

    monkeypatch.setattr(ahead.subprocess, "Popen", Process)
    ahead.warm(listed, tmp_path, tmp_path, inf)
    told = [(who, name) for group, _ in begun for who, name in group]
    wanted = {(who, str(case)) for case in listed for who in kernels.SLOW if who in kernels.PEERS[case.kind]}
    assert len(told) == len(set(told))
    assert set(told) <= wanted
    left = {(who, name) for who, name in wanted - set(told)}
    assert {who for who, _ in left} == {"Triton"}
    assert sum(who == "Triton" and "attention" in name for who, name in told) == 6  # widths, causal and not
    shared = str(tmp_path / "inductor")
    assert all((folder == shared) == (who == "FlexAttention") for group, folder in begun for who, _ in group)


def test_caches_of_others_are_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", "before")
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    with ahead.caches() as folder:
        assert os.environ["TRITON_CACHE_DIR"] == f"{folder}/triton"
        assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == f"{folder}/inductor"
    assert os.environ["TRITON_CACHE_DIR"] == "before"
    assert "TORCHINDUCTOR_CACHE_DIR" not in os.environ
    assert not folder.exists()


def test_kernels_are_lowered_beside() -> None:
    """As a process that measures would: the same text."""
    case = cases.softmax(1024)
    with closing(ahead.Ahead([case], "h100")) as found:
        assert found[case] == ahead.lower(case, "h100")
        assert "softmax" in ahead.lower(case, "h100").cuda


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


def test_our_kernels_for_an_older_machine_are_nobody_elses() -> None:
    both = {"treadle": 2.0, "SDPA flash": 3.0, found_of.of_older("a100"): 1.0}
    assert found(cases.attention(4, 16, 4096, 128), **both).ratio() == pytest.approx(1.5)
