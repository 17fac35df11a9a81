"""Blocks of what a product gave that are swapped in registers: rotary embeddings in the kernel of the projection."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from xdsl.dialects.builtin import FloatAttr, f32
from xdsl.utils.exceptions import VerifyException

import treadle
import treadle.language as tl
from treadle.compiler.errors import TreadleError
from treadle.compiler.source import parse_module
from treadle.dialects import cuda
from treadle.dialects.cuda.layout import LayoutAttr, Mode, accumulator
from treadle.dialects.cuda.swap import swapped_registers
from treadle.dialects.diagram import FillOp
from treadle.dialects.diagram.array import array_type
from treadle.runtime.backend import has_host_compiler

PASS = "diagram-raise-swaps"
READS = "diagram-bubble-up-reads{arrays=none}"
needs_compiler = pytest.mark.skipif(not has_host_compiler(), reason="no C++ compiler is installed")


def whole(length: int) -> Any:
    """Halves of heads, at positions that are computed."""

    def rotated(X: tl.Array, W: tl.Array, C: tl.Array, S: tl.Array) -> tl.Array:
        P = tl.contract(X, W, over="i")
        turned = tl.read(P, "t, h, other[d]", other=(tl.index("d", P) + length // 2) % length)
        return P * C + turned * S

    return treadle.kernel("t i, i h d, t d, t d -> t h d")(rotated)


def neighbours(_: int) -> Any:
    """Pairs of neighbours, turned round along an axis of two."""

    def rotated(X: tl.Array, W: tl.Array, C: tl.Array, S: tl.Array) -> tl.Array:
        P = tl.contract(X, W, over="i")
        return P * C + tl.read(P, "t, h, j, 1 - r") * S

    return treadle.kernel("t i, i h j r, t j r, t j r -> t h j r")(rotated)


def halves(_: int) -> Any:
    """Halves, one negative, that a choice by position puts together."""

    def rotated(X: tl.Array, W: tl.Array, C: tl.Array, S: tl.Array) -> tl.Array:
        P = tl.contract(X, W, over="i")
        first, second = tl.read(P, "t, h, 0, j"), tl.read(P, "t, h, 1, j")
        return P * C + tl.where(tl.index("r", P) < 1, -second, first) * S

    return treadle.kernel("t i, i h r j, t r j, t r j -> t h r j")(rotated)


FORMS = {"whole": whole, "neighbours": neighbours, "halves": halves}


def program(form: str, sizes: dict[str, int], format: str = "f16") -> str:
    """A rotation of heads of `d`, with the static sizes of its own axes."""
    own = {"whole": "d", "neighbours": "jr", "halves": "rj"}[form]
    every = sizes | {"r": 2, "j": sizes["d"] // 2}
    used = {axis: size for axis, size in every.items() if axis in ("t", "i", "h", *own)}
    return str(FORMS[form](sizes["d"]).trace([format] * 4, used, fixed=("h", *own)))


def compiled(form: str, machine: str, join: int, sizes: dict[str, int], format: str = "f16") -> treadle.Kernel:
    passes = [READS, f"{PASS}{{products=P join={join}}}"]
    return treadle.compile(program(form, sizes, format), machine=machine, passes=passes)


def arrays(form: str, t: int, i: int, h: int, d: int) -> list[NDArray[np.float16]]:
    head = {"whole": (d,), "neighbours": (d // 2, 2), "halves": (2, d // 2)}[form]
    random = np.random.default_rng(0)
    shapes = (t, i), (i, h, *head), (t, *head), (t, *head)
    return [(random.standard_normal(shape) / 2).astype(np.float16) for shape in shapes]


def expected(form: str, X: NDArray[Any], W: NDArray[Any], C: NDArray[Any], S: NDArray[Any]) -> NDArray[Any]:
    """In float64, by NumPy alone."""
    P, cosine, sine = np.tensordot(X, W, 1), C[:, None], S[:, None]
    if form == "halves":
        return P * cosine + np.stack((-P[:, :, 1], P[:, :, 0]), 2) * sine
    return P * cosine + (P[..., ::-1] if form == "neighbours" else np.roll(P, P.shape[-1] // 2, -1)) * sine


def fusions(kernel: treadle.Kernel) -> int:
    return sum(step.rewrite == "fusion" and " into @" in step.subject for step in kernel.derivation)


CASES = [
    ("whole", "h100", 0, (150, 72, 3, 128)),
    ("whole", "a100", 1, (70, 72, 3, 64)),
    ("whole", "l40s", 0, (33, 40, 1, 80)),
    ("halves", "a100", 1, (70, 72, 3, 64)),
    ("halves", "h100", 2, (70, 64, 3, 128)),
    ("neighbours", "h100", 1, (70, 64, 5, 64)),
    ("neighbours", "a100", 2, (70, 72, 3, 64)),
]


@needs_compiler
@pytest.mark.parametrize(("form", "machine", "join", "sizes"), CASES)
def test_one_kernel_gives_what_numpy_does(form: str, machine: str, join: int, sizes: tuple[int, ...]) -> None:
    kernel = compiled(form, machine, join, dict(zip("tihd", sizes, strict=True)))
    given = arrays(form, *sizes)
    assert fusions(kernel) == 1
    (verdict,) = kernel.verify(*given, backend="emulator")
    assert verdict.ok
    assert not verdict.unchecked
    exact = expected(form, *(each.astype(np.float64) for each in given))
    for backend in ("interpreter", "emulator"):
        error = np.abs(kernel.run(*given, backend=backend) - exact).max()
        assert error <= 2e-3 * np.abs(exact).max(), backend


@needs_compiler
@pytest.mark.parametrize(("form", "machine", "join"), [("whole", "h100", 0), ("halves", "a100", 1)])
def test_in_bf16(form: str, machine: str, join: int) -> None:
    kernel = compiled(form, machine, join, {"t": 70, "i": 72, "h": 3, "d": 64}, "bf16")
    given = [each.astype(ml_dtypes.bfloat16) for each in arrays(form, 70, 72, 3, 64)]
    assert fusions(kernel) == 1
    (verdict,) = kernel.verify(*given, backend="emulator")
    assert verdict.ok


@needs_compiler
def test_what_no_kernel_can_swap_is_read() -> None:
    """Columns lie along `j`, and blocks along `r`, which is not one with it: three kernels."""
    kernel = compiled("halves", "a100", 0, {"t": 70, "i": 72, "h": 3, "d": 64})
    assert fusions(kernel) == 3
    (verdict,) = kernel.verify(*arrays("halves", 70, 72, 3, 64), backend="emulator")
    assert verdict.ok


SIZES = {"t": 8192, "i": 4096, "h": 32, "d": 128}


@pytest.mark.parametrize("form", FORMS)
def test_where_it_pays_the_rotation_is_in_the_kernel_of_the_projection(form: str) -> None:
    """By the model: 8192 tokens, 4096 columns to 32 heads of 128, 403 us for 426."""
    kernel = treadle.compile(program(form, SIZES), machine="h100")
    assert fusions(kernel) == 1
    assert [step.rewrite for step in kernel.derivation].count(PASS) >= 1
    assert kernel.estimate.time_us is not None
    assert kernel.estimate.time_us < 410


def test_where_it_does_not_pay_it_is_left() -> None:
    """On an A100 each warp would have all columns of a head: 1.33 ms for 1.17."""
    kernel = treadle.compile(program("whole", SIZES), machine="a100")
    assert f"decline {PASS}" in [step.rewrite for step in kernel.derivation]
    assert fusions(kernel) > 1


def test_pieces_have_both_blocks_of_each_pair() -> None:
    """What a schedule asks for, too."""
    text = program("whole", SIZES)
    asked = [f"{PASS}{{products=P}}", 'hierarchy-choose-sizes{group="d=64"}']
    with pytest.raises(TreadleError, match="multiple of 128"):
        treadle.compile(text, machine="h100", passes=asked)


def test_a_swap_of_an_argument_is_a_read() -> None:
    text = """
    !X = tensor<?x32xf32, #diagram.array<[t, d]>>
    func.func @f(%X: !X) -> !X attributes {sizes = #diagram.sizes<t = 9>} {
      %S = diagram.swap %X along d by 8 : !X -> !X
      %Y = diagram.map (%x = %X : !X, %s = %S : !X) -> !X {
        %y = arith.subf %x, %s : f32
        diagram.yield %y : f32
      }
      func.return %Y : !X
    }"""
    X = np.arange(9 * 32, dtype=np.float32).reshape(9, 32)
    swapped = X.reshape(9, 2, 2, 8)[:, :, ::-1].reshape(9, 32)
    kernel = treadle.compile(text, machine="h100")
    assert np.array_equal(kernel.run(X, backend="interpreter"), X - swapped)
    if has_host_compiler():
        assert np.array_equal(kernel.run(X, backend="emulator"), X - swapped)


@pytest.mark.parametrize(
    ("size", "block", "message"),
    [("32", 12, "which has 32 elements"), ("?", 8, "which has no static size"), ("32", 0, "which has 32")],
)
def test_blocks_come_in_pairs(size: str, block: int, message: str) -> None:
    text = f"""
    !X = tensor<{size}xf32, #diagram.array<[d]>>
    func.func @f(%X: !X) -> !X {{
      %S = diagram.swap %X along d by {block} : !X -> !X
      func.return %S : !X
    }}"""
    with pytest.raises(TreadleError, match=message):
        parse_module(text)


def test_registers_of_one_thread_change_places() -> None:
    """Of an accumulator: columns `8 * i + 2 * (lane % 4)` and the next. Every element, by enumeration."""
    layout = accumulator("t", "d", 2, 16, (4, 1))
    for block in (1, 8, 16, 64):
        moves = swapped_registers(layout, "d", block)
        assert moves is not None
        _check_moves(layout, block, moves)
    for block in (2, 4):  # other lanes have those
        assert swapped_registers(layout, "d", block) is None


def test_no_registers_where_other_warps_have_the_block() -> None:
    layout = accumulator("t", "d", 2, 8, (2, 2))  # 64 columns each
    assert swapped_registers(layout, "d", 64) is None
    assert swapped_registers(layout, "d", 32) is not None


def _check_moves(layout: LayoutAttr, block: int, moves: Any) -> None:
    along = [i for i, mode in enumerate(layout.register) if mode.axis == "d"]
    for registers, lane, warp, place in layout.elements():
        source = list(registers)
        for i, digit in zip(along, moves[tuple(registers[i] for i in along)], strict=True):
            source[i] = digit
        there = layout.coordinates(source, lane, warp)
        step = block if place["d"] // block % 2 == 0 else -block
        assert there == {**place, "d": place["d"] + step}


def test_the_verifier_refuses_a_swap_between_threads() -> None:
    layout = LayoutAttr([Mode("d", 2, 32)], [Mode("d", 32, 1)], [])
    value = FillOp(FloatAttr(0.0, f32), array_type(f32, {"d": 64}, "register", layout)).result
    cuda.SwapOp(value, "d", 32).verify()
    with pytest.raises(VerifyException, match="in different threads"):
        cuda.SwapOp(value, "d", 16).verify()
