"""Load to registers what the next turn of a loop begins with, while this turn computes.

A load that a turn needs before its first product is waited for: nothing of the turn runs meanwhile, and beside products
few blocks share a multiprocessor. Where the place of the load depends on nothing but the position of the loop, it may
stand in the turn before, right after the last use of what that turn has itself: the registers are the same. The first
piece is loaded before the loop, and a turn without a next one keeps what it has. A turn without products uses all that
it loads, so that little would be left behind: its loads of the next piece stand before all else, in registers beside.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from xdsl.dialects import arith, scf
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from treadle.compiler.lowering.numbers import neutral_of
from treadle.dialects import cuda
from treadle.dialects.cuda.tiles import format_bytes, layout_of
from treadle.dialects.diagram import FillOp
from treadle.dialects.diagram.array import format_of
from treadle.passes.loops.ahead import are_known_ahead, brought_ahead, constant_of, position_ahead, step_of

MOST_WORDS = 32
"""Registers of a thread that may hold what the next turn begins with; of more, products would have too few."""

LESS = 6
"""Of numbers without a sign, as `arith.cmpi` counts its predicates (`ult`)."""


@dataclass(frozen=True)
class Loads:
    """Those of a loop that can be a turn ahead."""

    loop: scf.ForOp
    loads: tuple[cuda.LoadOp, ...]
    is_early: bool = False
    """Whether a turn begins with them, and holds two pieces; else they follow the last use of its own."""

    @property
    def words(self) -> int:
        """Registers of a thread that hold them."""
        return sum(words_of(load) for load in self.loads)

    @property
    def names(self) -> str:
        return ", ".join(f"%{load.source.name_hint}" for load in self.loads)


def words_of(load: cuda.LoadOp) -> int:
    """Registers of a thread that hold what is loaded."""
    return -(-layout_of(load.result.type).register.size * format_bytes(load.source.type) // 4)


def loads_to_move(kernel: cuda.KernelOp) -> list[Loads]:
    """Of each loop in the body of a kernel with products, the loads that can be a turn ahead."""
    if not any(isinstance(op, cuda.ProductOp) for op in kernel.walk()):
        return []
    loops = (op for op in kernel.body.block.ops if isinstance(op, scf.ForOp))
    found = (Loads(loop, tuple(_begins_with(loop))) for loop in loops)
    return [each for each in found if each.loads]


def _begins_with(loop: scf.ForOp) -> Iterable[cuda.LoadOp]:
    """The loads whose place is known ahead and which a turn needs before any product."""
    body = loop.body.block
    place = {op: number for number, op in enumerate(body.ops)}
    product = min((number for op, number in place.items() if isinstance(op, cuda.ProductOp)), default=len(place))
    for op in body.ops:
        if not isinstance(op, cuda.LoadOp) or not are_known_ahead(op.operands, loop):
            continue
        uses = [place[user] for user in _users(op.result, body)]
        if uses and min(uses) < product and max(uses) < place[_last(body)]:
            yield op


def _users(value: SSAValue, body: Block) -> list[Operation]:
    found = (body.find_ancestor_op_in_block(use.operation) for use in value.uses)
    return [op for op in found if op is not None]


def _last(body: Block) -> Operation:
    assert body.last_op is not None
    return body.last_op


def move_ahead(loads: Loads) -> None:
    """Rewrite the loop."""
    loop = with_more_state(loads.loop, [_first(load, loads.loop) for load in loads.loads])
    body = loop.body.block
    held = body.args[len(body.args) - len(loads.loads) :]
    later = _asked_already(loop)
    top = body.first_op
    assert top is not None
    handed_on: list[SSAValue] = []
    for load, piece in zip(loads.loads, held, strict=True):
        last = None if loads.is_early else max(_users(load.result, body), key=list(body.ops).index)
        load.result.replace_all_uses_with(piece)
        place = InsertPoint.before(top) if last is None else InsertPoint.after(last)
        asks: list[Operation] = []
        if later is None or (last is not None and not _stands_before(later[1], last)):
            asks, position, test = position_ahead(loop, body.args[0], step_of(loop))
            later = position, test
        branch = _load_if(later[1], load, loop, later[0], piece)
        Rewriter.insert_op([*asks, branch], place)
        handed_on.append(branch.results[0])
    for load in loads.loads:
        Rewriter.erase_op(load)
    terminator = _last(body)
    Rewriter.replace_op(terminator, scf.YieldOp(*terminator.operands, *handed_on))


def _asked_already(loop: scf.ForOp) -> tuple[SSAValue, SSAValue] | None:
    """The position of the next turn and whether there is one, where copies ask for it at the beginning of a turn."""
    for test in loop.body.block.ops:
        if not isinstance(test, arith.CmpiOp) or test.rhs is not loop.ub or test.predicate.value.data != LESS:
            continue
        there = test.lhs.owner
        if not isinstance(there, arith.AddiOp) or there.lhs is not loop.body.block.args[0]:
            continue
        if isinstance(there.rhs.owner, arith.ConstantOp) and constant_of(there.rhs) == step_of(loop):
            return there.result, test.result
    return None


def _stands_before(value: SSAValue, op: Operation) -> bool:
    return isinstance(value.owner, Operation) and value.owner.is_before_in_block(op)


def _first(load: cuda.LoadOp, loop: scf.ForOp) -> SSAValue:
    """What the first turn begins with, loaded before the loop if there is one."""
    test = arith.CmpiOp(loop.lb, loop.ub, "ult")
    test.result.name_hint = "has_turns"
    nothing = FillOp(neutral_of("add", format_of(load.result.type)), load.result.type)
    nothing.result.name_hint = load.result.name_hint
    branch = _load_if(test.result, load, loop, loop.lb, nothing.result)
    Rewriter.insert_op([test, nothing, branch], InsertPoint.before(loop))
    return branch.results[0]


def _load_if(test: SSAValue, load: cuda.LoadOp, loop: scf.ForOp, position: SSAValue, otherwise: SSAValue) -> scf.IfOp:
    """Load the piece of a loop at a position if there is one, and have another value otherwise."""
    some = Block()
    mapping = brought_ahead(load.operands, loop, position, some)
    clone = load.clone(value_mapper=mapping)
    clone.location = load.location
    clone.result.name_hint = load.result.name_hint
    some.add_ops([clone, scf.YieldOp(clone.result)])
    branch = scf.IfOp(test, [load.result.type], Region(some), Region(Block([scf.YieldOp(otherwise)])))
    branch.location = load.location
    branch.results[0].name_hint = load.result.name_hint
    return branch


def with_more_state(loop: scf.ForOp, values: Sequence[SSAValue]) -> scf.ForOp:
    """The loop with more values that it carries, whose body does not hand them on yet."""
    block = loop.body.block
    for value in values:
        block.insert_arg(value.type, len(block.args)).name_hint = value.name_hint
    carried = [*loop.iter_args, *values]
    region = loop.detach_region(loop.body)
    new = scf.ForOp(loop.lb, loop.ub, loop.step, carried, region)
    new.location = loop.location
    new.attributes |= loop.attributes
    for old, result in zip(loop.results, new.results, strict=False):
        result.name_hint = old.name_hint
    Rewriter.insert_op(new, InsertPoint.before(loop))
    Rewriter.replace_op(loop, [], list(new.results[: len(loop.results)]))
    return new
