"""The gradient of a program as a program: its signature, what it is given, what is refused, and what a kernel makes of
it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from commands import refused, written
from differences import check, differentiated, inputs_of, run
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

import treadle
from roads import compiled
from treadle.compiler import main as cli
from treadle.compiler.check.derive import laws_in
from treadle.compiler.check.gradients import check_gradient
from treadle.compiler.gradient import readable
from treadle.compiler.laws import FOLDER, standard_law, standard_laws
from treadle.compiler.source import load_module, parse_module
from treadle.dialects.diagram import ApplyOp, CastOp, ContractOp, FillOp, MapOp, ReduceOp, WhereOp
from treadle.dialects.hierarchy.schedule import derivation_of
from treadle.runtime.inputs import output_names
from treadle.runtime.interpreter import entry_function, run_function

EXAMPLES = Path(__file__).parents[1] / "examples"

TYPES = """
!x = tensor<?x?xf32, #diagram.array<[i, k]>>
!x16 = tensor<?x?xf16, #diagram.array<[i, k]>>
!x8 = tensor<?x?xf8E4M3FN, #diagram.array<[i, k]>>
!w = tensor<?x?xf32, #diagram.array<[k, j]>>
!y = tensor<?x?xf32, #diagram.array<[i, j]>>
!n = tensor<?xi32, #diagram.array<[i]>>
!r = tensor<?xf32, #diagram.array<[i]>>
!c = tensor<?xf32, #diagram.array<[k]>>
!s = tensor<f32, #diagram.array<[]>>
"""

SIZES = {"i": 5, "k": 7, "j": 3}


def program(signature: str, *lines: str) -> ModuleOp:
    body = "\n  ".join(lines)
    return parse_module(f"{TYPES}\nfunc.func @f{signature} {{\n  {body}\n}}\n")


def function_of(module: ModuleOp) -> FuncOp:
    return entry_function(module)


def names(module: ModuleOp) -> list[str | None]:
    return [argument.name_hint for argument in function_of(module).body.block.args]


def operations(module: ModuleOp, kind: type) -> list[str | None]:
    return [op.results[0].name_hint for op in module.walk() if isinstance(op, kind)]


def checked(module: ModuleOp, *of: str) -> ModuleOp:
    given = {axis for type in function_of(module).function_type.inputs for axis in _axes(type)}
    return check(module, of, {axis: size for axis, size in SIZES.items() if axis in given})


def _axes(type: object) -> tuple[str, ...]:
    from treadle.dialects.diagram.array import axes_of

    return axes_of(type)  # pyright: ignore[reportArgumentType]


# -- the signature --------------------------------------------------------------------------------


def test_arguments_results_and_cotangents_in_this_order() -> None:
    module = program(
        '(%a: !x {diagram.up_to = "k"}, %w: !w, %n: !n) -> (!y, !n, !x)',
        "%y = diagram.contract %a, %w over [k] accumulate f32 : !x, !w -> !y",
        "func.return %y, %n, %a : !y, !n, !x",
    )
    gradient = checked(module)
    assert function_of(gradient).sym_name.data == "f_gradient"
    assert names(gradient) == ["a", "w", "n", "y", "n_b", "a_b", "dy", "da"]
    attributes = function_of(gradient).arg_attrs
    assert attributes is not None
    assert [bool(each.data) for each in attributes] == [True] + 7 * [False]


def test_a_gradient_is_called_by_its_argument() -> None:
    """Also where it is that of something else."""
    module = program(
        "(%a: !r, %b: !r) -> !r",
        "%less = diagram.map (%p = %a : !r, %q = %b : !r) -> !r {",
        "  %d = arith.subf %p, %q : f32",
        "  diagram.yield %d : f32",
        "}",
        "%y = diagram.map (%p = %less : !r) -> !r {",
        "  %s = math.sin %p : f32",
        "  diagram.yield %s : f32",
        "}",
        "func.return %y : !r",
    )
    assert output_names(function_of(checked(module))) == ("da", "db")


def test_a_gradient_of_two_arguments_is_called_by_both() -> None:
    module = program(
        "(%a: !r, %b: !r) -> !r",
        "%s = diagram.map (%p = %a : !r, %q = %b : !r) -> !r {",
        "  %d = arith.addf %p, %q : f32",
        "  diagram.yield %d : f32",
        "}",
        "%y = diagram.map (%p = %s : !r) -> !r {",
        "  %t = math.sin %p : f32",
        "  diagram.yield %t : f32",
        "}",
        "func.return %y : !r",
    )
    assert output_names(function_of(checked(module))) == ("da_db_0", "da_db_1")


def test_of_some_arguments() -> None:
    module = program(
        "(%a: !x, %w: !w) -> !y",
        "%y = diagram.contract %a, %w over [k] accumulate f32 : !x, !w -> !y",
        "func.return %y : !y",
    )
    gradient = checked(module, "w")
    assert operations(gradient, ContractOp) == ["dw"]
    assert names(gradient) == ["a", "w", "y", "dy"]
    assert function_of(differentiated(module, ["w", "a"])).function_type.outputs.data == tuple(
        function_of(module).function_type.inputs
    )


def test_a_result_that_is_returned_twice_counts_twice() -> None:
    checked(program("(%a: !x) -> (!x, !x)", "func.return %a, %a : !x, !x"))


def test_the_gradient_of_a_number_is_an_array_without_axes() -> None:
    module = program(
        "(%a: !x, %f: f32, %g: !s) -> !x",
        "%y = diagram.map (%p = %a : !x, %q = %f : f32, %o = %g : !s) -> !x {",
        "  %z = arith.mulf %p, %q : f32",
        "  %u = arith.mulf %z, %o : f32",
        "  diagram.yield %u : f32",
        "}",
        "func.return %y : !x",
    )
    gradient = checked(module)
    assert [str(type) for type in function_of(gradient).function_type.outputs][1:] == 2 * [
        "tensor<f32, #diagram.array<[]>>"
    ]


def test_what_nothing_depends_on_gets_zeros() -> None:
    gradient = checked(program("(%a: !x, %w: !w) -> !x", "func.return %a : !x"))
    assert operations(gradient, FillOp) == ["dw"]


def test_of_an_axis_that_is_gone_no_default_is_left() -> None:
    module = parse_module("""
!x = tensor<?xf32, #diagram.array<[i]>>
!z = tensor<?x?xf32, #diagram.array<[i, k]>>
func.func @f(%a: !x) -> !x attributes {sizes = #diagram.sizes<i = 5, k = 3>} {
  %y = diagram.map (%p = %a : !x) -> !x {
    %q = math.exp %p : f32
    diagram.yield %q : f32
  }
  %one = diagram.fill 1.0 : f32 -> !z
  %z = diagram.map (%p = %one : !z) -> !z {
    diagram.yield %p : f32
  }
  %s = diagram.reduce add %z over [k] : !z -> !x
  %t = diagram.map (%p = %y : !x, %q = %s : !x) -> !x {
    %o = arith.addf %p, %q : f32
    diagram.yield %o : f32
  }
  func.return %t : !x
}
""")
    assert "sizes<i = 5>" in str(differentiated(module))


# -- formats --------------------------------------------------------------------------------------


def test_eight_bits_are_widened_and_the_cotangent_is_f16() -> None:
    module = parse_module("""
!a = tensor<?x?xf8E4M3FN, #diagram.array<[i, k]>>
!b = tensor<?x?xf8E5M2, #diagram.array<[j, k]>>
!y = tensor<?x?xf32, #diagram.array<[i, j]>>
func.func @f(%a: !a, %b: !b) -> !y {
  %y = diagram.contract %a, %b over [k] accumulate f32 : !a, !b -> !y
  func.return %y : !y
}
""")
    gradient = differentiated(module)
    formats = [str(op.lhs.type).split("x")[2][:3] for op in gradient.walk() if isinstance(op, ContractOp)]
    assert formats == ["f16", "f16"]


def test_f32_stays_f32_and_tf32_stays_tf32() -> None:
    text = "%y = diagram.contract %a, %w over [k] accumulate f32 as tf32 : !x, !w -> !y"
    gradient = checked(program("(%a: !x, %w: !w) -> !y", text, "func.return %y : !y"))
    assert operations(gradient, CastOp) == []
    assert all(op.is_tf32 for op in gradient.walk() if isinstance(op, ContractOp))


# -- what is given --------------------------------------------------------------------------------


def exponential(*after: str, result: str) -> ModuleOp:
    return program(
        f"(%a: !x) -> {result}",
        "%y = diagram.map (%p = %a : !x) -> !x {",
        "  %e = math.exp %p : f32",
        "  diagram.yield %e : f32",
        "}",
        *after,
    )


def test_what_was_cast_to_a_result_is_not_computed_again() -> None:
    module = exponential("%z = diagram.cast %y : !x -> !x16", "func.return %z : !x16", result="!x16")
    gradient = checked(module)
    assert "math.exp" not in str(gradient)
    steps = [step.texts() for step in derivation_of(function_of(gradient).attributes)]
    assert ("diagram-differentiate", "%y is not computed", "a result is given", "") in steps


def test_what_lost_most_of_its_digits_is_computed_again() -> None:
    module = exponential("%z = diagram.cast %y fixed : !x -> !x8", "func.return %z : !x8", result="!x8")
    assert "math.exp" in str(differentiated(module))
    module = exponential("%z = diagram.cast %y : !x -> !x8", "func.return %z : !x8", result="!x8")
    assert "math.exp" in str(differentiated(module))


def test_what_was_absent_from_a_result_is_absent_again() -> None:
    """The powers of zeros that were saved for absent elements are ones."""
    module = program(
        "(%a: !x) -> (!x, !r)",
        '%w = diagram.where %a if "k <= i" : !x',
        "%l = diagram.apply @log_softmax(%w) over [k] : (!x) -> !x",
        "%y = diagram.map (%p = %l : !x) -> !x {",
        "  %e = math.exp %p : f32",
        "  diagram.yield %e : f32",
        "}",
        "%s = diagram.reduce add %y over [k] : !x -> !r",
        "func.return %l, %s : !x, !r",
    )
    gradient = checked(module)
    assert operations(gradient, ApplyOp) == []


def test_what_two_conditions_left_out_is_absent_again() -> None:
    module = program(
        "(%a: !x, %n: !n) -> (!x, !r)",
        '%u = diagram.where %a if "k <= i + 2" : !x',
        '%w = diagram.where %u if "k > n[i]" with (n = %n : !n) : !x',
        "%y = diagram.apply @softmax(%w) over [k] : (!x) -> !x",
        "%l = diagram.apply @log_sum_exp(%y) over [k] : (!x) -> !r",
        "func.return %y, %l : !x, !r",
    )
    checked(parse_module(str(checked(module))))


def test_an_extremum_is_taken_again() -> None:
    """The largest of what is computed may differ in the last bits from what another kernel found."""
    module = program("(%a: !x) -> !r", "%m = diagram.reduce max %a over [k] : !x -> !r", "func.return %m : !r")
    assert "reduce max" in str(checked(module))


# -- absent elements ------------------------------------------------------------------------------


@pytest.mark.parametrize("law", [law for law in sorted(standard_laws()) if not law.endswith("_gradient")])
@pytest.mark.parametrize("condition", ["k <= i", "k > 0", "k + i < 6"])
def test_laws_of_rows_of_which_elements_are_absent(law: str, condition: str) -> None:
    found = standard_law(law)
    assert found is not None
    result = "!x" if "x" in str(found.outputs[0]).split("[")[1] else "!r"
    checked(
        program(
            f"(%a: !x) -> {result}",
            f'%w = diagram.where %a if "{condition}" : !x',
            f"%y = diagram.apply @{law}(%w) over [k] : (!x) -> {result}",
            f"func.return %y : {result}",
        )
    )


def test_conditions_before_and_after_a_law_and_two_uses_of_it() -> None:
    gradient = checked(
        program(
            "(%a: !x, %w: !w) -> (!y, !r)",
            '%u = diagram.where %a if "k != 1" : !x',
            "%p = diagram.apply @softmax(%u) over [k] : (!x) -> !x",
            '%v = diagram.where %p if "k <= i" : !x',
            "%y = diagram.contract %v, %w over [k] accumulate f32 : !x, !w -> !y",
            '%z = diagram.where %p if "k > i" : !x',
            "%r = diagram.reduce add %z over [k] : !x -> !r",
            "func.return %y, %r : !y, !r",
        )
    )
    assert "unit" in str(gradient)


def test_the_axis_of_zeros_has_a_name_of_its_own() -> None:
    module = parse_module("""
!x = tensor<?x?xf32, #diagram.array<[unit, k]>>
!r = tensor<?xf32, #diagram.array<[unit]>>
func.func @f(%a: !x) -> (!r, !r) {
  %u = diagram.where %a if "k <= unit" : !x
  %y = diagram.reduce add %u over [k] : !x -> !r
  %v = diagram.where %a if "k > unit" : !x
  %z = diagram.apply @log_sum_exp(%v) over [k] : (!x) -> !r
  func.return %y, %z : !r, !r
}
""")
    assert "unit_b" in str(check(module, (), {"unit": 4, "k": 7}))


# -- exchange of sums -----------------------------------------------------------------------------

WEIGHTED = (
    "%p = diagram.apply @softmax(%a) over [k] : (!x) -> !x",
    "%y = diagram.contract %p, %w over [k] accumulate f32 : !x, !w -> !y",
)


def laws_of(module: ModuleOp) -> list[str]:
    return [step.texts()[2] for step in derivation_of(function_of(module).attributes)]


def test_a_sum_that_is_known_is_not_taken_again() -> None:
    gradient = checked(program("(%a: !x, %w: !w) -> !y", *WEIGHTED, "func.return %y : !y"))
    assert "exchange of sums" in laws_of(gradient)
    assert operations(gradient, ReduceOp) == []
    (s,) = [
        op
        for op in gradient.walk()
        if isinstance(op, ContractOp) and op.over_axes == ("j",) and len(op.result.type.get_shape()) == 1
    ]  # pyright: ignore
    assert [value.name_hint for value in (s.lhs, s.rhs)] == ["y", "dy"]


def test_a_sum_that_is_not_returned_is_taken() -> None:
    more = ("%z = diagram.map (%q = %y : !y) -> !y {", "  %t = math.tanh %q : f32", "  diagram.yield %t : f32", "}")
    gradient = checked(program("(%a: !x, %w: !w) -> !y", *WEIGHTED, *more, "func.return %z : !y"))
    assert "exchange of sums" not in laws_of(gradient)


def test_the_sum_of_other_weights_is_not_that() -> None:
    lines = (
        "%p = diagram.apply @softmax(%a) over [k] : (!x) -> !x",
        "%o = diagram.map (%q = %p : !x) -> !x {",
        "  %t = arith.addf %q, %q : f32",
        "  diagram.yield %t : f32",
        "}",
        "%y = diagram.contract %o, %w over [k] accumulate f32 : !x, !w -> !y",
    )
    gradient = checked(program("(%a: !x, %w: !w) -> !y", *lines, "func.return %y : !y"))
    assert "exchange of sums" not in laws_of(gradient)


def test_weights_that_divide_by_their_sum_exchange_too() -> None:
    """The quotient written out: the sum over the divisor moves out, and the sign with it."""
    lines = (
        "%s = diagram.reduce add %a over [k] : !x -> !r",
        "%p = diagram.map (%q = %a : !x, %t = %s : !r) -> !x {",
        "  %u = arith.divf %q, %t : f32",
        "  diagram.yield %u : f32",
        "}",
        "%y = diagram.contract %p, %w over [k] accumulate f32 : !x, !w -> !y",
    )
    gradient = checked(program("(%a: !x, %w: !w) -> !y", *lines, "func.return %y : !y"))
    assert "exchange of sums" in laws_of(gradient)


def test_conditions_that_are_asked_of_another_operand_are_not_asked_twice() -> None:
    module = load_module(EXAMPLES / "attention_causal.mlir")
    gradient = differentiated(module)
    assert operations(gradient, WhereOp) == ["W"]
    assert operations(gradient, MapOp) == ["T", "dT", "dW"]


# -- laws of a program ----------------------------------------------------------------------------

LAW = """
!v = tensor<?xf32, #diagram.array<[x]>>
!t = tensor<f32, #diagram.array<[]>>
diagram.law @power over [x] (%v : !v) -> !t GRADIENT {
  %e = diagram.map (%a = %v : !v) -> !v {
    %b = arith.mulf %a, %a : f32
    diagram.yield %b : f32
  }
  %s = diagram.reduce add %e over [x] : !v -> !t
  diagram.yield %s : !t
}
diagram.law @power_gradient over [x] (%v : !v, %y : !t, %dy : !t) -> RESULT {
  %d = diagram.map (%a = %v : !v, %b = %dy : !t) -> !v {
    %two = arith.constant FACTOR : f32
    %c = arith.mulf %a, %b : f32
    %e = arith.mulf %c, %two : f32
    diagram.yield %e : f32
  }
  diagram.yield %d : !v
}
"""


def with_law(gradient: str = "gradient @power_gradient") -> str:
    law = LAW.replace("GRADIENT", gradient).replace("FACTOR", "2.0").replace("RESULT", "!v")
    text = "%y = diagram.apply @power(%a) over [k] : (!x) -> !r"
    return f"{law}{TYPES}\nfunc.func @f(%a: !x) -> !r {{\n{text}\nfunc.return %y : !r\n}}"


def test_a_law_is_differentiated_by_the_gradient_that_it_states_or_by_its_meaning() -> None:
    stated, expanded = parse_module(with_law()), parse_module(with_law(""))
    assert "gradient of @power" in laws_of(checked(stated))
    assert "chain rule" in laws_of(checked(expanded))
    assert str(laws_in(stated)[0]).splitlines()[0].endswith("gradient @power_gradient {")
    assert parse_module(str(stated)).is_structurally_equivalent(stated)


@pytest.mark.parametrize(
    "name", sorted(path.stem for path in FOLDER.glob("*.mlir") if path.stem + "_gradient" in standard_laws())
)
def test_the_standard_laws_state_their_gradients(name: str) -> None:
    module = load_module(FOLDER / f"{name}.mlir")
    verdict = check_gradient(module, laws_in(module)[0], 20, 0)
    assert verdict.found is None


def test_a_wrong_gradient_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    law = LAW.replace("GRADIENT", "gradient @power_gradient").replace("RESULT", "!v")
    Path("right.mlir").write_text(law.replace("FACTOR", "2.0"))
    Path("wrong.mlir").write_text(law.replace("FACTOR", "3.0"))
    assert cli.main(["check", "right.mlir", "--cases", "5"]) == 0
    assert "holds: @power_gradient (gradient of @power): gradient = differences on 5 cases" in capsys.readouterr().out
    assert cli.main(["check", "wrong.mlir", "--cases", "5"]) == 1
    assert "WRONG: @power_gradient (gradient of @power): by %v at x = " in capsys.readouterr().out


def test_a_gradient_of_other_types_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = with_law().replace("%v : !v, %y : !t, ", "%v : !v, ")
    wanted = "law @power_gradient cannot be the gradient of @power: it takes"
    assert wanted in refused(capsys, "differentiate", written(text))
    module = parse_module(text)
    with pytest.raises(treadle.TreadleError, match=wanted):
        check_gradient(module, laws_in(module)[0], 1, 0)
    said = refused(capsys, "differentiate", written(with_law("gradient @nothing")))
    assert "law @power names @nothing, which is no law" in said


# -- refused --------------------------------------------------------------------------------------

REFUSED = {
    "no argument of floats to differentiate by": ("(%n: !n) -> !n", "func.return %n : !n"),
    "reads an array of which elements are absent": (
        "(%a: !r) -> !r",
        '%w = diagram.where %a if "i > 1" : !r',
        '%y = diagram.read %w at "i" : !r -> !r',
        "func.return %y : !r",
    ),
    "axis 'i' is an axis of what is read and of what reads it": (
        "(%a: !x) -> !x",
        '%y = diagram.read %a at "k, 2 * i" : !x -> !x',
        "func.return %y : !x",
    ),
    "no derivative of 'arith.bitcast' is known": (
        "(%a: !r) -> !r",
        "%y = diagram.map (%p = %a : !r) -> !r {",
        "  %q = arith.bitcast %p : f32 to f32",
        "  diagram.yield %q : f32",
        "}",
        "func.return %y : !r",
    ),
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_has_no_gradient_is_refused_by_name(said: str) -> None:
    with pytest.raises(treadle.TreadleError, match=said):
        differentiated(program(*REFUSED[said]))


def test_the_gradient_of_a_transposition_is_one() -> None:
    text = program("(%a: !x) -> !x", '%y = diagram.read %a at "k, i" : !x -> !x', "func.return %y : !x")
    a, cotangent = np.random.default_rng(8).random((2, 4, 4), np.float32)
    (found,) = run_function(differentiated(text), [a, a.T, cotangent]).results
    np.testing.assert_array_equal(found, cotangent.T)


# -- the command, and Python ----------------------------------------------------------------------


def test_the_command_writes_a_program_that_others_take(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    attention = str(EXAMPLES / "attention.mlir")
    assert cli.main(["differentiate", attention, "--of", "%Q, V"]) == 0
    text = capsys.readouterr().out
    assert "//   %s_b over [e]: exchange of sums (%O is the sum over [x])" in text
    assert cli.main(["differentiate", attention, "--of", "Q,V", "-o", "g.mlir"]) == 0
    assert Path("g.mlir").read_text() == text
    assert cli.main(["run", "g.mlir", "--backend", "interpreter", "--size", "q=3", "--size", "x=5"]) == 0
    assert cli.main(["differentiate", "g.mlir", "--of", "dO", "-o", "twice.mlir"]) == 0
    assert "@attention_gradient_gradient(" in Path("twice.mlir").read_text()


WITH_GRADIENTS = sorted(EXAMPLES.glob("*.mlir"))
"""Of a recurrence none is known (`test_recurrence.py`)."""


@pytest.mark.parametrize("path", WITH_GRADIENTS, ids=lambda path: path.stem)
def test_what_is_printed_is_the_gradient(path: Path) -> None:
    gradient = treadle.differentiate(path)
    again = parse_module(readable(gradient))
    for function in (entry_function(gradient), entry_function(again)):
        function.attributes.pop("derivation", None)
    assert again.is_structurally_equivalent(gradient)


def test_the_command_refuses(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    path = written((EXAMPLES / "softmax.mlir").read_text())
    assert "there is no argument %Z to differentiate by (arguments: %A)" in refused(
        capsys, "differentiate", path, "--of", "Z"
    )
    assert "it is the program itself too" in refused(capsys, "differentiate", path, "-o", path)
    assert "names no argument between two commas" in refused(capsys, "differentiate", path, "--of", "A,")
    assert "there is no folder" in refused(capsys, "differentiate", path, "-o", "none/g.mlir")


def test_from_python() -> None:
    path = EXAMPLES / "softmax.mlir"
    module = load_module(path)
    before = str(module)
    gradient = treadle.differentiate(module, of=["A"])
    assert str(module) == before
    assert [str(each) for each in (treadle.differentiate(path), treadle.differentiate(path.read_text()))] == 2 * [
        str(gradient)
    ]
    with pytest.raises(treadle.TreadleError, match="there is no argument %B"):
        treadle.differentiate(path, of=["B"])
    inputs = inputs_of(entry_function(gradient), {"row": 3, "x": 5})
    (found,) = run(gradient, inputs)
    _, y, dy = inputs
    np.testing.assert_allclose(found, y * (dy - (y * dy).sum(-1, keepdims=True)), rtol=1e-12)


# -- kernels --------------------------------------------------------------------------------------

COMPILED = {
    "softmax": {"row": 5, "x": 131},
    "rms_norm": {"t": 7, "i": 133},
    "layer_norm": {"t": 7, "i": 133},
    "matmul_gelu": {"t": 37, "i": 72, "o": 51},
    "attention": {"b": 1, "h": 2, "q": 37, "x": 71},
    "attention_causal": {"b": 1, "h": 1, "q": 69, "x": 77},
    "attention_gqa": {"b": 1, "h": 1, "g": 2, "q": 19, "x": 43},
    "conv1d": {"b": 1, "l": 43, "t": 39, "f": 24},
    "moving_average": {"l": 43, "t": 36, "c": 19},
    "matmul_tt": {"m": 37, "n": 51, "k": 43},
}


@pytest.mark.sample(6)
@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("name", COMPILED)
def test_kernels_compute_gradients(name: str, machine: str) -> None:
    gradient = treadle.differentiate(EXAMPLES / f"{name}.mlir")
    compiled(str(gradient), machine=machine).check(COMPILED[name])


@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_kernels_add_zeros_for_what_is_absent(machine: str) -> None:
    module = program(
        "(%a: !x) -> (!r, !r)",
        '%w = diagram.where %a if "k <= i" : !x',
        "%p = diagram.reduce add %w over [k] : !x -> !r",
        "%l = diagram.apply @log_sum_exp(%a) over [k] : (!x) -> !r",
        "func.return %p, %l : !r, !r",
    )
    gradient = checked(module)
    assert "unit" in str(gradient)
    compiled(str(gradient), machine=machine).check({"i": 33, "k": 41})
