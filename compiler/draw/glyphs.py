"""How an operation is drawn: its shape, what stands in it, and the axes that it acts on; all other axes are weaved.

An operation of another dialect draws itself by a method `drawn_as(self) -> Glyph`; one without becomes a box with its
name that all axes enter, because nothing is known of what it weaves."""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch
from typing import Protocol, cast, runtime_checkable

from xdsl.dialects.builtin import ArrayAttr, StringAttr
from xdsl.ir import Attribute, Operation

from treadle.compiler.draw.expressions import expression_of, number_text
from treadle.dialects import diagram
from treadle.dialects.cuda import CopyOp, LoadOp, ProductOp, ReadOp, WriteOp
from treadle.dialects.diagram import (
    ApplyOp,
    CastOp,
    ContractOp,
    FillOp,
    MapOp,
    RecurrenceOp,
    ReduceOp,
    RenameOp,
    ScanOp,
    WhereOp,
)
from treadle.dialects.diagram.array import axes_of, format_of
from treadle.dialects.diagram.condition import Read, spelled, terms_of
from treadle.dialects.diagram.place import axes_of_forms
from treadle.dialects.hierarchy import SelectOp

LONGEST = 16
"""Letters of an expression that still stands inside its box; a longer one gets a name and a line below the picture."""

SIGNS = {"add": "Σ", "mul": "Π", "max": "max", "min": "min"}


@dataclass(frozen=True)
class Glyph:
    """How one function is drawn."""

    label: str
    shape: str = "box"
    """One of `svg.Box`."""
    acts_on: tuple[str, ...] | None = None
    """Axes that enter the box; None: all."""
    about: str = ""
    """The whole story, shown when the reader points at it."""
    note: str = ""
    """What does not fit into the box."""


@runtime_checkable
class Drawn(Protocol):
    """An operation that says how it is drawn."""

    def drawn_as(self) -> Glyph: ...


def glyph_of(op: Operation) -> Glyph:
    return op.drawn_as() if isinstance(op, Drawn) else _glyph(op)


def over_axes(op: Operation) -> tuple[str, ...] | None:
    """The property `over` that operations along axes have."""
    over = op.properties.get("over")
    if not isinstance(over, ArrayAttr):
        return None
    items = cast(ArrayAttr[Attribute], over)
    return tuple(item.data for item in items if isinstance(item, StringAttr))


def _listed(axes: tuple[str, ...]) -> str:
    return ", ".join(axes)


@singledispatch
def _glyph(op: Operation) -> Glyph:
    return Glyph(op.name.rpartition(".")[2], acts_on=over_axes(op), about=op.name)


@_glyph.register
def _(op: ContractOp) -> Glyph:
    about = f"contract over {_listed(op.over_axes)}: sum of products, accumulated in {op.accumulate}"
    return Glyph("•" if op.init is None else "• +", "contract", tuple(op.over_axes), about)


@_glyph.register
def _(op: ReduceOp) -> Glyph:
    return Glyph(
        SIGNS[op.kind.data], "fold", tuple(op.over_axes), f"reduce {op.kind.data} over {_listed(op.over_axes)}"
    )


@_glyph.register
def _(op: ScanOp) -> Glyph:
    axis, own = op.axis.data, "without it" if op.is_exclusive else "itself included"
    sign = {(False, False): "≤", (True, False): "<", (False, True): "≥", (True, True): ">"}
    which = "from each on" if op.is_reverse else "up to each"
    about = f"scan {op.kind.data} over {axis}: of all elements {which}, {own}"
    return Glyph(f"{SIGNS[op.kind.data]} {sign[op.is_exclusive, op.is_reverse]} {axis}", "box", (axis,), about)


@_glyph.register
def _(op: RecurrenceOp) -> Glyph:
    axis, names = op.axis.data, ", ".join(value.name_hint or "·" for value in op.last)
    back = ", the last one first" if op.is_reverse else ""
    about = f"a recurrence over {axis}: {names} from position to position{back}"
    return Glyph(f"{'↺' if op.is_reverse else '↻'} {axis}", "box", op.over_axes, about)


@_glyph.register
def _(op: RenameOp) -> Glyph:
    pairs = op.names.items()
    about = "renamed: " + ", ".join(f"what lies along {old} lies along {new}" for old, new in pairs)
    return Glyph(", ".join(f"{old} → {new}" for old, new in pairs), "box", op.meeting_axes, about)


@_glyph.register
def _(op: ApplyOp) -> Glyph:
    name = op.law.root_reference.data
    return Glyph(name, "box", op.over_axes, f"the law @{name} over {_listed(op.over_axes)}")


@_glyph.register
def _(op: MapOp) -> Glyph:
    text = expression_of(op)
    axes = axes_of(op.result.type)[-1:]
    name = op.result.name_hint or "f"
    if len(text) <= LONGEST:
        return Glyph(text, "map", axes, f"each element: {text}")
    arguments = ", ".join(arg.name_hint or "·" for arg in op.body.block.args)
    return Glyph(name, "map", axes, f"each element: {text}", f"{name}({arguments}) = {text}")


@_glyph.register
def _(op: CastOp) -> Glyph:
    format = str(format_of(op.result.type))
    return Glyph(format, "cast", axes_of(op.result.type)[-1:], f"round to {format}")


@_glyph.register
def _(op: SelectOp) -> Glyph:
    """What is loaded of its arrays is but a value a cell."""
    cells = ", ".join(f"{axis} = {size}" for axis, size in op.cells.as_dict().items())
    text = f"{op.axis} in pieces in which '{op.condition.text.data}' may hold"
    about = f"{text}: one value for each cell of {cells}, a list of pieces in shared memory"
    return Glyph("pieces", "box", tuple(op.cells.as_dict()), about, text)


@_glyph.register
def _(op: WhereOp) -> Glyph:
    """Weaved over the axes whose positions do not matter."""
    text, own = op.condition.text.data, axes_of(op.result.type)
    known = [f" {word} {each.text.data}" for word, each in op.told.items() if each is not op.condition]
    told = {axis for t in terms_of(op.condition.condition) for axis in (t.axes if isinstance(t, Read) else (t,))}
    axes = tuple(axis for axis in own if axis in told) or own[-1:]
    about = f"where {text}{','.join(known)}"
    if len(text) <= LONGEST:
        return Glyph(text, "map", axes, about)
    return Glyph("where", "map", axes, about, f"where {text}")


@_glyph.register
def _(op: diagram.ReadOp) -> Glyph:
    """Axes that are read where they are pass over it; in the box stands where the others are read."""
    moved = {axis: text for axis, form in op.forms.items() if (text := spelled(form)) != axis}
    terms = axes_of_forms(op.forms[axis] for axis in moved)
    about = f"read at {', '.join(f'{axis} = {text}' for axis, text in moved.items())}"
    text = ", ".join(moved.values())
    acts = tuple(dict.fromkeys((*moved, *terms)))
    return Glyph(text, "box", acts, about) if len(text) <= LONGEST else Glyph("read", "box", acts, about, about)


@_glyph.register
def _(op: diagram.ScatterOp) -> Glyph:
    """Axes that elements keep pass over it; in the box stands where along the others they are added up."""
    moved = {axis: text for axis, form in op.forms.items() if (text := spelled(form)) != axis}
    kept = {axis for axis in op.forms if axis not in moved}
    acts = (*(axis for axis in axes_of(op.operand.type) if axis not in kept), *moved)
    about = f"added up at {', '.join(f'{axis} = {text}' for axis, text in moved.items())}"
    text = f"Σ {', '.join(moved.values())}"
    return Glyph(text, "box", acts, about) if len(text) <= LONGEST else Glyph("Σ at", "box", acts, about, about)


@_glyph.register(diagram.CollapseOp)
@_glyph.register(diagram.ExpandOp)
def _(op: diagram.CollapseOp | diagram.ExpandOp) -> Glyph:
    """Other axes pass over it."""
    parts = _listed(op.parts)
    label = next(text for text in (f"({parts}) = {op.whole}", f"({parts})", "regroup") if len(text) <= LONGEST)
    return Glyph(label, "box", (*op.parts, op.whole), f"the axes {parts} as one, {op.whole}")


@_glyph.register
def _(op: FillOp) -> Glyph:
    text = number_text(op.value)
    return Glyph(text, "source", (), f"every element is {text}")


@_glyph.register
def _(op: ProductOp) -> Glyph:
    return Glyph("• +", "contract", (op.over.data,), f"{op.instruction.data} over {op.over.data}")


@_glyph.register(CopyOp)
@_glyph.register(LoadOp)
@_glyph.register(ReadOp)
@_glyph.register(WriteOp)
def _(op: Operation) -> Glyph:
    return _moves(op)


def _moves(op: Operation) -> Glyph:
    """What changes no value is weaved over all axes but the last; of what is scattered those differ on its sides."""
    if isinstance(op, CopyOp | LoadOp) and op.place is not None:
        terms = axes_of_forms(op.place.forms)
        return Glyph(op.name.rpartition(".")[2], "box", (*op.forms, *terms), f"{op.name} at {op.place.text.data}")
    axes = axes_of(op.operands[0].type)[-1:]
    return Glyph(op.name.rpartition(".")[2], "box", axes, op.name)
