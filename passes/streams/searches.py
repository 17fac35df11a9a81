"""Searches for the ends of a range of positions (`streams.ranges.Search`): a stream of its own before the one that it
limits.

It is fed all of the axis, but only what the condition compares, and each position is tested once for the whole group.
The first and the last position found are a minimum and a maximum; those at which the condition holds throughout are
counted, too, and unless all between the first and the last were found their range is empty."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from xdsl.dialects import arith, tensor
from xdsl.dialects.builtin import IndexType, IntegerAttr, i32
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from treadle.dialects.diagram import FillOp, IndexOp, ReduceOp, WhereOp
from treadle.dialects.diagram.array import array_type, axes_of, sizes_of
from treadle.dialects.diagram.condition import AtLeastZero, Condition, Linear, Read, Term, terms_of
from treadle.dialects.hierarchy import StreamOp, YieldOp
from treadle.passes._functions import label
from treadle.passes.expressions.reductions import OF_INTEGERS
from treadle.passes.expressions.scalars import Leaf, build_map
from treadle.passes.streams.ranges import Search

Add: TypeAlias = Callable[[Operation], SSAValue]

Ends: TypeAlias = Mapping[tuple[int, bool], SSAValue]
"""The ends that a search finds, by sign, and whether it is the last."""

Scalars: TypeAlias = dict[tuple[Term, bool], SSAValue]
"""The smallest and the largest (True) value of each term in the piece of the group."""

SOUGHT = (("min", 1, "first"), ("max", 1, "last"), ("min", -1, "whole_first"), ("max", -1, "whole_last"))
"""What is made of the positions found: by which reduction, of which sign, and its name. The count follows."""


@dataclass
class SearchWriter:
    """Writes searches along an axis into the body of a group."""

    axis: str
    piece: int
    """How many positions a step takes: as many as the stream that is limited."""
    load: Callable[[SSAValue], Operation]
    """The load of a piece of an argument of the kernel."""
    corner: Callable[[Term, bool], SSAValue]
    """The largest or the smallest value that a term has in the piece of the group, in i32."""

    def ends(self, search: Search, add: Add) -> Ends:
        """The positions between which it may hold, and between which it holds throughout, as indices."""
        scalars = self._scalars(search)
        stream = _Stream(self, search.condition, scalars).write()
        add(stream)
        first, last, whole_first, whole_last, count = (self._number(result, add) for result in stream.outputs)
        one = add(arith.ConstantOp.from_int_and_width(1, IndexType()))
        end, whole_end = add(arith.AddiOp(last, one)), add(arith.AddiOp(whole_last, one))
        has_all = add(arith.CmpiOp(add(arith.SubiOp(whole_end, whole_first)), count, "eq"))
        nowhere = add(arith.ConstantOp.from_int_and_width(0, IndexType()))
        whole_end = add(arith.SelectOp(has_all, whole_end, nowhere))
        end.name_hint, whole_end.name_hint = f"{self.axis}_last_end", f"{self.axis}_whole_end"
        return {(1, False): first, (1, True): end, (-1, False): whole_first, (-1, True): whole_end}

    def is_along(self, term: Term) -> bool:
        return isinstance(term, SSAValue) and self.axis in axes_of(term.type)

    def _scalars(self, search: Search) -> Scalars:
        terms = dict.fromkeys(terms_of(search.condition))
        of_group = [term for term in terms if term != self.axis and not self.is_along(term)]
        return {(term, largest): self.corner(term, largest) for term in of_group for largest in (False, True)}

    def _number(self, array: SSAValue, add: Add) -> SSAValue:
        zeros = [add(arith.ConstantOp.from_int_and_width(0, IndexType()))] * len(axes_of(array.type))
        return add(arith.IndexCastOp(add(tensor.ExtractOp(array, zeros, i32)), IndexType()))


class _Stream:
    """The stream of one search."""

    def __init__(self, writer: SearchWriter, condition: Condition, scalars: Scalars):
        self.writer = writer
        self.condition = condition
        self.scalars = scalars
        self.block = Block()
        loads = {
            term: writer.load(term)
            for term in terms_of(condition)
            if isinstance(term, SSAValue) and writer.is_along(term)
        }
        self.arrays: dict[Term, SSAValue] = {term: self._add(load) for term, load in loads.items()}

    def write(self) -> StreamOp:
        widest = max((value.type for value in self.arrays.values()), key=lambda type: len(axes_of(type)))
        places, ones = self._places(widest), self._add(FillOp(IntegerAttr(1, i32), widest))
        kept = {sign: self._kept(places, sign) for sign in (1, -1)}
        axis, sizes = self.writer.axis, sizes_of(widest)
        state = array_type(i32, {other: size for other, size in sizes.items() if other != axis}, "register")
        kinds = [kind for kind, _, _ in SOUGHT] + ["add"]
        names = [name for _, _, name in SOUGHT] + ["count"]
        reduced = [kept[sign] for _, sign, _ in SOUGHT] + [self._kept(ones, -1)]
        before = [self.block.insert_arg(state, i) for i in range(len(kinds))]
        after = [
            self._add(ReduceOp(kind, array, [axis], state, init))
            for kind, array, init in zip(kinds, reduced, before, strict=True)
        ]
        self.block.add_op(YieldOp(*after))
        states = [state] * len(kinds)
        start, finish = _start(kinds, state), _finish(states)
        stream = StreamOp({axis: self.writer.piece}, states, start, Region(self.block), finish)
        for name, argument, result in zip(names, before, stream.outputs, strict=True):
            argument.name_hint, result.name_hint = f"{name}_so_far", name
        return stream

    def _places(self, like: Attribute) -> SSAValue:
        """The positions along the axis, in an array of this type."""
        at = self._add(IndexOp(array_type(i32, {self.writer.axis: self.writer.piece}, "register")))
        at.name_hint = f"at_{self.writer.axis}"
        return at if len(axes_of(like)) == 1 else self._add(build_map(Leaf(at), like, at.name_hint))

    def _kept(self, operand: SSAValue, sign: int) -> SSAValue:
        """The elements at whose positions the condition may hold, or holds throughout."""
        names: dict[SSAValue, str] = {}

        def spell(term: Term, factor: int) -> str:
            value = self.arrays.get(term) or self.scalars.get((term, factor * sign > 0))
            if value is None:
                return str(term)
            return str(Read(names.setdefault(value, f"v{len(names)}"), axes_of(value.type)))

        text = spelled(self.condition, spell)
        kept = self._add(WhereOp(operand, text, {name: value for value, name in names.items()}))
        kept.name_hint = "may_hold" if sign > 0 else "holds"
        return kept

    def _add(self, op: Operation) -> SSAValue:
        self.block.add_op(op)
        return op.results[0]


def _start(kinds: list[str], state: Attribute) -> Region:
    fills = [FillOp(IntegerAttr(OF_INTEGERS[kind], i32), state) for kind in kinds]
    return Region(Block([*fills, YieldOp(*(fill.result for fill in fills))]))


def _finish(states: Sequence[Attribute]) -> Region:
    block = Block(arg_types=states)
    block.add_op(YieldOp(*block.args))
    return Region(block)


# -- in words -------------------------------------------------------------------------------------


def spelled(condition: Condition, spell: Callable[[Term, int], str]) -> str:
    """A conjunction of comparisons as a text that `read_condition` reads; `spell` is asked for each term and factor."""
    texts: list[str] = []
    for form in _forms_of(condition):
        sides: dict[bool, list[str]] = {True: [], False: []}
        for term, factor in form.terms.items():
            name = spell(term, factor)
            sides[factor > 0].append(name if abs(factor) == 1 else f"{abs(factor)} * {name}")
        if form.constant:
            sides[form.constant > 0].append(str(abs(form.constant)))
        texts.append(f"{' + '.join(sides[False]) or '0'} <= {' + '.join(sides[True]) or '0'}")
    return " and ".join(texts)


def spell_search(search: Search) -> str:
    """`of_q <= of_x and of_x <= of_q`"""

    def name(term: Term, factor: int) -> str:
        return label(term)[1:] if isinstance(term, SSAValue) else str(term)

    return spelled(search.condition, name)


def _forms_of(condition: Condition) -> list[Linear]:
    if isinstance(condition, AtLeastZero):
        return [condition.form]
    return [form for part in condition.parts for form in _forms_of(part)]


__all__ = ["Ends", "SearchWriter", "spell_search"]
