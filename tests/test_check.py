"""`treadle check`: laws that hold are said to hold, exactly where they can be, and in those that do not the region that
is wrong is named, with a small counterexample."""

from __future__ import annotations

from pathlib import Path

import pytest

from treadle.compiler import main as cli
from treadle.compiler.check.derive import derive_laws, derive_stream, laws_in
from treadle.compiler.check.verdict import Trial, Verdict
from treadle.compiler.errors import InternalError
from treadle.compiler.source import load_module, parse_module
from treadle.dialects.diagram import LawOp
from treadle.dialects.diagram.law import STREAM_PARTS
from treadle.runtime.interpreter import entry_function

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.mlir"))

HEAD = """
!v = tensor<?xf32, #diagram.array<[x]>>
!r = tensor<f32, #diagram.array<[]>>
"""

MEAN = f"""{HEAD}
diagram.law @mean over [x] (%v : !v) -> !r {{
  %n = diagram.extent "x" : i32
  %s = diagram.reduce add %v over [x] : !v -> !r
  %y = diagram.map (%a = %s : !r, %b = %n : i32) -> !r {{
    %count = arith.sitofp %b : i32 to f32
    %mean = arith.divf %a, %count : f32
    diagram.yield %mean : f32
  }}
  diagram.yield %y : !r
}} initialise {{
  %start = diagram.fill 0.0 : f32 -> !r
  diagram.yield %start : !r
}} step (%so_far : !r, %piece : !v) {{
  %next = diagram.reduce add %piece over [x] into %so_far : !v -> !r
  diagram.yield %next : !r
}} finish (%end : !r) {{
  %n = diagram.extent "x" : i32
  %y = diagram.map (%a = %end : !r, %b = %n : i32) -> !r {{
    %count = arith.sitofp %b : i32 to f32
    %share = arith.divf %a, %count : f32
    diagram.yield %share : f32
  }}
  diagram.yield %y : !r
}} merge (%one : !r, %other : !r) {{
  %both = diagram.map (%a = %one : !r, %b = %other : !r) -> !r {{
    %sum = arith.addf %a, %b : f32
    diagram.yield %sum : f32
  }}
  diagram.yield %both : !r
}}
"""

COUNT = f"""{HEAD}
// The meaning holds no reduction from which a stream could be derived, so it is stated.
diagram.law @count over [x] (%v : !v) -> !r {{
  %n = diagram.extent "x" : i32
  %y = diagram.map (%b = %n : i32) -> !r {{
    %count = arith.sitofp %b : i32 to f32
    diagram.yield %count : f32
  }}
  diagram.yield %y : !r
}} initialise {{
  %start = diagram.fill 0.0 : f32 -> !r
  diagram.yield %start : !r
}} step (%so_far : !r, %piece : !v) {{
  %ones = diagram.map (%a = %piece : !v) -> !v {{
    %one = arith.constant 1.0 : f32
    diagram.yield %one : f32
  }}
  %next = diagram.reduce add %ones over [x] into %so_far : !v -> !r
  diagram.yield %next : !r
}} finish (%end : !r) {{
  diagram.yield %end : !r
}} merge (%one : !r, %other : !r) {{
  diagram.yield %one : !r
}}
"""


@pytest.fixture
def cases(request: pytest.FixtureRequest) -> int:
    """How many a law is tried on: every mistake here shows in a few of them."""
    return 60 if request.config.getoption("--all") else 20


def judged(text: str, cases: int) -> Verdict:
    """The verdict on the first law of a file."""
    module = parse_module(text)
    law = laws_in(module)[0]
    return Trial(module, law, cases, 0).verdict(derive_stream(module, law).laws)


def derived_laws(path: Path) -> tuple[LawOp, ...]:
    module = load_module(path)
    return derive_laws(module, entry_function(module)).laws


# -- what holds -----------------------------------------------------------------------------------


@pytest.mark.sample(6)
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_derived_laws_hold(path: Path):
    module = load_module(path)
    for law in derived_laws(path):
        law.verify()
        assert set(law.parts) == set(STREAM_PARTS)
        verdict = Trial(module, law, 20, 0).verdict()
        assert not verdict.wrong, verdict


@pytest.mark.sample(6)
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_derived_laws_can_be_read_again(path: Path):
    for law in derived_laws(path):
        assert str(laws_in(parse_module(str(law)))[0]) == str(law)


def test_rational_laws_are_checked_exactly(cases: int):
    assert judged(MEAN, cases).exact
    assert judged(MEAN.replace("arith.divf %a, %count", "arith.mulf %a, %count"), cases).exact


@pytest.mark.parametrize("kind", ["add", "mul", "max"])
def test_what_a_condition_leaves_out_is_exact_too(kind: str, cases: int):
    """A sum starts from a rational zero, a product from a rational one."""
    text = f"""{HEAD}
func.func @f(%v : !v) -> !r attributes {{sizes = #diagram.sizes<x = 50>}} {{
  %w = diagram.where %v if "x < 3" : !v
  %y = diagram.reduce {kind} %w over [x] : !v -> !r
  func.return %y : !r
}}"""
    module = parse_module(text)
    law, *_ = derive_laws(module, entry_function(module)).laws
    found = Trial(module, law, cases, 0).verdict()
    assert not found.wrong, found
    assert found.exact


def test_other_laws_are_checked_up_to_rounding(cases: int):
    text = MEAN.replace(
        "%mean = arith.divf %a, %count : f32",
        "%q = arith.divf %a, %count : f32\n %mean = math.sin %q : f32",
    ).replace(
        "%share = arith.divf %a, %count : f32",
        "%q = arith.divf %a, %count : f32\n %share = math.sin %q : f32",
    )
    verdict = judged(text, cases)
    assert (verdict.exact, verdict.wrong) == (False, "")


def test_a_stream_that_no_rule_derives_may_be_stated(cases: int):
    verdict = judged(COUNT.replace("diagram.yield %one : !r\n}\n", "").rsplit("} merge", 1)[0] + "}", cases)
    assert verdict.wrong == ""


# -- what does not --------------------------------------------------------------------------------

MISTAKES = {
    "initialise": ("fill 0.0", "fill 1.0"),
    "step": ("over [x] into %so_far", "over [x]"),
    "step 2": ("add %piece over [x] into", "max %piece over [x] into"),
    "finish": ("%share = arith.divf", "%share = arith.mulf"),
    "merge": ("%sum = arith.addf", "%sum = arith.maximumf"),
}


@pytest.mark.parametrize("region", MISTAKES)
def test_the_region_that_is_wrong_is_named(region: str, cases: int):
    assert MISTAKES[region][0] in MEAN
    verdict = judged(MEAN.replace(*MISTAKES[region]), cases)
    assert verdict.wrong.startswith(f"'{region.split()[0]}': with the derived one in its place")
    assert verdict.found is not None
    assert verdict.found.case.sizes["x"] <= 2, "a counterexample is made small"


def test_a_wrong_merge_is_named_without_a_derived_one(cases: int):
    verdict = judged(COUNT, cases)
    assert verdict.wrong.startswith("'merge': fed in pieces one after another, the law holds")


def test_a_wrong_step_is_named_without_a_derived_one(cases: int):
    verdict = judged(COUNT.replace("add %ones over [x] into %so_far", "add %ones over [x]"), cases)
    assert verdict.wrong.startswith("'step': in one piece the law holds")


def test_a_guard_that_is_forgotten_is_found(cases: int):
    """Without its stand-in a maximum over nothing gives inf - inf."""
    law = next(law for law in derived_laws(ROOT / "examples/softmax_matmul.mlir"))
    text = str(law)
    select = "%3 = arith.select %1, %2, %m_new_1 : f32"
    assert select in text
    verdict = judged(text.replace(select, "%3 = arith.addf %m_new_1, %m_new_1 : f32"), cases)
    assert verdict.wrong.startswith("'step'")


# -- on the command line --------------------------------------------------------------------------


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "law.mlir"
    file.write_text(MEAN)
    assert cli.main(["check", str(file), "--cases", "20"]) == 0
    assert "holds: @mean over [x] (stated)" in capsys.readouterr().out
    file.write_text(MEAN.replace(*MISTAKES["merge"]))
    assert cli.main(["check", str(file), "--cases", "20"]) == 1
    told = capsys.readouterr().out
    assert "WRONG: @mean over [x] (stated): 'merge'" in told
    assert "pieces of x: " in told
    assert "the meaning gives" in told


def test_what_is_printed_is_what_a_file_may_hold(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert cli.main(["check", str(ROOT / "examples/matmul.mlir"), "--print", "--cases", "5"]) == 0
    printed = "\n".join(line for line in capsys.readouterr().out.splitlines() if not line.startswith("holds"))
    (tmp_path / "law.mlir").write_text(printed)
    assert cli.main(["check", str(tmp_path / "law.mlir"), "--cases", "5"]) == 0
    assert "@matmul over [k] (stated)" in capsys.readouterr().out


def test_no_law_for_the_median(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "median.mlir"
    file.write_text(
        f"""{HEAD}func.func @f(%A: !v) -> !r attributes {{sizes = #diagram.sizes<x = 5>}} {{
  %m = diagram.apply @median(%A) over [x] : (!v) -> !r
  func.return %m : !r
}}"""
    )
    for command in ("check", "run", "compile"):
        assert cli.main([command, str(file)]) == 2
        assert "no law for 'median' on axis 'x'" in capsys.readouterr().err


TOP = """!v = tensor<?x3xf32, #diagram.array<[x, y]>>
!r = tensor<3xf32, #diagram.array<[y]>>
diagram.law @top over [x] (%v : !v) -> !r {
  %m = diagram.reduce max %v over [x] : !v -> !r
  diagram.yield %m : !r
}"""

TOP_STREAM = """ initialise {
  %start = diagram.fill 0xff800000 : f32 -> !r
  diagram.yield %start : !r
} step (%so_far : !r, %piece : !v) {
  %next = diagram.reduce max %piece over [x] into %so_far : !v -> !r
  diagram.yield %next : !r
} finish (%end : !r) {
  diagram.yield %end : !r
} merge (%one : !r, %other : !r) {
  %both = diagram.map (%a = %one : !r, %b = %other : !r) -> !r {
    %c = arith.maximumf %a, %b : f32
    diagram.yield %c : f32
  }
  diagram.yield %both : !r
}"""


def test_a_law_may_have_axes_of_known_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "law.mlir"
    file.write_text(TOP)
    assert cli.main(["check", str(file), "--cases", "20"]) == 0
    assert "holds: @top over [x] (derived for @top)" in capsys.readouterr().out
    file.write_text(TOP + TOP_STREAM)
    assert cli.main(["check", str(file), "--cases", "20"]) == 0
    file.write_text(TOP + TOP_STREAM.replace("arith.maximumf", "arith.minimumf"))
    assert cli.main(["check", str(file), "--cases", "20"]) == 1
    assert "WRONG: @top over [x] (stated): 'merge'" in capsys.readouterr().out


@pytest.mark.parametrize("text", [TOP, TOP + TOP_STREAM], ids=["derived", "stated"])
def test_a_mistake_of_the_compiler_is_not_blamed_on_a_law(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    def broken(*_: object) -> None:
        raise InternalError("pass 'fusion' left invalid IR")

    monkeypatch.setattr("treadle.compiler.check.derive.run_passes", broken)
    file = tmp_path / "law.mlir"
    file.write_text(text)
    assert cli.main(["check", str(file)]) == 3
    assert "treadle: pass 'fusion' left invalid IR" in capsys.readouterr().err
