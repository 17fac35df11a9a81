"""Print loops and branches, whose results are arrays that every turn or either side writes."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager

from xdsl.dialects import scf
from xdsl.dialects.builtin import IndexType
from xdsl.ir import Block, Operation, SSAValue

from treadle.compiler.printer.known_turns import keep_turns_apart
from treadle.compiler.printer.scalars import bare, term
from treadle.compiler.printer.writer import KernelWriter
from treadle.dialects.cuda.kernel import NARROW
from treadle.dialects.cuda.rings import COUNTED, alternating
from treadle.dialects.cuda.tiles import layout_of


def print_loop(writer: KernelWriter, op: scf.ForOp) -> None:
    writer.comment_of(op)
    for arg, init, result in zip(op.body.block.args[1:], op.iter_args, op.results, strict=True):
        writer.values[arg] = writer.values[result] = _owned(writer, init, arg, op)
    more = keep_turns_apart(writer, op)
    writer.before_loop(op)
    with outermost(writer), writer.names.scope():
        if places := alternating(op):
            with writer.text.block(""):
                return _print_in_pairs(writer, op, places, more)
        index = writer.names.fresh(op.body.block.args[0].name_hint, "index")
        writer.values[op.body.block.args[0]] = index
        low = bare(writer.values[op.lb])
        high, step = (term(writer.values[value]) for value in (op.ub, op.step))
        if NARROW in op.attributes:
            low, high, step = (f"uint32_t({each})" for each in (low, high, step))
            with writer.text.block(f"for (uint32_t {index} = {low}; {index} < {high}; {index} += {step})"):
                return writer.block(op.body.block)
        # The few registers of a producer that takes piece after piece are not enough for turns side by side.
        lean = writer.roles is not None and writer.roles.producer.block is _around(op)
        unroll = "UNROLL_1 " if lean else ""
        if COUNTED not in op.attributes:
            with writer.text.block(f"{unroll}for (int64_t {index} = {low}; {index} < {high}{more}; {index} += {step})"):
                return writer.block(op.body.block)
        count = writer.names.fresh("count")
        with writer.text.block(f"{unroll}for (int {count} = {low}; {count} < int({high}){more}; ++{count})"):
            writer.text.line(f"const int64_t {index} = {count};")
            writer.block(op.body.block)


def _print_in_pairs(writer: KernelWriter, op: scf.ForOp, places: Sequence[int], more: str) -> None:
    """A turn as a function of the arrays that it reads and makes, and calls of it in pairs, which swap them. The last
    is that before the loop's end and what is `more` of it."""
    position, *states = op.body.block.args
    index = writer.names.fresh(position.name_hint, "index")
    writer.values[position] = index
    arrays = [writer.values[states[place]] for place in places]
    step = writer.names.fresh("step")
    made = [writer.names.fresh(f"{array}_made") for array in arrays]
    parameters = "".join(f", auto& {name}" for pair in zip(arrays, made, strict=True) for name in pair)
    with writer.text.block(f"const auto {step} = [&](const int64_t {index}{parameters})", "};"), writer.names.scope():
        writer.alternating |= {op.results[place]: name for place, name in zip(places, made, strict=True)}
        writer.block(op.body.block)
    others = [writer.names.fresh(f"{array}_other") for array in arrays]
    for place, other in zip(places, others, strict=True):
        shape = "".join(f"[{size}]" for size in layout_of(states[place].type).register_shape)
        writer.text.line(f"{writer.type_of(states[place])} {other}{shape};")
    low, high = bare(writer.values[op.lb]), term(writer.values[op.ub]) + more
    by = term(writer.values[op.step])
    one, two = (_arguments(*pair) for pair in ((arrays, others), (others, arrays)))
    writer.text.line(f"int64_t {index} = {low};")
    with writer.text.block(f"for (; {index} + {by} < {high}; {index} += 2 * {by})"):
        writer.text.line(f"{step}({index}{one});")
        writer.text.line(f"{step}({index} + {by}{two});")
    with writer.text.block(f"if ({index} < {high})"):
        writer.text.line(f"{step}({index}{one});")
        for array, other in zip(arrays, others, strict=True):
            zero = f"{writer.call('kept')}(uint32_t({index})) >> 31"  # which neither nvcc nor ptxas know to be 0
            writer.text.line(f"{writer.call('copy_apart')}({array}, {other}, {zero});")


def _arguments(before: Sequence[str], made: Sequence[str]) -> str:
    return "".join(f", {name}" for pair in zip(before, made, strict=True) for name in pair)


def _around(op: scf.ForOp) -> Block | None:
    """The block of the loop over pieces that an operation stands in, if it does."""
    parent = op.parent_op()
    return parent.parent if isinstance(parent, scf.ForOp) and NARROW in parent.attributes else None


@contextmanager
def outermost(writer: KernelWriter) -> Generator[None]:
    """The scope of a loop; if no other is around it, constants go before the next line."""
    if writer.loop is not None:
        yield
        return
    writer.loop = len(writer.text.lines), len(writer.names.scopes) - 1
    yield
    writer.loop = None
    writer.constants.clear()


def _owned(writer: KernelWriter, value: SSAValue, into: SSAValue, op: Operation) -> str:
    """The array that a loop may change, which starts as a value: its own, or a copy if others still need it."""
    if isinstance(value.type, IndexType):
        name = writer.names.fresh(into.name_hint, "index")
        # Only turns are carried; they count modulo powers of two, so that it is no matter if they pass 2^32.
        writer.text.line(f"uint32_t {name} = {bare(writer.values[value])};")
        return name
    if writer.is_last_use(value, op):
        return writer.values[value]
    into.name_hint = into.name_hint or value.name_hint
    name = writer.declare(into)
    writer.copy(name, writer.values[value], layout_of(into.type))
    return name


def print_yield(writer: KernelWriter, op: scf.YieldOp) -> None:
    parent = op.parent_op()
    assert isinstance(parent, scf.ForOp | scf.IfOp)
    for result, value in zip(parent.results, op.operands, strict=True):
        if isinstance(value.type, IndexType):  # which only a loop carries, and nothing reads after its last use
            writer.text.line(f"{writer.values[result]} = {bare(writer.values[value])};")
    moves = [
        (writer.alternating.get(result, writer.values[result]), writer.values[value], layout_of(value.type))
        for result, value in zip(parent.results, op.operands, strict=True)
        if writer.values[result] != writer.values[value] and not isinstance(value.type, IndexType)
    ]
    targets = {target for target, _, _ in moves}
    for i, (target, source, layout) in enumerate(moves):
        if source in targets:  # it would be overwritten before it is read
            shape = "".join(f"[{size}]" for size in layout.register_shape)
            name = writer.names.fresh(f"{source}_old")
            writer.text.line(f"{writer.type_of(op.operands[i])} {name}{shape};")
            writer.copy(name, source, layout)
            moves[i] = (target, name, layout)
    for target, source, layout in moves:
        writer.copy(target, source, layout)


def print_branch(writer: KernelWriter, op: scf.IfOp) -> None:
    writer.comment_of(op)
    otherwise = op.false_region.block if op.false_region.blocks else None
    kept = list(otherwise.last_op.operands) if otherwise is not None and otherwise.last_op is not None else []
    for result, value in zip(op.results, kept, strict=True):
        if _dies_in(writer, value, op):
            writer.overwritten_by_if[value] = op
            writer.values[result] = writer.values[value]
        else:
            writer.declare(result)
    with writer.names.scope(), writer.text.block(f"if ({bare(writer.values[op.cond])})"):
        writer.block(op.true_region.block)
    if otherwise is not None and not _does_nothing(writer, op, otherwise):
        with writer.names.scope(), writer.text.block("else"):
            writer.block(otherwise)


def _dies_in(writer: KernelWriter, value: SSAValue, op: scf.IfOp) -> bool:
    """Whether nothing after the branch needs the value, and the branch runs once for each time it is made."""
    home = value.owner if isinstance(value.owner, Block) else value.owner.parent
    if home is None or home is not op.parent:
        return False
    users = (home.find_ancestor_op_in_block(use.operation) for use in value.uses)
    return all(user is op or (user is not None and user.is_before_in_block(op)) for user in users)


def _does_nothing(writer: KernelWriter, op: scf.IfOp, block: Block) -> bool:
    terminator = block.last_op
    return block.first_op is terminator and all(
        writer.values[result] == writer.values.get(value)
        for result, value in zip(op.results, terminator.operands if terminator else (), strict=True)
    )
