"""Random bits that belong to positions (`diagram.random`), and what is made of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import treadle
import treadle.language as tl
from treadle.compiler.errors import TreadleError
from treadle.compiler.sass.tools import disassemble, find_disassembler
from treadle.compiler.source import parse_module
from treadle.runtime.interpreter.random_bits import words_of
from treadle.runtime.nvcc import compile_cubin, find_nvcc

MACHINES = ["h100", "a100"]
LOW = 2**32 - 1


def philox(key: int, x: int, y: int) -> tuple[int, int]:
    """One counter, in numbers without end."""
    for number in range(7):
        product = 0xD256D193 * x
        x, y = (product >> 32) ^ ((key + number * 0x9E3779B9) & LOW) ^ y, product & LOW
    return x, y


def bits(key: int, i: int, j: int) -> int:
    return philox(key & LOW, i & LOW | 8, j & LOW | 8)[i >> 3 & 1] >> 16 * (j >> 3 & 1) & 0xFFFF


KNOWN = [
    ((0, 0, 0), (0x257A3673, 0xCD26BE2A)),
    ((LOW, LOW, LOW), (0xAB302C4D, 0x3DC9D239)),
    ((0x13198A2E, 0x243F6A88, 0x85A308D3), (0xBEDBBE6B, 0xE4C770B3)),
]
"""Known answers of Philox2x32 with seven rounds: key and counter, and its words."""


@pytest.mark.parametrize(("given", "words"), KNOWN)
def test_the_generator_gives_its_known_answers(given: tuple[int, int, int], words: tuple[int, int]) -> None:
    found = words_of(*(np.array(each, np.uint64) for each in given))
    assert tuple(map(int, found)) == words == philox(*given)


def made(function: Any, signature: str, *arrays: Any, machine: str = "h100", backend: str = "interpreter") -> Any:
    result = treadle.kernel(signature, machine=machine)(function).compiled(*arrays).run(*arrays, backend=backend)
    return np.asarray(result)


def zeros(*shape: int) -> NDArray[np.float32]:
    return np.zeros(shape, np.float32)


def test_bits_are_those_of_their_positions() -> None:
    found = made(lambda A: tl.random_bits(-5, A), "m n -> m n", zeros(37, 45))
    assert found.tolist() == [[bits(-5, i, j) for j in range(45)] for i in range(37)]


def test_a_key_is_made_of_the_other_axes() -> None:
    found = made(lambda A: tl.random_bits(11, A), "k b h m n -> k b h m n", zeros(2, 3, 2, 9, 18))
    for place in [(0, 0, 0, 3, 7), (1, 2, 1, 8, 17), (0, 2, 1, 0, 9)]:
        k, b, h, m, n = place
        key = philox(philox(11, 0, k)[0], b, h)[0]
        assert found[place] == bits(key, m, n)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("shape", [(1,), (77,), (5, 300), (3, 20, 33), (2, 3, 4, 50)])
def test_kernels_make_the_same_bits(machine: str, shape: tuple[int, ...]) -> None:
    axes = " ".join("abcd"[: len(shape)])
    for function in (lambda A, seed: tl.random_bits(seed, A), lambda A, seed: tl.uniform(seed, A)):
        arrays, signature = (zeros(*shape), np.int32(-77)), f"{axes}, -> {axes}"
        wanted = made(function, signature, *arrays, machine=machine)
        found = made(function, signature, *arrays, machine=machine, backend="emulator")
        np.testing.assert_array_equal(found, wanted)


def test_a_seed_is_a_number_of_32_bits() -> None:
    array = zeros(20, 30)
    wanted = made(lambda A, s: tl.random_bits(s, A), "m n, -> m n", array, np.int32(-3))
    for seed in (-3, 2**32 - 3):
        np.testing.assert_array_equal(made(lambda A, seed=seed: tl.random_bits(seed, A), "m n -> m n", array), wanted)
    assert (made(lambda A: tl.random_bits(-2, A), "m n -> m n", array) != wanted).mean() > 0.99
    each = made(lambda A, s: tl.random_bits(s, A), "m n, m -> m n", array, np.full(20, -3, np.int32))
    np.testing.assert_array_equal(each, wanted)


def test_axes_that_are_not_told_have_the_same_bits() -> None:
    found = made(lambda A: tl.random_bits(1, A, axes="n"), "m n -> m n", zeros(4, 50))
    assert found.shape == (4, 50)
    assert (found == found[:1]).all()
    assert len({*found[0].tolist()}) > 40
    turned = made(lambda A: tl.random_bits(1, A, axes="n m"), "m n -> m n", zeros(40, 50))
    assert turned[3, 9] == bits(1, 9, 3)


def test_numbers_are_distributed_as_they_say() -> None:
    """Within five standard deviations, and of neighbours of every kind without a correlation."""
    array = zeros(400, 500)
    count = array.size
    found = made(lambda A: tl.random_bits(9, A), "m n -> m n", array)
    histogram = np.bincount(found.ravel() >> 8, minlength=256)
    assert abs(((histogram - count / 256) ** 2).sum() / (count / 256) - 255) < 5 * np.sqrt(2 * 255)
    centred = found - 32767.5
    for rows, columns in ((0, 1), (1, 0), (8, 0), (0, 8), (8, 8), (16, 16)):
        pairs = centred[rows:, columns:] * centred[: 400 - rows, : 500 - columns]
        assert abs(pairs.mean()) / centred.var() < 5 / np.sqrt(count)
    numbers = made(lambda A: tl.uniform(9, A), "m n -> m n", array)
    assert 0 < numbers.min() < 1e-4
    assert 1 - 1e-4 < numbers.max() < 1
    assert abs(numbers.mean() - 0.5) < 5 / np.sqrt(12 * count)
    normal = made(lambda A: tl.normal(9, A), "m n -> m n", array).astype(np.float64)
    assert abs(normal.mean()) < 5 / np.sqrt(count)
    assert abs((normal**2).mean() - 1) < 5 * np.sqrt(2 / count)
    assert abs((normal**4).mean() - 3) < 5 * np.sqrt(96 / count)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.999])
def test_dropout_keeps_the_mean(rate: float) -> None:
    found = made(lambda A: tl.dropout(A, rate, 4), "m n -> m n", np.ones((300, 400), np.float32))
    kept, dropped = 1 - round(rate * 65536) / 65536, (found == 0).mean()
    assert abs(dropped - (1 - kept)) < 5 * np.sqrt(kept * (1 - kept) / found.size)
    np.testing.assert_allclose(found[found != 0], 1 / kept, rtol=1e-6)


def test_what_is_never_or_always_dropped() -> None:
    array = np.ones((3, 4), np.float32)
    assert (made(lambda A: tl.dropout(A, 0, 4), "m n -> m n", array) == 1).all()
    assert (made(lambda A: tl.dropout(A, 1 - 1e-9, 4), "m n -> m n", array) == 0).all()


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda A, s: tl.dropout(A, 1, 3), "dropout at the rate 1: it is a number, at least 0 and below 1"),
        (lambda A, s: tl.dropout(A, -0.1, 3), "dropout at the rate -0.1"),
        (lambda A, s: tl.dropout(A, True, 3), "dropout at the rate True"),
        (lambda A, s: tl.random_bits(0.5, A), "random_bits: the seed is 0.5: give an integer of 32 bits"),
        (lambda A, s: tl.random_bits(2**32, A), "the seed is 4294967296"),
        (lambda A, s: tl.uniform(A, A), "uniform: the seed is an array of f32"),
        (lambda A, s: tl.normal(s, 3), "'normal' of int"),
        (lambda A, s: tl.dropout(A, 0.1, s, axes="m z"), "there is no axis 'z'"),
    ],
)
def test_what_is_refused(function: Any, said: str) -> None:
    with pytest.raises(TreadleError, match=said.replace("(", r"\(")):
        treadle.kernel("m n, -> m n")(function).trace(("f32", "i32"), {"m": 4, "n": 4})


def test_bits_are_integers() -> None:
    text = """
!m = tensor<?xi32, #diagram.array<[q]>>
func.func @f(%m: !m) -> !m {
  %n = diagram.map (%s = %m : !m) -> !m {
    %r = diagram.random 16 of %s at %s, %s : f32
    diagram.yield %r : f32
  }
  func.return %n : !m
}"""
    with pytest.raises(TreadleError, match="random bits are a number in i32, not in f32"):
        parse_module(text)


# -- attention ------------------------------------------------------------------------------------


def attention(Q: Any, K: Any, V: Any, seed: Any) -> Any:
    shares = tl.softmax(tl.contract(Q, K, over="d") * 0.125, over="x")
    return tl.contract(tl.dropout(shares, 0.2, seed), V, over="x")


def causal(Q: Any, K: Any, V: Any, seed: Any) -> Any:
    shares = tl.softmax(tl.keep(tl.contract(Q, K, over="d") * 0.125, "x <= q"), over="x")
    return tl.contract(tl.dropout(shares, 0.2, seed), V, over="x")


ATTENTION = "h q d, h x d, h x e, -> h q e"


def traced(function: Any, format: str = "f16", **sizes: int) -> str:
    sizes = {"h": 2, "q": 90, "x": 70, "d": 64, "e": 64} | sizes
    kernel = treadle.kernel(ATTENTION, static="d e")(function)
    return str(kernel.trace((format, format, format, "i32"), sizes, fixed=("d", "e")))


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("format", ["f16", "bf16"])
@pytest.mark.parametrize("function", [attention, causal])
def test_attention_with_dropout_is_one_stream(function: Any, format: str, machine: str) -> None:
    kernel = treadle.compile(traced(function, format, h=16, q=4096, x=4096), machine=machine)
    assert kernel.estimate.kernels == 1
    assert kernel.hierarchy.count("hierarchy.stream") == 1
    small = treadle.compile(traced(function, format), machine=machine)
    assert small.estimate.kernels == 1


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("function", [attention, causal])
def test_attention_with_dropout_is_right(function: Any, machine: str) -> None:
    random = np.random.default_rng(1)
    arrays = [random.standard_normal((2, n, 64)).astype(np.float16) for n in (90, 70, 70)]
    kernel = treadle.compile(traced(function), machine=machine)
    assert all(each.ok for each in kernel.verify(*arrays, np.int32(5), backend="emulator"))


def test_a_gradient_makes_the_bits_anew() -> None:
    """No mask is saved: the gradient takes what the program takes, and asks for the same bits."""
    module = parse_module(traced(attention))
    gradient = str(treadle.differentiate(module, of=["Q", "K", "V"]))
    assert "diagram.random 16" in gradient
    kernel = treadle.compile(gradient, machine="h100")
    assert kernel.estimate.kernels <= 3


NEEDS_TOOLS = pytest.mark.skipif(
    find_nvcc() is None or find_disassembler() is None, reason="nvcc, or a disassembler, is not installed"
)


@NEEDS_TOOLS
def test_four_elements_of_a_fragment_share_a_counter() -> None:
    """Seven products of 64 bits a counter, of which the first is one of a row, where there are four times as many
    comparisons of bits: ptxas sees that their counters are one."""
    kernel = treadle.compile(traced(attention, h=16, q=4096, x=4096), machine="h100")
    cubin = compile_cubin(kernel.cuda, "sm_90a")
    consumers = next(each for each in disassemble(cubin.path) if each.name.endswith("_specialised"))
    opcodes = [each.opcode for each in consumers.instructions]
    products = opcodes.count("IMAD.WIDE.U32")
    compared = sum(opcode.startswith(("ISETP.GE.U32", "ISETP.GT.U32")) for opcode in opcodes)
    assert compared >= 128
    assert products <= 2.1 * compared
