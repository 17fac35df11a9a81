"""Exponents that are never above zero (`passes/expressions/negative_exponents.py`), told from how they are made."""

from __future__ import annotations

import pytest

from treadle.compiler.source import parse_module
from treadle.dialects.diagram import MapOp
from treadle.passes.expressions.inner import inner_expression
from treadle.passes.expressions.negative_exponents import is_never_above_zero

PROGRAM = """
!S = tensor<?x?xf32, #diagram.array<[q, x]>>
!r = tensor<?xf32, #diagram.array<[q]>>
func.func @f(%S: !S, %G: !S) -> !S {{
  %seen = diagram.where %S if "x < q" : !S
  %z = diagram.map (%s = %{of} : !S) -> !S {{
    %scale = arith.constant 0.125 : f32
    %t = arith.mulf %s, %scale : f32
    diagram.yield %t : f32
  }}
  %soft = diagram.map (%s = %z : !S) -> !S {{
    %e = math.exp %s : f32
    %t = math.log1p %e : f32
    diagram.yield %t : f32
  }}
  %plus = diagram.map (%s = %z : !S) -> !S {{
    %one = arith.constant {one} : f32
    %e = math.exp %s : f32
    %sum = arith.addf %one, %e : f32
    %t = math.log %sum : f32
    diagram.yield %t : f32
  }}
  %l = diagram.where %soft if "x < q" : !S
  %T = diagram.reduce add %soft over [x] : !S -> !r
  %U = diagram.reduce add %G over [x] : !S -> !r
  %C = diagram.scan add %soft over x reverse : !S -> !S
  %D = diagram.scan add %soft over x exclusive reverse : !S -> !S
  %E = diagram.scan add %l over x reverse : !S -> !S
  %F = diagram.scan add %G over x reverse : !S -> !S
  %B = diagram.scan add %soft over x : !S -> !S
  %M = diagram.scan max %soft over x : !S -> !S
  %exponent = diagram.map (%z_ = %z : !S, %s = %soft : !S, %p = %plus : !S, %t = %T : !r, %u = %U : !r, %c = %C : !S,
      %d = %D : !S, %e = %E : !S, %f = %F : !S, %b = %B : !S, %m = %M : !S, %g = %G : !S) -> !S {{
    {body}
    diagram.yield %r : f32
  }}
  func.return %exponent : !S
}}"""


def never_above_zero(body: str, of: str = "seen", one: str = "1.0") -> bool:
    module = parse_module(PROGRAM.format(body=body, of=of, one=one), "program")
    (made,) = (op for op in module.walk() if isinstance(op, MapOp) and op.result.name_hint == "exponent")
    exponent = inner_expression(made.result)
    assert exponent is not None
    return is_never_above_zero(exponent)


BOUNDED = {
    "minus a sum of what is not negative": "%r = arith.negf %c : f32",
    "the logarithm of a sigmoid": "%r = arith.subf %z_, %s : f32",
    "the same with 1 + exp": "%r = arith.subf %z_, %p : f32",
    "and less still": "%t1 = arith.subf %z_, %p : f32\n %r = arith.subf %t1, %d : f32",
    "an element less the sum that it is in": "%r = arith.subf %z_, %c : f32",
    "the same in another order": "%t1 = arith.negf %c : f32\n %r = arith.addf %t1, %z_ : f32",
    "two shares": "%t1 = arith.subf %z_, %s : f32\n %r = arith.addf %t1, %t1 : f32",
    "what is summed so far less the whole": "%r = arith.subf %b, %t : f32",
    "a share, and that": (
        "%t1 = arith.subf %z_, %s : f32\n %t2 = arith.addf %t1, %b : f32\n %r = arith.subf %t2, %t : f32"
    ),
    "a negative number": "%k = arith.constant -1.0 : f32\n %r = arith.subf %k, %s : f32",
    "what cancels": "%t1 = arith.subf %g, %g : f32\n %r = arith.subf %t1, %s : f32",
}

UNKNOWN = {
    "an element": "%r = arith.addf %z_, %z_ : f32",
    "a sum that is added": "%r = arith.addf %z_, %c : f32",
    "an element less the sum without it": "%r = arith.subf %z_, %d : f32",
    "twice an element less its logarithm": (
        "%two = arith.constant 2.0 : f32\n %t1 = arith.mulf %z_, %two : f32\n %r = arith.subf %t1, %s : f32"
    ),
    "minus a sum of what may be negative": "%r = arith.negf %f : f32",
    "a maximum that is scanned": "%r = arith.subf %z_, %m : f32",
    "the whole less what is summed so far": "%r = arith.subf %t, %b : f32",
    "less the whole of something else": "%r = arith.subf %b, %u : f32",
    "a number": "%k = arith.constant 0.5 : f32\n %r = arith.subf %k, %s : f32",
}


@pytest.mark.parametrize("name", BOUNDED)
def test_what_is_never_above_zero(name: str) -> None:
    assert never_above_zero(BOUNDED[name])


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_may_be_above_zero(name: str) -> None:
    assert not never_above_zero(UNKNOWN[name])


def test_one_plus_a_power_is_more_than_the_power() -> None:
    assert not never_above_zero(BOUNDED["the same with 1 + exp"], one="-0.5")


def test_a_sum_lacks_elements_that_a_condition_leaves_out() -> None:
    """Where the element itself is there still, nothing is taken off it."""
    assert never_above_zero("%r = arith.subf %z_, %c : f32", of="S")
    assert not never_above_zero("%r = arith.subf %z_, %e : f32", of="S")
