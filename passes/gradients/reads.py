"""The adjoint of an affine read: each position gets the sum of all that was read at it.

What was read at j by `y[i, k] = x[i + k]` is solved for the longest axis, so that the adjoint is a read again, with
zeros around what it reads: `dx[j] = sum over k of dy[j - k, k]`. Where positions step over that axis (`x[2 i + k]`), it
is read with zeros between its elements. What is read where data or remainders say is scattered back
(`gradients/scattered.py`). Positions that no axis solves are conditions: of a diagonal, `m == n`. What
counts for a block of positions (`y[i] = x[i // 16]`) gets the sum over these: `dx[j] = sum over r of dy[16 j + r]`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from xdsl.dialects.builtin import f32
from xdsl.ir import SSAValue

from treadle.compiler.errors import Refusal
from treadle.dialects.diagram import ReadOp, ReduceOp, WhereOp
from treadle.dialects.diagram.array import array_type, axes_of, sizes_of
from treadle.dialects.diagram.condition import Linear, axis_in, spelled
from treadle.dialects.diagram.place import composed, divisors_in
from treadle.passes.expressions.scalars import Leaf, convert
from treadle.passes.gradients.backward import Backward, is_argument
from treadle.passes.gradients.presence import conditions
from treadle.passes.gradients.rereading import Move, Rereading
from treadle.passes.gradients.scattered import scattered_read

MOST_GAPS = 3
"""The longest step at which an axis is read with zeros between its elements: so many times the elements."""
OF_OPERAND = "^"
LONGEST = 48
"""Letters of an axis that the name of another keeps: a name has at most 63."""


def read(op: ReadOp, cotangent: SSAValue, backward: Backward) -> None:
    if conditions(op.operand, backward.laws):
        raise Refusal(op, "it reads an array of which elements are absent: no gradient of that is known")
    if op.is_scattered:
        return scattered_read(op, cotangent, backward)
    backward.note(op.result, "the adjoint of a read adds up what was read at a position", f"at {op.place.text.data}")
    sizes, target, hint = sizes_of(op.operand.type), sizes_of(op.result.type), backward.hint(op.operand)
    blocks = _blocks(op, backward)
    solved = _Solved(op, blocks, {axis: backward.length(axis, size) for axis, size in target.items()})
    if unsolved := [axis for axis in blocks if axis not in solved.places or axis in solved.steps]:
        raise Refusal(op, f"it reads at a quotient of '{unsolved[0]}', and others: no gradient of that is known")
    over = [axis for axis in target if axis not in solved.places]
    if clash := [axis for axis in over if axis in sizes]:
        raise Refusal(
            op,
            f"axis '{clash[0]}' is an axis of what is read and of what reads it, at another position: rename one of "
            "them for a gradient",
        )
    whole = {**sizes, **{axis: target[axis] for axis in over}, **{each.inner: each.length for each in blocks.values()}}
    over += [each.inner for each in blocks.values()]
    terms = Rereading(solved.moves, whole, [*target], backward).of(cotangent, [] if solved.left else over)
    if terms is not cotangent and not is_argument(terms):
        terms.name_hint = hint
    if solved.left:
        terms = backward.map(convert(Leaf(terms), f32), whole, hint)
        terms = backward.write(WhereOp(terms, solved.conditions), hint)
    if over := [axis for axis in over if axis in axes_of(terms.type)]:
        kept = {axis: size for axis, size in sizes.items() if axis in axes_of(terms.type)}
        terms = backward.write(ReduceOp("add", terms, over, array_type(f32, kept)), hint)
    return backward.add(op.operand, backward.spread(terms, op.operand))


@dataclass(frozen=True)
class _Block:
    """Neighbours along an axis for which one element counts."""

    length: int
    inner: str
    """The name of an axis along them."""


def _blocks(op: ReadOp, backward: Backward) -> dict[str, _Block]:
    """By the axes of which quotients are taken."""
    if not divisors_in(op.place.forms):
        return {}
    here = op.parent_block()
    assert here is not None
    values = (value for each in (*here.ops, *backward.block.ops) for value in (*each.operands, *each.results))
    taken = {axis for value in values for axis in axes_of(value.type)}
    blocks: dict[str, _Block] = {}
    for axis, length in divisors_in(op.place.forms).items():
        inner = f"{axis[:LONGEST]}_in"
        while inner in taken:
            inner += "_"
        taken.add(inner)
        blocks[axis] = _Block(length, inner)
    return blocks


def _by_blocks(form: Linear) -> Linear:
    """A position over blocks, each under the name of its axis, in the place of quotients."""
    return Linear({axis_in(term): factor for term, factor in form.terms.items()}, form.constant)


@dataclass
class _Solved:
    """The positions of a read, solved for axes of the result: those that step by one, the longest first."""

    op: ReadOp
    blocks: Mapping[str, _Block]
    lengths: Mapping[str, int]
    places: dict[str, Linear] = field(default_factory=dict[str, Linear])
    """For each axis that is solved for, where it is, over axes of the operand and those that are not solved for."""
    steps: dict[str, tuple[int, str | None]] = field(default_factory=dict[str, tuple[int, str | None]])
    """Axes of which positions are multiples of a step along an axis of the operand."""
    left: dict[str, Linear] = field(default_factory=dict[str, Linear])
    """Axes of the operand for which nothing is solved, and what they must equal."""

    def __post_init__(self) -> None:
        forms = self.forms
        self.places |= {along: _own(along) for along, form in forms.items() if form == Linear({along: 1})}
        self.left = {along: form for along, form in forms.items() if form != Linear({along: 1})}
        while any(self._solve(along, with_gaps) for with_gaps in (False, True) for along in self.left):
            pass

    @property
    def forms(self) -> dict[str, Linear]:
        """The position along each axis of the operand, over blocks of positions where there are some."""
        return {along: _by_blocks(form) for along, form in self.op.forms.items()}

    @property
    def moves(self) -> dict[str, Move]:
        """The axes that are read elsewhere."""
        found = {axis: self._within(axis, form) for axis, form in self.places.items()}
        moved = {axis: form for axis, form in found.items() if form != _own(axis)}
        return {axis: Move(_plain(form), *self.steps.get(axis, (1, None))) for axis, form in moved.items()}

    def _within(self, axis: str, place: Linear) -> Linear:
        """A position along an axis of which that of the block is known."""
        if (block := self.blocks.get(axis)) is None:
            return place
        return place.times(block.length).plus(Linear({block.inner: 1}))

    @property
    def conditions(self) -> str:
        """What must hold of the positions beside."""
        left = {along: _plain(composed(form, self.places)) for along, form in self.left.items()}
        return " and ".join(f"{along} == {spelled(form)}" for along, form in left.items())

    def _solve(self, along: str, with_gaps: bool) -> bool:
        """Solve the equation of an axis of the operand for the longest axis in it, if that can be."""
        known = composed(self.left[along], self.places)
        open_ = [axis for axis in map(str, known.terms) if axis in self.lengths]
        axis = max(open_, key=lambda axis: self.lengths[axis], default=None)
        if axis is None or not (self._has_gaps(axis, known, along) if with_gaps else abs(known.terms[axis]) == 1):
            return False
        factor = known.terms[axis]
        rest = known.plus(Linear({axis: factor}), -1)
        place = _own(along).plus(rest, -1).times(-1 if factor < 0 else 1)
        if with_gaps:
            self.steps[axis] = factor, along
        self.places = {each: composed(old, {axis: place}) for each, old in self.places.items()} | {axis: place}
        del self.left[along]
        return True

    def _has_gaps(self, axis: str, known: Linear, along: str) -> bool:
        """Whether an axis steps by more than one, it alone, and can be read with gaps that lie within the operand: all
        else comes after."""
        elsewhere = [*self.places.values(), *(form for each, form in self.forms.items() if each != along)]
        if any(axis in form.terms for form in elsewhere) or along in axes_of(self.op.result.type):
            return False
        return 1 < known.terms[axis] <= MOST_GAPS and min(known.constant, *known.terms.values()) >= 0


def _own(axis: str) -> Linear:
    """The position along an axis of the operand, whose names may be those of other axes of the result."""
    return Linear({f"{OF_OPERAND}{axis}": 1})


def _plain(form: Linear) -> Linear:
    return Linear({str(axis).removeprefix(OF_OPERAND): factor for axis, factor in form.terms.items()}, form.constant)
