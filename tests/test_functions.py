"""Functions of one element: printed as CUDA C, emulated, and held against the float64 reference."""

from __future__ import annotations

import numpy as np
import pytest

import treadle

FUNCTIONS = {
    **{"exp": (-9, 9), "exp2": (-9, 9), "expm1": (-9, 9), "log": (0.01, 9), "log2": (0.01, 9), "log10": (0.01, 9)},
    **{"log1p": (-0.9, 9), "sqrt": (0, 9), "rsqrt": (0.1, 9), "cbrt": (-9, 9), "erf": (-3, 3), "absf": (-9, 9)},
    **{"sin": (-9, 9), "cos": (-9, 9), "tan": (-1.4, 1.4), "asin": (-0.9, 0.9), "acos": (-0.9, 0.9), "atan": (-9, 9)},
    **{"sinh": (-9, 9), "cosh": (-9, 9), "tanh": (-9, 9), "asinh": (-9, 9), "acosh": (1.1, 9), "atanh": (-0.9, 0.9)},
    **{"floor": (-9, 9), "ceil": (-9, 9), "trunc": (-9, 9), "round": (-9, 9), "roundeven": (-9, 9)},
}
"""Each with an interval in which it is defined."""
WHOLE = ("floor", "ceil", "trunc", "round", "roundeven")
SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 0.5, -0.5, 1.5, 2.5, -2.5, 1.0, -1.0], np.float32)


def kernel_of(operation: str, format: str = "f32", operands: int = 1, machine: str = "a100") -> treadle.Kernel:
    names = ["x", "y"][:operands]
    type = f"tensor<?x{format}, #diagram.array<[i]>>"
    taken = ", ".join(f"%{name} = %{name.upper()} : {type}" for name in names)
    return treadle.compile(
        f"""func.func @f({", ".join(f"%{name.upper()}: {type}" for name in names)}) -> {type} {{
  %R = diagram.map ({taken}) -> {type} {{
    %r = {operation} {", ".join(f"%{name}" for name in names)} : {format}
    diagram.yield %r : {format}
  }}
  func.return %R : {type}
}}
""",
        machine=machine,
        sizes={"i": 301},
    )


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(("machine", "format"), [("a100", "f32"), ("h100", "f16")])
def test_a_function(name: str, machine: str, format: str) -> None:
    least, most = FUNCTIONS[name]
    numbers = np.random.default_rng(0).uniform(least, most, 301)
    (verdict,) = kernel_of(f"math.{name}", format, machine=machine).verify(
        numbers.astype("float32" if format == "f32" else "float16"), backend="emulator"
    )
    assert verdict.ok, verdict


@pytest.mark.parametrize("name", [*WHOLE, "expm1", "log1p", "asinh", "atan", "sinh"])
def test_numbers_at_which_functions_turn(name: str) -> None:
    numbers = np.resize(SPECIAL, 301)
    (verdict,) = kernel_of(f"math.{name}").verify(numbers, backend="emulator")
    assert verdict.ok, verdict


@pytest.mark.parametrize("name", ["atan2", "copysign"])
def test_a_function_of_two(name: str) -> None:
    random = np.random.default_rng(1)
    numbers = [random.uniform(-9, 9, 301).astype(np.float32) for _ in range(2)]
    (verdict,) = kernel_of(f"math.{name}", operands=2).verify(*numbers, backend="emulator")
    assert verdict.ok, verdict


@pytest.mark.parametrize(("name", "exact"), [("expm1", np.expm1), ("log1p", np.log1p)])
def test_what_is_small_keeps_its_digits(name: str, exact: np.ufunc) -> None:
    """`exp(x) - 1` and `log(1 + x)` would lose them."""
    numbers = np.geomspace(1e-30, 1e-2, 301).astype(np.float32) * np.resize([1, -1], 301).astype(np.float32)
    kernel = kernel_of(f"math.{name}")
    wanted = exact(numbers.astype(np.float64))
    np.testing.assert_allclose(kernel.run(numbers, backend="emulator"), wanted, rtol=2.0**-22)
    (verdict,) = kernel.verify(numbers, backend="emulator")
    assert verdict.ok, verdict
    assert verdict.tolerance < 1e-7, "of 1e-2, and no bound that 1 - 1 would pass"
