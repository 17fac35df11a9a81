"""The float64 reference, against numpy and PyTorch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from treadle.compiler.errors import TreadleError
from treadle.compiler.source import load_module, parse_module
from treadle.runtime.interpreter import run_function

HEADER = """
!A = tensor<?x?xf32, #diagram.array<[a, b]>>
!B = tensor<?x?xf32, #diagram.array<[b, c]>>
!C = tensor<?x?xf32, #diagram.array<[a, c]>>
!CT = tensor<?x?xf32, #diagram.array<[c, a]>>
!a = tensor<?xf32, #diagram.array<[a]>>
!b = tensor<?xf32, #diagram.array<[b]>>
!s = tensor<f32, #diagram.array<[]>>
!I = tensor<?x?xi32, #diagram.array<[a, b]>>
!i = tensor<?xi32, #diagram.array<[a]>>
"""

RANDOM = np.random.default_rng(7)


def run(body: str, *arguments, **options):
    return run_function(parse_module(HEADER + body), arguments, **options).results


def normal(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape)


def test_contract_is_a_matrix_product():
    a, b = normal(5, 7), normal(7, 3)
    (c,) = run(
        """func.func @f(%a: !A, %b: !B) -> !C {
          %c = diagram.contract %a, %b over [b] accumulate f32 : !A, !B -> !C
          func.return %c : !C }""",
        a,
        b,
    )
    assert c.dtype == np.float64
    np.testing.assert_allclose(c, a @ b, rtol=1e-14)


def test_contract_transposes_broadcasts_and_adds_into():
    a, b, c = normal(5, 7), normal(7), normal(3, 5)
    (r,) = run(
        """!M = tensor<?x?x?xf32, #diagram.array<[c, b, a]>>
        func.func @f(%a: !A, %b: !b, %c: !CT, %m: !M) -> !CT {
          %r = diagram.contract %m, %b over [b] accumulate f32 into %c : !M, !b -> !CT
          func.return %r : !CT }""",
        a,
        b,
        c,
        m := normal(3, 7, 5),
    )
    np.testing.assert_allclose(r, np.einsum("cba,b->ca", m, b) + c, rtol=1e-12)


def test_contract_over_an_axis_of_one_operand():
    a, c = normal(5, 7), normal(5)
    (r,) = run(
        """func.func @f(%a: !A, %c: !a) -> !a {
          %r = diagram.contract %a, %c over [b] accumulate f32 : !A, !a -> !a
          func.return %r : !a }""",
        a,
        c,
    )
    np.testing.assert_allclose(r, a.sum(1) * c, rtol=1e-12)


def test_contract_over_two_axes_and_to_a_scalar():
    a = normal(5, 7)
    (r,) = run(
        """func.func @f(%a: !A) -> !s {
          %r = diagram.contract %a, %a over [b, a] accumulate f32 : !A, !A -> !s
          func.return %r : !s }""",
        a,
    )
    assert r.shape == ()
    np.testing.assert_allclose(r, (a * a).sum(), rtol=1e-12)


def test_more_axes_than_there_are_letters():
    axes = ", ".join(f"a{i}" for i in range(30))
    type = f"tensor<{'1x' * 29}4xf32, #diagram.array<[{axes}]>>"
    out = f"tensor<{'1x' * 29}f32, #diagram.array<[{axes.removesuffix(', a29')}]>>"
    (r,) = run(
        f"""func.func @f(%a: {type}) -> {out} {{
          %r = diagram.contract %a, %a over [a29] accumulate f32 : {type}, {type} -> {out}
          func.return %r : {out} }}""",
        np.full((1,) * 29 + (4,), 2.0),
    )
    assert r.item() == 16


@pytest.mark.parametrize(("kind", "oracle"), [("add", np.sum), ("mul", np.prod), ("max", np.max), ("min", np.min)])
def test_reduce(kind, oracle):
    a, c = normal(5, 7), normal(7)
    r, into, both = run(
        f"""func.func @f(%a: !A, %c: !b) -> (!b, !b, !s) {{
          %r = diagram.reduce {kind} %a over [a] : !A -> !b
          %i = diagram.reduce {kind} %a over [a] into %c : !A -> !b
          %s = diagram.reduce {kind} %a over [b, a] : !A -> !s
          func.return %r, %i, %s : !b, !b, !s }}""",
        a,
        c,
    )
    np.testing.assert_allclose(r, oracle(a, axis=0), rtol=1e-12)
    np.testing.assert_allclose(into, oracle(np.vstack([a, c]), axis=0), rtol=1e-12)
    np.testing.assert_allclose(both, oracle(a), rtol=1e-12)


@pytest.mark.parametrize(("kind", "neutral"), [("add", 0), ("mul", 1), ("max", -np.inf), ("min", np.inf)])
def test_an_empty_axis_gives_the_neutral_element(kind, neutral):
    r, c = run(
        f"""func.func @f(%a: !A, %b: !B) -> (!a, !C) {{
          %r = diagram.reduce {kind} %a over [b] : !A -> !a
          %c = diagram.contract %a, %b over [b] accumulate f32 : !A, !B -> !C
          func.return %r, %c : !a, !C }}""",
        normal(4, 0),
        normal(0, 3),
    )
    assert (r == neutral).all()
    assert r.shape == (4,)
    assert (c == 0).all()
    assert c.shape == (4, 3)


def test_integers_wrap_and_reduce_to_their_own_neutral_element():
    big = np.array([[2**31 - 1, 1]], np.int32)
    total, most = run(
        """func.func @f(%a: !I) -> (!i, !i) {
          %r = diagram.reduce add %a over [b] : !I -> !i
          %m = diagram.reduce max %a over [b] : !I -> !i
          func.return %r, %m : !i, !i }""",
        big,
    )
    assert total.dtype == np.int32
    assert total.item() == -(2**31)
    (_, most) = run(
        """func.func @f(%a: !I) -> (!i, !i) {
          %r = diagram.reduce add %a over [b] : !I -> !i
          %m = diagram.reduce max %a over [b] : !I -> !i
          func.return %r, %m : !i, !i }""",
        np.zeros((1, 0), np.int32),
    )
    assert most.item() == -(2**31)


def test_map_broadcasts_operands_and_scalars_and_transposes():
    a, row = normal(5, 7), normal(5)
    (r,) = run(
        """!T = tensor<?x?xf32, #diagram.array<[b, a]>>
        func.func @f(%a: !A, %r: !a, %k: f32) -> !T {
          %t = diagram.map (%x = %a : !A, %y = %r : !a, %z = %k : f32) -> !T {
            %u = arith.subf %x, %y : f32
            %v = arith.mulf %u, %z : f32
            diagram.yield %v : f32
          }
          func.return %t : !T }""",
        a,
        row,
        3.0,
    )
    np.testing.assert_allclose(r, ((a - row[:, None]) * 3).T, rtol=1e-12)


def test_map_repeats_along_an_axis_that_no_operand_has():
    row = normal(5)
    text = """func.func @f(%r: !a) -> !C attributes {sizes = #diagram.sizes<c = 4>} {
          %t = diagram.map (%y = %r : !a) -> !C { diagram.yield %y : f32 }
          func.return %t : !C }"""
    np.testing.assert_array_equal(run(text, row)[0], np.tile(row[:, None], 4))
    assert run(text, row, sizes={"c": 2})[0].shape == (5, 2)
    with pytest.raises(TreadleError, match="size of axis 'c' is not known"):
        run(text.replace("attributes {sizes = #diagram.sizes<c = 4>}", ""), row)


UNARY = {
    "math.exp": torch.exp,
    "math.exp2": torch.exp2,
    "math.expm1": torch.expm1,
    "math.log": torch.log,
    "math.log2": torch.log2,
    "math.log10": torch.log10,
    "math.log1p": torch.log1p,
    "math.sqrt": torch.sqrt,
    "math.rsqrt": torch.rsqrt,
    "math.sin": torch.sin,
    "math.cos": torch.cos,
    "math.tan": torch.tan,
    "math.asin": torch.asin,
    "math.acos": torch.acos,
    "math.atan": torch.atan,
    "math.sinh": torch.sinh,
    "math.cosh": torch.cosh,
    "math.tanh": torch.tanh,
    "math.asinh": torch.asinh,
    "math.acosh": torch.acosh,
    "math.atanh": torch.atanh,
    "math.erf": torch.erf,
    "math.absf": torch.abs,
    "math.floor": torch.floor,
    "math.ceil": torch.ceil,
    "math.trunc": torch.trunc,
    "math.roundeven": torch.round,
    "arith.negf": torch.neg,
}


@pytest.mark.parametrize("name", UNARY)
def test_unary_operations(name):
    values = np.concatenate([normal(50) * 3, [0.0, -0.5, 0.5, 1.5, np.inf, -np.inf, np.nan, 1.0, -1.0]])
    (r,) = run(
        f"""func.func @f(%a: !a) -> !a {{
          %t = diagram.map (%x = %a : !a) -> !a {{
            %y = {name} %x : f32
            diagram.yield %y : f32
          }}
          func.return %t : !a }}""",
        values,
    )
    np.testing.assert_allclose(r, UNARY[name](torch.tensor(values)).numpy(), rtol=1e-12, atol=1e-15)


BINARY = {
    "arith.addf": torch.add,
    "arith.subf": torch.sub,
    "arith.mulf": torch.mul,
    "arith.divf": torch.div,
    "arith.maximumf": torch.maximum,
    "arith.minimumf": torch.minimum,
    "arith.maxnumf": torch.fmax,
    "arith.minnumf": torch.fmin,
    "math.powf": torch.pow,
    "math.atan2": torch.atan2,
    "math.copysign": torch.copysign,
}


@pytest.mark.parametrize("name", BINARY)
def test_binary_operations(name):
    special = [0.0, -0.0, 1.0, -2.0, np.inf, -np.inf, np.nan]
    left, right = (np.array(side) for side in zip(*((a, b) for a in special for b in special), strict=True))
    left, right = np.concatenate([left, normal(30)]), np.concatenate([right, normal(30)])
    (r,) = run(
        f"""func.func @f(%a: !a, %b: !a) -> !a {{
          %t = diagram.map (%x = %a : !a, %y = %b : !a) -> !a {{
            %z = {name} %x, %y : f32
            diagram.yield %z : f32
          }}
          func.return %t : !a }}""",
        left,
        right,
    )
    expected = BINARY[name](torch.tensor(left), torch.tensor(right)).numpy()
    np.testing.assert_allclose(r, expected, rtol=1e-12)


INTEGERS = {
    "arith.addi": lambda a, b: a + b,
    "arith.subi": lambda a, b: a - b,
    "arith.muli": lambda a, b: a * b,
    "arith.divsi": lambda a, b: int(a / b),
    "arith.remsi": lambda a, b: a - b * int(a / b),
    "arith.floordivsi": lambda a, b: a // b,
    "arith.ceildivsi": lambda a, b: -(-a // b),
    "arith.maxsi": max,
    "arith.minsi": min,
    "arith.andi": lambda a, b: a & b,
    "arith.ori": lambda a, b: a | b,
    "arith.xori": lambda a, b: a ^ b,
    "arith.divui": lambda a, b: (a % 2**32) // (b % 2**32),
    "arith.remui": lambda a, b: (a % 2**32) % (b % 2**32),
    "arith.maxui": lambda a, b: max(a % 2**32, b % 2**32),
}


@pytest.mark.parametrize("name", INTEGERS)
def test_integer_operations(name):
    left, right = RANDOM.integers(-50, 50, 40).astype(np.int32), RANDOM.integers(1, 9, 40).astype(np.int32)
    right[::2] *= -1
    (r,) = run(
        f"""func.func @f(%a: !i, %b: !i) -> !i {{
          %t = diagram.map (%x = %a : !i, %y = %b : !i) -> !i {{
            %z = {name} %x, %y : i32
            diagram.yield %z : i32
          }}
          func.return %t : !i }}""",
        left,
        right,
    )
    expected = [INTEGERS[name](int(a), int(b)) for a, b in zip(left, right, strict=True)]
    np.testing.assert_array_equal(r, np.array(expected).astype(np.int32))


def test_compare_select_fma_and_conversions():
    a, b = normal(40), RANDOM.integers(-3, 4, 40).astype(np.int32)
    (r,) = run(
        """func.func @f(%a: !a, %b: !i) -> !a {
          %t = diagram.map (%x = %a : !a, %y = %b : !i) -> !a {
            %zero = arith.constant 0 : i32
            %two = arith.constant 2.0 : f32
            %positive = arith.cmpi sgt, %y, %zero : i32
            %yf = arith.sitofp %y : i32 to f32
            %less = arith.cmpf olt, %x, %yf : f32
            %both = arith.andi %positive, %less : i1
            %fused = math.fma %x, %two, %yf : f32
            %half = arith.truncf %x : f32 to f16
            %full = arith.extf %half : f16 to f32
            %r = arith.select %both, %fused, %full : f32
            diagram.yield %r : f32
          }
          func.return %t : !a }""",
        a,
        b,
    )
    np.testing.assert_allclose(r, np.where((b > 0) & (a < b), 2 * a + b, a), rtol=1e-12)


def test_casts_are_the_identity_and_fills_fill():
    a = normal(3)
    r, i, z = run(
        """!h = tensor<?xf16, #diagram.array<[a]>>
        func.func @f(%a: !a, %n: !i) -> (!h, !a, !a) {
          %r = diagram.cast %a : !a -> !h
          %i = diagram.cast %n : !i -> !a
          %z = diagram.fill 0xFF800000 : f32 -> !a
          func.return %r, %i, %z : !h, !a, !a }""",
        a,
        np.array([1, 2, 3], np.int32),
    )
    np.testing.assert_array_equal(r, a)
    np.testing.assert_array_equal(i, [1.0, 2.0, 3.0])
    assert i.dtype == np.float64
    np.testing.assert_array_equal(z, [-np.inf] * 3)


# -- laws ------------------------------------------------------------------------------------------


def test_the_standard_softmax_is_weaved_over_every_other_axis():
    s = normal(2, 5, 3)
    text = """!S = tensor<?x?x?xf32, #diagram.array<[x, k, m]>>
        func.func @f(%s: !S) -> !S {
          %p = diagram.apply @softmax(%s) over [k] : (!S) -> !S
          func.return %p : !S }"""
    expected = torch.softmax(torch.tensor(s), dim=1).numpy()
    np.testing.assert_allclose(run(text, s)[0], expected, rtol=1e-12)


def test_softmax_of_nothing_is_nothing():
    (r,) = run(
        """func.func @f(%s: !A) -> !A {
          %p = diagram.apply @softmax(%s) over [b] : (!A) -> !A
          func.return %p : !A }""",
        normal(4, 0),
    )
    assert r.shape == (4, 0)


def test_a_law_of_the_program_hides_the_standard_one():
    s = normal(4, 6)
    (r,) = run(
        """!v = tensor<?xf32, #diagram.array<[x]>>
        !r = tensor<f32, #diagram.array<[]>>
        diagram.law @softmax over [x] (%v : !v, %w : !v) -> !r {
          %l = diagram.contract %v, %w over [x] accumulate f32 : !v, !v -> !r
          diagram.yield %l : !r
        }
        func.func @f(%s: !A, %w: !b) -> !a {
          %p = diagram.apply @softmax(%s, %w) over [b] : (!A, !b) -> !a
          func.return %p : !a }""",
        s,
        w := normal(6),
    )
    np.testing.assert_allclose(r, s @ w, rtol=1e-12)


def test_unknown_law():
    text = """func.func @f(%s: !A) -> !A {
          %p = diagram.apply @softmin(%s) over [b] : (!A) -> !A
          func.return %p : !A }"""
    with pytest.raises(TreadleError, match=r"no law for 'softmin' on axis 'b'.*softmax"):
        run(text, normal(4, 5))


# -- functions and errors --------------------------------------------------------------------------


def test_attention_is_pytorchs():
    module = load_module(Path(__file__).parents[1] / "examples" / "attention.mlir")
    q, k, v = normal(2, 3, 50, 64), normal(2, 3, 71, 64), normal(2, 3, 71, 64)
    (o,) = run_function(module, [q, k, v]).results
    expected = torch.nn.functional.scaled_dot_product_attention(*map(torch.tensor, (q, k, v)))
    np.testing.assert_allclose(o, expected.numpy(), rtol=1e-11, atol=1e-14)


TWO = """func.func {0}@f(%a: !a) -> !a {{ func.return %a : !a }}
func.func @g(%a: !a) -> !a {{
  %b = func.call @f(%a) : (!a) -> !a
  func.return %b : !a
}}"""


def test_the_function_that_is_public_is_meant():
    np.testing.assert_array_equal(run(TWO.format("private "), a := normal(3))[0], a)
    np.testing.assert_array_equal(run(TWO.format(""), a, function="g")[0], a)
    with pytest.raises(TreadleError, match=r"which function is meant.*@f, @g"):
        run(TWO.format(""), a)
    with pytest.raises(TreadleError, match="no function @h"):
        run(TWO.format(""), a, function="h")


def test_scalars_of_the_function():
    a = normal(3)
    r, k = run(
        """func.func @f(%a: !a, %k: f32) -> (!a, f32) {
          %two = arith.constant 2.0 : f32
          %d = arith.mulf %k, %two : f32
          %r = diagram.map (%x = %a : !a, %y = %d : f32) -> !a {
            %z = arith.mulf %x, %y : f32
            diagram.yield %z : f32
          }
          func.return %r, %d : !a, f32 }""",
        a,
        3,
    )
    np.testing.assert_allclose(r, 6 * a)
    assert k.shape == ()
    assert k.item() == 6


def test_a_law_whose_axis_is_named_as_a_weaved_one():
    s = normal(4, 6)
    (r,) = run(
        """!v = tensor<?xf32, #diagram.array<[a]>>
        !r = tensor<f32, #diagram.array<[]>>
        diagram.law @mean over [a] (%v : !v) -> !r {
          %one = diagram.fill 1.0 : f32 -> !v
          %n = diagram.reduce add %one over [a] : !v -> !r
          %l = diagram.reduce add %v over [a] : !v -> !r
          %m = diagram.map (%x = %l : !r, %y = %n : !r) -> !r {
            %z = arith.divf %x, %y : f32
            diagram.yield %z : f32
          }
          diagram.yield %m : !r
        }
        func.func @f(%s: !A) -> !a {
          %p = diagram.apply @mean(%s) over [b] : (!A) -> !a
          func.return %p : !a }""",
        s,
    )
    np.testing.assert_allclose(r, s.mean(1), rtol=1e-12)


def test_the_size_of_an_axis_that_no_argument_has():
    """Positions are made of nothing: their type alone says how many there are."""
    body = """
    !p = tensor<4xi32, #diagram.array<[p]>>
    func.func @f(%a: !a) -> (!a, !p) {
      %p = diagram.index -> !p
      func.return %a, %p : !a, !p }"""
    _, positions = run(body, normal(3))
    assert positions.tolist() == [0, 1, 2, 3]


def test_errors_name_the_operation():
    text = """func.func @f(%a: !a) -> !a {
      %t = "tensor.cast"(%a) : (!a) -> !a
      func.return %t : !a }"""
    with pytest.raises(TreadleError, match=r"does not know 'tensor.cast'") as caught:
        run(text, normal(3))
    assert caught.value.location is not None


def test_errors_name_the_argument_and_axis():
    text = "func.func @f(%a: !A, %b: !b) -> !A { func.return %a : !A }"
    with pytest.raises(TreadleError, match=r"%b has 4 elements along axis 'b': expected 5"):
        run(text, normal(3, 5), normal(4))
    with pytest.raises(TreadleError, match="takes 2 arguments"):
        run(text, normal(3, 5))
    with pytest.raises(TreadleError, match=r"%a has 1 dimensions: expected axes \[a, b\]"):
        run(text, normal(3), normal(4))
