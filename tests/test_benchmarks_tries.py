"""`benchmarks/tries.py` and the questions that it asks: without a GPU."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarking import BENCHMARKS, benchmark
from treadle.compiler.errors import TreadleError
from treadle.compiler.machines import load_machine
from treadle.compiler.pipeline import NEEDED, Options, pipeline
from treadle.runtime import gpu as runtime_gpu
from treadle.runtime import gpu_facts

tries = benchmark("tries")

from speed import cases, kernels, watch  # noqa: E402  (benchmarks/tries.py makes it importable)
from speed.found import Found, Measured  # noqa: E402

carried, preparing, results = (sys.modules[name] for name in ("carried", "preparing", "results"))
questions, ways = sys.modules["questions"], sys.modules["ways"]

LISTED = list(questions.questions())
GRID = [(question, label) for question in LISTED for label, _ in tries.every(question)]
SMALL = questions.Question(
    "Which is faster?",
    cases.product(256),
    {
        **questions.without("warp-specialization"),
        "again": questions.Changes(),
        "too large": questions.sizes(group="m=4096"),
        "of no pass": questions.option("cuda-hurry"),
    },
    ("cuBLAS",),
)


# -- the questions -------------------------------------------------------------------------------------


def test_questions_are_about_cases_of_their_own() -> None:
    """By whose names results know them, and who stopped a process that measured."""
    assert len({str(each.case) for each in LISTED}) == len(LISTED)
    for each in LISTED:
        assert each.asked.endswith("?")
        assert set(each.beside) <= set(kernels.PEERS[each.case.kind])
        assert not {ways.OWN, *each.beside} & set(each.ways)
        assert each.machine is None or load_machine(each.machine)
        assert each.ways or each.beside


def test_ways_change_what_the_pipeline_does() -> None:
    """A pass that is left out is one that it has and can do without."""
    names = {each.name for each in pipeline(Options("h200"))} - set(NEEDED)
    for changes in (each for question in LISTED for each in question.ways.values()):
        assert changes.options or changes.left_out
        assert set(changes.left_out) <= names
        own = pipeline(Options("h200"))
        assert changes.applied(own) != own


def test_changes_are_added() -> None:
    both = questions.sizes(group="q=64", turns=0) + questions.Changes(left_out=("cuda-persist",))
    assert str(both) == 'hierarchy-choose-sizes{group="q=64" turns=0}, without cuda-persist'
    applied = both.applied(pipeline(Options("h200")))
    assert "cuda-persist" not in {each.name for each in applied}
    (choice,) = (each for each in applied if each.name == "hierarchy-choose-sizes")
    assert choice.parameters == {"group": ("q=64",), "turns": (0,)}
    with pytest.raises(TreadleError, match="has no pass 'cuda-hurry'"):
        questions.option("cuda-hurry{more=true}").applied(pipeline(Options("h200")))


@pytest.mark.sample(2, each=False)
@pytest.mark.parametrize(("question", "label"), GRID, ids=[f"{question.case}: {label}" for question, label in GRID])
def test_every_way_compiles_or_is_refused_with_a_reason(question: Any, label: str) -> None:
    (each,) = (each for each in tries.tries_of(question, "h200") if each.label == label)
    way = each._made()
    assert bool(way.cuda) != bool(way.refused)
    assert "what others rest on is not made" not in way.refused
    assert not way.refused or label != ways.OWN


# -- the command line ----------------------------------------------------------------------------------


def test_without_a_gpu_it_says_so_and_writes_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runtime_gpu, "missing_for_gpu", lambda: "no GPU: there is no driver")
    monkeypatch.setattr(tries, "Run", lambda *_: pytest.fail("there is nothing to run on"))
    before = set((BENCHMARKS / "results").iterdir())
    assert tries.main([]) == 0
    assert capsys.readouterr().out == "no GPU: there is no driver: nothing was measured\n"
    assert set((BENCHMARKS / "results").iterdir()) == before


def test_questions_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """With what each way changes, unless its name says that."""
    assert tries.main(["--list", "--cases", "causal attention of 512|an A100"]) == 0
    first, *others = capsys.readouterr().out.strip().split("\n\n")
    lines = first.splitlines()
    assert lines[:3] == [
        "And causal attention of 512?",
        "  causal attention b 32, h 16, q 512, x 512, d 128",
        "    as the pipeline makes it",
    ]
    assert '    128 x 64: hierarchy-choose-sizes{group="b=1,h=1,q=128" stream="x=64"}' in lines
    assert "    without cuda-speculate" in lines
    assert lines[-1] == "    beside SDPA cuDNN"
    assert len(others) == 3
    assert all("for a100" in each for each in others)


# -- compiling -----------------------------------------------------------------------------------------


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[str, str]]:
    """What nvcc was asked for, in this process; a cache of its own."""
    from treadle.runtime import nvcc
    from treadle.runtime.cache import cache_directory

    class Pool:
        def __init__(self, workers: int): ...
        def __enter__(self) -> Pool:
            return self

        def __exit__(self, *_: object) -> None: ...
        def map(self, function: Any, given: Sequence[Any]) -> Any:
            return map(function, given)

    asked: list[tuple[str, str]] = []

    def compile_cubin(text: str, target: str) -> nvcc.Cubin:
        asked.append((text, target))
        path = cache_directory() / "cubin" / "made.cubin"
        path.parent.mkdir(exist_ok=True)
        for each in (path, path.with_suffix(".log"), path.with_name("made.cubin.sha256")):
            each.write_bytes(b"code")
        return nvcc.Cubin(path, "")

    def prepare(capability: Any, workers: int, every: Any, archive: Path | None, others: Any) -> int:
        made = [preparing.compile_one(each, capability)[0] for each in every]
        if archive is not None:
            carried.pack(dict.fromkeys(made), archive, others)
        return 0

    monkeypatch.setenv("TREADLE_CACHE", str(tmp_path / "here"))
    monkeypatch.setattr(tries, "ProcessPoolExecutor", Pool)
    monkeypatch.setattr(preparing, "prepare", prepare)
    monkeypatch.setattr(nvcc, "compile_cubin", compile_cubin)
    return asked


def test_what_is_prepared_is_made_once(
    compiled: list[tuple[str, str]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Refused ways, too: where the archive is unpacked nothing is derived again."""
    monkeypatch.setattr(tries, "questions", lambda: iter([SMALL]))
    archive = tmp_path / "tries.tar.xz"
    assert tries.main(["--prepare", "h200", "--archive", str(archive), "--workers", "1"]) == 0
    said = capsys.readouterr().out
    assert f"2 ways of {SMALL.case}\n    again: it prints the same as '{ways.OWN}'\n" in said
    assert "    of no pass: the pipeline has no pass 'cuda-hurry'" in said
    assert len(compiled) == 2
    assert {target for _, target in compiled} == {"sm_90a"}
    monkeypatch.setenv("TREADLE_CACHE", str(tmp_path / "there"))
    carried.unpack(archive)
    monkeypatch.setattr(tries, "make_way", lambda *_: pytest.fail("it was made before"))
    ((own, other, *refused),), code = tries.prepare([SMALL], "h200", (9, 0), 1)
    assert code == 0
    assert (own.refused, other.refused) == ("", "")
    assert own.cuda != other.cuda
    assert all(each.refused for each in refused)
    assert compiled[2:] == compiled[:2]


def test_what_goes_wrong_with_one_way_stops_no_other(
    compiled: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    make = ways.make_way

    def fails(case: Any, what: str, passes: Any) -> Any:
        if what != ways.OWN:
            raise KeyError(what)
        return make(case, what, passes)

    monkeypatch.setattr(tries, "make_way", fails)
    ((own, other, *_),), code = tries.prepare([SMALL], "h200", (9, 0), 1)
    assert (own.refused, other.refused, code) == ("", "'without warp-specialization'", 0)


def test_questions_are_compiled_some_at_a_time() -> None:
    """So many that every process has something to do."""
    some = list(tries.batches(LISTED, 16))
    assert [each for batch in some for each in batch] == LISTED
    assert all(sum(len(each.ways) + 1 for each in batch) >= 16 for batch in some[:-1])
    assert list(tries.batches([], 16)) == []


# -- measuring -----------------------------------------------------------------------------------------


class Watch:
    """Gives the first way of a case 2 ms, the second 1 ms, and its peers none."""

    def __init__(self, command: Any, until: float, found: Any, ended: Any):
        self.found, self.ended = found, ended

    def measure(self, job: Any) -> None:
        known = json.loads(next(results.RESULTS.glob("tries-*.json")).read_text(encoding="utf-8"))
        assert str(job.case) in known["not begun"]
        seconds = dict(zip(job.ways, (2e-3, 1e-3), strict=False))
        timed = [Measured(who, results.Sample((each,)), 0.0) for who, each in seconds.items()]
        left = [Measured(who, reason="WRONG: it differs by 3") for who in (*list(job.ways)[2:], *job.beside)]
        self.found(Found(job.case, [*timed, *left]), True)
        self.ended(tries.checks.Done(str(job.case), True, 1.0))

    def close(self) -> None: ...


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, compiled: Any) -> None:
    """As if there were an H200."""
    monkeypatch.setattr(runtime_gpu, "missing_for_gpu", lambda: None)
    monkeypatch.setattr(gpu_facts, "gpus", lambda: (gpu_facts.Gpu("NVIDIA H200", (9, 0), 2**37),))
    monkeypatch.setattr(results, "RESULTS", tmp_path / "results")
    monkeypatch.setenv(results.LABEL, "")
    monkeypatch.setattr(watch, "Watch", Watch)
    older = questions.Question("And before?", cases.product(320), {}, ("cuBLAS",), "a100")
    monkeypatch.setattr(tries, "questions", lambda: iter([SMALL, older]))


def kept() -> Any:
    (path,) = results.RESULTS.glob("tries-nvidia-h200-*.json")
    return json.loads(path.read_text(encoding="utf-8"))


def test_what_is_found_is_kept(run: None, capsys: pytest.CaptureFixture[str]) -> None:
    """With what was refused, or wrong, and what each way changes."""
    assert tries.main(["--workers", "1"]) == 0
    found = kept()
    assert found["not begun"] == found["failed"] == []
    own, other = found["cases"].values()
    assert (own["asked"], own["for"], other["for"]) == ("Which is faster?", "h200", "a100")
    assert own["ways"]["without warp-specialization"]["ratio"] == 0.5
    assert own["ways"]["cuBLAS"]["not measured"] == "WRONG: it differs by 3"
    assert set(own["refused"]) == {"again", "too large", "of no pass"}
    assert own["changes"]["too large"] == 'hierarchy-choose-sizes{group="m=4096"}'
    assert own["model us"][ways.OWN] > 0
    said = capsys.readouterr().out
    assert "Which is faster?\n" in said
    assert "it prints the same as 'as the pipeline makes it'" in said


def test_where_every_way_is_refused_nobody_is_measured(run: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tries, "make_way", lambda case, what, passes: ways.Way(what, refused="no room"))
    monkeypatch.setattr(Watch, "measure", lambda *_: pytest.fail("there is nothing to measure"))
    assert tries.main(["--workers", "1"]) == 0
    assert kept()["cases"][str(SMALL.case)]["refused"][ways.OWN] == "no room"


def test_nothing_begins_when_the_time_is_over(run: None, compiled: list[Any]) -> None:
    assert tries.main(["--workers", "1", "--minutes", "0"]) == 0
    assert kept()["not begun"] == [str(cases.product(256)), str(cases.product(320))]
    assert compiled == []


def test_each_question_is_kept_before_the_next(run: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who stops a process that measures is told, and the others go on."""

    class Fails(Watch):
        def measure(self, job: Any) -> None:
            if job.case == SMALL.case:
                self.ended(tries.checks.Done(f"{job.case}: {ways.OWN}", False, 1.0, "it did not end"))
                return
            assert kept()["failed"][0]["said"] == "it did not end"
            assert "refused" in kept()["cases"][str(SMALL.case)]
            super().measure(job)

    monkeypatch.setattr(watch, "Watch", Fails)
    assert tries.main(["--workers", "1"]) == 1
    assert kept()["cases"][str(cases.product(320))]["ways"][ways.OWN]["seconds"]
