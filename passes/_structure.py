"""What of operations is the same whatever their values and axes are called.

PyTorch's door tries the same operations in many programs, each of which names axes by itself, and passes ask the same
of a kernel and of its copies. What they find does not depend on names, so it is kept by structure. Where a text holds
the name of an axis and none is expected, there is no structure: nothing else is known to be like that."""

from __future__ import annotations

import re
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar, cast

from xdsl.dialects.builtin import (
    ArrayAttr,
    BFloat16Type,
    BytesAttr,
    Float16Type,
    Float32Type,
    FloatData,
    IntAttr,
    IntegerType,
    NoneAttr,
    StringAttr,
)
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Block, BlockArgument, Operation, ParametrizedAttribute, SSAValue

from treadle.dialects.diagram.array import DYNAMIC, ArrayEncoding, SizesAttr, is_array, sizes_of
from treadle.dialects.diagram.condition import ConditionAttr
from treadle.dialects.diagram.place import PlaceAttr
from treadle.dialects.hierarchy import KernelOp
from treadle.dialects.hierarchy.schedule import PartitionAttr, ScheduleAttr
from treadle.passes._parts import is_free, part_of, views_of

Structure: TypeAlias = Hashable
"""Equal where the structure is the same."""

MOST_KNOWN = 4096
"""Answers of one kind that are kept."""

K = TypeVar("K")
V = TypeVar("V")


def remember(known: dict[K, V], key: K, answer: V) -> V:
    """The answer, which is kept; of too many, all are forgotten."""
    if len(known) >= MOST_KNOWN:
        known.clear()
    known[key] = answer
    return answer


AXES = {"over", "axis", "axes", "old", "new"}
"""Properties that say axes."""

_WORD = re.compile(r"[A-Za-z_]\w*")


def structure_of(
    kernel: KernelOp, around: Mapping[str, Attribute], stated: Mapping[str, int], asked: Sequence[str] = ()
) -> Structure | None:
    """The structure of a kernel in a module with the attributes `around`, the machine among them, with the views that
    it is given, the `stated` sizes of its axes that are known only at launch, and some axes of which something is
    `asked`; None where names cannot be told from other words."""
    found = _Structure()
    views = found.views(kernel.inputs)
    whole = found.operation(kernel)
    if found.is_vague:
        return None
    sizes = tuple((number, stated.get(axis)) for axis, number in found.axes.items() if found.is_open(axis))
    return tuple(around.items()), views, whole, sizes, tuple(found.axes[axis] for axis in asked)


def structure_as_called(kernel: KernelOp, schedule: ScheduleAttr, stated: Mapping[str, int]) -> Structure:
    """The structure of a kernel with this schedule, with the views that it is given, the names of its axes and the
    `stated` sizes of those that are known only at launch: all that sizes are chosen by but the machine, and all that is
    told of them."""
    found = _Structure()
    views = found.views(kernel.inputs)
    whole, decorated = found.operation(kernel), found.attribute(schedule)
    sizes = tuple(stated.get(axis) if found.is_open(axis) else None for axis in found.axes)
    return views, whole, decorated, tuple(found.axes), sizes


def structure_with_names(kernel: KernelOp, around: Mapping[str, Attribute], stated: Mapping[str, int]) -> Structure:
    """The structure of a kernel that is given no views, in a module with the attributes `around`, with the names of its
    values and axes and the `stated` sizes of those that are known only at launch: all that is told of it."""
    found = _Structure()
    whole = found.operation(kernel)
    sizes = tuple(stated.get(axis) if found.is_open(axis) else None for axis in found.axes)
    hints = tuple(value.name_hint for value in found.values)
    return tuple(around.items()), whole, tuple(found.axes), sizes, hints


def structure_of_parts(
    parts: Sequence[Collection[Operation]], around: Mapping[str, Attribute], stated: Mapping[str, int]
) -> Structure | None:
    """The structure of operations of one block that become kernels of a module with the attributes `around`, part by
    part, with the views that they read and the `stated` sizes of their axes; None where names cannot be told from other
    words."""
    part = part_of(op for each in parts for op in each)
    free = dict.fromkeys(v.owner for v in part.read if isinstance(v.owner, Operation) and is_free(v.owner))
    found = _Structure()
    views = found.views(part.read)
    whole = tuple(map(found.operation, (*free, *part.ops)))
    if found.is_vague:
        return None
    belongs = tuple(next(i for i, each in enumerate(parts) if op in each) for op in part.ops)
    leaving = tuple(map(found.value, part.leaving))
    sizes = tuple(stated.get(axis) for axis in found.axes)
    return tuple(around.items()), views, whole, belongs, leaving, sizes


def structure_of_function(
    function: FuncOp, around: Mapping[str, Attribute], stated: Mapping[str, int], asked: Mapping[str, int]
) -> Structure | None:
    """The structure of a function of diagrams in a module with the attributes `around`, with the `stated` sizes of its
    axes that are known only at launch, and other ones of which something is `asked`; None where names cannot be told
    from other words."""
    found = _Structure()
    whole = found.block(function.body.block)
    if found.is_vague:
        return None
    open_axes = {axis: number for axis, number in found.axes.items() if found.is_open(axis)}
    sizes = tuple((number, stated.get(axis), asked.get(axis)) for axis, number in open_axes.items())
    return tuple(around.items()), whole, sizes


def _is_argument(value: SSAValue) -> bool:
    """Whether an array is one that the program is given, as it lies in memory."""
    return isinstance(value, BlockArgument)


def structure_of_values(values: Sequence[SSAValue]) -> Structure | None:
    """How values are computed from arguments of their block; None where names cannot be told from other words."""
    found = made_of(values)
    return None if found is None else found.structure


@dataclass(frozen=True)
class Made:
    """How values are computed from arguments of their block, and the numbers that stand there for names."""

    structure: Structure
    values: Mapping[SSAValue, int]
    """Of all values that have to do with it."""
    axes: Mapping[str, int]


def made_of(values: Sequence[SSAValue]) -> Made | None:
    """None where names cannot be told from other words. Where arrays lie is left out: what they hold is the same in a
    program and in its kernels."""
    found = _Structure(lies=False)
    made = tuple(map(found.operation, _made_by(values)))
    if found.is_vague:
        return None
    return Made((made, tuple(map(found.value, values))), found.values, found.axes)


def _made_by(values: Sequence[SSAValue]) -> list[Operation]:
    """The operations that values are computed by, each after those that it uses."""
    done: dict[Operation, None] = {}
    stack = [(value.owner, False) for value in reversed(values)]
    while stack:
        op, is_left = stack.pop()
        if not isinstance(op, Operation) or op in done:
            continue
        if is_left:
            done[op] = None
            continue
        stack.append((op, True))
        stack += [(operand.owner, False) for operand in reversed(op.operands)]
    return list(done)


_PLAIN = {IntAttr, FloatData, BytesAttr, Float32Type, Float16Type, BFloat16Type, NoneAttr, IntegerType}
"""Attributes without texts, most of those that there are; to match others against them takes longer than all else."""


class _Structure:
    """Numbers for the values and the axes of a kernel, in the order in which they come."""

    def __init__(self, lies: bool = True) -> None:
        self.lies = lies
        """Whether it matters where arrays lie."""
        self.axes: dict[str, int] = {}
        self.words: set[str] = set()
        """Texts that are taken as they are."""
        self._sizes: dict[str, int] = {}
        self.values: dict[SSAValue, int] = {}
        self._known: dict[int, Hashable] = {}
        """By the identity of attributes, which the operations keep alive: to hash one takes as long as to read it."""

    @property
    def is_vague(self) -> bool:
        """Whether a text that was taken as it is may mean an axis."""
        return not self.words.isdisjoint(self.axes)

    def is_open(self, axis: str) -> bool:
        """Whether the size of an axis is known only at launch."""
        return self._sizes.get(axis, DYNAMIC) == DYNAMIC

    def views(self, values: Iterable[SSAValue]) -> Hashable:
        """Of the views that some values are, each with whether it is of an argument."""
        return tuple((self.operation(view), *map(_is_argument, view.operands)) for view in views_of(values))

    def operation(self, op: Operation) -> Hashable:
        operands, results = tuple(map(self._typed, op.operands)), tuple(map(self._typed, op.results))
        regions = tuple(tuple(map(self.block, region.blocks)) for region in op.regions)
        own = {**op.properties, **op.attributes}
        if isinstance(op, KernelOp):
            own.pop("kernel_name", None)
        return op.name, operands, results, regions, tuple((name, self._own(name, own[name])) for name in sorted(own))

    def block(self, block: Block) -> Hashable:
        return tuple(map(self._typed, block.args)), tuple(map(self.operation, block.ops))

    def value(self, value: SSAValue) -> int:
        return self.values.setdefault(value, len(self.values))

    def _typed(self, value: SSAValue) -> Hashable:
        """Its number, and where it comes first its type, too."""
        if value in self.values:
            return self.values[value]
        return self.value(value), self.attribute(value.type)

    def _own(self, name: str, attribute: Attribute) -> Hashable:
        if name not in AXES:
            return self.attribute(attribute)
        axes = cast("ArrayAttr[StringAttr]", attribute).data if isinstance(attribute, ArrayAttr) else (attribute,)
        return tuple(self._axis(cast(StringAttr, axis).data) for axis in axes)

    def _axis(self, axis: str) -> int:
        return self.axes.setdefault(axis, len(self.axes))

    def attribute(self, attribute: Attribute) -> Hashable:
        if (known := self._known.get(id(attribute))) is None:
            known = self._known[id(attribute)] = self._attribute(attribute)
        return known

    def _attribute(self, attribute: Attribute) -> Hashable:
        if attribute.__class__ in _PLAIN:
            return attribute
        if is_array(attribute):
            self._take_sizes(sizes_of(attribute))
            return self._parameters(cast(ParametrizedAttribute, attribute))
        match attribute:
            case ArrayEncoding():
                axes = tuple(map(self._axis, attribute.axis_names))
                place = (self.attribute(attribute.level), self.attribute(attribute.layout)) if self.lies else ()
                return attribute.name, axes, *place
            case PartitionAttr() | SizesAttr():
                return attribute.name, tuple((self._axis(axis), size) for axis, size in attribute.as_dict().items())
            case ConditionAttr() | PlaceAttr():
                return attribute.name, _WORD.sub(lambda word: self._word(word[0]), attribute.text.data)
            case StringAttr():
                self.words.add(attribute.data)
                return attribute
            case ArrayAttr():
                return tuple(map(self.attribute, cast("ArrayAttr[Any]", attribute).data))
            case ParametrizedAttribute():
                return self._parameters(attribute)
            case _:
                self.words.update(_WORD.findall(str(attribute)))
                return attribute

    def _parameters(self, attribute: ParametrizedAttribute) -> Hashable:
        return attribute.name, tuple(map(self.attribute, attribute.parameters))

    def _take_sizes(self, sizes: Mapping[str, int]) -> None:
        for axis, size in sizes.items():
            self._axis(axis)
            self._sizes.setdefault(axis, size)

    def _word(self, word: str) -> str:
        if word in self.axes:
            return f"#{self.axes[word]}"
        self.words.add(word)
        return word


__all__ = [
    "Made",
    "Structure",
    "made_of",
    "remember",
    "structure_as_called",
    "structure_of",
    "structure_of_function",
    "structure_of_parts",
    "structure_of_values",
    "structure_with_names",
]
