"""Sums of the elements whose place data name, `sum_t X[t] where table[t] == r`: each element is added to one result, so
that they are scattered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects import func
from xdsl.ir import Block, Operation, SSAValue

from treadle.dialects.diagram import CastOp, ContractOp, FillOp, MapOp, ReduceOp, ScatterOp, WhereOp
from treadle.dialects.diagram.array import array_type, axes_of, format_of, is_array, sizes_of, with_format
from treadle.dialects.diagram.condition import AtLeastZero, Atom, Both, Condition, Linear, terms_of
from treadle.dialects.diagram.linear import spelled as spelled_form
from treadle.dialects.diagram.scatter import SUMS
from treadle.passes._functions import erase_unused, label, note, replace
from treadle.passes.expressions.conditions import inputs_of, parts_of, spelled
from treadle.passes.expressions.scalars import Leaf, build_map, convert, product
from treadle.passes.products.positions import with_type
from treadle.passes.products.scanned import past_casts

LAW = "what data name the place of is added up there"


@dataclass(frozen=True)
class Scattered:
    """A sum whose elements data send to one place each."""

    sum: ReduceOp | ContractOp
    where: WhereOp
    casts: tuple[CastOp, ...]
    """What is done to the elements once it is known which count, the last first."""
    factor: SSAValue | None
    """What they are multiplied by, in a product."""
    places: Mapping[str, Linear]
    """The position along each axis that the condition fixes."""
    rest: Sequence[Condition]
    """The parts of the condition beside."""

    @property
    def value(self) -> SSAValue:
        return self.sum.result

    @property
    def asked(self) -> set[str]:
        """The axes along which data say where elements go."""
        return {axis for form in self.places.values() for axis in _axes_of(form.atoms)}


def scattered_in(block: Block) -> list[Scattered]:
    """The sums of a block that scatter."""
    every = (scattered_by(op) for op in block.ops if isinstance(op, ReduceOp | ContractOp))
    return [each for each in every if each is not None]


def scattered_by(op: ReduceOp | ContractOp) -> Scattered | None:
    """How a sum scatters, if it does: by equalities with data of positions along axes of the result, along which
    neither its elements vary, nor factors, nor conditions beside."""
    if op.init is not None or not _is_sum(op):
        return None
    for value, factor in _sides(op):
        where, casts = past_casts(value)
        if not isinstance(where, WhereOp):
            continue
        found = Scattered(op, where, casts, factor, *_fixed(where, op.over_axes))
        if found.places and _is_free(found) and _without(where.operand, found.places) is not None:
            return found
    return None


def _is_sum(op: ReduceOp | ContractOp) -> bool:
    if isinstance(op, ContractOp):
        return str(op.accumulate) in SUMS and not op.is_tf32
    return op.kind.data == "add" and str(format_of(op.result.type)) in SUMS


def _sides(op: ReduceOp | ContractOp) -> list[tuple[SSAValue, SSAValue | None]]:
    """What is summed where a condition may hold, and the factor beside it."""
    return [(op.operand, None)] if isinstance(op, ReduceOp) else [(op.lhs, op.rhs), (op.rhs, op.lhs)]


def _is_free(each: Scattered) -> bool:
    """Whether nothing but where elements go depends on the axes whose positions are fixed, and data say it along one
    that is summed over, if a product is then along all."""
    over, places = {*each.sum.over_axes}, each.places.keys()
    beside = {axis for part in each.rest for axis in _axes_of(terms_of(part))}
    if each.factor is not None:
        beside |= {*axes_of(each.factor.type)}
    if not places.isdisjoint(beside) or not places.isdisjoint(each.asked):
        return False
    return over <= each.asked if each.factor is not None else not over.isdisjoint(each.asked)


def _fixed(where: WhereOp, over: Sequence[str]) -> tuple[dict[str, Linear], list[Condition]]:
    """The axes that are kept and whose positions equalities with data fix, and the other parts of a condition."""
    places: dict[str, Linear] = {}
    rest: list[Condition] = []
    for part in parts_of(where.holds):
        found = _solved(part, where, {*over, *places})
        if found is None:
            rest.append(part)
        else:
            places |= [found]
    return places, rest


def _solved(part: Condition, where: WhereOp, taken: set[str]) -> tuple[str, Linear] | None:
    """An axis, and where it must be, by an equality with data along other axes."""
    if not isinstance(part, Both):  # parts of a condition that are conjunctions are equalities
        return None
    form = next(each.form for each in part.parts if isinstance(each, AtLeastZero))
    if form.divided or not any(isinstance(term, SSAValue) for term in form.terms):
        return None
    if any(isinstance(term, SSAValue) and not is_array(term.type) for term in form.terms):
        return None
    for axis in axes_of(where.result.type):
        rest = form.plus(Linear({axis: form.terms.get(axis, 0)}), -1)
        if axis not in taken and abs(form.terms.get(axis, 0)) == 1 and axis not in _axes_of(rest.atoms):
            return axis, rest.times(-form.terms[axis])
    return None


def _axes_of(atoms: Iterable[Atom]) -> set[str]:
    named = (axes_of(each.type) if isinstance(each, SSAValue) else (str(each),) for each in atoms)
    return {axis for axes in named for axis in axes}


# -- rewriting -------------------------------------------------------------------------------------


def scatter(function: func.FuncOp, each: Scattered, rewrite: str, why: str) -> None:
    """Scatter in the place of a sum."""
    made = _Made()
    op, value = each.sum, made.without(each.where.operand, each.places)
    if each.rest:
        names = inputs_of(Both(tuple(each.rest)))
        text = spelled(Both(tuple(each.rest)), names)
        value = made.add(WhereOp(value, text, {name: given for given, name in names.items()}))
    for cast in reversed(each.casts):
        value = made.add(CastOp(value, with_format(value.type, format_of(cast.result.type)), cast.fixed is not None))
    format = op.accumulate if isinstance(op, ContractOp) else format_of(op.result.type)
    value = made.summand(each, value)
    if format_of(value.type) != format:
        value = made.add(CastOp(value, with_format(value.type, format)))
    value = made.add(_scattered(each, value))
    if value.type != op.result.type:
        value = made.add(CastOp(value, op.result.type))
    for new in made.ops:
        new.location = op.location
    before, name = list(op.operands), label(op.result)
    replace(op, made.ops, value)
    erase_unused(before)
    note(function, rewrite, name, LAW, why)


def _scattered(each: Scattered, value: SSAValue) -> ScatterOp:
    names, axes = inputs_of(Both((each.where.holds,))), {*axes_of(value.type)}
    names = {atom: f"{name}_entry" if name in axes else name for atom, name in names.items()}
    kept = sizes_of(each.sum.result.type)
    forms = [each.places.get(axis, Linear({axis: 1})) for axis in kept]

    def named(atom: Atom) -> str:
        if not isinstance(atom, SSAValue):
            return str(atom)
        return f"{names[atom]}[{', '.join(axes_of(atom.type))}]"

    asked = dict.fromkeys(atom for form in forms for atom in form.atoms if isinstance(atom, SSAValue))
    place = ", ".join(spelled_form(form, named) for form in forms)
    return ScatterOp(value, place, array_type(format_of(value.type), kept), {names[atom]: atom for atom in asked})


class _Made:
    """The operations that a rewrite makes, in order."""

    def __init__(self) -> None:
        self.ops: list[Operation] = []

    def add(self, op: Operation) -> SSAValue:
        self.ops.append(op)
        return op.results[0]

    def without(self, value: SSAValue, axes: Iterable[str]) -> SSAValue:
        """An array without axes along which it does not vary."""
        again = _without(value, axes)
        assert again is not None
        self.ops += again.ops
        return again.value

    def summand(self, each: Scattered, value: SSAValue) -> SSAValue:
        """What is added up: elements times their factor, or summed along axes that say nothing of where they go."""
        op = each.sum
        sizes, format = sizes_of(value.type), format_of(op.result.type)
        if each.factor is not None:
            assert isinstance(op, ContractOp)
            parts = (convert(Leaf(part), op.accumulate) for part in (value, each.factor))
            type = array_type(op.accumulate, {**sizes, **sizes_of(each.factor.type)})
            return self.add(build_map(product(*parts), type, "summand", op.location))
        if not (alone := [axis for axis in op.over_axes if axis not in each.asked]):
            return value
        left = {axis: size for axis, size in sizes.items() if axis not in alone}
        return self.add(ReduceOp("add", value, alone, array_type(format, left)))


@dataclass
class _Again:
    """How an array is made again without some axes."""

    ops: list[Operation]
    value: SSAValue


def _without(value: SSAValue, axes: Iterable[str]) -> _Again | None:
    """None where it varies along them."""
    made: dict[SSAValue, SSAValue] = {}
    ops: list[Operation] = []
    left = {*axes}

    def written(value: SSAValue) -> SSAValue | None:
        if left.isdisjoint(axes_of(value.type)) or value in made:
            return made.get(value, value)
        op = value.owner
        if not isinstance(op, FillOp | MapOp | CastOp):
            return None
        operands = [written(operand) for operand in op.operands]
        if any(operand is None for operand in operands):
            return None
        kept = {axis: size for axis, size in sizes_of(value.type).items() if axis not in left}
        again = op.clone({old: new for old, new in zip(op.operands, operands, strict=True) if new is not None})
        ops.append(with_type(again, array_type(format_of(value.type), kept)))
        ops[-1].results[0].name_hint = value.name_hint
        made[value] = ops[-1].results[0]
        return made[value]

    found = written(value)
    return None if found is None else _Again(ops, found)


__all__ = ["LAW", "Scattered", "scatter", "scattered_in"]
