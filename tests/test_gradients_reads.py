"""Gradients of affine reads: of all their kinds what differences say, twice over, and kernels that spread nothing."""

from __future__ import annotations

from typing import Any

import pytest
from differences import check, differentiated, inputs_of
from test_gradients_torch import EXAMPLES, against
from test_recompute import fused

from roads import compiled
from treadle.compiler.errors import TreadleError
from treadle.compiler.source import load_module, parse_module
from treadle.dialects.diagram import MapOp, ReadOp, ReduceOp, WhereOp
from treadle.dialects.diagram.array import axes_of, is_array
from treadle.dialects.diagram.read import with_fitting
from treadle.runtime.backend import has_host_compiler
from treadle.runtime.interpreter import entry_function

needs_compiler = pytest.mark.skipif(not has_host_compiler(), reason="no C++ compiler is installed")


def squares(x: str, place: str, y: str, padded: str = "") -> str:
    """What is read of x, squared: the slope of each element is another."""
    return f"""
!x = tensor<{_shape(x)}xf32, #diagram.array<[{_axes(x)}]>>
!y = tensor<{_shape(y)}xf32, #diagram.array<[{_axes(y)}]>>
func.func @f(%X: !x) -> !y {{
  %w = diagram.read %X at "{place}" {padded} : !x -> !y
  %y = diagram.map (%a = %w : !y) -> !y {{
    %b = arith.mulf %a, %a : f32
    diagram.yield %b : f32
  }}
  func.return %y : !y
}}
"""


def _axes(sizes: str) -> str:
    return ", ".join(each.partition("=")[0] for each in sizes.split())


def _shape(sizes: str) -> str:
    return "x".join(each.partition("=")[2] or "?" for each in sizes.split())


READS = {
    "windows": squares("l c", "t + r, c", "t r=3 c"),
    "windows from a place on": squares("l c", "t + r + 2, c", "t r=3 c"),
    "a stride": squares("l c", "2 * t, c", "t c"),
    "a stride and a dilation": squares("l c", "2 * t + 3 * r + 1, c", "t r=3 c"),
    "a long stride": squares("l c", "5 * t + r, c", "t r=3 c"),
    "two windows": squares("h w c", "y + r, x + s, c", "y x r=3 s=2 c"),
    "a diagonal": squares("m n c", "i, i, c", "i c"),
    "a diagonal beside the main one": squares("m n c", "i, i + 2, c", "i c"),
    "a diagonal that steps": squares("m n c", "2 * i, i, c", "i c"),
    "two axes in two places": squares("m n", "i + k, i + 2 * k", "i k=3"),
    "another order": squares("m n c", "j, i, c", "i j c"),
    "one row": squares("m=7 n", "3, n", "n"),
    "zeros around": squares("l c", "l + r - 2, c", "l r=4 c", "padded"),
    "backwards": squares("l c", "l - r, c", "l r=3 c", "padded"),
    "zeros around a stride": squares("l=9 c", "2 * t + r - 1, c", "t=5 r=3 c", "padded"),
    "blocks": squares("l c", "t // 3, c", "t=20 c", "padded"),
    "blocks before the beginning and past the end": squares("l c", "t // 2 - 2, c", "t=40 c", "padded"),
    "blocks backwards": squares("l c", "3 - t // 2, c", "t=11 c", "padded"),
    "blocks along both": squares("l c", "t // 3, u // 2", "t=20 u=9", "padded"),
    "windows of blocks": squares("l c", "t // 2 + r, c", "t=12 r=3 c", "padded"),
    "windows at both ends": squares("l c", "c + r - 1, c", "c r=2", "padded"),
}


SIZES = {"l": 13, "h": 7, "w": 8, "m": 11, "n": 14, "c": 5}


@pytest.mark.parametrize("kind", READS)
def test_gradients_of_reads_and_theirs(kind: str) -> None:
    module = parse_module(READS[kind])
    sizes = with_fitting(entry_function(module).body.block, SIZES)
    check(check(module, sizes=sizes), sizes=sizes)


@pytest.mark.parametrize("place", ["2 * (t // 3), c", "t // 2 + r // 3, c"])
def test_steps_over_blocks_have_no_gradient_yet(place: str) -> None:
    text = squares("l c", place, "t=12 r=6 c" if "r" in place else "t=12 c", "padded")
    with pytest.raises(TreadleError, match=r"it reads at a quotient of '[rt]', and others"):
        differentiated(parse_module(text))


def test_blocks_under_their_own_name_have_one_gradient() -> None:
    """Which reads at `4 * l + l_in` along `l`, so that there is no second one."""
    check(parse_module(squares("l c", "l // 4, c", "l c", "padded")), sizes=SIZES)


BLOCKS = """
!x = tensor<?x?xf32, #diagram.array<[m, k]>>
!s = tensor<?x?xf32, #diagram.array<[g, n]>>
!t = tensor<?x?xf32, #diagram.array<[k, n]>>
!y = tensor<?x?xf32, #diagram.array<[m, n]>>
func.func @f(%X: !x, %P: !s, %S: !s) -> !y {
  %p = diagram.read %P at "k // 2, n" padded : !s -> !t
  %s = diagram.read %S at "k // 16, n" padded : !s -> !t
  %w = diagram.map (%a = %p : !t, %b = %s : !t) -> !t {
    %c = arith.mulf %a, %b : f32
    diagram.yield %c : f32
  }
  %Y = diagram.contract %X, %w over [k] accumulate f32 : !x, !t -> !y
  %Z = diagram.contract %X, %s over [k] accumulate f32 : !x, !t -> !y
  %R = diagram.map (%a = %Y : !y, %b = %Z : !y) -> !y {
    %c = arith.mulf %a, %b : f32
    diagram.yield %c : f32
  }
  func.return %R : !y
}
"""


def test_gradients_of_blocks_of_two_lengths() -> None:
    module = parse_module(BLOCKS)
    sizes = {"m": 3, "k": 37, "g": 5, "n": 4}
    check(check(module, sizes=sizes), ("X",), sizes)
    compiled(str(differentiated(parse_module(BLOCKS)))).check({"m": 20, "k": 75, "g": 9, "n": 33})


CONVOLUTION = """
!x = tensor<B?x?x32xf16, #diagram.array<[b, h, w, c]>>
!f = tensor<3x3x32x48xf16, #diagram.array<[r, s, c, f]>>
!windows = tensor<B?x?x3x3x32xf16, #diagram.array<[b, y, x, r, s, c]>>
!y = tensor<B?x?x48xf32, #diagram.array<[b, y, x, f]>>
func.func @f(%X: !x, %F: !f) -> !y attributes {sizes = #diagram.sizes<h = 18, w = 20>} {
  %windows = diagram.read %X at "b, STEP * y + r, STEP * x + s, c" : !x -> !windows
  %Y = diagram.contract %windows, %F over [r, s, c] accumulate f32 : !windows, !f -> !y
  func.return %Y : !y
}
"""


def convolution(step: int = 1, batch: int = 2) -> str:
    return CONVOLUTION.replace("STEP", str(step)).replace("B?", f"{batch}x?")


@pytest.mark.parametrize("step", [1, 2, 4])
def test_gradients_of_a_convolution_are_those_of_pytorch(step: int) -> None:
    from torch.nn.functional import conv2d

    module = parse_module(convolution(step))
    inputs = inputs_of(entry_function(module), {"h": 15, "w": 11})

    def reference(x: Any, f: Any) -> Any:
        return conv2d(x.permute(0, 3, 1, 2), f.permute(3, 2, 0, 1), stride=step).permute(0, 2, 3, 1)

    against(module, reference, inputs)


def test_the_gradient_of_a_convolution_is_one() -> None:
    """A product of what is read of the cotangent: no condition, and nothing that no product takes into its sum."""
    ops = [*entry_function(differentiated(parse_module(convolution()))).body.block.ops]
    reads = [op for op in ops if isinstance(op, ReadOp)]
    assert [op.place.text.data for op in reads if op.is_padded] == ["b, h - r, w - s, f"]
    assert not any(isinstance(op, WhereOp | ReduceOp | MapOp) for op in ops)


KERNELS = {
    "a convolution": (convolution(), {"h": 17, "w": 13}),
    "a convolution that steps": (convolution(2), {"h": 17, "w": 13}),
    **{kind: (READS[kind], SIZES | {"l": 77, "c": 33}) for kind in READS},
}


@needs_compiler
@pytest.mark.sample(5)
@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("kind", KERNELS)
def test_kernels_of_gradients_of_reads(kind: str, machine: str) -> None:
    text, sizes = KERNELS[kind]
    module = parse_module(text)
    road = compiled(str(differentiated(module)), machine=machine)
    for some in (sizes, {axis: max(size - 3, 5) for axis, size in sizes.items()}):
        known = with_fitting(entry_function(module).body.block, some)
        road.check({axis: known[axis] for axis in road.symbolic})


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("name", ["conv1d", "conv1d_dilated", "moving_average"])
def test_kernels_grow_with_the_axis_that_is_read(name: str, machine: str) -> None:
    """No kernel pairs the positions of what is read with those of what reads it, but to leave gaps between."""
    module = differentiated(load_module(EXAMPLES / f"{name}.mlir"))
    for kernel in fused(module, machine):
        values = [value for op in kernel.walk() for value in (*op.operands, *op.results) if is_array(value.type)]
        assert not [value for value in values if {"l", "t", "r"} <= {*axes_of(value.type)}]
