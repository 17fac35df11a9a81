"""Scalar operations at the edges of their domains give the same at every level, and their C says what they mean."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from roads import array, compiled, matmul
from treadle.compiler.errors import TreadleError
from treadle.dialects.diagram.formats import NARROW
from treadle.runtime.interpreter import run_function

LOWEST, HIGHEST = -(2**31), 2**31 - 1
FORMATS = {np.dtype(np.float32): "f32", np.dtype(np.int32): "i32"}


def run(body: str, *inputs: NDArray[Any], result: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """A map over inputs %a, %b, ...: what the interpreter and the emulator make of it, once verified."""
    types = [array(FORMATS[given.dtype], i=None) for given in inputs]
    arguments = ", ".join(f"%in{i}: {type}" for i, type in enumerate(types))
    taken = ", ".join(f"%{name} = %in{i} : {type}" for i, (name, type) in enumerate(zip("abc", types, strict=False)))
    out = array(result, i=None)
    road = compiled(
        f"func.func @f({arguments}) -> {out} {{\n%r = diagram.map ({taken}) -> {out} {{\n{body}\n}}\n"
        f"func.return %r : {out}\n}}"
    )
    for verdict in road.verdicts(inputs):
        assert not verdict.wrong, verdict
    return run_function(road.algorithm, inputs).results[0], road.run(inputs)[0]


@pytest.mark.parametrize(
    ("operation", "wanted"),
    [
        ("divsi", [3, -3, -3, 3, 0, 0, LOWEST, 0]),
        ("floordivsi", [3, -4, -4, 3, 0, 0, LOWEST, -1]),
        ("remsi", [1, -1, 1, -1, 0, 0, 0, 5]),
    ],
)
def test_integer_division(operation: str, wanted: list[int]) -> None:
    """Towards zero, or down; by zero it is zero, though C leaves it open and a host would stop."""
    a = np.array([7, -7, 7, -7, 5, 0, LOWEST, 5], np.int32)
    b = np.array([2, 2, -2, -2, 0, 0, -1, LOWEST], np.int32)
    for found in run(f"%q = arith.{operation} %a, %b : i32\ndiagram.yield %q : i32", a, b, result="i32"):
        assert found.tolist() == wanted


@pytest.mark.parametrize(
    ("operation", "wanted"),
    [
        ("shli", [14, -14, LOWEST, 0, 0, LOWEST, 0]),
        ("shrsi", [3, -4, 0, 0, -1, LOWEST, -1]),
        ("shrui", [3, 2**31 - 4, 0, 0, 0, LOWEST, 0]),
    ],
)
def test_shifts(operation: str, wanted: list[int]) -> None:
    """By 32 bits and more, or a negative number, every bit is gone, though C leaves it open."""
    a = np.array([7, -7, 5, 5, -5, LOWEST, -1], np.int32)
    b = np.array([1, 1, 31, 32, 32, 0, -1], np.int32)
    for found in run(f"%q = arith.{operation} %a, %b : i32\ndiagram.yield %q : i32", a, b, result="i32"):
        assert found.tolist() == wanted


def test_division_in_lanes_outside_the_array() -> None:
    """Lanes past the end hold zeros."""
    for length in (1, 5, 33, 1001):
        a = np.arange(length, dtype=np.int32)
        run("%q = arith.divsi %a, %a : i32\ndiagram.yield %q : i32", a, result="i32")


def test_floats_as_integers() -> None:
    given = np.array([1.9, -1.9, 0.5, -0.5, 3e9, -3e9, np.nan, np.inf, -np.inf, 2.0**31, -(2.0**31)], np.float32)
    wanted = [1, -1, 0, 0, HIGHEST, LOWEST, 0, HIGHEST, LOWEST, HIGHEST, LOWEST]
    for found in run("%q = arith.fptosi %a : f32 to i32\ndiagram.yield %q : i32", given, result="i32"):
        assert found.tolist() == wanted


def test_negative_and_special_constants() -> None:
    body = """%c = arith.constant -0.25 : f32
    %n = arith.negf %c : f32
    %s = arith.addf %a, %n : f32
    %t = arith.subf %s, %c : f32
    %bottom = arith.constant 0xFF800000 : f32
    %top = arith.negf %bottom : f32
    %u = arith.minimumf %t, %top : f32
    %v = arith.maximumf %u, %bottom : f32
    %nan = arith.constant 0x7FC00000 : f32
    %w = arith.minnumf %v, %nan : f32
    diagram.yield %w : f32"""
    for found in run(body, np.ones(5, np.float32), result="f32"):
        assert (found == 1.5).all()


def test_the_lowest_integer_as_a_constant() -> None:
    body = f"%c = arith.constant {LOWEST} : i32\n%s = arith.addi %a, %c : i32\ndiagram.yield %s : i32"
    for found in run(body, np.array([0, 1, -1], np.int32), result="i32"):
        assert found.tolist() == [LOWEST, LOWEST + 1, HIGHEST]


def test_integers_wrap() -> None:
    """C++ compilers take it that signed integers do not."""
    successor = """%one = arith.constant 1 : i32
    %b = arith.addi %a, %one : i32
    %c = arith.cmpi sgt, %b, %a : i32
    %y = arith.constant 7 : i32
    %z = arith.select %c, %y, %b : i32
    diagram.yield %z : i32"""
    for found in run(successor, np.array([0, HIGHEST], np.int32), result="i32"):
        assert found.tolist() == [7, LOWEST]
    half = """%two = arith.constant 2 : i32
    %b = arith.muli %a, %two : i32
    %z = arith.divsi %b, %two : i32
    diagram.yield %z : i32"""
    for found in run(half, np.array([5, 2**30, HIGHEST], np.int32), result="i32"):
        assert found.tolist() == [5, -(2**30), -1]


@pytest.mark.parametrize(("operation", "primitive"), [("add", "wrapped_sum"), ("mul", "wrapped_product")])
def test_reductions_of_integers_wrap(operation: str, primitive: str) -> None:
    wide, out = array("i32", i=None, x=None), array("i32", i=None)
    text = f"%r = diagram.reduce {operation} %A over [x] : {wide} -> {out}"
    road = compiled(f"func.func @f(%A: {wide}) -> {out} {{\n{text}\nfunc.return %r : {out}\n}}")
    given = np.full((3, 37), 2**30 + 3, np.int32)
    expected = getattr(np, {"add": "sum", "mul": "prod"}[operation])(given, axis=1, dtype=np.int32)
    assert road.run([given])[0].tolist() == expected.tolist()
    assert f"{primitive}(" in road.text


def test_products_of_integers_wrap() -> None:
    a, b, out = array("i32", m=None, k=None), array("i32", k=None, n=None), array("i32", m=None, n=None)
    text = f"%r = diagram.contract %A, %B over [k] accumulate i32 : {a}, {b} -> {out}"
    road = compiled(f"func.func @f(%A: {a}, %B: {b}) -> {out} {{\n{text}\nfunc.return %r : {out}\n}}")
    left, right = np.full((5, 19), 2**20 + 1, np.int32), np.full((19, 7), 2**20 + 3, np.int32)
    assert (road.run([left, right])[0] == left @ right).all()
    assert "wrapped_product(" in road.text


def test_one_signed_bit_is_minus_one() -> None:
    body = """%o = arith.constant 0.0 : f32
    %c = arith.cmpf ogt, %a, %o : f32
    %z = arith.sitofp %c : i1 to f32
    %n = arith.negf %z : f32
    %y = arith.subf %z, %n : f32
    diagram.yield %y : f32"""
    for found in run(body, np.array([-1, 1], np.float32), result="f32"):
        assert found.tolist() == [0, -2]


def test_extrema_of_two_with_nan() -> None:
    a, b = np.array([np.nan, 1, 2, np.inf], np.float32), np.array([1, np.nan, 3, np.nan], np.float32)
    for found in run("%q = arith.maximumf %a, %b : f32\ndiagram.yield %q : f32", a, b, result="f32"):
        np.testing.assert_array_equal(found, np.array([np.nan, np.nan, 3, np.nan], np.float32))
    for found in run("%q = arith.minnumf %a, %b : f32\ndiagram.yield %q : f32", a, b, result="f32"):
        np.testing.assert_array_equal(found, np.array([1, 1, 2, np.inf], np.float32))


@pytest.mark.parametrize("accumulator", ["f16", "bf16"])
@pytest.mark.parametrize("format", ["f16", "f32"])
def test_a_narrow_accumulator_is_refused(format: str, accumulator: str) -> None:
    text = matmul("mk", "kn", format).replace("accumulate f32", f"accumulate {accumulator}")
    with pytest.raises(TreadleError, match=f"%C: it accumulates in {accumulator}, and .* write 'accumulate f32'"):
        compiled(text)


@pytest.mark.parametrize(("number", "format"), [("1.0e39", "f32"), ("-1.0e39", "f32"), ("7.0e4", "f16")])
def test_a_constant_beyond_its_format_is_refused(number: str, format: str) -> None:
    type = array(format, i=None)
    text = f"""func.func @f(%X: {type}) -> {type} {{
  %y = diagram.map (%a = %X : {type}) -> {type} {{
    %c = arith.constant {number} : {format}
    %s = arith.mulf %a, %c : {format}
    diagram.yield %s : {format}
  }}
  func.return %y : {type}
}}"""
    with pytest.raises(TreadleError, match="a number here is beyond the largest of its format") as caught:
        compiled(text)
    assert ":3:" in str(caught.value)


def test_a_program_without_axes() -> None:
    """There is one candidate for its sizes, and nothing tells it from another."""
    text = """
    !x = tensor<f16, #diagram.array<[]>>
    !y = tensor<f32, #diagram.array<[]>>
    func.func @f(%x: !x) -> !y {
      %y = diagram.map (%a = %x : !x) -> !y {
        %b = arith.extf %a : f16 to f32
        diagram.yield %b : f32
      }
      func.return %y : !y
    }
    """
    for machine in ("a100", "h100"):
        road = compiled(text, machine=machine)
        assert all(verdict.ok for verdict in road.verdicts(road.inputs({}, 0), {}))


@pytest.mark.parametrize("format", NARROW)
@pytest.mark.parametrize("axes", [{"i": None}, {}], ids=["array", "scalar"])
@pytest.mark.parametrize("where", ["fill", "map"])
def test_constants_of_narrow_formats(where: str, axes: dict[str, None], format: str) -> None:
    """Whatever prints one asks for the primitive that rounds it, though nothing else in the kernel does."""
    given, narrow = array("f32", **axes), array(format, **axes)
    filled = f"%r = diagram.fill 3.0 : {format} -> {narrow}"
    mapped = f"""%r = diagram.map (%a = %A : {given}) -> {given} {{
    %h = arith.constant 1.5 : {format}
    %w = arith.extf %h : {format} to f32
    %s = arith.addf %a, %w : f32
    diagram.yield %s : f32
  }}"""
    result, body = {"fill": (narrow, filled), "map": (given, mapped)}[where]
    road = compiled(f"func.func @f(%A: {given}) -> {result} {{\n  {body}\n  func.return %r : {result}\n}}")
    road.check(dict.fromkeys(axes, 5))
