"""Print masks: which elements of a thread lie in an interval of an axis.

Where a lane has many elements along the axis, bits tell which of them do, made once for all elements that have the same
bounds; else each place is compared."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from treadle.compiler.layouts.digits import Modes
from treadle.compiler.layouts.places import count, has_bits, places_along
from treadle.compiler.printer.indices import Loop, add, coordinate, thread_terms, times
from treadle.compiler.printer.indices import subscripts as place_of
from treadle.compiler.printer.scalars import literal, term
from treadle.compiler.printer.writer import KernelWriter
from treadle.dialects import cuda
from treadle.dialects.cuda.fragments import COMPARED
from treadle.dialects.cuda.layout import LayoutAttr
from treadle.dialects.cuda.tiles import is_fragment, layout_of

WORD = 32
"""Bits of a register."""


def print_mask(writer: KernelWriter, op: cuda.MaskOp) -> None:
    layout = layout_of(op.result.type)
    places = places_along(layout, op.axis.data)
    if places is None or not _is_by_bits(writer, op, layout):
        return _print_compared(writer, op, layout)
    rows = [mode for mode in layout.register if any(mode.axis in axes for axes in map(_axes, op.bounds))]
    kept, words = writer.names.fresh(f"{op.value.name_hint or op.axis.data}_kept"), -(-count(places) // WORD)
    name = writer.over(op.result, [op.value], op)
    loops = writer.loops(layout)
    around = [loop for loop in loops if loop.mode in rows]
    along = sorted((loop for loop in loops if loop.mode in places), key=lambda loop: places.index(loop.mode))
    others = [loop for loop in loops if loop not in around and loop not in along]

    row, many = "".join(f"[{loop.variable}]" for loop in around), range(words) if words > 1 else ()
    shape = "".join(f"[{mode.size}]" for mode in rows) + (f"[{words}]" if many else "")
    bits = [_bits(writer, op, layout, places, around, word) for word in range(words)]
    if not shape:
        writer.text.line(f"const uint32_t {kept} = {bits[0]};")
    else:
        writer.text.line(f"uint32_t {kept}{shape};")
        at = [f"{kept}{row}[{word}]" for word in many] or [f"{kept}{row}"]
        writer.text.nest(around, [f"{place} = {each};" for place, each in zip(at, bits, strict=True)])

    bit = _number(along)
    word, bit = (f"[({bit}) / {WORD}]", f"(({bit}) % {WORD})") if many else ("", f"({bit})" if " " in bit else bit)
    element, other = writer.element(op.value, loops), literal(op.other, writer.uses)
    text = f"{name}{place_of(layout, loops)} = {kept}{row}{word} & 1u << {bit} ? {element} : {other};"
    writer.text.nest([*around, *others, *along], [text])  # rows outside: of one row, bits move to predicates together


def _is_by_bits(writer: KernelWriter, op: cuda.MaskOp, layout: LayoutAttr) -> bool:
    """Whether bits are worth their registers. In a fallback, whose pieces were chosen for roles, from a word of them
    on: at d = 256, 20 places and 255 registers, a causal attention and one with a window spill 208 and 196 bytes with
    bits and nothing without; at d = 128, 64 and more places, a causal one spills 84 bytes without, and one with
    starts 292, and nothing with them (ptxas 13.0)."""
    if COMPARED in op.attributes or not has_bits(layout, op.axis.data):
        return False
    return writer.kernel.fallback is None or count(places_along(layout, op.axis.data) or ()) >= WORD


def _axes(bound: SSAValue) -> tuple[str, ...]:
    """The axes along which a bound has a register of its own."""
    return tuple(mode.axis for mode in layout_of(bound.type).register) if is_fragment(bound.type) else ()


def _number(along: Sequence[Loop]) -> str:
    """The number of the place that the loops have reached, in the order of coordinates."""
    terms, below = list[str](), 1
    for loop in reversed(along):
        terms.append(times(loop.variable, below))
        below *= loop.mode.size
    return add(reversed(terms))


def _bits(
    writer: KernelWriter, op: cuda.MaskOp, layout: LayoutAttr, places: Modes, around: Sequence[Loop], word: int
) -> str:
    """The bits of those places that lie between the bounds."""
    digits = ", ".join(f"{mode.size}, {mode.stride}" for mode in places)
    bits = f"{writer.call('bits_before')}<{word}, {digits}>"
    until = f"{bits}({_distance(writer, op, layout, op.limit, around)})"
    if op.begin is None:
        return until
    return f"{until} & ~{bits}({_distance(writer, op, layout, op.begin, around)})"


def _distance(
    writer: KernelWriter, op: cuda.MaskOp, layout: LayoutAttr, bound: SSAValue, around: Sequence[Loop]
) -> str:
    """How far a bound is from the first place of a lane."""
    first = add([_start(writer, op, bound), *thread_terms(layout, op.axis.data)])
    end = writer.element(bound, around)
    return end if first == "0" else f"{end} - {f'({first})' if ' + ' in first else first}"


def _print_compared(writer: KernelWriter, op: cuda.MaskOp, layout: LayoutAttr) -> None:
    name = writer.over(op.result, [op.value], op)
    loops = writer.loops(layout)

    def place(bound: SSAValue) -> str:
        return add([_start(writer, op, bound), coordinate(layout, op.axis.data, loops)])

    is_there = f"{place(op.limit)} < {term(writer.element(op.limit, loops))}"
    if op.begin is not None:
        is_there = f"({term(writer.element(op.begin, loops))} <= {place(op.begin)}) & ({is_there})"
    text = f"{is_there} ? {writer.element(op.value, loops)} : {literal(op.other, writer.uses)}"
    writer.text.nest(loops, [f"{name}{place_of(layout, loops)} = {text};"])


def _start(writer: KernelWriter, op: cuda.MaskOp, bound: SSAValue) -> str:
    """The position of the first element, in the bits of a bound."""
    offset = term(writer.values[op.offset])
    return f"int32_t({offset})" if is_fragment(bound.type) and offset != "0" else offset
