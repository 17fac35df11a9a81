"""What single instructions of PTX compute, against numbers written down from the PTX ISA."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from ptx_bodies import compute, run

from treadle.runtime.ptx.errors import PtxUnknown

I32, U32, I64, U64, F32 = np.int32, np.uint32, np.int64, np.uint64, np.float32


@pytest.mark.parametrize(
    ("instruction", "a", "b", "expected"),
    [
        ("add.s32 x, a, b;", [2**31 - 1, -1], [1, -1], [-(2**31), -2]),
        ("sub.s32 x, a, b;", [-(2**31), 5], [1, 7], [2**31 - 1, -2]),
        ("mul.lo.s32 x, a, b;", [65536, -3], [65536, 5], [0, -15]),
        ("mul.hi.s32 x, a, b;", [-1, 2**30], [1, 8], [-1, 2]),
        ("div.s32 x, a, b;", [-7, 7, -8, -(2**31)], [2, -2, 2, -1], [-3, -3, -4, -(2**31)]),
        ("rem.s32 x, a, b;", [-7, 7], [2, -2], [-1, 1]),
        ("min.s32 x, a, b;", [-1, 3], [1, 2], [-1, 2]),
        ("max.s32 x, a, b;", [-1, 3], [1, 2], [1, 3]),
        ("and.b32 x, a, b;", [12], [10], [8]),
        ("or.b32 x, a, b;", [12], [10], [14]),
        ("xor.b32 x, a, b;", [12], [10], [6]),
        ("shl.b32 x, a, b;", [1, 1, 3], [31, 32, 0], [-(2**31), 0, 3]),
        ("shr.s32 x, a, b;", [-16, -16, 16], [2, 32, 40], [-4, -1, 0]),
        ("neg.s32 x, a;", [5, -(2**31)], [0, 0], [-5, -(2**31)]),
        ("abs.s32 x, a;", [-5, 5], [0, 0], [5, 5]),
        ("not.b32 x, a;", [0, -1], [0, 0], [-1, 0]),
        ("mad.lo.s32 x, a, b, 7;", [3], [-4], [-5]),
        ("popc.b32 x, a;", [255, -1], [0, 0], [8, 32]),
        ("bfi.b32 x, a, b, 4, 28;", [3, -1], [15, 0], [63, -16]),
        ("bfi.b32 x, a, b, 30, 8;", [7], [0], [-(2**30)]),
        ("prmt.b32 x, a, b, 0x7610;", [0x33221100], [0x77665544], [0x77661100]),
        ("prmt.b32 x, a, b, 0x0BA8;", [0x00800080], [0], [0x8000FFFF - 2**32]),
    ],
)
def test_integers(instruction: str, a: list[int], b: list[int], expected: list[int]):
    made = compute(instruction, I32, a=np.array(a, I32), b=np.array(b, I32))
    assert made.tolist() == expected


def test_unsigned_integers_and_widths():
    a, b = np.array([2**32 - 1, 7], U32), np.array([2, 3], U32)
    assert compute("div.u32 x, a, b;", U32, a=a, b=b).tolist() == [2**31 - 1, 2]
    assert compute("mul.wide.u32 x, a, b;", U64, a=a, b=b).tolist() == [2**33 - 2, 21]
    assert compute("mul.wide.s32 x, a, b;", I64, a=a, b=b).tolist() == [-2, 21]
    assert compute("mul.hi.u32 x, a, b;", U32, a=a, b=b).tolist() == [1, 0]
    assert compute("shr.u32 x, a, 31;", U32, a=a).tolist() == [1, 0]
    wide = np.array([2**63, 3], U64)
    assert compute("mul.hi.u64 x, a, 6;", U64, a=wide).tolist() == [3, 0]
    assert compute("mul.hi.s64 x, a, 6;", I64, a=wide).tolist() == [-3, 0]
    assert compute("cvt.u32.u64 x, a;", U32, a=wide + np.uint64(5)).tolist() == [5, 8]
    assert compute("cvt.s64.s32 x, a;", I64, a=a).tolist() == [-1, 7]
    assert compute("cvt.u64.u32 x, a;", U64, a=a).tolist() == [2**32 - 1, 7]
    assert compute("cvt.s32.s8 x, a;", I32, a=np.array([0x1FF], U32)).tolist() == [-1]
    assert compute("cvt.u16.u32 x, a;", np.uint16, a=a).tolist() == [0xFFFF, 7]


def test_an_fma_is_rounded_once():
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(512).astype(F32) for _ in range(2))
    c = (-a.astype(np.float64) * b * (1 + rng.choice([0, 1e-7, 1e-3], 512))).astype(F32)
    made = compute("fma.rn.f32 x, a, b, c;", F32, a=a, b=b, c=c)
    exact = [Fraction(float(p)) * Fraction(float(q)) + Fraction(float(r)) for p, q, r in zip(a, b, c, strict=True)]
    below, above = np.nextafter(made, F32(-np.inf)), np.nextafter(made, F32(np.inf))
    for low, here, high, number in zip(below, made, above, exact, strict=True):
        distance = abs(Fraction(float(here)) - number)
        assert distance <= min(abs(Fraction(float(low)) - number), abs(Fraction(float(high)) - number))


def test_an_fma_meets_a_double_rounding():
    # 1 + 2^-24, and 2^-54 more, which float64 loses: the first is a tie that goes to 1, the second is above it.
    a = np.array([2.0**-12, 2.0**-12 * (1 + 2.0**-15)], F32)
    b = np.array([2.0**-12, 2.0**-12 * (1 - 2.0**-15 + 2.0**-23)], F32)
    exact = [Fraction(float(p)) * Fraction(float(q)) - Fraction(1, 2**24) for p, q in zip(a, b, strict=True)]
    assert exact[0] == 0 < exact[1] < Fraction(1, 2**46)
    made = compute("fma.rn.f32 x, a, b, c;", F32, a=a, b=b, c=np.ones(2, F32))
    assert made.tolist() == [1, np.nextafter(F32(1), F32(2))]


def test_a_sum_is_rounded_towards_zero():
    """1 less 2^-60 is below 1, though it is 1 in float64; finite numbers never become infinite."""
    big = np.finfo(F32).max
    a = np.array([1, -1, 1, 1, 2.0**-140, big, -big, np.inf, 3, np.nan], F32)
    b = np.array([-(2.0**-60), 2.0**-60, 2.0**-60, 2.0**-23, 2.0**-141, big, -big, 1, -3, 1], F32)
    below = np.nextafter(F32(1), F32(0))
    expected = np.array([below, -below, 1, 1 + 2.0**-23, 1.5 * 2.0**-140, big, -big, np.inf, 0, np.nan], F32)
    made = compute("add.rz.f32 x, a, b;", F32, a=a, b=b)
    np.testing.assert_array_equal(made, expected)
    assert not np.signbit(made[8])
    flushed = compute("add.rz.ftz.f32 x, a, b;", F32, a=a, b=b)
    np.testing.assert_array_equal(flushed, np.where(np.arange(10) == 4, F32(0), expected))
    random = np.random.default_rng(2)
    a, b = ((random.standard_normal(512) * 2.0 ** random.integers(-40, 40, 512)).astype(F32) for _ in range(2))
    made = compute("add.rz.f32 x, a, b;", F32, a=a, b=b)
    for p, q, here in zip(a, b, made, strict=True):
        exact = abs(Fraction(float(p)) + Fraction(float(q)))
        assert abs(Fraction(float(here))) <= exact < Fraction(float(np.nextafter(abs(here), F32(np.inf))))


def test_an_approximate_quotient_by_a_huge_number_is_nothing():
    """The ISA: beyond 2^126 a quotient is 0, and that of an infinity a NaN."""
    a = np.array([2.0**127, -(2.0**127), np.inf, 2.0**127, 1, 1, 0, -1], F32)
    b = np.array([2.0**127, 2.0**127, 2.0**127, 2.0**126, np.inf, -0.0, 0, 2.0**-140], F32)
    made = compute("div.approx.f32 x, a, b;", F32, a=a, b=b)
    np.testing.assert_array_equal(made, np.array([0, 0, np.nan, 2, 0, -np.inf, np.nan, -np.inf], F32))
    assert compute("div.approx.ftz.f32 x, a, b;", F32, a=a[7:], b=b[7:]).tolist() == [-np.inf]
    with pytest.raises(PtxUnknown):
        compute("sub.rz.f32 x, a, b;", F32, a=a, b=b)


def test_least_and_greatest():
    nan, zero = np.nan, 0.0
    a = np.array([1, nan, nan, -zero, zero], F32)
    b = np.array([2, 1, nan, zero, -zero], F32)
    made = compute("max.f32 x, a, b;", F32, a=a, b=b)
    assert made[:2].tolist() == [2, 1]
    assert made[2:3].view(U32)[0] == 0x7FFFFFFF
    assert not np.signbit(made[3:]).any()
    assert np.signbit(compute("min.f32 x, a, b;", F32, a=a, b=b)[3:]).all()
    strict = compute("max.NaN.f32 x, a, b;", F32, a=a, b=b)
    assert strict[0] == 2
    assert strict[1:3].view(U32).tolist() == [0x7FFFFFFF] * 2


def test_what_is_approximate_is_within_the_error_of_the_isa():
    a = np.random.default_rng(1).uniform(0.01, 90, 512).astype(F32)
    double = a.astype(np.float64)
    for instruction, exact, ulps in (
        ("ex2.approx.ftz.f32 x, a;", np.exp2(double), 2),
        ("rsqrt.approx.f32 x, a;", 1 / np.sqrt(double), 2),
        ("rcp.approx.ftz.f32 x, a;", 1 / double, 1),
        ("sqrt.rn.f32 x, a;", np.sqrt(double), 0.5),
        ("div.full.f32 x, 0f40400000, a;", 3 / double, 2),
        ("div.approx.ftz.f32 x, 0f40400000, a;", 3 / double, 2),
    ):
        made = compute(instruction, F32, a=a)
        assert (np.abs(made - exact) <= ulps * np.spacing(made)).all(), instruction


def test_special_values_and_flushing():
    inputs = np.array([-np.inf, np.inf, np.nan, -0.0, -140.0, -126.0], F32)
    made = compute("ex2.approx.ftz.f32 x, a;", F32, a=inputs)
    assert np.array_equal(made, np.array([0, np.inf, np.nan, 1, 0, 2.0**-126], F32), equal_nan=True)
    assert compute("ex2.approx.f32 x, a;", F32, a=inputs)[4] == 2.0**-140
    tiny = np.array([2.0**-140, -(2.0**-140), 1], F32)
    assert compute("add.ftz.f32 x, a, 0f00000000;", F32, a=tiny).tolist() == [0, 0, 1]
    assert compute("add.f32 x, a, 0f00000000;", F32, a=tiny).tolist() == tiny.tolist()
    signed = np.array([-3, 3], F32)
    assert compute("copysign.f32 x, a, 0f3F800000;", F32, a=signed).tolist() == [-1, 1]
    assert compute("neg.f32 x, a;", F32, a=signed).tolist() == [3, -3]


@pytest.mark.parametrize(("comparison", "expected"), [("lt", [1, 0, 0]), ("ltu", [1, 0, 1]), ("ne", [1, 0, 0])])
def test_comparisons_of_nan(comparison: str, expected: list[int]):
    a, b = np.array([1, 2, np.nan], F32), np.array([2, 2, 2], F32)
    made = compute(f"setp.{comparison}.f32 %p1, a, b; selp.b32 x, 1, 0, %p1;", I32, a=a, b=b)
    assert made.tolist() == expected


def test_a_comparison_with_two_results():
    a = np.array([1, 5], I32)
    text = "setp.lt.s32 %p1, a, 10; setp.lt.and.s32 %p2|%p3, a, 3, %p1; selp.b32 %r1, 2, 0, %p2; "
    made = compute(text + "selp.b32 %r2, 1, 0, %p3; or.b32 x, %r1, %r2;", I32, a=a)
    assert made.tolist() == [2, 1]


def test_numbers_become_others():
    a = np.array([1.5, 2.5, -2.5, 3e9, np.nan, -np.inf], F32)
    assert compute("cvt.rni.s32.f32 x, a;", I32, a=a).tolist() == [2, 2, -2, 2**31 - 1, 0, -(2**31)]
    assert compute("cvt.rzi.s32.f32 x, a;", I32, a=a).tolist() == [1, 2, -2, 2**31 - 1, 0, -(2**31)]
    assert compute("cvt.rzi.s64.f32 x, a;", I64, a=a[4:5]).tolist() == [-(2**63)]
    assert compute("cvt.rn.f32.s32 x, a;", F32, a=np.array([2**24 + 1], I32)).tolist() == [2.0**24]
    clipped = compute("cvt.sat.f32.f32 x, a;", F32, a=np.array([-np.inf, -1, 1e-45, 0.5, 1.5, np.inf, np.nan], F32))
    assert clipped.tolist() == np.array([0, 0, 1e-45, 0.5, 1, 1, 0], F32).tolist()
    half = compute("cvt.rn.f16.f32 x, a;", np.float16, a=np.array([1 + 2.0**-11, 70000, 2.0**-24], F32))
    assert half.tolist() == [1, np.inf, 2.0**-24]
    tf32 = compute("cvt.rna.tf32.f32 x, a;", F32, a=np.array([1 + 2.0**-11, -1 - 2.0**-11, 1 + 2.0**-12], F32))
    assert tf32.tolist() == [1 + 2.0**-10, -1 - 2.0**-10, 1]


@pytest.mark.parametrize(
    ("rounding", "whole"),
    [("rni", [2, 2, -2, -0.0]), ("rzi", [1, 2, -2, -0.0]), ("rmi", [1, 2, -3, -1]), ("rpi", [2, 3, -2, -0.0])],
)
def test_whole_numbers_in_a_float_format(rounding: str, whole: list[float]):
    a = np.array([1.5, 2.5, -2.5, -0.25, 3e9, np.inf, np.nan], F32)
    made = compute(f"cvt.{rounding}.f32.f32 x, a;", F32, a=a)
    np.testing.assert_array_equal(made, np.array([*whole, 3e9, np.inf, np.nan], F32))
    assert np.signbit(made[3])


def test_two_numbers_in_a_register():
    a, b = np.array([1, 500, np.nan], F32), np.array([-2, -1e9, 0], F32)
    assert compute("cvt.rn.f16x2.f32 x, a, b;", U32, a=a, b=b)[0] == 0x3C00C000
    assert compute("cvt.rn.bf16x2.f32 x, a, b;", U32, a=a, b=b)[0] == 0x3F80C000
    made = compute("cvt.rn.satfinite.e4m3x2.f32 x, a, b;", np.uint16, a=a, b=b)
    assert made.tolist() == [0x38C0, 0x7EFE, 0x7F00]
    bytes_of = np.array([0x38C0, 0x7EFE, 0x0180], np.uint16)
    assert compute("cvt.rn.f16x2.e4m3x2 x, a;", U32, a=bytes_of).tolist() == [0x3C00C000, 0x5F00DF00, 0x18008000]
    halves = np.array([0x3C004000], U32)
    assert compute("mul.f16x2 x, a, b;", U32, a=halves, b=halves).tolist() == [0x3C004400]


def test_vectors_of_parts():
    a = np.array([0x22221111], U32)
    assert compute("mov.b32 {%h1, %h2}, a; mov.b32 x, {%h2, %h1};", U32, a=a).tolist() == [0x11112222]
    assert compute("mov.b64 x, {a, 7};", U64, a=a).tolist() == [7 << 32 | 0x22221111]


def test_products_of_integers_are_exact_and_wrap() -> None:
    """32 products of -1 and 2, or of 255 and 2 where the factor is unsigned, added to the least number there is."""
    for left, expected in (("s8", 2**31 - 64), ("u8", -(2**31) + 32 * 510)):
        body = f"""
mov.b32 %r1, 0xFFFFFFFF; mov.b32 %r2, 0x02020202; mov.b32 %r3, 0x80000000;
mma.sync.aligned.m16n8k32.row.col.s32.{left}.s8.s32 {{%r4, %r5, %r6, %r7}}, {{%r1, %r1, %r1, %r1}}, {{%r2, %r2}},
{{%r3, %r3, %r3, %r3}};
mul.wide.u32 %d1, %tid, 16; add.s64 %d1, %out, %d1; st.global.v4.u32 [%d1], {{%r4, %r5, %r6, %r7}};"""
        assert (run(body, np.zeros(128, np.int32)) == expected).all()


def test_half_a_step_of_16_bits() -> None:
    """Eight products of 1 and 2, added to 1."""
    body = """
mov.b32 %r1, 0x3C003C00; mov.b32 %r2, 0x40004000; mov.f32 %f1, 0f3F800000;
mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f2, %f3, %f4, %f5}, {%r1, %r1}, {%r2}, {%f1, %f1, %f1, %f1};
mul.wide.u32 %d1, %tid, 16; add.s64 %d1, %out, %d1; st.global.v4.f32 [%d1], {%f2, %f3, %f4, %f5};"""
    assert (run(body, np.zeros(128, np.float32)) == 17).all()
