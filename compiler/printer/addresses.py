"""Print where elements of an access to device memory lie, and whether they are there."""

from __future__ import annotations

from collections.abc import Container, Generator, Mapping, Sequence
from contextlib import contextmanager

from xdsl.ir import Block, SSAValue

from treadle.compiler.printer.indices import add, divided, strided, sum_of
from treadle.compiler.printer.scalars import bare, c_type, term
from treadle.compiler.printer.writer import KernelWriter
from treadle.dialects import cuda
from treadle.dialects.cuda.accesses import GlobalAccess
from treadle.dialects.cuda.multiples import constant_of
from treadle.dialects.cuda.tiles import extents_of, layout_of
from treadle.dialects.diagram.array import axes_of, shape_of


class AddressPrinter:
    """Prints addresses and tests of the accesses of one kernel."""

    def __init__(self, kernel: KernelWriter):
        self.kernel = kernel

    @contextmanager
    def width(self, op: GlobalAccess, what: str, head: str = "") -> Generator[None]:
        """The scope of an access, in which `width` is how many elements move at once."""
        with self.kernel.names.scope(), self.kernel.text.block(head, f"}}  // {what}"):
            type = c_type(op.buffer_type)
            width = f"{self.kernel.call('width_of')}<{type}, {max(op.width_list)}>(ALIGNED)"
            self.kernel.text.line(f"constexpr int width = {width};")
            yield

    def load_global(self, pointer: str, valid: str | None) -> str:
        if valid is None:
            return f"{self.kernel.call('load_global')}({pointer})"
        return f"{self.kernel.call('load_global_if')}({pointer}, {bare(valid)})"

    def tests(self, op: GlobalAccess, indices: Mapping[str, str], axes: Container[str]) -> list[str]:
        """The tests that an element is in the tile and within bounds, along some axes."""
        type = op.piece_type
        names = axes_of(type)
        is_tile = isinstance(op, cuda.CopyOp)
        extents = extents_of(type) if is_tile else [layout_of(type).extent(axis) for axis in names]
        kept = [number for number, axis in enumerate(names) if axis in axes]
        shape, reached = ([each[number] for number in kept] for each in (shape_of(type), extents))
        tests = inside_tile([names[number] for number in kept], shape, reached, indices)
        bounds = [bound for bound in bounds_of(op) if bound[0] in axes]
        return tests + [self.is_within(op, axis, sign, end, indices) for axis, sign, end in bounds]

    def valid(
        self,
        op: GlobalAccess,
        axes: Sequence[str],
        sizes: Sequence[int],
        extents: Sequence[int],
        indices: dict[str, str],
    ) -> str | None:
        """The test that an element is in the tile and in the array; None if it must be."""
        tests = inside_tile(axes, sizes, extents, indices)
        tests += [self.is_within(op, axis, sign, end, indices) for axis, sign, end in bounds_of(op)]
        return " && ".join([*tests, *self.inside(op, indices)]) or None

    def inside(self, op: GlobalAccess, indices: Mapping[str, str]) -> list[str]:
        """The tests that an element of a view lies in its array, which the view may leave."""
        values = self.kernel.values
        tests: list[str] = []
        for form, length in op.padding:
            place = sum_of(form, lambda axis: self.position(op, axis, indices))
            if form.constant < 0 or any(factor < 0 for factor in form.terms.values()):
                tests.append(f"0 <= {place}")
            tests.append(f"{place} < {term(values[length])}")
        return tests

    def is_within(self, op: GlobalAccess, axis: str, sign: str, end: SSAValue, indices: Mapping[str, str]) -> str:
        """The test of a position in the array against a bound."""
        values = self.kernel.values
        return f"{add([values[self.offset(op, axis)], indices.get(axis, '0')])} {sign} {term(values[end])}"

    def offset(self, op: cuda.PlacedAccess, axis: str) -> SSAValue:
        """Where an access begins along an axis."""
        return dict(zip(axes_of(op.piece_type), op.offsets, strict=True))[axis]

    def position(self, op: cuda.PlacedAccess, axis: str, indices: Mapping[str, str]) -> str:
        """The position of an element of a tile along an axis of it."""
        offset = self.offset(op, axis)
        return add([self._text_of(offset), indices.get(axis, "0")])

    def _text_of(self, offset: SSAValue) -> str:
        """An offset; a constant may stand in a loop that is not printed yet."""
        number = constant_of(offset)
        return self.kernel.values[offset] if number is None else str(number)

    def where(
        self,
        op: GlobalAccess,
        indices: dict[str, str],
        offsets: dict[str, str] | None = None,
        together: bool = False,
        strides: Mapping[str, str] | None = None,
    ) -> str:
        """`&Q[b0 * Q_b + row * Q_q + d + q0 * Q_q]`: what a loop changes comes last, so that the rest is computed
        before the loop. `offsets` replaces offsets of the operation, `strides` the names of the array's; `together`
        says that elements of the last axis are known to be neighbours."""
        buffer = cuda.buffer_of(op)
        strides = dict(strides or self.kernel.strides[buffer])
        if together:
            strides = strides | dict.fromkeys(axes_of(buffer.type)[-1:], "1")
        fixed: list[str] = []
        moving: list[str] = []
        for axis, offset in zip(axes_of(buffer.type), op.offsets, strict=True):
            given = (offsets or {}).get(axis)
            start = self._text_of(offset) if given is None else given
            parts = indices.get(axis, "0"), start
            late = moving if given is None and _block_of(offset) is not self.kernel.kernel.body.block else fixed
            if axis in op.divisors:
                parts = "0", divided(add(parts), op.divisors[axis])
            for text, terms in zip(parts, (fixed, late), strict=True):
                if text != "0":
                    terms.append(strided(text, strides[axis]))
        return f"&{self.kernel.values[buffer]}[{add([*fixed, *moving])}]"


def bounds_of(op: GlobalAccess) -> list[tuple[str, str, SSAValue]]:
    """The axes along which an access has ends, the sign of the test against each, and the ends."""
    begins = [(axis, ">=", end) for axis, end in zip(op.begun_axes, op.begins, strict=True)]
    return begins + [(axis, "<", end) for axis, end in zip(op.bound_axes, op.limits, strict=True)]


def inside_tile(
    axes: Sequence[str], sizes: Sequence[int], extents: Sequence[int], indices: Mapping[str, str]
) -> list[str]:
    """The tests that an element that a layout reaches is one of the tile's."""
    return [
        f"{indices[axis]} < {size}"
        for axis, size, extent in zip(axes, sizes, extents, strict=True)
        if extent > size and axis in indices
    ]


def _block_of(value: SSAValue) -> Block | None:
    return value.owner if isinstance(value.owner, Block) else value.owner.parent
