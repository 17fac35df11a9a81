"""Derivatives of scalar expressions are what differences say, for every operation that the body of a map may hold."""

from __future__ import annotations

import numpy as np
import pytest
from differences import check, differentiated
from xdsl.dialects import arith, math
from xdsl.ir import Operation

from treadle.compiler.errors import TreadleError
from treadle.compiler.source import parse_module
from treadle.passes.expressions.derivatives import BINARY, STEPS, UNARY
from treadle.runtime.interpreter.scalars import BINARY as ALL_BINARY
from treadle.runtime.interpreter.scalars import TERNARY
from treadle.runtime.interpreter.scalars import UNARY as ALL_UNARY

TEMPLATE = """
!x = tensor<?xf32, #diagram.array<[i]>>
!n = tensor<?xi32, #diagram.array<[i]>>
func.func @f(%a: !x, %b: !x, %n: !n) -> !x attributes {sizes = #diagram.sizes<i = 11>} {
  %y = diagram.map (%p = %a : !x, %q = %b : !x, %k = %n : !n) -> !x {
    BODY
    diagram.yield %y : f32
  }
  func.return %y : !x
}
"""

INSIDE = {
    math.AsinOp: "math.tanh",
    math.AcosOp: "math.tanh",
    math.AtanhOp: "math.tanh",
    math.LogOp: "math.exp",
    math.Log2Op: "math.exp",
    math.Log10Op: "math.exp",
    math.Log1pOp: "math.exp",
    math.SqrtOp: "math.exp",
    math.RsqrtOp: "math.exp",
    math.CbrtOp: "math.exp",
    math.AcoshOp: "math.cosh",
}
"""What brings any number to where an operation has a derivative."""


def program(*lines: str) -> str:
    return TEMPLATE.replace("BODY", "\n    ".join(lines))


@pytest.mark.parametrize("op", [*UNARY, *STEPS], ids=lambda op: op.name)
def test_of_one_operand(op: type[Operation]) -> None:
    inside = INSIDE.get(op)
    first = f"%x = {inside} %p : f32" if inside else "%x = arith.mulf %p, %q : f32"
    check(parse_module(program(first, f"%z = {op.name} %x : f32", "%y = arith.mulf %z, %q : f32")))
    # The same at the root of a map, where the derivative may be said by what the map gives.
    check(parse_module(program(first, f"%y = {op.name} %x : f32")))


@pytest.mark.parametrize("op", [op for op in BINARY if op is not math.FPowIOp], ids=lambda op: op.name)
def test_of_two_operands(op: type[Operation]) -> None:
    first = "%x = math.exp %p : f32" if op is math.PowFOp else "%x = math.sin %p : f32"
    check(parse_module(program(first, f"%y = {op.name} %x, %q : f32")))
    check(parse_module(program(first, f"%z = {op.name} %x, %q : f32", "%y = arith.mulf %z, %x : f32")))
    check(parse_module(program(first, f"%y = {op.name} %x, %x : f32")))


def test_of_others() -> None:
    check(parse_module(program("%y = math.fma %p, %q, %p : f32")))
    check(parse_module(program("%y = math.fpowi %p, %k : f32, i32")))
    lines = ("%c = arith.cmpf olt, %p, %q : f32", "%s = math.exp %p : f32", "%y = arith.select %c, %s, %q : f32")
    check(parse_module(program(*lines)))
    check(parse_module(program("%f = arith.sitofp %k : i32 to f32", "%y = arith.divf %p, %f : f32")))


def test_every_operation_on_floats_has_a_derivative() -> None:
    """Of what the interpreter computes, what takes floats and gives a float."""
    every = {*ALL_UNARY, *ALL_BINARY, *TERNARY} - {math.AbsIOp}
    floats = {op for op in every if op.name.startswith("math.") or op.name.endswith(("f", "select"))}
    assert floats == {*UNARY, *BINARY, *STEPS, arith.ExtFOp, arith.TruncFOp, arith.SelectOp, math.FmaOp}


def test_edges() -> None:
    """Equals share; a power of zero moves with no exponent; nothing is no number."""
    from treadle.runtime.interpreter import run_function

    zeros = np.zeros(3)

    def gradients(line: str, a: np.ndarray, b: np.ndarray, n: np.ndarray) -> list[np.ndarray]:
        module = parse_module(program(line))
        (y,) = run_function(module, [a, b, n]).results
        return list(run_function(differentiated(module), [a, b, n, y, np.ones(3)]).results)

    whole = np.array([0, 1, 2], np.int32)
    for op in ("maximumf", "minimumf", "maxnumf", "minnumf"):
        for found in gradients(f"%y = arith.{op} %p, %q : f32", zeros, zeros, whole):
            np.testing.assert_array_equal(found, 0.5)
    _, exponent = gradients("%y = math.powf %p, %q : f32", zeros, zeros + 2, whole)
    np.testing.assert_array_equal(exponent, 0)
    (base, exponent), slope = (
        gradients("%y = math.powf %p, %q : f32", zeros, np.array([0.0, 1, -1]), whole),
        [0, 1, -np.inf],
    )
    np.testing.assert_array_equal(base, slope)
    np.testing.assert_array_equal(exponent, [0, 0, -np.inf])
    for of_angle in gradients("%y = math.atan2 %p, %q : f32", zeros, zeros, whole):
        np.testing.assert_array_equal(of_angle, 0)
    base, _ = gradients("%y = math.fpowi %p, %k : f32, i32", zeros, zeros, whole)
    np.testing.assert_array_equal(base, [0, 1, 0])
    base, _ = gradients("%y = math.absf %p : f32", zeros, zeros, whole)
    np.testing.assert_array_equal(base, 0)


def test_what_has_none_is_refused_by_name() -> None:
    with pytest.raises(TreadleError, match=r"no derivative of 'arith\.bitcast' is known"):
        differentiated(parse_module(program("%y = arith.bitcast %p : f32 to f32")))
