"""What wgmma reads, holds and computes, against numbers worked out by hand from the PTX ISA."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from treadle.runtime.ptx.hopper import tensor_boxes, wgmma_layouts
from treadle.runtime.ptx.hopper.matrix_descriptors import DescriptorFault, MatrixDescriptor, decode
from treadle.runtime.ptx.hopper.swizzles import swizzled
from treadle.runtime.ptx.hopper.tensor_map_images import MapImage
from treadle.runtime.ptx.hopper.wgmma_products import FORMATS, Product, matrix


def test_a_descriptor_has_its_fields_where_the_isa_puts_them() -> None:
    word = 1 << 62 | (1024 >> 4) << 32 | (512 >> 4) << 16 | 0x2C00 >> 4
    assert decode(word) == MatrixDescriptor(0x2C00, 512, 1024, 128)
    assert [decode(mode << 62).span for mode in range(4)] == [0, 128, 64, 32]


@pytest.mark.parametrize("bit", [14, 30, 46, 49, 52, 61])
def test_a_descriptor_with_other_bits_is_refused(bit: int) -> None:
    with pytest.raises(DescriptorFault):
        decode(1 << bit)


@pytest.mark.parametrize(
    ("line", "k", "span", "k_major", "expected"),
    [
        # K-major: line 9 is row 1 of the second group of 8, 4096 further; k = 13 is byte 26 of its row.
        (9, 13, 128, True, 4096 + 128 + ((26 // 16) ^ 1) * 16 + 26 % 16),
        (13, 13, 128, True, 4096 + 5 * 128 + ((26 // 16) ^ 5) * 16 + 26 % 16),
        # Rows of 64 bytes: row 5 lies in line 2 of 128 bytes, as unit 4 + 1 of it, whose low bits change by 2.
        (13, 13, 64, True, 4096 + 2 * 128 + (4 + (1 ^ 2)) * 16 + 10),
        # Rows of 32 bytes: row 5 is in line 1, as unit 2 + 1, whose lowest bit changes by 1.
        (13, 13, 32, True, 4096 + 1 * 128 + (2 + (1 ^ 1)) * 16 + 10),
        # No swizzle: core matrices of 8 rows of 16 bytes; the second half of k is 2048 further.
        (13, 13, 0, True, 4096 + 5 * 16 + 2048 + 10),
        # MN-major: 64 lines are a row of 128 bytes; k = 13 is row 5 of the second group of k.
        (70, 13, 128, False, 2048 + 4096 + 5 * 128 + ((6 * 2 // 16) ^ 5) * 16 + 12),
        # 32 lines a row of 64 bytes: line 70 is in chunk 2, place 6.
        (70, 13, 64, False, 2 * 2048 + 4096 + 2 * 128 + (4 + (0 ^ 2)) * 16 + 12),
        (70, 13, 32, False, 4 * 2048 + 4096 + 1 * 128 + (2 + (0 ^ 1)) * 16 + 12),
        # No swizzle: the two distances change places: 8 lines are 16 bytes, k groups lie `leading` apart.
        (70, 13, 0, False, 8 * 4096 + 2048 + 5 * 16 + 12),
    ],
)
def test_where_an_element_lies(line: int, k: int, span: int, k_major: bool, expected: int) -> None:
    descriptor = MatrixDescriptor(0x8000, leading=2048, stride=4096, span=span)
    assert descriptor.addresses(128, 16, 2, k_major=k_major)[line, k] == 0x8000 + expected


def test_further_along_k_is_within_the_swizzle_of_the_address() -> None:
    """The second 16 of k begin 32 bytes further, and lie where they would if one row were read whole."""
    first, second = (MatrixDescriptor(0x400 + at, 0, 1024, 128).addresses(8, 16, 2, k_major=True) for at in (0, 32))
    whole = swizzled(0x400 + np.arange(8)[:, None] * 128 + np.arange(32) * 2, 128)
    assert np.array_equal(np.hstack([first, second]), whole)


@pytest.mark.parametrize(("start", "k_major"), [(0x480, True), (0x400 + 112, True), (0x480, False), (0x410, False)])
def test_a_matrix_that_begins_within_a_pattern_is_refused(start: int, k_major: bool) -> None:
    with pytest.raises(DescriptorFault, match="first row"):
        MatrixDescriptor(start, 0, 1024, 128).addresses(8, 16, 2, k_major=k_major)


def test_eight_bit_operands_are_k_major() -> None:
    with pytest.raises(DescriptorFault):
        MatrixDescriptor(0, 0, 1024, 128).addresses(8, 32, 1, k_major=False)


def test_who_holds_which_accumulator() -> None:
    rows, columns = wgmma_layouts.accumulators(24)
    assert rows.shape == columns.shape == (128, 12)
    held = [(int(rows[32 + 7, i]), int(columns[32 + 7, i])) for i in range(6)]  # lane 7 of warp 1
    assert held == [(17, 6), (17, 7), (25, 6), (25, 7), (17, 14), (17, 15)]
    assert len(set(zip(rows.ravel().tolist(), columns.ravel().tolist(), strict=True))) == 64 * 24


def test_who_holds_which_element_of_a() -> None:
    rows, columns = wgmma_layouts.left_operand(2)
    lane = [(int(rows[96 + 7, i]), int(columns[96 + 7, i])) for i in range(8)]  # lane 7 of warp 3
    assert lane == [(49, 6), (49, 7), (57, 6), (57, 7), (49, 14), (49, 15), (57, 14), (57, 15)]
    rows, columns = wgmma_layouts.left_operand(1)
    lane = [(int(rows[7, i]), int(columns[7, i])) for i in range(0, 16, 4)]
    assert lane == [(1, 12), (9, 12), (1, 28), (9, 28)]
    assert columns[7, :4].tolist() == [12, 13, 14, 15]


@pytest.mark.parametrize("span", [32, 64, 128])
@pytest.mark.parametrize("format", ["f16", "e4m3", "s8", "u8"])
def test_what_a_tensor_copy_writes_a_descriptor_reads(span: int, format: str) -> None:
    """K-major: a box of 24 rows as wide as the swizzle, copied to shared memory, read back 32 bytes of k at a time."""
    bits = _random_bits(np.random.default_rng(1), (24, span), format)
    shared = _copied(bits, span)
    product = Product(24, format, format)
    for byte in range(0, span, 32):
        word = _descriptor(0x1000 + byte, 0, 8 * span, span)
        read = matrix(shared, word, 24, product, range(0x8000), is_left=False)
        expected = bits[:, byte : byte + 32].copy().view(FORMATS[format]).astype(np.float64)
        assert np.array_equal(read, expected, equal_nan=True)


@pytest.mark.parametrize("span", [32, 64, 128])
def test_what_a_tensor_copy_writes_a_transposing_descriptor_reads(span: int) -> None:
    """MN-major: rows of the box are k, 32 of them, of which a product takes 16; two chunks side by side."""
    rng = np.random.default_rng(2)
    chunks = [_random_bits(rng, (32, span), "f16") for _ in range(2)]
    shared = np.zeros(0x4000, np.uint8)
    for i, chunk in enumerate(chunks):
        shared += _copied(chunk, span, 0x1000 + i * 32 * span, 0x4000)
    both = np.hstack([chunk.view(np.float16) for chunk in chunks])
    product = Product(span, "f16", "f16", right_k_major=False)
    for k in (0, 16):
        word = _descriptor(0x1000 + k * span, 32 * span, 8 * span, span)
        read = matrix(shared, word, span, product, range(0x8000), is_left=False)
        assert np.array_equal(read, both[k : k + 16].T.astype(np.float64), equal_nan=True)


def test_a_product_is_rounded_once() -> None:
    """2^24 + 1 + 1 is 2^24 + 2, though 2^24 + 1 is none of f32's numbers."""
    left, right = np.ones((64, 16)), np.zeros((8, 16))
    right[:, :2] = 1
    sums = np.full((64, 8), 2.0**24, np.float32)
    product = Product(8, "f16", "f16")
    assert np.all(product.of(left, right, sums) == 2.0**24 + 2)
    assert np.all(product.of(left, right, None) == 2)
    assert np.all(Product(8, "f16", "f16", left_sign=-1).of(left, right, None) == -2)


def test_sums_of_integers_wrap() -> None:
    """2^31 - 1 and a product more; 32 products of 255 and -128."""
    product = Product(8, "u8", "s8")
    left, right = np.full((64, 32), 255.0), np.full((8, 32), -128.0)
    assert np.all(product.of(left, right, None) == -32 * 255 * 128)
    sums = np.full((64, 8), -(2**31), np.int32)
    assert np.all(product.of(left, right, sums) == 2**31 - 32 * 255 * 128)
    assert product.of(left, right, sums).dtype == np.int32


def _copied(bits: Any, span: int, to: int = 0x1000, room: int = 0x4000) -> Any:
    """Shared memory with these rows of bytes at `to` as a tensor copy of one box writes them."""
    image = MapImage(0, 1, (bits.shape[1], bits.shape[0]), (bits.shape[1],), (bits.shape[1], bits.shape[0]), span)
    flat = bits.ravel()
    data = tensor_boxes.load(image, (0, 0), lambda at, nbytes: flat[at[:, None] + np.arange(nbytes)])
    shared = np.zeros(room, np.uint8)
    shared.reshape(-1, 16)[tensor_boxes.units(image, to)] = data.reshape(-1, 16)
    return shared


def _random_bits(rng: np.random.Generator, shape: tuple[int, int], format: str) -> Any:
    width = np.dtype(FORMATS[format]).itemsize
    numbers = (rng.standard_normal((shape[0], shape[1] // width)) * 9).astype(FORMATS[format])
    return numbers.view(np.uint8)


def _descriptor(start: int, leading: int, stride: int, span: int) -> int:
    mode = {0: 0, 128: 1, 64: 2, 32: 3}[span]
    return mode << 62 | stride >> 4 << 32 | leading >> 4 << 16 | start >> 4
