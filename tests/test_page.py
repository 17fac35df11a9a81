"""The page of a compilation: what is in it, and, where there is a browser, a walk through it."""

from __future__ import annotations

import json
import re
import shutil
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import decompress

import pytest
from xdsl.dialects.builtin import ModuleOp

from treadle.compiler.draw.page.lines import Known, Line, lines_of, marked, printed
from treadle.compiler.main import main
from treadle.compiler.pipeline import Observer, Options, PassRun, pipeline, run_pipeline
from treadle.compiler.sass import find_disassembler
from treadle.compiler.source import load_module
from treadle.runtime.nvcc import find_nvcc

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("page") / "attention.html"
    assert main(["compile", str(EXAMPLES / "attention.mlir"), "--html", str(output)]) == 0
    return output


@pytest.fixture(scope="module")
def data(page: Path) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.DOTALL)
    assert found
    data = json.loads(found[1])
    for moment in data["moments"]:
        moment["lines"] = [[mark, *data["lines"][place]] for mark, place in moment["lines"]]
    return data


def test_pictures_are_packed_as_browsers_unpack_them(data: dict[str, Any]):
    pictures = [decompress(b64decode(each)).decode() for each in data["pictures"]]
    assert all(picture.startswith("<svg ") for picture in pictures)
    assert 'data-op="S"' in pictures[0]
    assert {moment["picture"] for moment in data["moments"]} == set(range(len(pictures)))


def moment(data: dict[str, Any], name: str) -> dict[str, Any]:
    return next(moment for moment in data["moments"] if moment["name"] == name)


def test_every_pass_stands_in_the_list(data: dict[str, Any]):
    names = [moment["name"] for moment in data["moments"]]
    assert names == ["the program", *(spec.name for spec in pipeline(Options()))]
    assert all(moment["does"] for moment in data["moments"])


def test_changed_lines_are_marked_and_the_others_are_the_ir(data: dict[str, Any]):
    tiling = moment(data, "tiling")
    gone, new = ([line[1] for line in tiling["lines"] if line[0] == mark] for mark in "-+")
    assert any("group" not in line.split("{")[0] for line in gone)
    assert any("group" in line for line in new)
    before = [line[1:] for line in moment(data, "streaming")["lines"] if line[0] != "-"]
    assert before == [line[1:] for line in tiling["lines"] if line[0] != "+"]


def test_a_pass_that_changes_nothing_says_so(data: dict[str, Any]):
    assert moment(data, "diagram-set-sizes")["changed"] is False


def test_operations_lead_back_to_the_program(data: dict[str, Any]):
    """What softmax became is found under the place where it was written."""
    (softmax,) = [line for line in data["moments"][0]["lines"] if "diagram.apply @softmax" in line[1]]
    row = int(softmax[2].split(":")[0])
    assert "@softmax" in data["source"][row - 1]
    became = [
        line[1] for line in moment(data, "diagram-expand-laws")["lines"] if line[2] == softmax[2] and line[0] == "+"
    ]
    assert any("diagram.reduce max" in text for text in became)
    assert any(line[2] == softmax[2] for line in moment(data, "coalescing")["lines"])


def test_costs_are_those_of_the_model(data: dict[str, Any]):
    costs = moment(data, "hierarchy-expand-streams")["costs"]
    assert costs["@attention H, device"] == "2.24 MiB"
    assert "@attention time (estimate)" in costs
    assert "@attention_kernel shared memory of a block" in moment(data, "coalescing")["costs"]


def test_the_models_explanation_is_for_readers(page: Path):
    text = page.read_text().split('<section id="explain">')[1].split("</section>")[0]
    assert re.search(r"\n  time \(estimate\): [\d.]+ us, bound by \w+", text)
    assert "\n  level      H values" in text


def test_the_reasons_of_the_derivation_are_told_once(data: dict[str, Any]):
    steps = [tuple(step) for moment in data["moments"] for step in moment["steps"]]
    assert len(steps) == len(set(steps))
    assert "cascade" in {law for _, _, law, _ in steps}


def test_the_page_is_one_small_file_that_fetches_nothing(page: Path):
    text = page.read_text()
    assert len(text.encode()) < 2_000_000
    assert "__global__" in text
    outside = re.sub(r'xmlns=\\?"http://www.w3.org/2000/svg\\?"', "", text)
    assert not re.search(r'(src|href)="(?!#)', outside)
    assert "https://" not in outside
    assert "@import" not in outside


@pytest.mark.skipif(find_nvcc() is None, reason="there is no nvcc")
def test_what_nvcc_makes_of_it_stands_on_the_page_unasked(page: Path):
    text = page.read_text().split('<section id="code">')[1]
    assert re.search(r"\d+ registers, 0 bytes spilled a thread; [\d,]+ bytes of shared memory", text)
    assert "not known" not in text or "the instructions are not known" in text  # for want of a disassembler
    if "the instructions are not known" not in text:
        assert re.search(r"main loop at 0x[0-9a-f]+.*\n +products +\d+", text)


@pytest.mark.skipif(find_nvcc() is None, reason="there is no nvcc")
@pytest.mark.skipif(find_disassembler() is None, reason="neither cuobjdump nor nvdisasm is installed")
def test_a_second_page_of_a_kernel_starts_no_disassembler(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """What it said of the kernel is in the cache."""

    def started(cubin: Path) -> None:
        pytest.fail(f"disassembles {cubin}")

    monkeypatch.setattr("treadle.compiler.gates.code.disassemble", started)
    again = tmp_path / "again.html"
    assert main(["compile", str(EXAMPLES / "attention.mlir"), "--html", str(again)]) == 0
    first, second = (
        re.findall('<section id="code">(.*?)</section>', each.read_text(), re.DOTALL) for each in (page, again)
    )
    assert first == second
    assert "main loop at" in second[0]


def test_without_nvcc_the_page_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("treadle.runtime.nvcc.find_nvcc", lambda: None)
    assert main(["compile", str(EXAMPLES / "sin2cos2.mlir"), "--html", str(tmp_path / "page.html")]) == 0
    text = (tmp_path / "page.html").read_text().split('<section id="code">')[1]
    assert "not known (registers, spills, warps on an SM, the main loop and every gate): nvcc was not found" in text


def test_a_program_that_is_no_nvcc_is_said_to_be_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CUDACXX", "true")
    assert main(["compile", str(EXAMPLES / "sin2cos2.mlir"), "--html", str(tmp_path / "page.html")]) == 0
    assert "is no nvcc, by what it answers to --version" in (tmp_path / "page.html").read_text()


def test_text_of_a_program_cannot_end_the_script(tmp_path: Path):
    file = tmp_path / "odd.mlir"
    file.write_text("// </script><b>odd</b><!--<SCRIPT\n" + (EXAMPLES / "sin2cos2.mlir").read_text())
    assert main(["compile", str(file), "--html", str(tmp_path / "odd.html")]) == 0
    text = (tmp_path / "odd.html").read_text()
    assert text.count("</script>") == 2
    assert text.lower().count("<script") == 2
    assert "<!--<" not in text
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found
    assert json.loads(found[1])["source"][0] == "// </script><b>odd</b><!--<SCRIPT"


@pytest.mark.full
@pytest.mark.parametrize("example", sorted(path.stem for path in EXAMPLES.glob("*.mlir")))
def test_every_page_is_small(example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("treadle.runtime.nvcc.find_nvcc", lambda: None)
    file = tmp_path / "page.html"
    assert main(["compile", str(EXAMPLES / f"{example}.mlir"), "--machine", "h100", "--html", str(file)]) == 0
    assert file.stat().st_size < 2_000_000


def test_marks_are_a_diff():
    before, after = [Line("a"), Line("b")], [Line("a"), Line("c"), Line("d")]
    assert [(mark, line.text) for mark, line in marked(before, after)] == [
        ("=", "a"),
        ("-", "b"),
        ("+", "c"),
        ("+", "d"),
    ]


def test_lines_are_the_printed_module():
    module = load_module(EXAMPLES / "matmul.mlir")
    lines = lines_of(printed(module))
    texts = str(module).split("\n")
    assert [line.text for line in lines if not line.text.endswith("…")] == [
        text for text, line in zip(texts, lines, strict=True) if not line.text.endswith("…")
    ]
    (product,) = [line for line in lines if "diagram.contract" in line.text]
    assert product.defines == "C"


def test_what_is_looked_up_prints_as_it_did():
    """After every pass, with the texts of attributes that were printed after earlier ones."""
    module = load_module(EXAMPLES / "attention_packed.mlir")
    known: Known = {}

    class Compares(Observer):
        passes = 0

        def after_pass(self, run: PassRun, module: ModuleOp) -> None:
            self.passes += 1
            assert printed(module, known).text == str(module)

    compares = Compares()
    run_pipeline(module, Options(machine="h100"), compares)
    assert compares.passes == len(pipeline(Options()))
    assert known


# -- in a browser ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tab(page: Path) -> Iterator[Any]:
    api = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: pip install 'treadle[browser]'"
    )
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    with api.sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        except api.Error as error:
            pytest.skip(f"no Chromium starts here: {str(error).splitlines()[0]}")
        tab = browser.new_page(offline=True)
        tab.errors = []
        tab.on("pageerror", lambda error: tab.errors.append(str(error)))
        tab.goto(page.as_uri())
        tab.wait_for_selector("#picture svg")  # pictures are unpacked before the page can be walked
        yield tab
        browser.close()


def test_walk_the_passes_by_keyboard_and_click_an_operation(tab: Any, data: dict[str, Any]):
    assert tab.inner_text("#name") == "the program"
    for expected in data["moments"][1:]:
        tab.keyboard.press("j")
        assert tab.inner_text("#name").startswith(expected["name"])
        assert tab.locator("#picture svg").count() == 1
    tab.keyboard.press("Home")
    assert tab.inner_text("#name") == "the program"
    tab.click("#passes li:has-text('diagram-expand-laws')")
    tab.click("#ir .op.new:has-text('diagram.reduce max')")
    history = tab.inner_text("#history")
    assert "came from attention.mlir:" in history
    assert "diagram.apply @softmax" in history
    assert "after coalescing" in history
    tab.locator("#history h4:has-text('after fusion') + button").click()
    assert tab.inner_text("#name").startswith("fusion")
    assert tab.locator("#ir .at").count() == 1
    assert tab.errors == []


def test_operations_by_keyboard_and_removed_lines(tab: Any):
    tab.click("#passes li:has-text('tiling')")
    tab.focus("#ir")
    tab.keyboard.press("ArrowDown")
    first = tab.inner_text("#ir .at")
    tab.keyboard.press("ArrowDown")
    assert tab.inner_text("#ir .at") != first
    assert tab.locator("#ir .gone:visible").count() == 0
    tab.keyboard.press("d")
    assert tab.locator("#ir .gone:visible").count() > 0
    tab.keyboard.press("d")
    assert tab.errors == []


def test_a_box_of_the_diagram_selects_its_operation(tab: Any):
    tab.click("#passes li:has-text('the program')")
    tab.locator("#picture [data-op=S]").first.click()
    assert "%S = diagram.contract" in tab.inner_text("#ir .at")
    assert tab.errors == []
