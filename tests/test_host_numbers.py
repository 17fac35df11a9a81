"""Numbers computed between a function's arguments and its kernels, on the host: as the reference computes them."""

from __future__ import annotations

import numpy as np
import pytest

import treadle

LOWEST, HIGHEST = -(2**31), 2**31 - 1


def whole(body: str) -> treadle.Kernel:
    """A function that gives %m, which it makes of %n and of small constants, once for each element of an array."""
    constants = "".join(f"%c{number} = arith.constant {number} : i32\n" for number in (0, 2, 5))
    return treadle.compile(f"""!X = tensor<?xi32, #diagram.array<[i]>>
func.func @f(%A: !X, %n: i32) -> !X {{
  {constants}
  {body}
  %r = diagram.map (%a = %A : !X, %b = %m : i32) -> !X {{
    %y = arith.addi %a, %b : i32
    diagram.yield %y : i32
  }}
  func.return %r : !X
}}""")


@pytest.mark.parametrize(
    ("body", "number", "wanted"),
    [
        ("%d = arith.addi %n, %n : i32\n%m = arith.floordivsi %d, %c2 : i32", 2**30 + 1, -(2**30) + 1),
        ("%d = arith.muli %n, %n : i32\n%m = arith.maxsi %d, %c5 : i32", 2**17, 5),
        ("%d = arith.subi %n, %c2 : i32\n%m = arith.minsi %d, %c5 : i32", LOWEST + 1, 5),
        ("%m = arith.remui %n, %c5 : i32", -7, (2**32 - 7) % 5),
        ("%m = arith.divui %n, %c2 : i32", -7, (2**32 - 7) // 2),
        ("%m = arith.floordivsi %n, %c2 : i32", -7, -4),
        ("%m = arith.divsi %n, %c2 : i32", -7, -3),
        ("%m = arith.floordivsi %n, %c0 : i32", 7, 0),
        ("%m = arith.divsi %n, %c0 : i32", 7, 0),
        ("%m = arith.remui %n, %c0 : i32", 7, 0),
        ("%k = arith.cmpi sgt, %n, %c2 : i32\n%m = arith.select %k, %c5, %c0 : i32", 3, 5),
        ("%k = arith.cmpi ult, %n, %c2 : i32\n%m = arith.select %k, %c5, %c0 : i32", -1, 0),
    ],
)
def test_integers_wrap_as_in_the_reference(body: str, number: int, wanted: int) -> None:
    kernel, array = whole(body), np.zeros(3, np.int32)
    assert kernel(array, number, backend="interpreter").tolist() == [wanted] * 3
    assert kernel(array, number, backend="emulator").tolist() == [wanted] * 3
    (verdict,) = kernel.verify(array, number)
    assert verdict.ok, verdict


FLOATS = """!X = tensor<?xf32, #diagram.array<[i]>>
func.func @f(%A: !X, %n: f32, %h: f16) -> !X {
  %g = arith.extf %h : f16 to f32
  %d = arith.mulf %n, %g : f32
  %e = math.exp2 %d : f32
  %k = arith.truncf %e : f32 to bf16
  %r = diagram.map (%a = %A : !X, %s = %k : bf16) -> !X {
    %t = arith.extf %s : bf16 to f32
    %y = arith.mulf %a, %t : f32
    diagram.yield %y : f32
  }
  func.return %r : !X
}"""


def test_floats_are_rounded_to_their_formats() -> None:
    kernel, array = treadle.compile(FLOATS), np.ones(3, np.float32)
    (found, *_) = kernel(array, 0.3, 0.7)
    assert found == np.float32(1.15625)  # exp2(0.3 * 0.7) = 1.1567 in bf16
    (verdict,) = kernel.verify(array, 0.3, 0.7)
    assert verdict.ok, verdict
