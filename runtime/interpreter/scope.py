"""What an axis means at the operation being run: how long it is, and which piece of it is meant."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from xdsl.ir import Attribute

from treadle.dialects.diagram.array import DYNAMIC, sizes_of
from treadle.runtime.interpreter.arrays import AxisMismatch


@dataclass
class Scope:
    """Whole sizes of axes, and the pieces that the groups and streams around have selected."""

    whole: dict[str, int] = field(default_factory=dict[str, int])
    pieces: dict[str, slice] = field(default_factory=dict[str, slice])

    def whole_size(self, axis: str) -> int:
        if axis not in self.whole:
            raise AxisMismatch(
                f"the size of axis '{axis}' is not known: no argument has that axis, "
                "and neither 'sizes' nor a default of the function gives it"
            )
        return self.whole[axis]

    def piece(self, axis: str) -> slice:
        """Where the current piece of an axis lies in the whole."""
        return self.pieces.get(axis) or slice(0, self.whole_size(axis))

    def size(self, axis: str) -> int:
        """Number of elements of the current piece of an axis."""
        piece = self.piece(axis)
        return piece.stop - piece.start

    def split(self, axis: str, size: int) -> Iterator[slice]:
        """The pieces of at most `size` elements of the current piece of an axis; the last is smaller
        where they do not divide."""
        around = self.piece(axis)
        for start in range(around.start, around.stop, size):
            yield slice(start, min(start + size, around.stop))

    @contextmanager
    def within(self, pieces: Mapping[str, slice]) -> Generator[None]:
        outer = self.pieces
        self.pieces = {**outer, **pieces}
        try:
            yield
        finally:
            self.pieces = outer

    def learn(self, type: Attribute, shape: tuple[int, ...] | None = None) -> None:
        """Take the sizes of axes from a whole array: its shape, or what its type says."""
        for i, (axis, size) in enumerate(sizes_of(type).items()):
            actual = size if shape is None else shape[i]
            if actual == DYNAMIC:
                continue
            if self.whole.setdefault(axis, actual) != actual:
                raise AxisMismatch(f"axis '{axis}' has size {self.whole[axis]} and size {actual}")
