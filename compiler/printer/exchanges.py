"""Print how the lanes of a warp exchange elements: `cuda.exchange`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from itertools import groupby
from math import prod
from operator import attrgetter

from xdsl.ir import SSAValue

from treadle.compiler.errors import Refusal
from treadle.compiler.layouts.conversions import Conversion, by_shuffles, repeated
from treadle.compiler.layouts.digits import LayoutError, Modes
from treadle.compiler.layouts.exchange import LANE_BITS, Edge, Round, bit_runs, lane_matrix
from treadle.compiler.printer.indices import Loop, subscripts
from treadle.compiler.printer.scalars import c_type
from treadle.compiler.printer.writer import KernelWriter
from treadle.dialects import cuda
from treadle.dialects.cuda.layout import LANES, digits_of
from treadle.dialects.cuda.tiles import layout_of
from treadle.dialects.diagram.array import format_of
from treadle.dialects.diagram.formats import FORMAT_BYTES


def print_exchange(writer: KernelWriter, op: cuda.ExchangeOp) -> None:
    """What stays in its lane, then the rounds; in loops over what is repeated."""
    common, part = _parts(op)
    writer.declare(op.result)
    with writer.names.scope(), ExitStack() as stack:
        loops = writer.loops_over(common)
        for loop in loops:
            if not loop.is_given:
                stack.enter_context(writer.text.block(str(loop)))
        _ExchangePrinter(writer, op, part, loops).print()


def repeated_modes(op: cuda.ExchangeOp) -> Modes:
    """The register digits that the loops of an exchange count."""
    return _parts(op)[0]


def _parts(op: cuda.ExchangeOp) -> tuple[Modes, Conversion]:
    """What is repeated, where that costs no more, and the exchange of the rest."""
    bytes, layouts = FORMAT_BYTES[str(format_of(op.value.type))], (layout_of(op.value.type), layout_of(op.result.type))
    try:
        plan = by_shuffles(*layouts, bytes)
        common, source, target = repeated(*layouts, bytes)
        part = by_shuffles(source, target, bytes) if common else plan
    except LayoutError as error:
        raise Refusal(op, f"these layouts have no exchange: {error}") from error
    if prod(mode.size for mode in common) * part.cost.total > plan.cost.total:
        return (), plan
    return common, part


class _ExchangePrinter:
    """Prints one exchange; `written` are the registers that hold something: what is not written yet may be written in
    all lanes, as those that take it elsewhere do so later."""

    def __init__(self, writer: KernelWriter, op: cuda.ExchangeOp, plan: Conversion, loops: Sequence[Loop]):
        assert plan.exchange is not None
        self.writer, self.value, self.result, self.exchange, self.loops = (
            writer,
            op.value,
            op.result,
            plan.exchange,
            loops,
        )
        self.registers = {op.value: tuple(plan.source.register), op.result: tuple(plan.target.register)}
        """The digits of the registers that the loops do not count."""
        width = self.exchange.width
        self.type = c_type(op.value.type) if width == 1 else f"Vec<{c_type(op.value.type)}, {width}>"
        self.written: set[int] = set()
        self.read: dict[str, str] = {}
        """Names of the lanes that are read, by their text."""

    def print(self) -> None:
        for takes, edges in groupby(sorted(self.exchange.stays, key=attrgetter("takes", "sends")), attrgetter("takes")):
            for _, same in groupby(edges, attrgetter("sends")):
                self._keep(takes, list(same))
        for i, round in enumerate(self.exchange.rounds):
            self.writer.text.comment(f"Round {i + 1} of {len(self.exchange.rounds)}.")
            self._round(round)

    def _keep(self, takes: int, edges: Sequence[Edge]) -> None:
        self._put(takes, self._held(edges[0].sends), [edge.target for edge in edges])

    def _round(self, round: Round) -> None:
        text = lane_read(round.sources)
        if text not in self.read:
            self.read[text] = self.writer.constant("other", text)
        shown = self._shown(round)
        shuffled = f"{self.writer.call('shuffle')}({shown}, {self.read[text]})"
        if len(round.taken) > 1:
            came = self._fresh("came")
            self.writer.text.line(f"const {self.type} {came} = {shuffled};")
            shuffled = came
        for takes in round.taken:
            self._put(takes, shuffled, [edge.target for edge in round.edges if edge.takes == takes], one=shuffled)

    def _shown(self, round: Round) -> str:
        """What the lanes show: one register, or by lane one of several."""
        first, *others = round.sent
        if not others:
            return self._held(first)
        name = self._fresh("shown")
        self.writer.text.line(f"{self.type} {name} = {self._held(first)};")
        unread = set(range(LANES)) - {edge.source for edge in round.edges}
        for register in others:
            lanes = {edge.source for edge in round.edges if edge.sends == register}
            self._choose(name, lane_test(lanes, unread), self._held(register))
        return name

    def _put(self, takes: int, text: str, lanes: Collection[int], one: str = "") -> None:
        """Write a register of the result, in these lanes; a shuffle is made by all lanes whoever takes it."""
        place = self._place(self.result, takes)
        everywhere = takes not in self.written or len(set(lanes)) == LANES
        self.written.add(takes)
        if not everywhere and "(" in one:
            came = self._fresh("came")
            self.writer.text.line(f"const {self.type} {came} = {text};")
            text = came
        if self.exchange.width == 1:
            self.writer.text.line(f"{'' if everywhere else f'if ({lane_test(lanes)}) '}{place} = {text};")
            return
        if not everywhere:
            text = f"{self.writer.call('pick')}({lane_test(lanes)}, {text}, {self._held(takes, self.result)})"
        self.writer.text.line(f"{self.writer.call('unpack')}(&{place}, {text});")

    def _choose(self, name: str, test: str, text: str) -> None:
        """Give a variable another value in some lanes: neighbours that travel together by one select."""
        if self.exchange.width == 1:
            self.writer.text.line(f"if ({test}) {name} = {text};")
        else:
            self.writer.text.line(f"{name} = {self.writer.call('pick')}({test}, {text}, {name});")

    def _fresh(self, hint: str) -> str:
        """A name of the scope around: no block of C is opened, and another exchange may stand beside this one."""
        return self.writer.names.fresh(hint, scope=-2)

    def _held(self, register: int, value: SSAValue | None = None) -> str:
        place, width = self._place(value or self.value, register), self.exchange.width
        return (
            self.writer.number(value or self.value, place)
            if width == 1
            else f"{self.writer.call('pack')}<{width}>(&{place})"
        )

    def _place(self, value: SSAValue, register: int) -> str:
        modes = self.registers[value]
        digits = digits_of(register * self.exchange.width, modes)
        own = [Loop(mode, str(digit)) for mode, digit in zip(modes, digits, strict=True)]
        return self.writer.values[value] + subscripts(layout_of(value.type), [*self.loops, *own])


def lane_read(sources: Mapping[int, int]) -> str:
    """The lane that each lane reads, as C: bits of its own number moved, or a table of bits."""
    found = lane_matrix(sources)
    if found is None:
        masks = [sum((source >> bit & 1) << lane for lane, source in sources.items()) for bit in range(LANE_BITS)]
        return " + ".join(f"int(0x{mask:08x}u >> lane & 1) * {1 << bit}" for bit, mask in enumerate(masks) if mask)
    matrix, constant = found
    runs = bit_runs(matrix)
    terms = [_moved(*run) for run in runs] + [str(constant)] * (constant != 0)
    bits = [1 << bit for _, to, count in runs for bit in range(to, to + count)]
    bits += [1 << bit for bit in range(LANE_BITS) if constant >> bit & 1]
    carries = len(set(bits)) != len(bits)
    return (" ^ " if carries else " + ").join(terms) or "0"


def _moved(low: int, to: int, count: int) -> str:
    """`lane / 4 % 2 * 16`: so many bits of the lane, moved."""
    digit = "lane" if low == 0 else f"lane / {1 << low}"
    if low + count < LANE_BITS:
        digit += f" % {1 << count}"
    return digit if to == 0 else f"{digit} * {1 << to}"


def lane_test(lanes: Collection[int], free: Collection[int] = ()) -> str:
    """The test that a lane is one of some, which lanes that are free may pass: that a digit of it has one value, or a
    mask."""
    for low in range(LANE_BITS):
        for count in range(1, LANE_BITS - low + 1):
            digits = {(lane >> low) % (1 << count) for lane in lanes}
            passing = {lane for lane in range(LANES) if (lane >> low) % (1 << count) in digits}
            if len(digits) == 1 and passing - set(free) == set(lanes) - set(free):
                return f"{_moved(low, 0, count)} == {digits.pop()}"
    return f"0x{sum(1 << lane for lane in set(lanes)):08x}u >> lane & 1"
