"""Stages of rings, each computed once a turn: where consumers await a turn, its stage gets a name, by which its release
and the descriptor of its tile are printed, too."""

from __future__ import annotations

from collections import defaultdict

from xdsl.dialects import arith
from xdsl.ir import Block, Operation, SSAValue

from treadle.dialects import cuda
from treadle.dialects.cuda.multiples import constant_of
from treadle.dialects.cuda.rings import stages_of

Form = dict[SSAValue | None, int]
"""A number as a sum: how often each value is in it; None stands for 1."""


class Stages:
    """The stages that are known by name, by the block in which their turn was awaited."""

    def __init__(self) -> None:
        self.known: dict[Block, list[tuple[int, Form, str]]] = defaultdict(list)
        self.turns: dict[Block, SSAValue] = {}

    def awaited(self, op: cuda.AwaitOp) -> None:
        """A turn was awaited here."""
        assert op.parent is not None
        self.turns[op.parent] = op.turn

    def note(self, op: cuda.AwaitOp, name: str) -> None:
        """The stage of a turn has a name from here to the end of the block."""
        block, stages = op.parent, stages_of(op.ring)
        assert block is not None
        self.known[block].append((stages, residue(op.turn, stages), name))

    def turn(self, user: Operation) -> SSAValue | None:
        """The turn that was awaited last, in the block of an operation."""
        return self.turns.get(user.parent) if user.parent is not None else None

    def name(self, value: SSAValue, stages: int, user: Operation) -> str | None:
        """The name of what is left of a number when it is divided by so many stages; None if it has none."""
        for count, form, name in self.known[user.parent] if user.parent is not None else ():
            if count == stages and form == residue(value, stages):
                return name
        return None


def residue(value: SSAValue, modulus: int) -> Form:
    """The same number up to multiples of the modulus. Two numbers with the same form leave the same rest."""
    form: dict[SSAValue | None, int] = defaultdict(int)
    _add(value, 1, modulus, form)
    return {term: count % modulus for term, count in form.items() if count % modulus}


def _add(value: SSAValue, factor: int, modulus: int, form: dict[SSAValue | None, int]) -> None:
    owner = value.owner
    if (number := constant_of(value)) is not None:
        form[None] += factor * number
    elif isinstance(owner, arith.AddiOp | arith.SubiOp):
        _add(owner.lhs, factor, modulus, form)
        _add(owner.rhs, factor if isinstance(owner, arith.AddiOp) else -factor, modulus, form)
    elif isinstance(owner, arith.RemUIOp) and (divisor := constant_of(owner.rhs)) and divisor % modulus == 0:
        _add(owner.lhs, factor, modulus, form)
    else:
        form[value] += factor
