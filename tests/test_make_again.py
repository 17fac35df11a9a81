"""What kernels make again in place of reading it, and axes that are streamed where holding them whole takes longer."""

from __future__ import annotations

import re

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from roads import compiled
from treadle.compiler.source import parse_module
from treadle.dialects.diagram import ContractOp
from treadle.dialects.diagram.array import axes_of
from treadle.dialects.hierarchy import KernelOp
from treadle.passes.diagram_expand_laws import DiagramExpandLawsPass
from treadle.passes.fusion import FusionPass

DUAL = """
!Q = tensor<?x?x64xf16, #diagram.array<[b, q, d]>>
!K = tensor<?x?x64xf16, #diagram.array<[b, x, d]>>
!S = tensor<?x?x?xf32, #diagram.array<[b, q, x]>>
func.func @dual(%Q: !Q, %K: !K) -> !S attributes {sizes = #diagram.sizes<b = 2, q = 70, x = 90>} {
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %T = diagram.map (%s = %S : !S) -> !S {
    %scale = arith.constant 0.125 : f32
    %t = arith.mulf %s, %scale : f32
    diagram.yield %t : f32
  }
  %A = diagram.apply @softmax(%T) over [x] : (!S) -> !S
  %B = diagram.apply @softmax(%T) over [q] : (!S) -> !S
  %P = diagram.map (%a = %A : !S, %c = %B : !S) -> !S {
    %p = arith.mulf %a, %c : f32
    diagram.yield %p : f32
  }
  func.return %P : !S
}
"""
"""Shares along both axes: the scores, their scaled form and their powers would all go from one kernel to the next."""

STATIC = {"[b, q, d]": "?x200x64xf16", "[b, x, d]": "?x256x64xf16", "[b, q, x]": "?x200x256xf32"}
HELD = re.sub(
    r"tensor<\S+ #diagram.array<(\[.*?\])>", lambda m: f"tensor<{STATIC[m[1]]}, #diagram.array<{m[1]}>", DUAL
).replace(", q = 70, x = 90", "")
"""Axes that a group may hold whole, but not with all that is made of them."""


def fused(text: str) -> ModuleOp:
    module = parse_module(text)
    for step in (DiagramExpandLawsPass(), FusionPass()):
        step.apply(Context(), module)
    return module


def test_one_array_of_scores_goes_from_kernel_to_kernel() -> None:
    first, *_ = (op for op in fused(DUAL).walk() if isinstance(op, KernelOp))
    wide = [value for value in first.outputs if axes_of(value.type) == ("b", "q", "x")]
    assert len(wide) == 1
    assert all(axes_of(value.type) == ("b", "q") for value in first.outputs if value not in wide)


@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_shares_along_both_axes(machine: str) -> None:
    road = compiled(DUAL, machine=machine)
    for q, x in ((70, 90), (33, 65), (1, 130), (130, 1), (5, 0)):
        road.check({"b": 1, "q": q, "x": x})


@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_what_fits_no_machine_held_whole_is_streamed(machine: str) -> None:
    compiled(HELD, machine=machine).check({"b": 1})


FACTOR = """
!X = tensor<?x?xf16, #diagram.array<[t, i]>>
!F = tensor<?x?xf32, #diagram.array<[t, i]>>
!W = tensor<?x?xf16, #diagram.array<[t, j]>>
!r = tensor<?xf16, #diagram.array<[t]>>
!Y = tensor<?x?xf32, #diagram.array<[i, j]>>
func.func @f(%X: !X, %W: !W) -> (!r, !Y) {
  %H = diagram.map (%x = %X : !X) -> !X {
    %zero = arith.constant 0.0 : f16
    %h = arith.maximumf %x, %zero : f16
    diagram.yield %h : f16
  }
  %r = diagram.reduce max %H over [i] : !X -> !r
  %Y = diagram.contract %H, %W over [t] accumulate f32 : !X, !W -> !Y
  func.return %r, %Y : !r, !Y
}
"""


def test_what_a_product_multiplies_stays_saved() -> None:
    """Products read operands by copies: what is computed instead takes registers, and keeps warpgroups out."""
    second = [op for op in fused(FACTOR).walk() if isinstance(op, KernelOp)][1]
    (product,) = (op for op in second.walk() if isinstance(op, ContractOp))
    assert product.lhs in second.body.block.args


SCALED = """
!X = tensor<?x?xf32, #diagram.array<[i, j]>>
!A = tensor<?xf32, #diagram.array<[i]>>
!B = tensor<?xf32, #diagram.array<[j]>>
!one = tensor<f32, #diagram.array<[]>>
func.func @scaled(%X: !X, %g: !one) -> (!A, !B) attributes {sizes = #diagram.sizes<i = 40, j = 50>} {
  %half = diagram.map (%a = %g : !one) -> !one {
    %c = arith.constant 0.5 : f32
    %h = arith.mulf %a, %c : f32
    diagram.yield %h : f32
  }
  %A = diagram.reduce add %X over [j] : !X -> !A
  %B = diagram.reduce max %X over [i] : !X -> !B
  %scaled_A = diagram.map (%a = %A : !A, %h = %half : !one) -> !A {
    %y = arith.mulf %a, %h : f32
    diagram.yield %y : f32
  }
  %scaled_B = diagram.map (%b = %B : !B, %h = %half : !one) -> !B {
    %y = arith.mulf %b, %h : f32
    diagram.yield %y : f32
  }
  func.return %scaled_A, %scaled_B : !A, !B
}
"""


def test_nothing_is_left_of_a_kernel_whose_readers_make_all_of_it() -> None:
    road = compiled(SCALED)
    assert len(road.kernels) == 2
    road.check({"i": 33, "j": 5})
