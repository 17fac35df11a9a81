"""Reading programs: locations, and one message for whatever is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from xdsl.dialects.builtin import FileLineColLoc, ModuleOp
from xdsl.utils.exceptions import PassFailedException

from treadle.compiler.errors import InternalError, Refusal, TreadleError, describe, excerpt, label_of
from treadle.compiler.source import load_module, parse_module

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.mlir"))

PROGRAM = """!x = tensor<?xf32, #diagram.array<[n]>>
func.func @negate(%x: !x) -> !x attributes {sizes = #diagram.sizes<n = 8>} {
  %y = diagram.map (%a = %x : !x) -> !x {
    %b = arith.negf %a : f32
    diagram.yield %b : f32
  }
  func.return %y : !x
}
"""


def refused(text: str) -> TreadleError:
    with pytest.raises(TreadleError) as caught:
        parse_module(text, "p.mlir")
    assert not isinstance(caught.value, InternalError)
    return caught.value


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_operation_of_an_example_has_its_place(path: Path) -> None:
    lines = path.read_text().splitlines()
    for operation in load_module(path).walk():
        if isinstance(operation, ModuleOp):
            continue
        location = operation.location
        assert isinstance(location, FileLineColLoc)
        assert location.filename.data == str(path)
        text = lines[location.line.data - 1][location.column.data - 1 :]
        assert text.startswith(("%", operation.name))
        assert operation.name in text


def test_locations_survive_cloning_and_generic_syntax() -> None:
    module = parse_module('"func.func"() <{sym_name = "f", function_type = () -> ()}> ({\n}) : () -> ()', "p.mlir")
    function = module.clone().body.block.first_op
    assert function is not None
    assert str(function.location) == 'loc("p.mlir":1:1)'


def test_arguments_have_places() -> None:
    function = parse_module(PROGRAM, "p.mlir").body.block.first_op
    assert function is not None
    assert str(function.regions[0].block.args[0].location) == 'loc("p.mlir":2:19)'


@pytest.mark.parametrize(
    ("old", "new", "place", "message"),
    [
        ("diagram.map", "diagram.mapp", "3:8", "did you mean 'diagram.map'?"),
        ("diagram.map", "digram.map", "3:8", "did you mean 'diagram'?"),
        ("diagram.map", "tosa.matmul", "3:8", "a program may use the dialects"),
        ("arith.negf", "arith.foo", "4:10", "dialect 'arith' has no operation 'arith.foo'"),
        ("(%a = %x : !x)", "(%a = %x !x)", "3:29", "expected"),
        ("[n]>>", "[n, n]>>", "1:1", "axis 'n' appears 2 times"),
        (
            "f32",
            "f64",
            "3:3",
            "unsupported number format f64 (supported: f8E4M3FN, f8E5M2, f16, bf16, f32, i8, ui8, i32)",
        ),
        ("tensor<?xf32", "tensor<?x?xf32", "3:3", "names 1 axes [n] but has 2 dimensions"),
        ("%x : !x", "%y : !x", "3:3", "%y is used before it is defined"),
        ("%x : !x", "%z : !x", "3:26", "%z is used, but nothing defines it"),
        ("func.return %y : !x", "", "3:3", "a function ends with func.return, and this operation is the last"),
        ("diagram.yield %b : f32", "", "4:5", "a body ends with a yield, and this operation is the last"),
        (
            "func.return %y : !x",
            "func.return",
            "7:3",
            "the function says that it gives tensor<?xf32, #diagram.array<[n]>>",
        ),
        ("tensor<?xf32", "tensor<?xf23", "1:15", "expected the format of the elements, as f16 or f32"),
        ("%b : f32", "%b : f16", "5:19", "previously"),
        ("!x =", "!x", "1:4", "expected '='"),
        ("n = 8", "n = -8", "2:1", "negative size"),
        ("n = 8", "n = 8, n = 9", "2:1", "given a size twice"),
        ("!x attributes", "!y attributes", "2:33", "undefined symbol alias '!y'"),
        (PROGRAM, "module {", "1:9", "expected"),
        (PROGRAM, "{{{{", "1:1", "expected an operation"),
        (PROGRAM, "", None, "there is no program here"),
        (PROGRAM, "// only words\n", None, "there is no program here"),
        (PROGRAM, "\x00", "1:1", "character"),
    ],
)
def test_message_and_place(old: str, new: str, place: str | None, message: str) -> None:
    assert old in PROGRAM
    error = refused(PROGRAM.replace(old, new))
    assert message in error.message
    assert error.location == (f"p.mlir:{place}" if place else "p.mlir")
    assert "builtin.module" not in str(error), "a dump of the IR"
    assert len(str(error).splitlines()) <= 3


def test_an_array_that_only_passes_through_is_checked() -> None:
    text = "func.func @f(%x: TYPE) -> TYPE {\n  func.return %x : TYPE\n}"
    error = refused(text.replace("TYPE", "tensor<?x?xf32, #diagram.array<[n]>>"))
    assert error.message == "'func.func' @f: %x names 1 axes [n] but has 2 dimensions"
    assert error.location == "p.mlir:1:1"


def test_a_string_that_is_not_closed_is_refused_at_once() -> None:
    text = PROGRAM.replace("n = 8", '"' + "n = 8, " * 50)
    assert "closing string literal" in refused(text).message
    module = parse_module(
        r'"func.func"() <{sym_name = "f", function_type = () -> ()}> ({}) {a = "\22\n\\x"} : () -> ()'
    )
    assert '"\\22\\n' in str(module) or "a = " in str(module)


def test_nesting_that_is_too_deep_is_refused() -> None:
    assert "nested too deeply" in refused("module {" * 20_000).message


def test_a_syntax_error_shows_its_line_with_carets() -> None:
    assert refused(PROGRAM.replace("arith.negf", "arith.neg")).excerpt.splitlines() == [
        "    4 |     %b = arith.neg %a : f32",
        "      |          ^^^^^^^^^",
    ]


def test_a_message_keeps_its_abbreviations() -> None:
    twice = PROGRAM.replace("    diagram.yield", "    %b = arith.negf %a : f32\n    diagram.yield")
    assert refused(twice).message == "SSA value %b is already defined"


def test_an_excerpt_shows_no_control_characters_and_is_short() -> None:
    assert "\x1b" not in excerpt("a\x1b[31mb", 1, 1)
    assert max(map(len, excerpt("x" * 10_000, 7, 5_000).splitlines())) < 140
    assert excerpt("x" * 10_000, 7, 5_000).endswith("^")


def test_a_verifier_message_shows_the_line_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "p.mlir"
    path.write_text(PROGRAM.replace("f32", "f64"))
    with pytest.raises(TreadleError) as caught:
        load_module(path)
    assert caught.value.location == f"{path}:3:3"
    assert "diagram.map (%a" in caught.value.excerpt


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "matmul.mlir").write_text(PROGRAM)
    (tmp_path / "latin.mlir").write_bytes(b"// caf\xe9\n")
    for name, message in [
        ("matmull.mlir", f"did you mean {tmp_path / 'matmul.mlir'}?"),
        ("no/such.mlir", "there is no such folder"),
        (".", "is a directory"),
        ("latin.mlir", "byte 6 is not UTF-8"),
    ]:
        with pytest.raises(TreadleError, match=r".*") as caught:
            load_module(tmp_path / name)
        assert message in str(caught.value)
    with pytest.raises(TreadleError, match=r"x\.mlir$"):  # only the suffix is alike
        load_module(tmp_path / "x.mlir")


def test_describe_names_the_operation_of_a_refusal() -> None:
    module = parse_module(PROGRAM, "p.mlir")
    operation = next(op for op in module.walk() if op.name == "diagram.map")
    error = describe(Refusal(operation, "no"), module)
    assert (error.message, error.location) == ("'diagram.map' %y: no", "p.mlir:3:3")
    assert label_of(module.body.block.first_op) == "'func.func' @negate"  # pyright: ignore


def test_describe_leaves_nothing_undescribed() -> None:
    module = parse_module(PROGRAM, "p.mlir")
    assert str(describe(PassFailedException("one\n  two"), module)) == "p.mlir: one two"
    assert "KeyError" in str(describe(KeyError("x"), module))
    assert isinstance(describe(KeyError("x"), module), InternalError)
    assert "No such file" in str(describe(FileNotFoundError(2, "No such file or directory", "f"), None))
