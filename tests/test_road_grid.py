"""Programs over the grid of sizes: what is printed runs in the emulator with every check, and each element is within
the tolerance that follows from the formats. A program is compiled once and runs at all sizes of its symbolic axes."""

from __future__ import annotations

from functools import cache
from itertools import product
from math import prod
from pathlib import Path

import pytest

from roads import Road, attention, compiled, matmul

ROOT = Path(__file__).parents[1]
LENGTHS = (1, 7, 31, 63, 64, 65, 127, 128, 200)
WIDTHS = ((16, 16), (24, 24), (40, 40), (64, 64), (96, 96), (104, 104), (128, 128), (256, 256), (64, 40), (16, 128))
SIDES = (1, 7, 16, 65, 130)
MOST_ELEMENTS = 100_000
FORMATS = ("f16", "bf16", "f32", "f32 as tf32")


PROGRAMS = sorted({path.stem for path in (ROOT / "tests" / "programs").glob("*.mlir")} - {"around_a_boundary"})


@cache
def attention_of(width: tuple[int, int], format: str) -> Road:
    scale = f"{width[0] ** -0.5:.8f}"
    return compiled(attention(*width, format.split()[0], scale, tf32="as" in format))


@pytest.mark.sample(7, each=False)
@pytest.mark.parametrize("q", LENGTHS)
@pytest.mark.parametrize("width", WIDTHS, ids=lambda width: f"d{width[0]}-e{width[1]}")
@pytest.mark.parametrize("format", FORMATS[:2])
def test_attention(format: str, width: tuple[int, int], q: int) -> None:
    for x in LENGTHS:
        attention_of(width, format).check({"q": q, "x": x}, seed=q + x)


@pytest.mark.sample(6, each=False)
@pytest.mark.parametrize("q", LENGTHS[::2])
@pytest.mark.parametrize("width", WIDTHS, ids=lambda width: f"d{width[0]}-e{width[1]}")
@pytest.mark.parametrize("format", FORMATS[2:])
def test_attention_in_f32(format: str, width: tuple[int, int], q: int) -> None:
    for x in LENGTHS[::2]:
        attention_of(width, format).check({"q": q, "x": x}, seed=q + x)


@cache
def product_of(lhs: str, rhs: str, out: str, format: str, static: tuple[tuple[str, int], ...] = ()) -> Road:
    return compiled(matmul(lhs, rhs, format.split()[0], out, tf32="as" in format, **dict(static)))


@pytest.mark.sample(6)
@pytest.mark.parametrize("format", [*FORMATS, "i32"])
@pytest.mark.parametrize("m", SIDES)
@pytest.mark.parametrize("order", ["mk,kn,mn", "mk,nk,mn", "km,kn,mn", "km,nk,nm", "mk,nk,nm"])
def test_product(order: str, m: int, format: str) -> None:
    """Every order of the axes of operands and result."""
    lhs, rhs, out = order.split(",")
    for n, k in product(SIDES, SIDES):
        product_of(lhs, rhs, out, format).check({"m": m, "n": n, "k": k}, seed=m + n + k)


@pytest.mark.sample(6)
@pytest.mark.parametrize("format", [*FORMATS, "i32"])
@pytest.mark.parametrize("order", ["bmk,bkn,bmn", "mbk,bkn,bmn", "kmb,bnk,mbn", "bhmk,hbkn,bhmn", "bmk,kn,bmn"])
def test_batched_product(order: str, format: str) -> None:
    """Batch axes anywhere, in one operand or both."""
    lhs, rhs, out = order.split(",")
    for b, h, m, n, k in ((1, 1, 16, 16, 16), (3, 2, 65, 7, 130), (5, 1, 1, 33, 1), (2, 3, 7, 1, 65)):
        sizes = {axis: size for axis, size in zip("bhmnk", (b, h, m, n, k), strict=True) if axis in lhs + rhs}
        product_of(lhs, rhs, out, format).check(sizes, seed=b + m)


@pytest.mark.sample(6)
@pytest.mark.parametrize("format", [*FORMATS, "i32"])
@pytest.mark.parametrize(
    "static", [{"k": 64}, {"n": 40}, {"m": 16}, {"k": 1}, {"n": 1}, {"m": 1}, dict.fromkeys("mnk", 24)], ids=str
)
def test_product_of_static_sizes(static: dict[str, int], format: str) -> None:
    """Axes whose pieces are larger than they are, or one element."""
    road = product_of("mk", "kn", "mn", format, tuple(static.items()))
    for sizes in ((1, 1, 1), (65, 7, 130), (7, 65, 31)):
        road.check({axis: size for axis, size in zip("mnk", sizes, strict=True) if axis not in static})


@cache
def file(path: str) -> Road:
    return compiled((ROOT / path).read_text())


@pytest.mark.parametrize("row", [1, 3, 77])
def test_softmax_of_rows(row: int) -> None:
    for x in (1, 2, 31, 32, 33, 127, 128, 129, 1000, 1023, 4097):
        file("examples/softmax.mlir").check({"row": row, "x": x})


def test_elementwise() -> None:
    for n in (1, 2, 31, 32, 127, 128, 129, 1000, 10007):
        file("examples/sin2cos2.mlir").check({"n": n})


def test_epilogue() -> None:
    for t, i, o in product((1, 65, 130), (1, 64, 77), (1, 8, 136)):
        file("examples/matmul_epilogue.mlir").check({"t": t, "i": i, "o": o})


def test_two_kernels() -> None:
    road = file("examples/two_kernels.mlir")
    assert len(road.kernels) == 2
    for t, i, j, o in ((1, 1, 1, 1), (65, 96, 200, 72), (7, 33, 129, 3), (128, 16, 64, 64)):
        road.check({"t": t, "i": i, "j": j, "o": o})


@pytest.mark.sample(8, each=False)
@pytest.mark.parametrize("size", [1, 7, 33, 64, 130])
@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str, size: int) -> None:
    """Every program of `tests/programs`, where no two axes have the same size."""
    road = file(f"tests/programs/{name}.mlir")
    sizes = {axis: size + 3 * i for i, axis in enumerate(road.symbolic)}
    for i, axis in enumerate(road.symbolic):  # the first are batches and heads, which are alike
        if prod(sizes.values()) > MOST_ELEMENTS:
            sizes[axis] = 2 + i
    road.check(sizes)
