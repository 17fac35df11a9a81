"""`benchmarks/gpu.py --unmeasured`: what results hold already, what is left, and in which order it runs; without a
GPU."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from benchmarking import benchmark, run_of, told

gpu = benchmark("gpu")

import known  # noqa: E402  (benchmarks/gpu.py makes it importable)
import results  # noqa: E402
from speed import cases  # noqa: E402

checks, preparing = sys.modules["checks"], sys.modules["preparing"]
DEVICE = "NVIDIA H100 80GB HBM3"


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(results, "KEPT", tmp_path / "kept")
    monkeypatch.setattr(results, "RESULTS", tmp_path / "now")
    monkeypatch.setenv(results.LABEL, "")  # so that what a run sets is undone
    monkeypatch.delenv(results.LABEL)
    return tmp_path / "kept"


def keep(folder: Path, what: str, data: dict[str, Any]) -> None:
    folder.mkdir(exist_ok=True)
    path = folder / f"{what}-{results.slug(DEVICE)}-2026-11-26.json"
    path.write_text(json.dumps(data), encoding="utf-8")


def test_what_results_hold(folder: Path) -> None:
    ours = [{"who": "treadle", "seconds": {"median": 1.0}}, {"who": "cuBLAS", "not measured": "no"}]
    theirs = [{"who": "treadle", "not measured": "the time is over"}, {"who": "cuBLAS", "seconds": {"median": 1.0}}]
    checked = [{"what": "memcheck a", "ok": True, "code": "12"}, {"what": "racecheck a", "ok": False, "code": "12"}]
    failed = {"what": "product: treadle", "ok": False}
    speed = [{"case": str(cases.product(4096)), "kernels": ours}, {"case": "product m 1", "kernels": theirs}]
    keep(
        folder, "gpu", {"speed": [*speed, {"case": "x", **failed}], "sanitizer": [*checked, {"what": "b", "ok": True}]}
    )
    rows = [{"program": "softmax", "sizes": {"x": size}} for size in (512, 512, 1024)]
    keep(folder, "bench-predict", {"rows": rows})
    keep(folder, "predict-matmul", {"rows": [{"program": "matmul", "sizes": {}}]})
    keep(folder, "ablation", {"cases": {"one": {"ways": {"own": {"seconds": {}}}}, "two": {"ways": {"own": {}}}}})
    (folder / f"gpu-{results.slug(DEVICE)}-2026-11-27.json").write_text('{"speed": [', encoding="utf-8")
    assert known.speeds(DEVICE) == {str(cases.product(4096))}
    assert known.checked(DEVICE) == {("memcheck a", "12")}
    assert known.predicted(DEVICE) == Counter(softmax=2, matmul=1)
    assert known.taken_apart(DEVICE) == {"one"}
    assert known.speeds("NVIDIA H200") == set()
    assert known.first_unknown(["softmax", "matmul", "rms_norm"], known.predicted(DEVICE))[0] == "rms_norm"
    listed = [str(case) for case in preparing.cases_of_speed(preparing.Chosen(unmeasured=DEVICE))]
    assert str(cases.product(4096)) not in listed
    assert str(cases.product(16384)) in listed


def test_results_of_this_repository_are_read() -> None:
    """Those that a run measured are none that are left; long rows, and what a run had no time for, are."""
    left = [str(case) for case in preparing.cases_of_speed(preparing.Chosen(unmeasured=DEVICE))]
    assert not {str(cases.attention(4, 16, 4096, 128)), str(cases.product(16384))} & {*left}
    assert {str(cases.softmax(65536)), str(cases.rms_norm(1024)), str(cases.swiglu(8192))} <= {*left}


def test_no_result_of_the_day_is_replaced(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert results.free_label(DEVICE) == ""
    first = results.write("gpu", {}, DEVICE)
    assert results.free_label(DEVICE) == "-2"
    monkeypatch.setenv(results.LABEL, "-2")
    second = results.write("gpu", {}, DEVICE)
    assert second != first
    assert second.name.endswith("-2.json")
    assert results.free_label(DEVICE) == "-3"
    assert results.free_label(DEVICE, "-evening") == "-evening"
    monkeypatch.setenv(results.LABEL, "-evening")
    results.write("gpu", {}, DEVICE)
    assert results.free_label(DEVICE, "-evening") == "-evening-2"


def test_parts_run_in_the_order_of_what_nobody_measured(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    begun: list[str] = []
    for part in gpu.UNMEASURED:
        monkeypatch.setattr(gpu.Run, f"_{part}", lambda self, part=part: begun.append(part))
    code, kept = run_of({}, monkeypatch, tmp_path, "--unmeasured", "--minutes", "13", only="")
    assert code == 0
    assert begun == ["suites", "sanitizer", "predict", "speed", "launch", "ablation"]
    assert kept["not run"] == []


def test_suites_are_modules_in_small_parts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, folder: Path) -> None:
    """In an environment that names what was derived beforehand."""
    commands = checks.suite_commands(checks.FIRST_SUITES, "cpu")
    assert all("--movable" in command and "--device" not in command for command in commands.values())
    assert len(commands) == sum(checks.FIRST_SUITES.values())
    said = "import os; print(os.environ['TREADLE_TEST_CACHE'])"
    monkeypatch.setenv("TREADLE_CACHE", str(tmp_path / "cache"))
    given = ("--unmeasured", "--only", "suites", "--workers", "1")
    code, kept = run_of({}, monkeypatch, tmp_path, *given, suites={"test_torch.py": told(said)})
    assert code == 0
    assert kept["suites"][0]["said"] == str(tmp_path / "cache" / "suites")


def test_the_sanitizer_runs_on_new_code_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, folder: Path) -> None:
    monkeypatch.setattr(checks, "SMALL", {"matmul": ("m=8",), "softmax": ()})
    monkeypatch.setattr(checks, "TOOLS", ("memcheck",))
    monkeypatch.setattr(checks, "find_sanitizer", lambda: "compute-sanitizer")
    monkeypatch.setattr(checks, "treadle_run", lambda *_: [])
    monkeypatch.setattr(checks, "_under", lambda *_: told(""))
    codes = {(program, machine): f"code of {program}" for program in checks.SMALL for machine in ("h100", "a100")}
    monkeypatch.setattr(gpu, "digests", lambda machines: codes)
    rows = [{"what": "memcheck softmax for h100", "ok": True, "code": "code of softmax"}]
    folder.mkdir()
    (folder / f"gpu-{results.slug('NVIDIA H100')}-2026-11-26.json").write_text(json.dumps({"sanitizer": rows}))
    code, kept = run_of({}, monkeypatch, tmp_path, "--unmeasured", "--only", "sanitizer", "--workers", "1")
    assert code == 0
    told_of = [(each["what"], each["code"]) for each in kept["sanitizer"]]
    assert told_of == [
        ("memcheck matmul m=8 for h100", "code of matmul"),
        ("memcheck matmul m=8 for a100", "code of matmul"),
        ("memcheck softmax for a100", "code of softmax"),
    ]


def test_code_is_told_apart() -> None:
    one, other = (gpu.digest(("matmul", (f"m={m}", "n=72", "k=200"), "a100")) for m in (70, 70))
    assert one == other
    assert len(one) == 16
    assert gpu.digest(("softmax", (), "a100")) != one


def test_predictions_go_on_behind_a_program_that_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, folder: Path
) -> None:
    """In a second file, of those that were not begun."""
    run = object.__new__(gpu.Run)
    run.device, run.data, run.ran, run.until = "NVIDIA H100", {}, [], checks.FOREVER
    run.keep = lambda: None
    asked: list[list[str]] = []
    results.RESULTS.mkdir()

    def run_all(
        commands: dict[str, list[str]], limit: Any, workers: Any, until: Any, found: Any, environment: Any
    ) -> None:
        ((what, command),) = commands.items()
        programs = [Path(part).stem for part in command if part.endswith(".mlir")]
        asked.append(programs)
        rows = [{"program": program, "sizes": {}} for program in programs[:2]]
        Path(command[command.index("-o") + 1]).write_text(json.dumps({"rows": rows}), encoding="utf-8")
        found(checks.Done(what, len(asked) > 1, 1.0))

    monkeypatch.setattr(checks, "run_all", run_all)
    run._predict_together()
    assert len(asked) == 2
    assert asked[1] == asked[0][2:]
    assert len(list(results.RESULTS.glob("predict*.json"))) == 2


def test_what_suites_and_ways_made_is_packed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With their kernels, which are compiled for the device."""
    from treadle.runtime import nvcc
    from treadle.runtime.cache import cache_directory

    carried = sys.modules["carried"]
    monkeypatch.setenv("TREADLE_CACHE", str(tmp_path / "here"))
    kept = preparing.suites_folder() / "kernels" / "some.json"
    kept.parent.mkdir()
    kept.write_text(json.dumps({"arch": "sm_90a", "cuda": "code"}), encoding="utf-8")
    asked: list[tuple[str, str]] = []
    made = nvcc.Cubin(tmp_path / "made.cubin", "")
    made.path.write_bytes(b"code")
    monkeypatch.setattr(nvcc, "compile_cubin", lambda *given: (asked.append(given), made)[1])
    preparing.compile_one(preparing.OfSuites(kept, "h100"), (9, 0))
    preparing.compile_one(preparing.OfSuites(kept, "a100"), (9, 0))
    assert asked == [("code", "sm_90a"), ("code", "sm_90")]
    way = cache_directory() / "ways" / "one.json"
    way.parent.mkdir()
    way.write_text("[]", encoding="utf-8")
    carried.pack([], tmp_path / "archive", [preparing.suites_folder(), way])
    monkeypatch.setenv("TREADLE_CACHE", str(tmp_path / "there"))
    carried.unpack(tmp_path / "archive")
    assert (tmp_path / "there" / "ways" / "one.json").is_file()
    assert (preparing.suites_folder() / "kernels" / "some.json").is_file()


def test_who_prepares_what_nobody_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """The suites beside the archive's kernels, and of the other parts what no result holds."""
    asked: list[Any] = []
    monkeypatch.setattr(preparing, "prepare_suites", lambda *_: Path("suites"))
    monkeypatch.setattr(preparing, "programs_of", lambda *given: asked.append(given))
    monkeypatch.setattr(preparing, "prepare", lambda *given: (asked.append(given[-1]), 0)[1])
    assert gpu.main(["--prepare", "h100", "--unmeasured"]) == 0
    (parts, machines, chosen), others = asked
    assert parts == tuple(gpu.UNMEASURED)
    assert (machines, chosen) == (["h100", "a100"], preparing.Chosen(unmeasured=DEVICE))
    assert others == [Path("suites")]


@pytest.mark.parametrize("given", [("--only", "suites"), ("--unmeasured", "--only", "tests")])
def test_a_part_of_another_run_is_refused(given: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        gpu.main(given)
    assert "parts of this run are" in capsys.readouterr().err


def test_kernels_for_the_older_machine_are_prepared_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared: list[Any] = []
    monkeypatch.setattr(preparing, "prepare", lambda *given: (prepared.extend(given[2]), 0)[1])
    assert gpu.main(["--prepare", "h100", "--only", "speed", "--quick", "--older"]) == 0
    of_machine = {name: [each.text for each in prepared if each.machine == name] for name in ("h100", "a100")}
    assert of_machine["h100"]
    assert of_machine["h100"] == of_machine["a100"]
