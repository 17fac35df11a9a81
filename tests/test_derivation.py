"""Derivations: told, saved, replayed on other programs, edited by hand; and the one in docs/calculus.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from xdsl.dialects.builtin import UnknownLoc

from treadle.compiler import main as cli
from treadle.compiler.cli.arguments import make_parser
from treadle.compiler.derivation.costs import moved_bytes
from treadle.compiler.derivation.replay import read_derivation, read_overrides
from treadle.compiler.errors import TreadleError
from treadle.compiler.pipeline import Options, pipeline, run_passes, run_pipeline
from treadle.compiler.source import load_module

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.mlir"))
CALCULUS = ROOT / "docs/calculus.md"
SHOWN = "<!-- treadle explain examples/attention.mlir --derivation -->\n```\n"


def told(name: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert cli.main(["explain", str(ROOT / f"examples/{name}.mlir"), "--derivation"]) == 0
    return capsys.readouterr().out


@pytest.mark.sample(6)
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_a_replayed_derivation_gives_the_same_program(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "saved.derivation"
    file.write_text(told(path.stem, capsys))
    first, second = load_module(path), load_module(path)
    run_pipeline(first, Options())
    run_pipeline(second, Options(passes=read_derivation(str(file))))
    assert without_reasons(str(first)) == without_reasons(str(second))


@pytest.mark.parametrize("name", ["attention", "attention_decode", "split_k", "two_kernels"])
def test_what_a_replay_tells_is_what_was_replayed(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Each pass once for each kernel, also where a line is about one of several."""
    file, second = tmp_path / "saved.derivation", tmp_path / "again.derivation"
    file.write_text(told(name, capsys))
    path = str(ROOT / f"examples/{name}.mlir")
    assert cli.main(["explain", path, "--derivation", "--replay", str(file)]) == 0
    second.write_text(capsys.readouterr().out)
    assert read_derivation(str(second)) == read_derivation(str(file))


def test_what_was_not_done_is_told_as_such(capsys: pytest.CaptureFixture[str]):
    assert "#   decline @attention_kernel: registers move between warps only on sm_90a" in told("attention", capsys)
    assert "#   keep apart %O_sum from %m, %e, %l, %P16: no role" in told("softmax_matmul", capsys)


def test_a_line_is_about_what_a_pass_has_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Lines for all kernels that reduce an axis: each is told with the kernel that it concerned."""
    file = tmp_path / "edited.derivation"
    file.write_text("fusion\nstreaming{axis=j}\nstreaming{axis=i}\ntiling\nhierarchy-choose-sizes\n")
    path = str(ROOT / "examples/two_kernels.mlir")
    assert cli.main(["explain", path, "--derivation", "--replay", str(file)]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("streaming")]
    assert lines == ["streaming{kernel=two_layers_2 axis=j}", "streaming{kernel=two_layers_1 axis=i}"]


def without_reasons(text: str) -> str:
    """What is derived, without how its sizes were found: replaying chooses among the one that is stated."""
    return re.sub(r"derivation = \[.*?>\]", "", text)


def test_without_sizes_there_are_no_costs(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path, file = tmp_path / "p.mlir", tmp_path / "saved.derivation"
    path.write_text(re.sub(r"attributes \{sizes[^}]*\}", "", (ROOT / "examples/softmax.mlir").read_text()))
    assert cli.main(["explain", str(path), "--derivation"]) == 0
    text = capsys.readouterr().out
    assert "no costs, which are for sizes of the axes" in text
    assert "#   cost" not in text
    file.write_text(text)
    assert "\nstreaming{axis=x}\n" in text
    assert cli.main(["run", str(path), "--replay", str(file), "--size", "row=5", "--size", "x=70"]) == 0


@pytest.mark.parametrize("other", ["attention_bias", "attention_soft_cap", "attention_gqa"])
def test_a_derivation_fits_another_program_with_the_same_axes(
    other: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    file = tmp_path / "saved.derivation"
    file.write_text(told("attention", capsys))
    command = ["run", str(ROOT / f"examples/{other}.mlir"), "--replay", str(file)]
    assert cli.main([*command, "--size", "q=70", "--size", "x=90"]) == 0
    assert "verified" in capsys.readouterr().out


def test_a_derivation_may_be_edited(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Other pieces, and without a rewrite that is not needed: the program is another one, and right."""
    text = told("attention", capsys)
    edited = re.sub(r'stream="x=\d+"', 'stream="x=32"', text).replace("\ndiagram-hoist-factors\n", "\n")
    file = tmp_path / "edited.derivation"
    file.write_text(edited)
    arguments = ["--replay", str(file)]
    attention = str(ROOT / "examples/attention.mlir")
    assert cli.main(["run", attention, *arguments, "--size", "q=70", "--size", "x=90"]) == 0
    assert "verified" in capsys.readouterr().out
    assert cli.main(["explain", attention, "--derivation", *arguments]) == 0
    again = capsys.readouterr().out
    assert 'stream="x=32"' in again
    assert "linearity of the sum" not in again


@pytest.mark.parametrize("what", ["--derivation", "--pipeline"])
def test_an_edited_derivation_may_be_drawn(what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file, picture, other = tmp_path / "edited.derivation", tmp_path / "edited.svg", tmp_path / "own.svg"
    file.write_text(re.sub(r'stream="x=\d+"', 'stream="x=32"', told("attention", capsys)))
    attention = str(ROOT / "examples/attention.mlir")
    assert cli.main(["draw", attention, what, "--replay", str(file), "-o", str(picture)]) == 0
    assert cli.main(["draw", attention, what, "-o", str(other)]) == 0
    assert picture.read_text(encoding="utf-8") != other.read_text(encoding="utf-8")
    file.write_text("diagram-expand-laws\nfusion\n")  # not so far that streams are loops
    assert cli.main(["draw", attention, "--derivation", "--replay", str(file), "-o", str(picture)]) == 0


def test_the_machine_of_the_command_line_comes_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "saved.derivation"
    file.write_text(told("matmul", capsys))
    passes = read_derivation(str(file))
    module = load_module(ROOT / "examples/matmul.mlir")
    run_pipeline(module, Options(machine="h100", passes=passes), last="hierarchy-expand-streams")
    assert '"h100"' in str(module)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("fusoin", "there is no pass 'fusoin'"),
        ("streaming{axes=x}", "axes"),
        ("streaming{axis=", "pass{option=value}"),
        ("fusion,streaming", "a line holds one pass, this one holds 2"),
        ("fusion}", "pass{option=value}: expected a comma or pass arguments here (character 7)"),
        ("streaming{axis=x kernel=k axis=y}", "option 'axis' is given twice: keep one"),
        ("fusion{whole-limit=1 whole_limit=2}", "option 'whole-limit' is given twice: keep one"),
        ("fusion{together=maybe}", "pass 'fusion': together=maybe: together is true or false"),
        ("fusion{together}", "pass 'fusion': together: together is true or false"),
        ("fusion{whole-limit=1e9}", "whole-limit=1e9: whole-limit is a whole number"),
        ("fusion{whole-limit=true}", "whole-limit=true: whole-limit is a whole number"),
        ("cuda-cluster{size=2,x}", "size=2,x: size is whole numbers, as 1,2"),
        ("streaming{axis=1}", "axis=1: axis is a text, in quotes unless it is a word"),
    ],
)
def test_a_wrong_line_is_shown(line: str, message: str, tmp_path: Path):
    file = tmp_path / "wrong.derivation"
    file.write_text(f"# a derivation\ndiagram-expand-laws\n{line}\n")
    with pytest.raises(TreadleError) as raised:
        read_derivation(str(file))
    assert message in str(raised.value)
    assert raised.value.location == f"{file}:3:1"


def test_no_derivation(tmp_path: Path):
    empty = tmp_path / "empty.derivation"
    empty.write_text("# nothing\n")
    with pytest.raises(TreadleError, match="there is no pass in this derivation"):
        read_derivation(str(empty))
    with pytest.raises(TreadleError, match="cannot read the derivation"):
        read_derivation(str(tmp_path / "missing"))


def test_a_rewrite_that_is_asked_for_may_be_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "edited.derivation"
    file.write_text(told("attention", capsys).replace("streaming{axis=x}", "streaming{axis=b}"))
    assert cli.main(["compile", str(ROOT / "examples/attention.mlir"), "--replay", str(file)]) == 2
    head, *shown = capsys.readouterr().err.splitlines()
    lines = file.read_text(encoding="utf-8").splitlines()
    assert head.startswith(f"treadle: {file}:{lines.index('streaming{axis=b}') + 1}:1: pass 'streaming': ")
    assert re.search(
        r"examples/attention\.mlir:\d+:\d+: 'hierarchy.kernel' @attention: axis 'b' is reduced in no", head
    )
    assert "diagram." in shown[0]  # the line of the program


def test_a_line_is_named_where_the_program_has_none_and_options_are_given(tmp_path: Path):
    """Of a program that is no file the line of the derivation is shown; `--pass` takes a line its options, not its
    place; and a line is the pass that it states."""
    file = tmp_path / "edited.derivation"
    file.write_text("diagram-expand-laws\nfusion\n  streaming  # all\n")
    options = Options(passes=read_derivation(str(file)), overrides=read_overrides("streaming{axis=b}"))
    module = load_module(ROOT / "examples/attention.mlir")
    for operation in module.walk():
        operation.location = UnknownLoc()
    with pytest.raises(TreadleError, match="axis 'b' is reduced in no kernel") as raised:
        run_pipeline(module, options)
    assert raised.value.location == f"{file}:3:1"
    assert raised.value.excerpt.splitlines()[0] == "    3 |   streaming  # all"
    assert list(options.passes) == [read_spec(line) for line in ("diagram-expand-laws", "fusion", "streaming")]
    assert read_spec("fusion") in options.passes
    assert read_spec("streaming{axis=b}") not in options.passes


def test_passes_of_the_pipeline_have_no_line(tmp_path: Path):
    """Those that stand beside a derivation included."""
    file = tmp_path / "edited.derivation"
    file.write_text("fusion\n")
    module = load_module(ROOT / "examples/matmul.mlir")
    options = Options(sizes={"z": 3}, passes=read_derivation(str(file)))
    with pytest.raises(TreadleError, match="@matmul: there is no axis 'z'") as raised:
        run_pipeline(module, options)
    assert raised.value.message.startswith("pass 'diagram-set-sizes': 'func.func' ")
    assert "examples/matmul.mlir:" in str(raised.value.location)


# -- costs ----------------------------------------------------------------------------------------


def test_costs_of_a_product_by_hand():
    """m x k by k x n in f16, accumulated in f32, rounded."""
    sizes = {"m": 96, "k": 80, "n": 64}
    m, k, n = sizes.values()
    module = load_module(ROOT / "examples/matmul.mlir")
    assert moved_bytes(module, sizes) == 2 * (m * k + k * n) + 4 * m * n + (4 + 2) * m * n
    run_pipeline(module, Options(), last="tiling")
    assert moved_bytes(module, sizes) == 2 * (m * k + k * n + m * n)
    from xdsl.utils.arg_spec import ArgSpec

    run_passes(module, [ArgSpec("hierarchy-choose-sizes", {"group": ("m=32,n=16",), "stream": ("k=32",)})])
    assert moved_bytes(module, sizes) == 2 * (m * k * (n // 16) + k * n * (m // 32) + m * n)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_fusion_never_costs_more(path: Path):
    module = load_module(path)
    run_pipeline(module, Options(), last="diagram-compose-maps")
    before = moved_bytes(module, defaults(module))
    run_passes(module, [read_spec("fusion")])
    after = moved_bytes(module, defaults(module))
    assert before is not None
    assert after is not None
    assert after <= before


def defaults(module: object) -> dict[str, int]:
    from treadle.compiler.sizes import default_sizes
    from treadle.runtime.interpreter import entry_function

    return default_sizes(entry_function(module))  # pyright: ignore


def read_spec(line: str):
    from xdsl.utils.arg_spec import parse_pipeline

    (spec,) = parse_pipeline(line)
    return spec


# -- docs/calculus.md -----------------------------------------------------------------------------


def test_the_derivation_in_the_documentation(capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest):
    """Word for word but for numbers, which follow the cost model. `pytest --update tests/test_derivation.py` writes it
    anew."""
    page = CALCULUS.read_text(encoding="utf-8")
    before, rest = page.split(SHOWN, 1)
    now = upper_half(told("attention", capsys))
    if request.config.getoption("--update"):
        CALCULUS.write_text(before + SHOWN + now + rest[rest.index("```") :], encoding="utf-8")
        return
    assert masked(rest.split("```", 1)[0]) == masked(now)


def upper_half(text: str) -> str:
    """The part that the calculus is about: down to the streams; without why these sizes."""
    text = text[text.index("diagram-expand-laws") : text.index("diagram-exp-to-exp2")]
    return re.sub(r"(cost model);[^\n]*(\n#     [^\n]*)*", r"\1", text).rstrip() + "\n"


def masked(text: str) -> str:
    return re.sub(r"\d[\d,]*", "0", text)


def test_commands_of_the_documentation_are_understood():
    text = CALCULUS.read_text(encoding="utf-8")
    commands = re.findall(r"^(treadle (?:run|compile|explain|check) .*)$", text, re.M)
    assert len(commands) >= 3
    for command in commands:
        make_parser().parse_args(command.split("#")[0].split(">")[0].split()[1:])


def test_a_comment_begins_in_no_quotes(tmp_path: Path):
    file = tmp_path / "saved.derivation"
    file.write_text('set-machine{file="a#b.toml"} # "c#d"\n# set-machine{name="e"}\n')
    (spec,) = read_derivation(str(file))
    assert str(spec) == 'set-machine{file="a#b.toml"}'


def test_a_file_may_begin_with_a_mark_of_its_encoding_and_have_any_ends_of_lines(tmp_path: Path):
    file = tmp_path / "edited.derivation"
    file.write_bytes("\ufefffusion{whole-limit=8}\r\nstreaming{axis=x}\r\n".encode())
    assert [str(spec) for spec in read_derivation(str(file))] == ["fusion{whole-limit=8}", 'streaming{axis="x"}']


@pytest.mark.parametrize(("name", "machine"), [("mlp", "a100"), ("matmul", "h100")])
def test_a_pass_that_is_repeated_changes_nothing_more(name: str, machine: str):
    """Also where the host function reads arrays that it has regrouped: once lowered it stays as it is."""
    first, second = (load_module(ROOT / f"examples/{name}.mlir") for _ in range(2))
    specs = pipeline(Options(machine))
    run_passes(first, specs)
    run_passes(second, [spec for spec in specs for _ in range(2)])
    assert without_reasons(str(first)) == without_reasons(str(second))


def test_a_pass_of_another_that_is_not_installed_is_no_mistake_of_treadle(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PATH", str(tmp_path))
    file = tmp_path / "edited.derivation"
    file.write_text("mlir-opt{arguments=--cse}\n")
    assert cli.main(["compile", str(ROOT / "examples/matmul.mlir"), "--replay", str(file)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"treadle: {file}:1:1: pass 'mlir-opt': ")
    assert "examples/matmul.mlir: xDSL's pass cannot be run here" in said
