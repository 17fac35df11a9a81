"""`benchmarks/ablation.py`: which ways there are beside the pipeline's own, what is told of them, and how their results
are judged; without a GPU."""

from __future__ import annotations

import json
import re
import sys
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarking import benchmark
from treadle.compiler.pipeline import NEEDED, Options, pipeline
from treadle.compiler.source import parse_module
from treadle.compiler.tune import alternatives
from treadle.compiler.tune.alternatives import WithOption, other_options
from treadle.compiler.universe import PASSES
from treadle.runtime.interpreter import entry_function, run_function

ablation = benchmark("ablation")

import ways  # noqa: E402  (benchmarks/ablation.py makes it importable)
from speed import cases, kernels, measured, sampled  # noqa: E402
from speed.ahead import Lowered  # noqa: E402
from speed.news import Job  # noqa: E402

CASE = cases.product(256)


# -- ways ----------------------------------------------------------------------------------------------


@pytest.fixture
def few_options(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of two passes only: all of them take a minute."""

    def some(passes: Any) -> list[WithOption]:
        return [each for each in other_options(passes) if each.name in ("cuda-cluster", "coalescing")]

    monkeypatch.setattr(alternatives, "other_options", some)
    monkeypatch.setenv("TREADLE_CACHE", str(tmp_path / "cache"))


def test_ways_are_found_from_the_pipeline(few_options: None, monkeypatch: pytest.MonkeyPatch) -> None:
    own, *others = ways.ways_of(CASE, "h100", 1)
    assert own.what == ways.OWN
    assert own.model_us is not None
    left_out = [each.what.removeprefix("without ") for each in others if each.what.startswith("without ")]
    assert {"warp-specialization", "pipelining"} <= set(left_out)
    assert set(left_out) <= set(PASSES) - set(NEEDED)
    assert any(each.what.startswith("@matmul with m = ") for each in others)
    made = [each.cuda for each in (own, *others) if not each.refused]
    assert len(set(made)) == len(made)
    assert all("__global__" in each for each in made)
    by_name = {each.what: each for each in others}
    assert "a vector has 2, 4, 8 or 16 bytes" in by_name["coalescing{max_bytes=32}"].refused
    alone = by_name["without warp-specialization"]
    assert alone.model_us is not None
    assert alone.model_us != own.model_us
    assert by_name["without pipelining"].model_us is None, "the model takes it to be there"

    monkeypatch.setattr(ways, "_made", lambda *_: pytest.fail("they are in the cache"))
    assert ways.ways_of(CASE, "h100", 1) == [own, *others]


def test_options_are_told_by_their_types() -> None:
    found = {str(each) for each in other_options(pipeline(Options("h100")))}
    assert {
        "pipelining{carry=false}",
        "pipelining{delay=false}",
        "pipelining{stages=1}",
        "pipelining{stages=4}",
        "cuda-cluster{size=2}",
        'cuda-persist{longest="none"}',
        "cuda-ping-pong{turns=true}",
        "cuda-ping-pong{turns=false}",
        "fusion{together=false}",
    } <= found
    assert not any(each.startswith("set-machine") for each in found)
    sizes = {each for each in found if each.startswith("hierarchy-choose-sizes")}
    assert sizes == {f'hierarchy-choose-sizes{{left="{where}"}}' for where in ("registers", "shared")}
    replaced = WithOption("pipelining", "carry", (False,)).applied(pipeline(Options("h100")))
    assert [each.parameters for each in replaced if each.name == "pipelining"] == [{"carry": (False,)}]


def test_programs_are_those_that_are_published() -> None:
    every = list(ablation.programs())
    assert len({str(each) for each in every}) == len(every)
    kinds = {"attention", "causal attention", "window attention", "mixed attention", "product", "layer", "swiglu"}
    assert {each.kind for each in every} == {each.kind for each in ablation.programs(few=True)} == kinds
    assert {each.sizes["q"] for each in every if each.kind == "causal attention"} == {512, 1024, 4096}
    assert set(ablation.known()) >= {str(each) for each in every}


def test_what_is_counted_is_told() -> None:
    found = [
        ablation.Counted(ways.OWN, "", 10.0, 1, 168, 0, 1, 5.5),
        ablation.Counted("without fusion", "", 20.0, 3, 64, 8, 4, None),
        ablation.Counted("without tiling", "nothing is cut | into groups", None),
        ablation.Counted("without pipelining", "", None, 1, 168, 0, 1, 6.0),
    ]
    assert ablation.counted_rows(found) == [
        [ways.OWN, "10", "1.00", "1", "168", "0", "1", "5.50"],
        ["without fusion", "20", "2.00", "3", "64", "8", "4", "-"],
        ["without pipelining", "-", "-", "1", "168", "0", "1", "6.00"],
    ]
    page = ablation.counted_page({"one": found, "two": found}, "h100")
    assert "| without tiling | nothing is cut \\| into groups | 2 |" in page


def test_the_page_shows_what_was_found() -> None:
    """As the result that it names holds it."""
    page = (ablation.checks.ROOT / "docs" / "ablation.md").read_text(encoding="utf-8")
    (name,) = set(re.findall(r"`(ablation-[a-z0-9-]+\.json)`", page))
    data = json.loads((sys.modules["results"].KEPT / name).read_text(encoding="utf-8"))
    found = {case: [ablation.Counted(**each) for each in many] for case, many in data["cases"].items()}
    assert ablation.beside_each_other(found) in page
    assert len(found) >= 5


def test_counts_are_written_as_they_come(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In the order of the programs, whichever is done first; machine code of those that are asked for."""
    asked: dict[str, bool] = {}

    class Executor:
        def __init__(self, workers: int): ...
        def __enter__(self) -> Executor:
            return self

        def __exit__(self, *_: Any) -> None: ...
        def submit(self, function: Any, name: str, machine: str, others: int, reads_code: bool) -> Future[Any]:
            asked[name] = reads_code
            done: Future[Any] = Future()
            done.set_result([ablation.Counted(ways.OWN, "", float(len(asked)))])
            return done

    monkeypatch.setattr(ablation, "ProcessPoolExecutor", Executor)
    monkeypatch.setattr(sys.modules["results"], "RESULTS", tmp_path)
    chosen = [cases.product(512), cases.softmax(512), CASE]
    path = ablation.count_all(chosen, "h100", 1, 1, "^product")
    assert asked == {str(chosen[0]): True, str(chosen[1]): False, str(CASE): True}
    assert list(json.loads(path.read_text(encoding="utf-8"))["cases"]) == [str(each) for each in chosen]
    page = path.with_suffix(".md").read_text(encoding="utf-8")
    assert page.index("## product m 512") < page.index("## softmax") < page.index(f"## {CASE}")


# -- the reference -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "axes"),
    [
        (cases.product(8), {"m", "n"}),
        (cases.attention(1, 2, 8, 64), {"b", "h", "q", "e"}),
        (cases.attention(1, 2, 8, 64, causal=True), {"b", "h", "e"}),
        (cases.softmax(8), {"row"}),
        (cases.layer(8, 8, 8), {"t", "o"}),
        (cases.swiglu(8), {"t", "j"}),
    ],
    ids=lambda each: getattr(each, "kind", ""),
)
def test_axes_of_which_some_indices_do(case: Any, axes: set[str]) -> None:
    """Not those that are summed, nor those that a condition asks for."""
    assert sampled.independent_axes(entry_function(parse_module(case.program))) == axes


@pytest.mark.parametrize("case", [cases.attention(2, 3, 40, 64, causal=True), cases.product(40)], ids=str)
def test_results_are_judged_at_some_places(case: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampled, "MOST_WORK", 2**14)
    inputs = kernels.inputs_of(case)
    reference = sampled.sampled(case, inputs)
    assert any(len(each) < case.sizes[axis] for axis, each in reference.indices.items())
    (whole,) = run_function(parse_module(case.program), inputs).results
    result = np.asarray(whole).astype(np.float16)
    assert reference.judge(case, result).ok
    assert reference.judge(case, result + np.float16(0.5)).wrong


# -- measuring -----------------------------------------------------------------------------------------


def test_ways_are_measured_beside_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the same numbers; who is wrong at the known places has no time, and is not what others are compared with."""
    inputs, results, asked = kernels.inputs_of(CASE), {"own": 1.0, "slow": 1.0, "wrong": 3.0, "off": 2.0}, list[Any]()

    def prepare(case: Any, given: Any, device: str, lowered: Any, uploaded: Any) -> kernels.Prepared:
        asked.append((uploaded, [id(each) for each in given]))
        return kernels.Prepared(lambda: lowered.cuda, lambda: np.full(3, results[lowered.cuda]))

    def judge(case: Any, result: Any) -> Any:
        return SimpleNamespace(wrong=result[0] == 3.0, note="", __str__=lambda: "WRONG")

    def timer(call: Any, repeats: int) -> float:
        return repeats * (2e-3 if call() == "slow" else 1e-3)

    monkeypatch.setattr(measured, "prepare_treadle", prepare)
    made = {who: Lowered("", who, (), "sm_90a") for who in ("wrong", "own", "slow", "off", "out")}
    reference: Any = SimpleNamespace(judge=judge)
    job = Job(CASE, ("out",), None, made, reference)
    found = measured.measure_ways(job, inputs, "NVIDIA H100", timer, lambda news: None, lambda: None)
    seconds = {each.who: each.seconds and each.seconds.median for each in found.measured}
    assert seconds == {"wrong": None, "own": pytest.approx(1e-3), "slow": pytest.approx(2e-3), "off": None}
    assert len({id(uploaded) for uploaded, _ in asked}) == 1
    assert all(len(each.seconds.seconds) == measured.WAYS_ROUNDS for each in found.measured if each.seconds)

    monkeypatch.setattr(measured, "prepare_torch", lambda *_: kernels.Prepared(lambda: "", lambda: np.full(3, 1.0)))
    job = Job(CASE, ("a peer that is out",), None, {"own": made["own"]}, beside=("a peer", "a peer that is out"))
    found = measured.measure_ways(job, inputs, "NVIDIA H100", timer, lambda news: None, lambda: None)
    assert [each.who for each in found.measured if each.seconds] == ["own", "a peer"]

    own = {"who": ways.OWN, "seconds": {"median": 1e-3}}
    rows = ablation.measured_rows({"ways": {"x": {"seconds": {"median": 2e-3}, "ratio": 2.0}, ways.OWN: own}})
    assert rows == [[ways.OWN, "1000", "1.000", "0"], ["x", "2000", "2.000", "0"]]


def test_all_results_of_a_kernel_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several, all elements, one after another."""
    from treadle.compiler.bench import gpu as recorder
    from treadle.runtime import host

    results = np.ones((2, 3), np.float16), np.full(4, 2, np.float32)
    monkeypatch.setattr(recorder, "Recorder", lambda *_: SimpleNamespace(variants=["one"], launches=[]))
    monkeypatch.setattr(host, "execute", lambda *_: results)
    prepared = kernels.prepare_treadle(CASE, [], "NVIDIA H100", Lowered(CASE.program, "", (), "sm_90a"))
    assert prepared.result().tolist() == [1, 1, 1, 1, 1, 1, 2, 2, 2, 2]
    assert kernels.as_one(results[:1]) is results[0]


def test_arrays_are_uploaded_once() -> None:
    uploads = list[Any]()
    shared = kernels.Uploaded().by(lambda array: (uploads.append(array), len(uploads))[1])
    one, other = np.zeros((4, 6), np.float16), np.zeros((4, 6), np.float16)
    assert [shared(one), shared(other), shared(one), shared(one[:, ::2])] == [1, 2, 1, 3]


def test_what_is_found_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """After each case, with what was refused and what was not begun."""
    from speed import watch
    from speed.found import Found, Measured

    results = sys.modules["results"]
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    way = [ways.Way(ways.OWN, cuda="own"), ways.Way("without x", cuda="x"), ways.Way("without y", refused="needed")]
    monkeypatch.setattr(ablation, "_ahead", lambda *_: (way, None))

    class Pool:
        def __init__(self, *_: Any): ...
        def __enter__(self) -> Pool:
            return self

        def __exit__(self, *_: Any) -> None: ...
        def apply_async(self, function: Any, given: Any) -> Any:
            def get(timeout: float | None) -> Any:
                if timeout == 0:
                    raise ablation.TimeoutError
                return function(*given)

            return SimpleNamespace(get=get)

    class Watch:
        def __init__(self, command: Any, until: float, found: Any, ended: Any):
            self.found = found

        def measure(self, job: Job) -> None:
            assert list(job.ways) == [ways.OWN, "without x"]
            times = {ways.OWN: 1e-3, "without x": 1.5e-3}
            several = [Measured(who, results.Sample((seconds,))) for who, seconds in times.items()]
            self.found(Found(job.case, several), True)

        def close(self) -> None: ...

    monkeypatch.setattr(ablation, "Pool", Pool)
    monkeypatch.setattr(watch, "Watch", Watch)
    path = ablation.Measuring("NVIDIA H100", "h100").all([CASE], 1, lambda _: [])
    kept = json.loads(path.read_text(encoding="utf-8"))["cases"][str(CASE)]
    assert kept["refused"] == {"without y": "needed"}
    assert kept["ways"]["without x"]["ratio"] == 1.5
    page = path.with_suffix(".md").read_text(encoding="utf-8")
    assert "| without x | 1500 | 1.500 | 0 |" in page
    assert "| without y | needed | 1 |" in page
    late = ablation.Measuring("NVIDIA H100", "h100", until=0.0)
    late.all([CASE], 1, lambda _: [])
    assert late.data["not begun"] == [str(CASE)]
