"""Index expressions: from a layout's modes to C."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from xdsl.utils.exceptions import DiagnosticException

from treadle.dialects.cuda.layout import LayoutAttr, Mode, RowsAttr
from treadle.dialects.diagram.condition import Linear, Term, axis_in, divisor_in


@dataclass(frozen=True)
class Piece:
    """What a loop around walks of an axis: `count` pieces of what a thread holds, `extent` positions each."""

    axis: str
    extent: int
    count: int
    variable: str = ""

    def __str__(self) -> str:
        return f"UNROLL for (int {self.variable} = 0; {self.variable} < {self.count}; ++{self.variable})"


@dataclass(frozen=True)
class Loop:
    """A loop over one mode of a fragment's registers, or over a piece of it; a piece of one is no loop."""

    mode: Mode
    variable: str
    piece: Piece | None = None

    @property
    def turns(self) -> int:
        return self.mode.size if self.piece is None else self.piece.extent // self.mode.stride

    @property
    def is_given(self) -> bool:
        """Whether the variable is that of the loop around."""
        return self.piece is not None and self.turns == 1

    @property
    def first(self) -> str:
        return "0" if self.piece is None else times(self.piece.variable, self.turns)

    def __str__(self) -> str:
        return self.by(1, self.variable)

    def by(self, step: int, variable: str) -> str:
        """The loop over every so many turns."""
        last = str(self.turns) if self.piece is None else f"{self.first} + {self.turns}"
        forth = f"++{variable}" if step == 1 else f"{variable} += {step}"
        return f"UNROLL for (int {variable} = {self.first}; {variable} < {last}; {forth})"


def outermost(modes: Iterable[Mode], axis: str) -> Mode | None:
    """The slowest digit of an axis."""
    return max((mode for mode in modes if mode.axis == axis), key=lambda mode: mode.stride, default=None)


def times(text: str, factor: int) -> str:
    if factor == 1:
        return text
    return f"{text} * {factor}"


def add(terms: Iterable[str]) -> str:
    present = [term for term in terms if term and term != "0"]
    return " + ".join(present) or "0"


def scaled(text: str, factor: int) -> str:
    """`(a + b) * 3`"""
    return times(f"({text})" if " + " in text and factor != 1 else text, factor)


def strided(text: str, stride: str) -> str:
    """An index times the name of a stride."""
    if stride == "1":
        return text
    return f"{f'({text})' if ' + ' in text else text} * {stride}"


def divided(text: str, divisor: int) -> str:
    """The whole part of an index over a number."""
    if divisor == 1 or text == "0":
        return text
    return f"{f'({text})' if ' ' in text else text} / {divisor}"


def sum_of(form: Linear, position: Callable[[str], str]) -> str:
    """`l0 + l_i - (r0 + r_i) * 2 + 1`, given the text of each position."""

    def of(term: Term) -> str:
        return divided(position(axis_in(term)), divisor_in(term))

    text = add(scaled(of(term), factor) for term, factor in form.terms.items() if factor > 0)
    for term, factor in form.terms.items():
        if factor < 0 and (each := of(term)) != "0":
            text += f" - {times(f'({each})' if ' + ' in each else each, -factor)}"
    return f"{text} {'-' if form.constant < 0 else '+'} {abs(form.constant)}" if form.constant else text


def tile_offset(rows: RowsAttr, chunk: int, coordinates: Sequence[str]) -> str:
    """Where an element of a tile in shared memory lies, in elements; `swizzled` is a primitive."""
    if rows.row_axis is None:
        return "0"
    row = add(
        scaled(text, stride)
        for text, stride in zip(coordinates, rows.row_strides, strict=True)
        if stride and text != "0"
    )
    column = coordinates[rows.row_axis]
    if not rows.swizzle_bits:
        return add([scaled(row, rows.pitch.data) if row != "0" else "0", column])
    return f"swizzled<{rows.pitch.data}, {rows.swizzle_bits}, {rows.swizzle_shift}, {chunk}>({row}, {column})"


def thread_terms(layout: LayoutAttr, axis: str) -> list[str]:
    """What the lane and the warp of a thread add to the coordinate of an axis."""
    terms: list[str] = []
    for index, modes in (("lane", layout.lane), ("warp", layout.warp)):
        below = 1
        total = modes.size
        for mode in reversed(tuple(modes)):
            if mode.axis == axis and mode.stride:
                digit = index if below == 1 else f"{index} / {below}"
                if below * mode.size != total:
                    digit += f" % {mode.size}"
                terms.append(times(digit, mode.stride))
            below *= mode.size
    return terms


def warp_terms(layout: LayoutAttr, axis: str) -> list[str]:
    """What the warp alone adds."""
    return [term for term in thread_terms(layout, axis) if term.startswith("warp")]


def warp_place(layout: LayoutAttr, axis: str, *others: str) -> str:
    """Where along an axis the elements of a warp begin, and what else is added to that."""
    return add([*warp_terms(layout, axis), *others])


def coordinate(layout: LayoutAttr, axis: str, loops: Sequence[Loop]) -> str:
    """The coordinate along an axis of the element that the loops have reached."""
    return add([place_in_thread(axis, loops), *thread_terms(layout, axis)])


def place_in_thread(axis: str, loops: Sequence[Loop]) -> str:
    """What the loops add to the coordinate of an axis, of what a thread's first element has."""
    return add(times(loop.variable, loop.mode.stride) for loop in loops if loop.mode.axis == axis)


def replicas(layout: LayoutAttr) -> str | None:
    """The test that picks one of the threads that hold the same elements; None if there are no copies."""
    tests: list[str] = []
    for index, modes in (("lane", layout.lane), ("warp", layout.warp)):
        below = 1
        for mode in reversed(tuple(modes)):
            if not mode.axis:
                digit = index if below == 1 else f"{index} / {below}"
                if below * mode.size != modes.size:
                    digit += f" % {mode.size}"
                tests.append(f"{digit} == 0")
            below *= mode.size
    return " && ".join(tests) or None


def subscripts(layout: LayoutAttr, loops: Sequence[Loop], wanted: int | None = None) -> str:
    """`[x8][q8][x1]`: where the element that the loops have reached stands in the array of another fragment, whose
    registers hold the same coordinates in other digits. `wanted` limits it to the first dimensions."""
    modes = tuple(layout.register)
    if wanted is not None:
        modes = modes[:wanted]
    return "".join(f"[{_digit(mode, loops)}]" for mode in modes)


def _digit(mode: Mode, loops: Sequence[Loop]) -> str:
    """The digit of one mode, from the digits of loops over the same axis."""
    span = mode.stride * mode.size
    terms: list[str] = []
    for loop in loops:
        own = loop.mode
        if own.axis != mode.axis:
            continue
        low, high = own.stride, own.stride * own.size
        if high <= mode.stride or low >= span:
            continue
        if loop.variable.isdigit():
            terms.append(str(int(loop.variable) * low // mode.stride % mode.size))
            continue
        if low >= mode.stride and high <= span and low % mode.stride == 0:
            terms.append(times(loop.variable, low // mode.stride))
        elif low >= mode.stride and low % mode.stride == 0:  # the loop reaches past this digit
            terms.append(times(f"({loop.variable} % {span // low})", low // mode.stride))
        elif mode.stride % low == 0 and high <= span:  # the loop also moves a finer digit
            terms.append(f"{loop.variable} / {mode.stride // low}")
        elif mode.stride % low == 0:
            terms.append(f"{loop.variable} / {mode.stride // low} % {mode.size}")
        else:
            raise DiagnosticException(f"registers {mode} and {own} cannot be matched digit by digit")
    return add(terms)
