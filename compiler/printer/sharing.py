"""Print a map whose elements share reciprocals: the divisors of some neighbours, their quotients, and what is made of
these."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import gcd, prod

from xdsl.dialects import arith
from xdsl.ir import Operation, SSAValue

from treadle.compiler.printer.indices import Loop, add, subscripts
from treadle.compiler.printer.scalars import ScalarPrinter, bare, float_literal
from treadle.compiler.printer.writer import KernelWriter
from treadle.dialects.cuda.tiles import layout_of
from treadle.dialects.diagram import MapOp
from treadle.dialects.diagram.approximations import constant_of
from treadle.dialects.diagram.sharing import sharing_of, tested_sharing_of

TESTED = 16
"""So many elements are tested together, at most, whether their reciprocals may be shared: between two tests nothing is
reordered, and each takes a branch."""


@dataclass(frozen=True)
class _Group:
    """Registers of a thread that share a reciprocal: of each loop, so many turns."""

    loops: Sequence[Loop]
    counts: Sequence[int]
    each: str
    """The name of their number."""
    firsts: Mapping[str, str]
    """Where a loop is in groups, the name of where one begins, by the name of the loop's variable."""

    @property
    def size(self) -> int:
        return prod(self.counts)

    @property
    def around(self) -> list[Loop | str]:
        """The loops over groups."""
        taken = zip(self.loops, self.counts, strict=True)
        alone = [(loop, count) for loop, count in taken if count < loop.turns or count == 1]
        return [loop if count == 1 else loop.by(count, self.firsts[loop.variable]) for loop, count in alone]

    @property
    def within(self) -> str:
        """The loop over a group."""
        return f"UNROLL for (int {self.each} = 0; {self.each} < {self.size}; ++{self.each})"

    @property
    def places(self) -> str:
        """The statement that gives the loops' variables their values at one of a group."""
        texts: list[str] = []
        below = self.size
        for loop, count in zip(self.loops, self.counts, strict=True):
            if count == 1:
                continue
            digit = f"{self.each} / {below // count}" if below > count else self.each
            digit += f" % {count}" if below < self.size else ""
            below //= count
            first = self.firsts[loop.variable] if count < loop.turns else loop.first
            texts.append(f"{loop.variable} = {add([first, digit])}")
        return f"const int {', '.join(texts)};"


def print_shared(writer: KernelWriter, op: MapOp, shared: Operation, is_kept: bool) -> bool:
    """A map one quotient of which has a reciprocal for several elements; not where a thread has no two of those that
    may share one, nor where no pass wrote out how (`diagram-expand-approximations`)."""
    layout, tested = layout_of(op.result.type), tested_sharing_of(shared)
    if not isinstance(shared, arith.DivfOp) or constant_of(shared.lhs) is None:
        return False
    if tested is None and not isinstance(shared.rhs.owner, arith.MinimumfOp):
        return False
    with writer.names.scope():
        if _group(writer, writer.loops_over(tuple(layout.register)), shared).size == 1:
            return False
    name = writer.over(op.result, op.inputs, op)
    with writer.names.scope():
        group = _group(writer, writer.loops_over(tuple(layout.register)), shared)
        element = f"{name}{subscripts(layout, group.loops)}"
        kept = [f"{writer.call('keep')}({element});"] if is_kept else []
        if tested is None:
            lines = _clipped(writer, op, shared, group, element, kept)
        else:
            lines = _tested(writer, op, shared, group, element, kept, min(tested, group.size))
        writer.text.nest(group.around, list(lines))
    return True


def _clipped(
    writer: KernelWriter, op: MapOp, shared: arith.DivfOp, group: _Group, element: str, kept: Sequence[str]
) -> Iterator[str]:
    """A group whose divisors share a reciprocal, clipped."""
    number = constant_of(shared.lhs)
    assert number is not None
    assert isinstance(shared.rhs.owner, arith.MinimumfOp)
    divisors = writer.names.fresh("divisors")
    own = f"{divisors}[{group.each}]"
    yield f"float {divisors}[{group.size}];  // that share a reciprocal"
    yield from _block(group.within, _statements(writer, op, group, shared.rhs.owner.lhs, {}, own))
    yield f"{writer.call('divide_together')}({float_literal(number)}, {divisors});"
    after = _statements(writer, op, group, op.yielded, {shared.result: own}, element)
    yield from _block(group.within, [*after, *kept])


def _tested(
    writer: KernelWriter,
    op: MapOp,
    shared: arith.DivfOp,
    group: _Group,
    element: str,
    kept: Sequence[str],
    count: int,
) -> Iterator[str]:
    """A group of which so many share a reciprocal each time, or where that is out of range none. Both ways lead to the
    results, and those are kept: otherwise what is made of quotients would sink below all groups, with what it needs."""
    number = constant_of(shared.lhs)
    assert number is not None
    divisors, results = writer.names.fresh("divisors"), writer.names.fresh("made")
    holds, size = writer.names.fresh("holds"), group.size
    divisor, result = f"{divisors}[{group.each}]", f"{results}[{group.each}]"
    own = f"({float_literal(number)} * {writer.call('rcp_approx')}({divisor}))"
    yield f"float {divisors}[{size}], {results}[{size}];  // {count} of which share a reciprocal"
    yield from _block(group.within, _statements(writer, op, group, shared.rhs, {}, divisor))
    divide = writer.call("divide_in_groups")
    yield f"const bool {holds} = {divide}<{count}>({float_literal(number)}, {divisors}, {results});"
    together = _statements(writer, op, group, op.yielded, {shared.result: result}, result)
    yield from _block(group.within, [*together, f"{writer.call('keep')}({result});"])
    yield f"if (!{holds}) {{"
    after = _statements(writer, op, group, op.yielded, {shared.result: own}, result)
    yield from (f"  {line}" for line in _block(group.within, after))
    yield "}"
    yield from _block(group.within, [group.places, f"{element} = {result};", *kept])


def _group(writer: KernelWriter, loops: Sequence[Loop], shared: Operation) -> _Group:
    """As many of the registers that lie next to each other along the axis as may share a reciprocal, if there are; or
    as many as are tested together, the innermost first."""
    axis, left = sharing_of(shared) or (None, TESTED)
    counts = dict.fromkeys(loops, 1)
    inner_first = reversed(loops) if axis is None else sorted(loops, key=lambda loop: loop.mode.stride)
    for loop in inner_first:
        if axis in (None, loop.mode.axis) and not loop.is_given:
            counts[loop] = gcd(loop.turns, left)
            left //= counts[loop]
    stepped = [loop for loop, count in counts.items() if 1 < count < loop.turns]
    firsts = {loop.variable: writer.names.fresh(f"{loop.variable}_first") for loop in stepped}
    return _Group(loops, list(counts.values()), writer.names.fresh("each"), firsts)


def _statements(
    writer: KernelWriter, op: MapOp, group: _Group, value: SSAValue, given: Mapping[SSAValue, str], target: str
) -> list[str]:
    """What makes one value of the body, at one of a group."""
    statements = [group.places]

    def declare(type: str, hint: str | None, text: str) -> str:
        constant = writer.names.fresh(hint)
        statements.append(f"const {type} {constant} = {bare(text)};")
        return constant

    inputs = zip(op.body.block.args, op.inputs, strict=True)
    known: dict[SSAValue, str] = {own: writer.element(operand, group.loops) for own, operand in inputs}
    text = ScalarPrinter(writer.uses, declare).value(value, op.body.block, known | dict(given))
    return [*statements, f"{target} = {bare(text)};"]


def _block(head: str, statements: Sequence[str]) -> list[str]:
    return [f"{head} {{", *(f"  {each}" for each in statements), "}"]
