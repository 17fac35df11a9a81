"""Which choices only put identities of reductions in the place of elements: these may be absent instead.

What a choice leaves out is followed through casts and maps, by the kinds of numbers that it may be
(`expressions.kinds`), up to each reduction that takes it. There it must be the identity: -inf of a maximum, 0 of a sum
or in a product that is summed. All choices of a block are looked at together, as a maximum that one choice needs may be
one of numbers that another leaves; those that fail are dropped until none does.

Two things are asked. If inputs are finite, what is left out is the identity. If they are not, it is that or NaN, which
the reduction then is in the formula: 0 times infinity. Of a reduction that itself takes what is left out, only the
elements that are kept say what it is, if there is one in each row; else it may be the identity, too, and what is told
from it NaN (`exp(-inf - -inf)`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import TypeAlias

from xdsl.dialects import arith, func
from xdsl.ir import Block, Operation, SSAValue

from treadle.dialects.diagram import CastOp, ContractOp, ExtentOp, MapOp, ReadOp, ReduceOp, ScanOp, WhereOp
from treadle.dialects.diagram.absence import absences_of
from treadle.dialects.diagram.array import DYNAMIC, sizes_of
from treadle.dialects.diagram.collapse import Regrouping
from treadle.dialects.diagram.linear import LAST_POSITION, Atom
from treadle.dialects.diagram.presence import is_in_every_row
from treadle.passes._functions import label
from treadle.passes.expressions.inner import is_saturating
from treadle.passes.expressions.kinds import ANY, FINITE, NAN, OF_NOTHING, ZERO, Kinds, sure_kinds_of
from treadle.passes.expressions.polynomials import Key, Keys
from treadle.passes.expressions.reductions import kind_of, neutral_of, operands_of
from treadle.passes.expressions.scalars import Expression, Leaf, Node, is_plain, product, walk
from treadle.passes.masks.choices import Choice, Chooser

Reduction: TypeAlias = "ContractOp | ReduceOp | ScanOp"
Given: TypeAlias = "dict[Key, Kinds]"


@dataclass(frozen=True)
class LeftOut:
    """What elements of an array are that a condition leaves out."""

    choices: frozenset[Choice]
    finite: Kinds
    """If inputs are finite numbers."""
    any: Kinds
    number: float | None = None
    """What they are exactly, if they are what was put in their place."""

    def rounded(self, saturates: bool) -> LeftOut:
        """Of the array in another format, which may have no infinities."""
        if saturates:
            return LeftOut(self.choices, _saturated(self.finite), _saturated(self.any))
        return LeftOut(self.choices, self.finite, self.any, self.number if self.number in (0, 1) else None)


def _saturated(kinds: Kinds) -> Kinds:
    return frozenset(kind.removesuffix("inf") for kind in kinds)


@dataclass(frozen=True)
class Elements:
    """What the elements of an array are, if inputs are finite: those that all conditions keep, and by the text of each
    condition those that it leaves out."""

    kept: Kinds
    out: Mapping[str, LeftOut]

    @property
    def choices(self) -> frozenset[Choice]:
        return frozenset(chain.from_iterable(each.choices for each in self.out.values()))

    def finite_where_left_out(self, text: str) -> Kinds:
        """Where a condition does not hold, which may be one that says nothing of this array."""
        if text in self.out:
            return self.out[text].finite
        return self.kept.union(*(each.finite for each in self.out.values()))

    def any_where_left_out(self, text: str) -> Kinds:
        """The same, whatever inputs are."""
        return self.out[text].any if text in self.out else ANY


def identities(block: Block, found: Mapping[MapOp, Chooser]) -> tuple[list[Choice], dict[Choice, str]]:
    """The choices in a block that only put identities in the place of what they leave out, and why others do not, of
    those that choose what is reduced."""
    refused: dict[Choice, str] = {}
    while True:
        following = Following(block, found)
        following.run()
        # What fails by itself leaves elements to rows that others leave none: these are asked again.
        failed = following.failed or following.in_empty_rows
        refused |= {choice: why for choice, why in failed.items() if choice in following.reduced}
        choices = [choice for chooser in found.values() for choice in chooser.choices]
        left = [each for each in choices if each in following.reduced and each not in failed]
        if len(left) == len(choices):
            return left, refused
        found = {map: chooser.of(left) for map, chooser in found.items()}


@dataclass
class Following:
    """Follows what choices leave out through a block."""

    block: Block
    choosers: Mapping[MapOp, Chooser]
    failed: dict[Choice, str] = field(default_factory=dict["Choice", str])
    """Those that cannot be conditions, and why."""
    in_empty_rows: dict[Choice, str] = field(default_factory=dict["Choice", str])
    """Those that could be if each row had an element that all of them keep, and where one may have none."""
    reduced: set[Choice] = field(default_factory=set["Choice"])
    """Those of which a reduction along one of their axes was met."""

    def __post_init__(self) -> None:
        self.keys = Keys()
        self.finite: Given = {self.keys.of(Leaf(arg)): FINITE for arg in self.block.args}
        """What inputs and reductions are, if inputs are finite."""
        self.any: Given = {}
        self.of: dict[SSAValue, Elements] = {}
        self.unsure: dict[SSAValue, SSAValue] = {}
        """What is made of reductions that are the identity in a row of which nothing is kept, and of which."""

    def run(self) -> None:
        for op in self.block.ops:
            match op:
                case MapOp():
                    self._map(op)
                case CastOp():
                    self._cast(op)
                case ContractOp() | ReduceOp() | ScanOp():
                    self._reduction(op)
                case WhereOp(operand=operand, inputs=inputs) if not any(each in self.of for each in inputs):
                    self._same(op.result, operand)
                case _:
                    self._other(op)

    # -- element by element ----------------------------------------------------------------------

    def _map(self, op: MapOp) -> None:
        chooser = self.choosers.get(op, Chooser(op, ()))
        given = self._given(op.inputs)
        if not chooser.choices and not given:
            return
        if not is_plain(op):
            return self._fail_all(given, f"the body of {label(op.result)} is no formula")
        own = (choice.condition.text for choice in chooser.choices)
        texts = dict.fromkeys(chain(own, *(each.out for each in given.values())))
        kept = self._kinds(chooser.where((), chooser.choices), self.finite, given, lambda each: each.kept)
        self.of[op.result] = Elements(kept, {text: self._left_out(chooser, given, text) for text in texts})
        self._told(op.result, op.inputs)

    def _left_out(self, chooser: Chooser, given: Mapping[SSAValue, Elements], text: str) -> LeftOut:
        own = [choice for choice in chooser.choices if choice.condition.text == text]
        finite, any_ = self._where_left_out(chooser.where(own, ()), given, text)
        number = own[0].fill.number if len(own) == 1 and chooser.expression is own[0].node else None
        return LeftOut(_choices(given, text).union(own), finite, any_, number)

    def _where_left_out(
        self, expression: Expression, given: Mapping[SSAValue, Elements], text: str
    ) -> tuple[Kinds, Kinds]:
        return (
            self._kinds(expression, self.finite, given, lambda each: each.finite_where_left_out(text)),
            self._kinds(expression, self.any, given, lambda each: each.any_where_left_out(text)),
        )

    def _cast(self, op: CastOp) -> None:
        if (given := self.of.get(op.operand)) is None:
            return
        saturates = is_saturating(Leaf(op.result))
        out = {text: each.rounded(saturates) for text, each in given.out.items()}
        self.of[op.result] = Elements(_saturated(given.kept) if saturates else given.kept, out)
        self._told(op.result, [op.operand])

    def _same(self, value: SSAValue, other: SSAValue) -> None:
        if other in self.of:
            self.of[value] = self.of[other]
            self._told(value, [other])

    # -- reductions ------------------------------------------------------------------------------

    def _reduction(self, op: Reduction) -> None:
        operands, result = operands_of(op), self.keys.of(Leaf(op.result))
        given = self._given(operands)
        if op.init is not None:
            self._fail_all(given, f"{label(op.result)} goes on with another one")
        if op.init is not None or not given:
            for known in (self.finite, self.any):
                known[result] = self._kinds(Leaf(op.result), known, {}, _kept)
            return
        summand = product(Leaf(op.lhs), Leaf(op.rhs)) if isinstance(op, ContractOp) else Leaf(operands[0])
        for text in dict.fromkeys(chain.from_iterable(each.out for each in given.values())):
            self._check(op, summand, given, text)
        self.finite[result], self.any[result] = self._reduced(op, summand, given), ANY

    def _check(self, op: Reduction, summand: Expression, given: Mapping[SSAValue, Elements], text: str) -> None:
        """Whether a reduction takes an identity for what a condition leaves out."""
        choices = _choices(given, text)
        over = {choice for choice in choices if choice.condition.axes & {*_over(op)}}
        self.reduced |= over
        self._fail(choices - over, f"{label(op.result)} reduces other axes")
        if not isinstance(op, ContractOp) and given[op.operand].out[text].number == neutral_of(op.result).value.data:
            return
        finite, any_ = self._where_left_out(summand, given, text)
        identity = OF_NOTHING.get(kind_of(op.result), frozenset())
        wrong = finite - identity or any_ - identity - NAN
        if not wrong:
            return
        reason = f"{NAMES[kind_of(op.result)]} {label(op.result)} takes it, where it may be {_spelled(wrong)}"
        source = next((self.unsure[each] for each in operands_of(op) if each in self.unsure), None)
        if source is None or wrong != NAN:
            self._fail(over, reason)
        else:
            reason = f"{reason}: a row of {label(source)} may have no other element"
            self.in_empty_rows |= {each: reason for each in over if each not in self.in_empty_rows}

    def _reduced(self, op: Reduction, summand: Expression, given: Mapping[SSAValue, Elements]) -> Kinds:
        """What a reduction is of elements that are kept, if there are any."""
        kinds = self._kinds(summand, self.finite, given, _kept)
        kind = kind_of(op.result)
        if kind == "add":
            kinds |= self._kinds(Node(arith.AddfOp, (summand, summand), summand.type), self.finite, given, _kept)
        elif kind not in ("max", "min"):
            return ANY
        choices = chain.from_iterable(each.choices for each in given.values())
        if not isinstance(op, ScanOp) and self._is_in_every_row(op, frozenset(choices)):
            return kinds
        self.unsure[op.result] = op.result
        return kinds | OF_NOTHING[kind]

    def _is_in_every_row(self, op: Reduction, choices: Iterable[Choice]) -> bool:
        operands = operands_of(op)
        sizes = {axis: size for each in operands for axis, size in sizes_of(each.type).items()}
        holds = [*(each.holds for each in absences_of(operands)), *(each.holds for each in choices)]

        def ends(atom: Atom) -> tuple[int, int]:
            if isinstance(atom, str):
                return 0, sizes[atom] - 1 if sizes.get(atom, DYNAMIC) > 0 else LAST_POSITION
            is_size = isinstance(atom, SSAValue) and isinstance(atom.owner, ExtentOp)
            return (0 if is_size else -(2**31)), 2**31 - 1

        over = _over(op)
        return any(is_in_every_row(holds, axis, over, max(sizes[axis], 1), ends) for axis in over)

    # -- what else there is ----------------------------------------------------------------------

    def _other(self, op: Operation) -> None:
        given = self._given(op.operands)
        self._fail_all(given, "it is returned" if isinstance(op, func.ReturnOp) else f"{op.name} takes it")
        if isinstance(op, ReadOp | Regrouping) and not given:
            for known in (self.finite, self.any):
                known[self.keys.of(Leaf(op.result))] = self._kinds(Leaf(op.operand), known, {}, _kept) | ZERO

    def _given(self, operands: Iterable[SSAValue]) -> dict[SSAValue, Elements]:
        return {each: self.of[each] for each in operands if each in self.of}

    def _told(self, value: SSAValue, operands: Iterable[SSAValue]) -> None:
        source = next((self.unsure[each] for each in operands if each in self.unsure), None)
        if source is not None:
            self.unsure[value] = source

    def _kinds(
        self,
        expression: Expression,
        known: Given,
        given: Mapping[SSAValue, Elements],
        state: Callable[[Elements], Kinds],
    ) -> Kinds:
        """What an expression may be, where some arrays are in a state; a cast in a body that saturates may make
        anything of an infinity."""
        if any(is_saturating(each) for each in walk(expression) if isinstance(each, Node)):
            return ANY
        now = {self.keys.of(Leaf(value)): state(elements) for value, elements in given.items()}
        return sure_kinds_of(expression, known | now, self.keys)

    def _fail(self, choices: Iterable[Choice], reason: str) -> None:
        for choice in choices:
            self.failed.setdefault(choice, reason)

    def _fail_all(self, given: Mapping[SSAValue, Elements], reason: str) -> None:
        for each in given.values():
            self._fail(each.choices, reason)


def _over(op: Reduction) -> tuple[str, ...]:
    """The axes whose elements count together."""
    return (op.axis.data,) if isinstance(op, ScanOp) else op.over_axes


NAMES = {"add": "the sum", "mul": "the product", "max": "the maximum", "min": "the minimum"}
_SPELLED = {"-": "below zero", "+": "above zero", "0": "zero", "nan": "NaN", "+inf": "inf"}


def _spelled(kinds: Kinds) -> str:
    return " or ".join(_SPELLED.get(kind, kind) for kind in sorted(kinds)) if kinds < ANY else "any number"


def _kept(elements: Elements) -> Kinds:
    return elements.kept


def _choices(given: Mapping[SSAValue, Elements], text: str) -> frozenset[Choice]:
    """Those of a condition that some arrays were made by."""
    return frozenset[Choice]().union(*(each.out[text].choices for each in given.values() if text in each.out))


__all__ = ["identities"]
