"""Random numbers that belong to positions: the same for a seed and a position, however often they are made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import pi
from typing import Any

from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerAttr, f32, i32
from xdsl.ir import SSAValue

from treadle.compiler.errors import TreadleError
from treadle.dialects.diagram.random import RandomOp
from treadle.language.array import Array, names_of, traced
from treadle.language.functions import cos, log, sqrt, where
from treadle.language.graph import Graph, constant, plain

LEVELS = 2**16
"""Of the bits that tell what is dropped."""

SECOND = 0x3C6EF372
"""What a seed differs by from that of the second number which a normal one is made of."""


def random_bits(seed: Any, of: Array, axes: str | Iterable[str] | None = None) -> Array:
    """16 random bits for each position of an array, numbers from 0 to 65535 in i32, by Philox2x32 with seven rounds.
    The seed is an integer, or an array of i32. `axes` are those that tell positions apart, `of.axes` if nothing is
    said: along others the bits are the same, and in another order of axes they are other bits."""
    return _random("random_bits", 16, seed, of, axes)


def uniform(seed: Any, of: Array, axes: str | Iterable[str] | None = None) -> Array:
    """Random numbers between 0 and 1, neither of which they are, in f32: odd multiples of 2^-24. `seed` and `axes` as
    in `random_bits`."""
    words = _random("uniform", 32, seed, of, axes)

    def body(scalars: Sequence[SSAValue]) -> SSAValue:
        number = arith.SIToFPOp(arith.ShRUIOp(scalars[0], constant(9, i32)).result, f32).result
        return arith.MulfOp(arith.AddfOp(number, constant(0.5, f32)).result, constant(2.0**-23, f32)).result

    return Array(words.graph, words.graph.map([words.value], body, f32))


def normal(seed: Any, of: Array, axes: str | Iterable[str] | None = None) -> Array:
    """Random numbers with the mean 0 and the variance 1, normally distributed up to 5.7, in f32 (G. E. P. Box and
    M. E. Muller, 1958). `seed` and `axes` as in `random_bits`."""
    array, given = traced("normal", of), plain(seed)
    other = given ^ SECOND if isinstance(given, Array | int) else given
    return sqrt(-2.0 * log(uniform(seed, array, axes))) * cos(2 * pi * uniform(other, array, axes))


def dropout(array: Array, rate: float, seed: Any, axes: str | Iterable[str] | None = None) -> Array:
    """The array with some elements zero, each with the probability `rate` (in steps of 2^-16, at least 0 and below 1),
    and the others divided by 1 - rate, in f32. `seed` and `axes` as in `random_bits`; a gradient makes the same bits
    anew."""
    given: Any = plain(rate)
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given < 1:
        raise TreadleError(f"dropout at the rate {rate!r}: it is a number, at least 0 and below 1")
    dropped = round(given * LEVELS)
    if dropped in (0, LEVELS):
        return traced("dropout", array).to("f32") * (0.0 if dropped else 1.0)
    bits = random_bits(seed, traced("dropout", array), axes)
    return where(bits < dropped, 0.0, array.to("f32") * (LEVELS / (LEVELS - dropped)))


def _random(name: str, bits: int, seed: Any, of: Any, axes: str | Iterable[str] | None) -> Array:
    """Bits for the last two axes, under a key that the others make of the seed."""
    array = traced(name, of)
    told = array.axes if axes is None else names_of(axes)
    for axis in told:
        if axis not in array.graph.sizes:
            raise TreadleError(f"{name}: there is no axis '{axis}' (axes are {', '.join(array.graph.sizes)})")
    return bits_at(array.graph, bits, _seed(name, seed, array), [array.graph.index(axis) for axis in told])


def bits_at(graph: Graph, bits: int, seed: Array | int, places: Sequence[SSAValue | None]) -> Array:
    """The bits of a place, which is several positions in i32 (None: 0). Two after another make a key of the seed for
    the next two; of an odd number the first is alone."""
    given = places or [None]
    given = [None, *given] if len(given) % 2 else given
    pairs = list(zip(given[::2], given[1::2], strict=True))
    key = seed
    for i, pair in enumerate(pairs):
        key = _keyed(graph, 32 if i < len(pairs) - 1 else bits, key, pair)
    assert isinstance(key, Array)
    return key


def _seed(name: str, seed: Any, array: Array) -> Array | int:
    given: Any = plain(seed)
    if isinstance(given, Array) and given.format == "i32" and given.graph is array.graph:
        return given
    if isinstance(given, int) and not isinstance(given, bool) and -(2**31) <= given < 2**32:
        return given if given < 2**31 else given - 2**32
    said = f"an array of {given.format}" if isinstance(given, Array) else repr(given)
    raise TreadleError(f"{name}: the seed is {said}: give an integer of 32 bits, or an array of i32 of the function")


def _keyed(graph: Graph, bits: int, key: Array | int, pair: tuple[SSAValue | None, SSAValue | None]) -> Array:
    """The bits of two positions, or of one."""
    positions = [place for place in pair if place is not None]
    inputs = [*([key.value] if isinstance(key, Array) else []), *positions]

    def body(scalars: Sequence[SSAValue]) -> SSAValue:
        rest = iter(scalars)
        word = next(rest) if isinstance(key, Array) else _integer(key)
        row, column = (_integer(0) if place is None else next(rest) for place in pair)
        return RandomOp(bits, word, row, column).result

    return Array(graph, graph.map(inputs, body, i32))


def _integer(value: int) -> SSAValue:
    return arith.ConstantOp(IntegerAttr(value, i32)).result
