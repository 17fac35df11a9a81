"""What a host function does for arrays of one geometry, written down as it is done, so that the next call need not ask
the IR again: sizes, grids, variants and alignments depend on shapes, strides and the last bits of addresses alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from treadle.runtime.backend import Backend
from treadle.runtime.parameters import Scalar
from treadle.runtime.views import copied

ADDRESS_BITS = 31
"""The bits of an address that a host function may look at: variants are made for at most 32 bytes."""


@dataclass(frozen=True)
class Place:
    """An address: so many bytes into an array, which is an argument, or one of those that are allocated after them."""

    array: int
    offset: int = 0


@dataclass(frozen=True)
class Mapped:
    """The tensor map of what lies there (bytes for strides, as numpy's), in boxes of so many elements."""

    place: Place
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]
    box: tuple[int, ...]
    swizzle: int


Given: TypeAlias = Place | Mapped | Scalar


@dataclass(frozen=True)
class Launch:
    """One launch, its arguments in the order of the kernel's parameters."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    arguments: tuple[Given, ...]
    cluster: int = 1


@dataclass(frozen=True)
class Plan:
    """A call of a host function for arguments of one geometry."""

    allocations: tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]
    launches: tuple[Launch, ...]
    results: tuple[int, ...]
    """Numbers of arrays, as in `Place`."""
    shapes: tuple[tuple[int, tuple[int, ...]], ...] = ()
    """Of results (by their number) whose dimensions were merged: the shape that they have then."""
    given: int = 0
    """How many arguments there are, which is the number of what is allocated first."""

    @property
    def results_are_apart(self) -> bool:
        """Whether each has memory that neither an argument nor another has."""
        return len({number for number in self.results if number >= self.given}) == len(self.results)

    @property
    def fills_one(self) -> bool:
        """Whether one launch fills all that is allocated, and that is the result."""
        return len(self.launches) == len(self.allocations) == 1 and self.results == (self.given,) and not self.shapes


class Tracer:
    """A backend that does what another does and writes it down."""

    def __init__(self, backend: Backend, given: Sequence[Any]):
        self.backend = backend
        self.name = backend.name
        self._whole = True
        self._count = len(given)
        self._shapes_given = [tuple(getattr(each, "shape", ())) for each in given]
        # Arrays are known by identity; what is kept here lives on, so that no two have one.
        self._places: dict[int, tuple[Any, Place]] = {id(each): (each, Place(i)) for i, each in enumerate(given)}
        self._maps: dict[int, tuple[Any, Mapped]] = {}
        self._allocations: list[tuple[tuple[int, ...], np.dtype[Any]]] = []
        self._launches: list[Launch] = []
        self._results: list[int] = []
        self._shapes: list[tuple[int, tuple[int, ...]]] = []

    def plan(self) -> Plan | None:
        """What was done; None where another call may do something else."""
        if not self._whole:
            return None
        made = tuple(self._allocations), tuple(self._launches), tuple(self._results), tuple(self._shapes)
        return Plan(*made, given=self._count)

    def allocate(self, shape: Sequence[int], dtype: np.dtype[Any]) -> Any:
        made = self.backend.allocate(shape, dtype)
        self._places[id(made)] = made, Place(self._count + len(self._allocations))
        self._allocations.append((tuple(shape), dtype))
        return made

    def upload(self, array: NDArray[Any]) -> Any:
        """Only arguments that lie there already can be followed."""
        made = self.backend.upload(array)
        if id(array) not in self._places:
            self._whole = False
        elif made is not array:
            self._places[id(made)] = made, self._places[id(array)][1]
        return made

    def download(self, array: Any) -> NDArray[Any]:
        place = self._place(array)
        if place is not None and not place.offset and self._is_whole(array, place.array):
            self._results.append(place.array)
        else:
            self._whole = False
        return self.backend.download(array)

    def _is_whole(self, array: Any, number: int) -> bool:
        """Whether a result is an argument or allocation as it is, or with other dimensions, which are noted."""
        if number < self._count:
            return tuple(array.shape) == self._shapes_given[number]
        if (shape := self._allocations[number - self._count][0]) != tuple(array.shape):
            self._shapes.append((len(self._results), tuple(array.shape)))
        return prod(shape) == prod(array.shape)

    def view(self, array: Any, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
        made = self.backend.view(array, offset, shape, strides)
        if (place := self._place(array)) is not None:
            self._places[id(made)] = made, Place(place.array, place.offset + offset)
        return made

    def copy(self, array: Any) -> Any:
        """What the next call would have to copy, too, is not followed."""
        self._whole = False
        return copied(self.backend, array)

    @property
    def has_tensor_maps(self) -> bool:
        return self.backend.has_tensor_maps

    def tensor_map(self, array: Any, box: Sequence[int], swizzle: int) -> Any:
        made = self.backend.tensor_map(array, box, swizzle)
        if (place := self._place(array)) is not None:
            mapped = Mapped(place, tuple(array.shape), tuple(array.strides), array.dtype, tuple(box), swizzle)
            self._maps[id(made)] = made, mapped
        return made

    def launch(
        self,
        kernel: str,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared_bytes: int,
        arguments: Sequence[Any],
        cluster: int = 1,
    ) -> Any:
        given = [self._given(argument) for argument in arguments]
        known = tuple(each for each in given if each is not None)
        self._whole = self._whole and len(known) == len(given)
        self._launches.append(Launch(kernel, grid, block, shared_bytes, known, cluster))
        return self.backend.launch(kernel, grid, block, shared_bytes, arguments, cluster)

    def _place(self, array: Any) -> Place | None:
        found = self._places.get(id(array))
        return None if found is None else found[1]

    def _given(self, argument: Any) -> Given | None:
        if isinstance(argument, Scalar):
            return argument
        if id(argument) in self._maps:
            return self._maps[id(argument)][1]
        return self._place(argument)
