"""What the lowering promises of its kernels, and what it refuses, saying why and where."""

from __future__ import annotations

import re

import numpy as np
import pytest
from xdsl.dialects import scf
from xdsl.dialects.builtin import FloatAttr, f32

import treadle
from benchmarking import benchmark
from roads import array, attention, compiled, matmul
from treadle.compiler.errors import InternalError, TreadleError
from treadle.compiler.layouts import Tile, fragment_access, is_conflict_free
from treadle.compiler.lowering.conversions import renumbered, staging_rows, stays_in_threads
from treadle.dialects import cuda
from treadle.dialects.cuda.accesses import GlobalAccess
from treadle.dialects.cuda.layout import LayoutAttr, Mode, accumulator
from treadle.dialects.diagram import FillOp
from treadle.dialects.diagram.array import array_type, format_of, sizes_of
from treadle.runtime.backend import has_host_compiler

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


@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_what_the_model_counts_on_an_sm_is_told_to_ptxas(machine: str) -> None:
    """Of a kernel without products, in the entries that access as wide as was planned; those that deal its rows by
    sectors say one block, without which ptxas spilled."""
    road = compiled((EXAMPLES / "log_softmax.mlir").read_text(), machine=machine)
    (kernel,) = road.kernels
    (told,) = re.findall(r"(\d+) on an SM", road.text)
    assert kernel.resident is not None
    assert kernel.resident.data == int(told)
    bounds = {name: given for given, name in re.findall(r"__launch_bounds__\(([\d, ]+)\) (\w+)\(", road.text)}
    assert bounds == {
        "log_softmax_rows_kernel": f"{kernel.threads.data}, {told}",
        "log_softmax_rows_kernel_aligned_16": f"{kernel.threads.data}, 1",
        "log_softmax_rows_kernel_strided": f"{kernel.threads.data}, 1",
    }
    assert compiled(matmul("mk", "kn", "f16"), machine=machine).kernels[0].resident is None


@pytest.mark.parametrize(
    ("name", "told"), [("attention_lengths", 2), ("attention_window", 3), ("attention_bias", None)]
)
def test_blocks_of_products_are_told_to_ptxas_where_they_are_several(name: str, told: int | None) -> None:
    """And where they leave room for registers that the model does not know of."""
    road = compiled((EXAMPLES / f"{name}.mlir").read_text(), machine="a100")
    (kernel,) = road.kernels
    assert f"{told or 1} on an SM" in road.text
    assert (None if kernel.resident is None else kernel.resident.data) == told


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


needs_compiler = pytest.mark.skipif(not has_host_compiler(), reason="no C++ compiler is installed")

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
    %n = arith.fptosi %x : f32 to i32
    %bits = math.ctpop %n : i32
    %y = arith.sitofp %bits : i32 to f32
    diagram.yield %y : f32
  }}
  func.return %r : {X}
}}
"""


@needs_compiler
@pytest.mark.parametrize("text", [TWO_STREAMS, ONE_HAS_IT], ids=["both have them", "one has one"])
def test_a_product_over_two_axes_known_only_at_launch(text: str) -> None:
    """Over one after the other: only one of them can be streamed."""
    road = compiled(text)
    for a, b in ((1, 1), (9, 70), (130, 33), (0, 5)):
        road.check({"a": a, "b": b, "c": 20} if "Y" in text else {"a": a, "b": b})


def test_a_product_over_two_axes() -> None:
    random = np.random.default_rng(0)
    arrays = [random.standard_normal((16, 16, n)).astype(np.float16) for n in (9, 20)]
    assert all(verdict.ok for verdict in treadle.compile(TWO_DEPTHS).verify(*arrays))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (HALF_SUMS, "reduce in f32 and cast the result"),
        (ROUNDED, "'math.ctpop' in the body of a map has no CUDA C"),
    ],
    ids=["half sums", "bits of a number"],
)
def test_a_refusal_says_why(text: str, reason: str) -> None:
    with pytest.raises(TreadleError, match=reason) as caught:
        compiled(text)
    assert not isinstance(caught.value, InternalError)
    assert re.search(r"<string>|%|@|'", str(caught.value))


# -- layouts that differ ---------------------------------------------------------------------------------

EXAMPLES = benchmark("programs").EXAMPLES


@pytest.mark.parametrize("name", ["quantised_matmul", "softmax_matmul", "linear_attention"])
def test_a_computed_left_operand_goes_through_shared_memory_once(name: str) -> None:
    """In the narrow format that the product takes, to be read by `ldmatrix`: what is written in f32 is a value for each
    row at most, or the operand of a product in f32."""
    for kernel in compiled((EXAMPLES / f"{name}.mlir").read_text(encoding="utf-8")).kernels:
        operands = {op.lhs for op in kernel.walk() if isinstance(op, cuda.ProductOp)}
        operands |= {op.rhs for op in kernel.walk() if isinstance(op, cuda.ProductOp)}
        written = [op for op in kernel.walk() if isinstance(op, cuda.WriteOp) and op.destination not in operands]
        wide = [op for op in written if len([size for size in sizes_of(op.value.type).values() if size != 1]) > 1]
        assert all(str(format_of(op.value.type)) != "f32" for op in wide)


ROWS = LayoutAttr([Mode("q", 4, 8), Mode("x", 4, 1)], [Mode("q", 2, 1), Mode("x", 16, 4)], [Mode("q", 4, 2)])


def test_a_value_moves_to_other_threads_without_bank_conflicts() -> None:
    source, target = accumulator("q", "x", 1, 8, (2, 1)), ROWS
    source = LayoutAttr(source.register, source.lane, [Mode("q", 2, 16), Mode("", 2, 0)])
    type = array_type(f32, {"q": 32, "x": 64}, "register", target)
    assert not stays_in_threads(source, target)
    tile = Tile(("q", "x"), staging_rows(source, target, type), 4)
    assert is_conflict_free(fragment_access(source, "x", 2, once=True), tile)
    assert is_conflict_free(fragment_access(target, "x", 4), tile)


def test_other_registers_of_the_same_threads_need_no_memory() -> None:
    source = accumulator("q", "x", 1, 8, (2, 1))
    target = LayoutAttr(reversed(tuple(source.register)), source.lane, source.warp)
    assert stays_in_threads(source, target)
    zero = FloatAttr(0.0, f32)
    value = FillOp(zero, array_type(f32, {"q": 32, "x": 64}, "register", source))
    moved = renumbered(value.result, array_type(f32, {"q": 32, "x": 64}, "register", target))
    moved.verify()
    assert moved.yielded is moved.body.block.args[0]
