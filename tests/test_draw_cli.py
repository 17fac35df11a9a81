"""The command `treadle draw`."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from treadle.compiler.main import main

MATMUL = str(Path(__file__).parents[1] / "examples" / "matmul.mlir")


def draw(tmp_path: Path, *arguments: str, name: str = "out.svg") -> str:
    output = tmp_path / name
    assert main(["draw", MATMUL, *arguments, "-o", str(output)]) == 0
    return output.read_text()


def words(svg: str) -> list[str]:
    """The texts of a picture, scripts and all, in a row."""
    texts = ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")
    return ["".join(text.itertext()) for text in texts]


def test_as_written_or_after_a_pass(tmp_path: Path):
    assert "@matmul" not in words(draw(tmp_path))
    assert "@matmul" in words(draw(tmp_path, "--after", "hierarchy-choose-sizes"))


def test_one_rewrite_is_before_equals_after_with_its_law(tmp_path: Path):
    svg = draw(tmp_path, "--rewrite", "tiling")
    assert svg.count('class="equals"') == 2
    assert any(text.startswith("group partition: weaved over it: m of @matmul") for text in words(svg))


def test_a_derivation_has_a_picture_for_every_rewrite_with_its_law_in_order(tmp_path: Path):
    said = words(draw(tmp_path, "--derivation"))
    numbered = [i for i, text in enumerate(said) if re.match(r"\d+  [a-z]", text)]
    assert [(said[i], said[i + 1]) for i in numbered[:5]] == [
        ("1  fusion", "recolour of a convex set: %C, %C16 into @matmul"),
        ("2  streaming", "linearity of the contraction: %C of @matmul along k"),
        ("3  tiling", "group partition: weaved over it: m of @matmul"),
        ("4  tiling", "group partition: weaved over it: n of @matmul"),
        ("5  hierarchy-choose-sizes", "cost model: @matmul"),
    ]
    assert [said[i] for i in numbered[5:]] == ["6  hierarchy-expand-streams"]


def test_one_rewrite_by_its_number(tmp_path: Path):
    svg = draw(tmp_path, "--rewrite", "3")
    assert svg.count('class="equals"') == 2
    said = words(svg)
    assert "group partition: weaved over it: m of @matmul" in said
    assert not any("n of @matmul" in text for text in said)


@pytest.mark.parametrize("number", ["0", "7"])
def test_a_number_that_no_rewrite_has(number: str, capsys: pytest.CaptureFixture[str]):
    assert main(["draw", MATMUL, "--rewrite", number]) == 2
    assert (
        f"there is no rewrite {number} that changes the picture: the derivation has 1 to 6" in capsys.readouterr().err
    )


def test_numbers_follow_the_sizes_and_the_machine(tmp_path: Path):
    after = ("--after", "hierarchy-expand-streams")
    small, large = (words(draw(tmp_path, *after, "--size", f"m={m}")) for m in (64, 4096))
    assert small != large
    assert any("227 KiB a block" in text for text in words(draw(tmp_path, *after, "--machine", "h100")))


def test_as_a_page(tmp_path: Path):
    page = draw(tmp_path, name="out.html")
    assert page.startswith("<!doctype html>")
    assert "<svg" in page


def test_a_picture_is_in_no_other_format(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    output = tmp_path / "out.pdf"
    assert main(["draw", MATMUL, "-o", str(output)]) == 2
    assert "give a name in .svg or .html" in capsys.readouterr().err
    assert not output.exists()


def test_to_standard_output(capsys: pytest.CaptureFixture[str]):
    assert main(["draw", MATMUL]) == 0
    assert capsys.readouterr().out.startswith("<svg")


@pytest.mark.parametrize("option", ["--after", "--rewrite"])
def test_no_name_at_all_is_no_pass(option: str, capsys: pytest.CaptureFixture[str]):
    assert main(["draw", MATMUL, option, ""]) == 2
    assert "the pipeline has no pass ''" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--after", "--rewrite"])
def test_an_unknown_pass_is_refused_with_a_guess(option: str, capsys: pytest.CaptureFixture[str]):
    assert main(["draw", MATMUL, option, "tilling"]) == 2
    assert "did you mean 'tiling'?" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--after", "--rewrite"])
def test_all_passes_are_not_one(option: str, capsys: pytest.CaptureFixture[str]):
    assert main(["draw", MATMUL, option, "all"]) == 2
    assert "the pipeline has no pass 'all'" in capsys.readouterr().err


@pytest.mark.parametrize("option", [["--pipeline"], ["--rewrite", "tiling"], ["--rewrite", "2"]])
def test_what_says_itself_where_it_looks_takes_no_other_place(option: list[str], capsys: pytest.CaptureFixture[str]):
    assert main(["draw", MATMUL, *option, "--after", "fusion"]) == 2
    assert f"{option[0]} says itself after which pass it looks" in capsys.readouterr().err


def test_a_derivation_without_rewrites_has_no_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "nothing.mlir"
    path.write_text("!A = tensor<?xf32, #diagram.array<[m]>>\nfunc.func @f(%A: !A) -> !A {\n  func.return %A : !A\n}\n")
    assert main(["draw", str(path), "--rewrite", "1"]) == 2
    assert "the derivation has none" in capsys.readouterr().err
