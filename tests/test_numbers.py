"""Plain numbers as arguments: kernel and reference see what the format holds; what it cannot hold is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import f16, f32
from xdsl.ir import SSAValue
from xdsl.utils.test_value import create_ssa_value

import treadle
from treadle import TreadleError
from treadle.runtime.arguments import HostError, scalar

WIDEN = {"f32": "", "i32": "%t = arith.sitofp %s : i32 to f32"}
LOWEST = -(2**31)


def kernel(format: str, type: str) -> treadle.Kernel:
    """Adds a number of a format, whose type is that of a scalar or of an array without axes, to an array of one."""
    widen = WIDEN.get(format, f"%t = arith.extf %s : {format} to f32")
    return treadle.compile(f"""!X = tensor<?xf32, #diagram.array<[i]>>
func.func @f(%A: !X, %n: {type}) -> !X {{
  %r = diagram.map (%a = %A : !X, %s = %n : {type}) -> !X {{
    {widen}
    %z = arith.addf %a, {"%t" if widen else "%s"} : f32
    diagram.yield %z : f32
  }}
  func.return %r : !X
}}""")


def types(format: str) -> tuple[str, str]:
    return format, f"tensor<{format}, #diagram.array<[]>>"


@pytest.mark.parametrize(
    ("format", "number", "wanted"),
    [
        ("bf16", 0.1, 0.10009765625),
        ("f16", 0.1, 0.0999755859375),
        ("f16", 1e6, np.inf),
        ("f8E4M3FN", 1000.0, 448.0),
        ("f8E5M2", -np.inf, -57344.0),
        ("f32", 0.1, float(np.float32(0.1))),
        ("f32", -1e39, -np.inf),
        ("f32", 2**70, 2.0**70),
        ("f32", np.nan, np.nan),
        ("i32", LOWEST, float(LOWEST)),
    ],
)
def test_a_number_is_rounded_to_its_format(format: str, number: float, wanted: float) -> None:
    array = np.zeros(3, np.float32)
    for type in types(format):
        known = kernel(format, type)
        for backend in ("emulator", "interpreter"):
            np.testing.assert_array_equal(known(array, number, backend=backend), np.full(3, wanted, np.float32))
        for verdict in known.verify(array, number):
            assert not verdict.wrong, verdict


@pytest.mark.parametrize(
    ("format", "number"),
    [("i32", 2**40 + 5), ("i32", 2.7), ("i32", np.nan), ("i32", 2**31), pytest.param("f32", 10**400, id="f32-beyond")],
)
def test_what_a_format_does_not_hold_is_refused(format: str, number: float) -> None:
    for type in types(format):
        for backend in ("emulator", "interpreter"):
            with pytest.raises(TreadleError, match=rf"argument 'n' is .*: expected .* that {format} holds"):
                kernel(format, type)(np.zeros(3, np.float32), number, backend=backend)


@pytest.mark.parametrize("type", ["index", "f64", "i64"])
def test_a_type_that_no_kernel_takes_is_refused(type: str) -> None:
    text = f"""!X = tensor<?xf32, #diagram.array<[i]>>
func.func @f(%A: !X, %n: {type}) -> !X {{
  %r = diagram.cast %A : !X -> !X
  func.return %r : !X
}}"""
    with pytest.raises(TreadleError, match=f"argument 'n' is {type}: a call takes"):
        treadle.compile(text)(np.zeros(3, np.float32), 3)


def test_host_functions_round_too() -> None:
    """They are run without a call's checks, too: on tensors of a GPU."""

    def known(format: Any, number: object) -> float:
        arg: SSAValue = create_ssa_value(format)
        return scalar(arg, number)

    assert known(f32, 0.1) == float(np.float32(0.1))
    assert known(f16, np.float64(0.1)) == 0.0999755859375
    assert known(f32, 2**70) == 2.0**70
    with pytest.raises(HostError, match="which f32 does not hold"):
        known(f32, -(10**400))
