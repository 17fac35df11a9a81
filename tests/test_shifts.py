"""Maxima that cancel are differentiated through by nobody, and those that do not are."""

from __future__ import annotations

import pytest
from differences import check

from treadle.compiler.source import parse_module

TEMPLATE = """
!x = tensor<?x?xf32, #diagram.array<[i, k]>>
!r = tensor<?xf32, #diagram.array<[i]>>
!c = tensor<?xf32, #diagram.array<[k]>>
func.func @f(%a: !x, %b: !r, %v: !c) -> RESULTS {
  %m = diagram.reduce KIND %a over [k] : !x -> !r
  %e = diagram.map (%p = %a : !x, %q = %m : !r) -> !x {
    %half = arith.constant 0.5 : f32
    %t = arith.subf %p, %q : f32
    %u = arith.mulf %t, %half : f32
    %y = math.POWER %u : f32
    diagram.yield %y : f32
  }
  %s = diagram.reduce add %e over [k] : !x -> !r
  REST
}
"""

SHARE = """%y = diagram.map (%p = %e : !x, %q = %s : !r) -> !x {
    %z = arith.divf %p, %q : f32
    diagram.yield %z : f32
  }"""

CANCELS = {
    "shares": (SHARE, "func.return %y : !x", "!x"),
    "shares of a product": (
        """%w = diagram.contract %e, %v over [k] accumulate f32 : !x, !c -> !r
  %y = diagram.map (%p = %w : !r, %q = %s : !r) -> !r {
    %z = arith.divf %p, %q : f32
    diagram.yield %z : f32
  }""",
        "func.return %y : !r",
        "!r",
    ),
    "one over a root": (
        """%y = diagram.map (%p = %e : !x, %q = %s : !r) -> !x {
    %square = arith.mulf %q, %q : f32
    %root = math.rsqrt %square : f32
    %z = arith.mulf %p, %root : f32
    diagram.yield %z : f32
  }""",
        "func.return %y : !x",
        "!x",
    ),
    "the logarithm of a sum": (
        """%y = diagram.map (%p = %s : !r, %q = %m : !r) -> !r {
    %half = arith.constant 0.5 : f32
    %l = math.LOG %p : f32
    %t = arith.mulf %half, %q : f32
    %z = arith.addf %l, %t : f32
    diagram.yield %z : f32
  }""",
        "func.return %y : !r",
        "!r",
    ),
    "a sum with one share more": (
        """%y = diagram.map (%p = %e : !x, %q = %s : !r, %t = %b : !r, %o = %m : !r) -> !x {
    %half = arith.constant 0.5 : f32
    %d = arith.subf %t, %o : f32
    %h = arith.mulf %d, %half : f32
    %n = math.POWER %h : f32
    %all = arith.addf %q, %n : f32
    %z = arith.divf %p, %all : f32
    diagram.yield %z : f32
  }""",
        "func.return %y : !x",
        "!x",
    ),
}

STAYS = {
    "what is not divided": ("", "func.return %s : !r", "!r"),
    "a maximum that is returned": (SHARE, "func.return %y, %m : !x, !r", "(!x, !r)"),
    "a sum of distances": (
        """%t = diagram.map (%p = %a : !x, %q = %m : !r) -> !x {
    %z = arith.subf %p, %q : f32
    diagram.yield %z : f32
  }
  %u = diagram.reduce add %t over [k] : !x -> !r""",
        "func.return %u : !r",
        "!r",
    ),
    "a share of rows together": (
        """%t = diagram.reduce add %e over [i] : !x -> !c
  %y = diagram.map (%p = %e : !x, %q = %t : !c) -> !x {
    %z = arith.divf %p, %q : f32
    diagram.yield %z : f32
  }""",
        "func.return %y : !x",
        "!x",
    ),
    "a power plus one": (
        """%y = diagram.map (%p = %e : !x, %q = %s : !r) -> !x {
    %one = arith.constant 1.0 : f32
    %n = arith.addf %q, %one : f32
    %z = arith.divf %p, %n : f32
    diagram.yield %z : f32
  }""",
        "func.return %y : !x",
        "!x",
    ),
    "another power": (
        """%y = diagram.map (%p = %e : !x, %q = %s : !r) -> !x {
    %n = arith.mulf %q, %q : f32
    %z = arith.divf %p, %n : f32
    diagram.yield %z : f32
  }""",
        "func.return %y : !x",
        "!x",
    ),
}


def gradient(kind: str, power: str, rest: str, end: str, results: str) -> str:
    text = TEMPLATE.replace("REST", f"{rest}\n  {end}").replace("RESULTS", results).replace("KIND", kind)
    text = text.replace("POWER", power).replace("LOG", "log" if power == "exp" else "log2")
    return str(check(parse_module(text), (), {"i": 5, "k": 7}))


@pytest.mark.parametrize("power", ["exp", "exp2"])
@pytest.mark.parametrize("kind", ["max", "min"])
@pytest.mark.parametrize("name", CANCELS)
def test_a_maximum_that_cancels_has_no_gradient(name: str, kind: str, power: str) -> None:
    text = gradient(kind, power, *CANCELS[name])
    assert "what makes no difference has no gradient" in text
    assert "is_extremal" not in text


@pytest.mark.parametrize("name", STAYS)
def test_a_maximum_that_stays_has_one(name: str) -> None:
    assert "is_extremal" in gradient("max", "exp", *STAYS[name])
