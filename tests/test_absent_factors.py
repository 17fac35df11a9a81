"""Products of which a factor is absent do not count, whatever the other is: data past a length may be NaN. Kernels take
a zero for what is absent, so where the other is no finite number nothing is said of the sum."""

from __future__ import annotations

import numpy as np
import pytest

from roads import array, compiled
from treadle.compiler.source import parse_module
from treadle.runtime.interpreter import Bounded, run_with_bounds

Q, X, E = 12, 40, 6
SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan])
LEFT, RIGHT, RESULT = array("f16", q=None, x=None), array("f16", x=None, e=None), array("f32", q=None, e=None)
COUNTS = array("i32", q=None)


def program(left: str = "", right: str = "", turned: bool = False) -> str:
    """A product whose operands are kept where conditions hold."""
    inputs = {"n": " with (n = %n : i32)", "len[q]": f" with (len = %L : {COUNTS})"}
    kept, names = "", {"W": "%W", "V": "%V"}
    for name, condition, type in (("W", left, LEFT), ("V", right, RIGHT)):
        if condition:
            given = "".join(text for word, text in inputs.items() if word in condition.split())
            kept += f'%{name}_1 = diagram.where %{name} if "{condition}"{given} : {type}\n'
            names[name] = f"%{name}_1"
    pair = [(names["W"], LEFT), (names["V"], RIGHT)]
    (one, one_type), (other, other_type) = reversed(pair) if turned else pair
    return f"""
func.func @f(%W: {LEFT}, %V: {RIGHT}, %L: {COUNTS}, %n: i32) -> {RESULT} {{
  {kept}
  %O = diagram.contract {one}, {other} over [x] accumulate f32 : {one_type}, {other_type} -> {RESULT}
  func.return %O : {RESULT}
}}
"""


def operands(specials: float) -> tuple[np.ndarray, ...]:
    random = np.random.default_rng(0)
    left, right = (random.integers(-3, 4, shape).astype(np.float16) for shape in ((Q, X), (X, E)))
    for data in (left, right):
        chosen = random.random(data.shape) < specials
        data[chosen] = random.choice(SPECIAL, chosen.sum())
    return left, right, random.integers(0, X + 1, Q).astype(np.int32), np.int32(30)


def wanted(left, right, there_left, there_right) -> tuple[np.ndarray, np.ndarray]:
    """The sums over the pairs that exist, and where an absent element meets one that is not finite."""
    there = there_left[:, :, None] & there_right[None, :, :]
    with np.errstate(all="ignore"):
        products = left.astype(np.float64)[:, :, None] * right.astype(np.float64)[None]
        sums = np.where(there, products, 0.0).sum(1)
    met = (there_left & ~np.isfinite(left))[:, :, None] & ~there_right[None]
    met |= ~there_left[:, :, None] & (there_right & ~np.isfinite(right))[None]
    return sums, met.any(1)


def reference(text: str, inputs: tuple[np.ndarray, ...]) -> Bounded:
    (result,) = run_with_bounds(parse_module(text), inputs)
    return result


q, of_left = np.indices((Q, X))
of_right, e = np.indices((X, E))
CONDITIONS = {
    ("x <= q", ""): lambda lengths: (of_left <= q, of_right >= 0),
    ("x < len[q]", ""): lambda lengths: (of_left < lengths[:, None], of_right >= 0),
    ("", "x < n"): lambda lengths: (of_left >= 0, of_right < 30),
    ("x <= 2 * q", "x < n or x <= e"): lambda lengths: (of_left <= 2 * q, (of_right < 30) | (of_right <= e)),
}


@pytest.mark.parametrize("specials", [0.0, 0.03, 0.2])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("conditions", CONDITIONS)
def test_products_with_an_absent_factor_do_not_count(conditions, turned: bool, specials: float):
    left, right, lengths, _ = inputs = operands(specials)
    sums, met = wanted(left, right, *CONDITIONS[conditions](lengths))
    result = reference(program(*conditions, turned), inputs)
    np.testing.assert_array_equal(result.value, sums)
    assert (np.isinf(result.error) == met).all()
    assert met.any() == (specials > 0)


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("length", [128, 100, 256])
def test_data_past_a_length(machine: str, length: int):
    """A cache that is not filled: the emulator is not called wrong where it visits nothing of it, and not right where
    it multiplies zeros with it."""
    road = compiled(program("x < n"), machine=machine)
    left, right = np.ones((16, 256), np.float16), np.ones((256, 16), np.float16)
    right[length:] = np.nan
    inputs = (left, right, np.zeros(16, np.int32), length)
    assert (reference(program("x < n"), inputs).value == length).all()
    (verdict,) = road.verdicts(inputs)
    assert not verdict.wrong, verdict
    assert verdict.ok == (length == 256), verdict
