"""What the lowering promises of its kernels, and what it refuses, saying why and where."""

from __future__ import annotations

import re

import pytest
from xdsl.dialects import scf

from roads import array, attention, compiled, matmul
from treadle.compiler.errors import InternalError, TreadleError
from treadle.dialects import cuda
from treadle.dialects.cuda.ops import GlobalAccess

LONG = {
    "attention": (attention(64, 64, "f16"), "x"),
    "attention in f32": (attention(40, 40, "f32"), "x"),
    "product": (matmul("mk", "kn", "f16"), "k"),
    "product of columns": (matmul("km", "nk", "bf16"), "k"),
}


def accesses(road_text: str) -> list[GlobalAccess]:
    return [op for kernel in compiled(road_text).kernels for op in kernel.walk() if isinstance(op, GlobalAccess)]


@pytest.mark.parametrize("name", LONG)
def test_full_pieces_are_not_tested_for_the_end_of_their_stream(name: str) -> None:
    text, axis = LONG[name]
    found = accesses(text)
    in_loops = [op for op in found if op.partial is None]
    last = [op for op in found if op.partial is not None]
    assert last
    assert all(axis not in op.bound_axes for op in in_loops)
    assert all(axis in op.bound_axes for op in last)


@pytest.mark.parametrize("name", LONG)
def test_what_a_last_piece_lacks_is_masked_or_zero(name: str) -> None:
    """Nothing is masked in the loop, where nothing is lacking."""
    text, axis = LONG[name]
    for kernel in compiled(text).kernels:
        for mask in kernel.walk():
            if isinstance(mask, cuda.MaskOp) and mask.axis.data == axis:
                assert not any(isinstance(parent, scf.ForOp) for parent in parents(mask))


def parents(op: object) -> list[object]:
    found: list[object] = []
    while (op := op.parent_op()) is not None:  # type: ignore[attr-defined]
        found.append(op)
    return found


@pytest.mark.parametrize("name", LONG)
def test_tiles_lie_apart_within_what_the_kernel_takes(name: str) -> None:
    for kernel in compiled(LONG[name][0]).kernels:
        tiles = [op for op in kernel.body.block.ops if isinstance(op, cuda.SharedOp)]
        assert tiles
        end = 0
        for tile in tiles:
            size = tile.stages.data * tile.stage_bytes
            assert tile.offset.data + size <= kernel.shared_bytes.data
            if tile.alias is None:
                assert tile.offset.data >= end
                end = tile.offset.data + size


@pytest.mark.parametrize(
    ("format", "tf32", "instructions"),
    [
        ("f16", False, {"m16n8k16"}),
        ("bf16", False, {"m16n8k16"}),
        ("f32", True, {"m16n8k8_tf32"}),
        ("f32", False, {"fma"}),
        ("i32", False, {"fma"}),
    ],
)
def test_the_instruction_follows_from_the_formats(format: str, tf32: bool, instructions: set[str]) -> None:
    (kernel,) = compiled(matmul("mk", "kn", format, tf32=tf32)).kernels
    found = {op.instruction.data for op in kernel.walk() if isinstance(op, cuda.ProductOp)}
    assert found == instructions


X, Y = array("f32", a=None, b=None), array("f32", b=None, c=None)
LEFT, RIGHT = array("f16", a=16, b=16, c=None), array("f16", a=16, b=16, d=None)
BOTH = array("f32", c=None, d=None)
TWO_DEPTHS = f"""
func.func @f(%X: {LEFT}, %Y: {RIGHT}) -> {BOTH} {{
  %Z = diagram.contract %X, %Y over [a, b] accumulate f32 : {LEFT}, {RIGHT} -> {BOTH}
  func.return %Z : {BOTH}
}}
"""
TWO_STREAMS = f"""
func.func @f(%X: {X}) -> {array("f32")} {{
  %s = diagram.contract %X, %X over [a, b] accumulate f32 : {X}, {X} -> {array("f32")}
  func.return %s : {array("f32")}
}}
"""
ONE_HAS_IT = f"""
func.func @f(%X: {X}, %Y: {Y}) -> {array("f32", c=None)} {{
  %Z = diagram.contract %X, %Y over [a, b] accumulate f32 : {X}, {Y} -> {array("f32", c=None)}
  func.return %Z : {array("f32", c=None)}
}}
"""
HALF_SUMS = f"""
func.func @f(%X: {array("f16", a=None, b=None)}) -> {array("f16", a=None)} {{
  %s = diagram.reduce add %X over [b] : {array("f16", a=None, b=None)} -> {array("f16", a=None)}
  func.return %s : {array("f16", a=None)}
}}
"""
ROUNDED = f"""
func.func @f(%X: {X}) -> {X} {{
  %r = diagram.map (%x = %X : {X}) -> {X} {{
    %y = math.cbrt %x : f32
    diagram.yield %y : f32
  }}
  func.return %r : {X}
}}
"""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (TWO_DEPTHS, "a product sums over 2 axes at once"),
        (TWO_STREAMS, r"'a', reduced by %s, and 'b', reduced by %s, are both known only at launch"),
        (ONE_HAS_IT, "known only at launch|which only one operand has"),
        (HALF_SUMS, "reduce in f32 and cast the result"),
        (ROUNDED, "'math.cbrt' in the body of a map has no CUDA C"),
    ],
    ids=["two depths", "two streams", "one has it", "half sums", "cube root"],
)
def test_a_refusal_says_why(text: str, reason: str) -> None:
    with pytest.raises(TreadleError, match=reason) as caught:
        compiled(text)
    assert not isinstance(caught.value, InternalError)
    assert re.search(r"<string>|%|@|'", str(caught.value))
