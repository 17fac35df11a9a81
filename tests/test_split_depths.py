"""Products over an axis of which parts are read elsewhere, which are made part by part."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import treadle

PASS = "diagram-split-depths"

PROGRAM = """
!Q = tensor<?x?x{d}x{format}, #diagram.array<[b, h, d]>>
!K = tensor<?x?x{d}x{format}, #diagram.array<[b, x, d]>>
!V = tensor<?x?x{c}x{format}, #diagram.array<[b, x, c]>>
!S = tensor<?x?x?xf32, #diagram.array<[b, h, x]>>
!P = tensor<?x?x?x{format}, #diagram.array<[b, h, x]>>
!O = tensor<?x?x{c}xf32, #diagram.array<[b, h, c]>>
func.func @values_of_keys(%Q: !Q, %K: !K) -> !O attributes {{sizes = #diagram.sizes<b = {b}, h = {h}, x = {x}>}} {{
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %T = diagram.map (%s = %S : !S) -> !S {{
    %scale = arith.constant 0.0721687836 : f32
    %scaled = arith.mulf %s, %scale : f32
    diagram.yield %scaled : f32
  }}
  %A = diagram.where %T if "{condition}" : !S
  %V = diagram.read %K at "b, x, c + {begin}" : !K -> !V
  %W = diagram.apply @softmax(%A) over [x] : (!S) -> !S
  %P = diagram.cast %W : !S -> !P
  %O = diagram.contract %P, %V over [x] accumulate f32 : !P, !V -> !O
  func.return %O : !O
}}
"""
"""Attention whose values are some columns of its keys."""

LATENT = {"b": 64, "h": 128, "x": 4096, "d": 576, "c": 512}
SMALL = {"b": 2, "h": 20, "x": 150, "d": 96, "c": 64}


def program(sizes: dict[str, int], begin: int = 0, condition: str = "", format: str = "f16") -> str:
    filled = PROGRAM.format(**sizes, begin=begin, condition=condition, format=format)
    if condition:
        return filled
    return "\n".join(line for line in filled.split("\n") if "where" not in line).replace("@softmax(%A)", "@softmax(%T)")


def split(kernel: treadle.Kernel) -> list[str]:
    return [step.subject for step in kernel.derivation if step.rewrite == PASS]


def asked(text: str, machine: str, products: str) -> treadle.Kernel:
    return treadle.compile(text, machine=machine, passes=[f"{PASS}{{products={products}}}"])


def microseconds(kernel: treadle.Kernel) -> float:
    assert kernel.estimate.time_us is not None
    return kernel.estimate.time_us


def verify(kernel: treadle.Kernel, sizes: dict[str, int], format: str = "float16") -> None:
    random = np.random.default_rng(7)
    shapes = ([sizes[axis] for axis in axes] for axes in ("bhd", "bxd"))
    given: list[NDArray[Any]] = [random.standard_normal(shape).astype(format) for shape in shapes]
    verdicts = kernel.verify(*given, backend="emulator")
    assert verdicts
    assert all(each.ok for each in verdicts), verdicts


# -- what the model decides --------------------------------------------------------------------------


@pytest.mark.parametrize("machine", ["h100", "h200"])
@pytest.mark.parametrize("format", ["f16", "bf16"])
def test_keys_whose_first_columns_are_values_are_one_kernel(machine: str, format: str) -> None:
    text = program(LATENT, format=format)
    kernel, plain = treadle.compile(text, machine=machine), asked(text, machine, "none")
    assert split(kernel) == ["%S over the parts of %K along 'd'"]
    assert split(plain) == []
    assert kernel.estimate.kernels == 1
    assert microseconds(kernel) < 0.8 * microseconds(plain)


def test_where_nothing_is_saved_it_stays_one_product() -> None:
    kernel = treadle.compile(program(LATENT), machine="a100")
    assert split(kernel) == []
    (declined,) = [step for step in kernel.derivation if step.rewrite == f"decline {PASS}"]
    assert declined.reason.startswith("estimated ")


# -- what is made of it ------------------------------------------------------------------------------


@pytest.mark.parametrize("machine", ["h100", "a100"])
@pytest.mark.parametrize("begin", [0, 16, 32])
def test_parts_anywhere_are_right(machine: str, begin: int) -> None:
    kernel = asked(program(SMALL, begin), machine, "S")
    assert len(split(kernel)) == 1
    verify(kernel, SMALL)


@pytest.mark.parametrize("condition", ["x <= h", "x < 40"])
def test_shares_under_conditions_are_right(condition: str) -> None:
    kernel = asked(program(SMALL, condition=condition), "h100", "S")
    assert len(split(kernel)) == 1
    verify(kernel, SMALL)


def test_numbers_of_f32_are_right() -> None:
    kernel = asked(program(SMALL, format="f32"), "h100", "S")
    assert len(split(kernel)) == 1
    verify(kernel, SMALL, "float32")


def test_latent_attention_is_right_on_many_columns() -> None:
    kernel = treadle.compile(program(LATENT), machine="h100")
    verify(kernel, LATENT | {"b": 2, "h": 70, "x": 100})


# -- what stays --------------------------------------------------------------------------------------


def test_a_padded_read_that_never_leaves_its_operand_is_a_part() -> None:
    text = program(SMALL).replace('"b, x, c + 0"', '"b, x, c" padded')
    assert len(split(asked(text, "h100", "S"))) == 1


@pytest.mark.parametrize("place", ["b, x, 95 - c", "b, x, c + 48", "b, x, c % 48", "b, x, c // 2", "b, x, c % 48 + 1"])
def test_other_columns_are_no_part(place: str) -> None:
    """Columns that run backwards, such as there are not, and some of them again and again."""
    text = program(SMALL).replace('"b, x, c + 0"', f'"{place}" padded')
    with pytest.raises(treadle.TreadleError, match="%S is no product whose summed axis is read in parts elsewhere"):
        asked(text, "h100", "S")


def test_keys_that_are_partly_absent_stay() -> None:
    masked = '%M = diagram.where %K if "x < 40" : !K\n  %S = diagram.contract %Q, %M over'
    text = program(SMALL).replace("%S = diagram.contract %Q, %K over", masked)
    with pytest.raises(treadle.TreadleError, match="there are none"):
        asked(text, "h100", "S")
