"""Basic blocks and loops of a function."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from treadle.compiler.sass.listing import Function, Instruction

_ENDS = frozenset({"EXIT", "RET", "BRX", "JMX", "KILL"})


@dataclass(frozen=True)
class Block:
    """Instructions that run together, and the addresses of the blocks that may follow."""

    instructions: tuple[Instruction, ...]
    successors: tuple[int, ...]

    @property
    def address(self) -> int:
        return self.instructions[0].address


@dataclass
class Loop:
    """A natural loop: the blocks from which its header is reached again without leaving."""

    header: int
    blocks: frozenset[int]
    """Addresses of all of its blocks, those of inner loops included."""
    latches: tuple[int, ...]
    """Blocks that branch back to the header."""
    trips: int | None
    """How often it runs, where its counter and bound are constants."""
    inner: list[Loop] = field(default_factory=list["Loop"])

    @property
    def own(self) -> frozenset[int]:
        """Its blocks that no inner loop has."""
        return self.blocks - frozenset(block for loop in self.inner for block in loop.blocks)


def blocks_of(function: Function) -> dict[int, Block]:
    """The basic blocks of a function, by address. A call is taken to return."""
    code = function.instructions
    known = {each.address for each in code}
    starts = {code[0].address} if code else set[int]()
    for i, each in enumerate(code):
        if each.target in known:
            starts.add(each.target)
        if _leaves(each) and i + 1 < len(code):
            starts.add(code[i + 1].address)
    blocks: dict[int, Block] = {}
    at = 0
    while at < len(code):
        end = at + 1
        while end < len(code) and code[end].address not in starts:
            end += 1
        after = code[end].address if end < len(code) else None
        blocks[code[at].address] = Block(code[at:end], _successors(code[end - 1], after, known))
        at = end
    return blocks


def _leaves(instruction: Instruction) -> bool:
    return instruction.target is not None or instruction.name in _ENDS


def _successors(last: Instruction, after: int | None, known: set[int]) -> tuple[int, ...]:
    falls_through = not _leaves(last) or not last.always
    nexts = [last.target if last.target in known else None, after if falls_through else None]
    return tuple(dict.fromkeys(address for address in nexts if address is not None))


def find_loops(blocks: Mapping[int, Block]) -> list[Loop]:
    """The outermost loops, each with those inside it. A branch is one back if its target dominates it."""
    if not blocks:
        return []
    predecessors = _predecessors(blocks)
    dominators = _dominators(blocks, predecessors)
    latches: dict[int, list[int]] = {}
    for address, block in blocks.items():
        for target in block.successors:
            if target in dominators[address]:
                latches.setdefault(target, []).append(address)
    loops = [_loop(blocks, predecessors, header, ends) for header, ends in latches.items()]
    return _nested(loops)


def _predecessors(blocks: Mapping[int, Block]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {address: [] for address in blocks}
    for address, block in blocks.items():
        for target in block.successors:
            found[target].append(address)
    return found


def _dominators(blocks: Mapping[int, Block], predecessors: Mapping[int, Sequence[int]]) -> dict[int, set[int]]:
    """For each block, the blocks that every way to it passes, by iteration to the fixed point."""
    entry = min(blocks)
    everything = set(blocks)
    found = {address: {entry} if address == entry else set(everything) for address in blocks}
    changed = True
    while changed:
        changed = False
        for address in sorted(blocks):
            if address == entry:
                continue
            # A block that nothing reaches is dominated by itself alone.
            new = set(everything) if predecessors[address] else set[int]()
            for each in predecessors[address]:
                new &= found[each]
            new.add(address)
            if new != found[address]:
                found[address], changed = new, True
    return found


def _loop(
    blocks: Mapping[int, Block], predecessors: Mapping[int, Sequence[int]], header: int, latches: Sequence[int]
) -> Loop:
    body = {header}
    waiting = list(latches)
    while waiting:
        address = waiting.pop()
        if address not in body:
            body.add(address)
            waiting += predecessors[address]
    entries = [each for each in predecessors[header] if each not in body]
    trips = _trips(blocks, header, body, latches[0], entries) if len(latches) == 1 else None
    return Loop(header, frozenset(body), tuple(latches), trips)


def _nested(loops: Sequence[Loop]) -> list[Loop]:
    outermost: list[Loop] = []
    for loop in sorted(loops, key=lambda each: len(each.blocks)):
        around = [each for each in loops if each is not loop and loop.blocks < each.blocks]
        parent = min(around, key=lambda each: len(each.blocks), default=None)
        (outermost if parent is None else parent.inner).append(loop)
    for loop in loops:
        loop.inner.sort(key=lambda each: each.header)
    return sorted(outermost, key=lambda each: each.header)


# -- how often a loop runs -----------------------------------------------------------------------------

_INTEGER = re.compile(r"-?(?:0x[0-9a-f]+|\d+)")
_ZERO = ("RZ", "URZ")
_HOLDS: Mapping[str, Callable[[int, int], bool]] = {
    "NE": operator.ne,
    "LT": operator.lt,
    "LE": operator.le,
    "GT": operator.gt,
    "GE": operator.ge,
    "EQ": operator.eq,
}
_MOST_TRIPS = 1 << 16


def _trips(blocks: Mapping[int, Block], header: int, body: set[int], latch: int, entries: Sequence[int]) -> int | None:
    """Turns of a loop that counts in a register from a constant, by a constant, up to a constant."""
    last = blocks[latch].instructions[-1]
    if last.target is None or len(entries) != 1:
        return None
    inside = [each for address in sorted(body) for each in blocks[address].instructions]
    test = _last_writer(blocks[latch].instructions, _test_register(last))
    if test is None or test.name not in ("ISETP", "UISETP") or len(test.operands) < 4:
        return None
    counter, bound = _register(test.operands[2]), _constant(test.operands[3])
    step = _step(inside, counter)
    if step is not None and step[1] not in blocks[latch].instructions:
        return None
    start = _constant_before(blocks, entries[0], counter)
    if bound is None or step is None or start is None:
        return None
    # The branch goes back while the test has this value (or leaves: then the other way round).
    stays = (last.target == header) != last.predicate.startswith("!")
    test_before_step = inside.index(test) < inside.index(step[1])
    return _count(start, step[0], bound, test.modifiers[0], stays, test_before_step)


def _count(start: int, step: int, bound: int, relation: str, stays: bool, test_before_step: bool) -> int | None:
    if relation not in _HOLDS:
        return None
    counter = start
    for turn in range(1, _MOST_TRIPS):
        tested = counter if test_before_step else counter + step
        if _HOLDS[relation](tested, bound) != stays:
            return turn
        counter += step
    return None


def _test_register(branch: Instruction) -> str:
    if branch.predicate:
        return branch.predicate.removeprefix("!")
    return branch.operands[0] if len(branch.operands) > 1 else ""


def _register(operand: str) -> str:
    return operand.removesuffix(".reuse")


def _constant(operand: str) -> int | None:
    if operand in _ZERO:
        return 0
    return int(operand, 0) if _INTEGER.fullmatch(operand) else None


def _writes(instruction: Instruction, register: str) -> bool:
    return register in instruction.operands[: 2 if instruction.name in ("ISETP", "UISETP", "IADD3", "UIADD3") else 1]


def _writer(code: Sequence[Instruction], register: str) -> Instruction | None:
    """The only instruction of these that writes a register."""
    writers = [each for each in code if each.operands and _writes(each, register)]
    return writers[0] if len(writers) == 1 else None


def _last_writer(code: Sequence[Instruction], register: str) -> Instruction | None:
    """What a register holds at the end of a block, if the block says."""
    return next((each for each in reversed(code) if each.operands and _writes(each, register)), None)


def _step(code: Sequence[Instruction], counter: str) -> tuple[int, Instruction] | None:
    """What the only instruction that writes a counter adds to it."""
    writer = _writer(code, counter)
    if writer is None or writer.name not in ("IADD3", "UIADD3", "VIADD", "IADD", "UIADD"):
        return None
    sources = [_register(operand) for operand in writer.operands[1:]]
    if counter not in sources:
        return None
    rest = [_constant(operand) for operand in sources if operand != counter and not re.fullmatch(r"!?U?PT", operand)]
    if any(value is None for value in rest):
        return None
    return sum(value for value in rest if value is not None), writer


def _constant_before(blocks: Mapping[int, Block], entry: int, register: str) -> int | None:
    """The constant that the block before a loop puts into a register."""
    for each in reversed(blocks[entry].instructions):
        if not each.operands or each.operands[0] != register:
            # A 64-bit zero also clears the register after the one it names.
            if each.name == "CS2R" and each.operands[1:] == ("SRZ",) and _next_of(each.operands[0]) == register:
                return 0
            continue
        if each.predicate:
            return None
        if each.name == "CS2R":
            return 0 if each.operands[1:] == ("SRZ",) else None
        if each.opcode == "HFMA2.MMA":
            return 0 if each.operands[1:] == ("-RZ", "RZ", "0", "0") else None
        if each.opcode in ("MOV", "UMOV"):
            return _constant(each.operands[1])
        if each.opcode.startswith("IMAD.MOV") and each.operands[1:3] == ("RZ", "RZ"):
            return _constant(each.operands[3])
        return None
    return None


def _next_of(register: str) -> str:
    return f"R{int(register[1:]) + 1}" if re.fullmatch(r"R\d+", register) else ""
