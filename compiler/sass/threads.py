"""Which threads of a block come to an instruction, as far as that follows from their numbers.

A role is a branch on `threadIdx.x`: whatever is computed of it alone is known for each thread, and a branch on what is
known is followed one way. On all else (data, sizes, barriers) both ways are: so a thread that is left out never comes
there, and one that is named may."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from treadle.compiler.sass.classes import class_of
from treadle.compiler.sass.flow import Block, blocks_of
from treadle.compiler.sass.listing import Function, Instruction

WARP = 32
MOST_THREADS = 1024

Numbers: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_]

_UNKNOWN = np.iinfo(np.int64).min
_REGISTER = re.compile(r"(U?R|U?P)(\d+)")
_RESULT = re.compile(r"U?R(\d+|Z)|U?P(\d+|T)")
_WORDS = 2**32
_PRODUCTS = ("HGMMA", "QGMMA", "IGMMA", "BGMMA", "HMMA", "IMMA", "DMMA")
_WIDEST, _WIDE = ("LDSM",), ("CS2R", "DADD", "DMUL", "DFMA", "LEPC")
"""That write four registers, or two, and do not say so by their modifiers."""
_OF_PREDICATES = ("PLOP3", "UPLOP3", "ISETP", "UISETP")
"""That write two predicates, and nothing else."""
_VOTES = ("VOTE", "VOTEU")
"""Whose last operand is a predicate that they read."""
_FORGET_ALL = ("CALL", "RET", "R2P")
_RELATIONS: Mapping[str, Callable[[Numbers, Numbers], Mask]] = {
    "NE": np.not_equal,
    "EQ": np.equal,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
}


@dataclass
class _State:
    """What is known where a block begins: which threads come there, and numbers in registers, one a thread."""

    here: Mask
    known: dict[str, Numbers] = field(default_factory=dict[str, Numbers])

    def joined(self, other: _State) -> _State:
        """Of threads that come by both ways, only what is the same by both stays known."""
        known: dict[str, Numbers] = {}
        for name in self.known.keys() | other.known.keys():
            mine, its = self._of(name), other._of(name)
            both = np.where(mine == its, mine, _UNKNOWN)
            made = np.where(other.here, np.where(self.here, both, its), mine)
            if (made != _UNKNOWN).any():
                known[name] = made
        return _State(self.here | other.here, known)

    def equals(self, other: _State) -> bool:
        return (
            np.array_equal(self.here, other.here)
            and self.known.keys() == other.known.keys()
            and all(np.array_equal(each, other.known[name]) for name, each in self.known.items())
        )

    def _of(self, name: str) -> Numbers:
        found = self.known.get(name)
        return np.full(self.here.size, _UNKNOWN) if found is None else found


def warps_that_reach(function: Function, names: Collection[str], threads: int = MOST_THREADS) -> tuple[int, ...]:
    """The warps of a block of so many threads, whole warps, of which a thread may come to an instruction with one of
    these opcodes, modifiers aside; all of them where a branch goes to an address that is computed."""
    if not function.count(*names):
        return ()
    if function.count("BRX", "JMX"):
        return tuple(range(threads // WARP))
    reached = np.zeros(threads, bool)
    blocks = blocks_of(function)
    for address, state in _states(blocks, threads).items():
        here = state
        for each in blocks[address].instructions:
            if each.name in names:
                reached |= here.here & (_holds(each.predicate, here) != 0)
            _execute(each, here)
    return tuple(int(warp) for warp in np.flatnonzero(reached.reshape(-1, WARP).any(axis=1)))


def _states(blocks: Mapping[int, Block], threads: int) -> dict[int, _State]:
    """What is known at the beginning of every block that is reached, by iteration to the fixed point."""
    if not blocks:
        return {}
    entry = min(blocks)
    states = {entry: _State(np.ones(threads, bool))}
    waiting = [entry]
    while waiting:
        address = waiting.pop()
        block, state = blocks[address], _copy(states[address])
        for each in block.instructions:
            _execute(each, state)
        for target, mask in _ways(block, state):
            if not (state.here & mask).any():
                continue
            made = _State(state.here & mask, state.known)
            joined = states[target].joined(made) if target in states else _copy(made)
            if target not in states or not joined.equals(states[target]):
                states[target] = joined
                waiting.append(target)
    return states


def _copy(state: _State) -> _State:
    return _State(state.here.copy(), dict(state.known))


def _ways(block: Block, state: _State) -> list[tuple[int, Mask]]:
    """The blocks that may follow, and which threads may go there."""
    last = block.instructions[-1]
    everybody = np.ones(state.here.size, bool)
    holds = _holds(last.predicate, state)
    plain = len(last.operands) < 2 and "U" not in last.modifiers  # no second condition
    if not plain or (last.target is None and last.name != "EXIT"):
        return [(target, everybody) for target in block.successors]
    goes, stays = holds != 0, holds != 1
    return [(target, goes if target == last.target else stays) for target in block.successors]


def _holds(predicate: str, state: _State) -> Numbers:
    """1 or 0 for each thread, or unknown."""
    return _value(predicate or "PT", state)


def _execute(instruction: Instruction, state: _State) -> None:
    """Numbers in registers after it."""
    made = _made(instruction, state)
    for name in _written(instruction, state):
        if name not in made and name not in state.known:
            continue
        unknown = np.full(state.here.size, _UNKNOWN)
        value, before = made.get(name, unknown), state.known.get(name, unknown)
        holds = _holds(instruction.predicate, state)
        unsure = np.where(value == before, value, _UNKNOWN)
        after = np.where(holds == 1, value, np.where(holds == 0, before, unsure))
        if (after != _UNKNOWN).any():
            state.known[name] = after
        else:
            state.known.pop(name, None)


def _written(instruction: Instruction, state: _State) -> Collection[str]:
    """The registers and predicates that may hold another number afterwards: more than it writes, rather than fewer.
    Results stand first: a register and predicates, in either order."""
    if instruction.name in _FORGET_ALL:
        return list(state.known)
    if instruction.name in _PRODUCTS:
        return [name for name in state.known if re.fullmatch(r"R\d+", name)]
    if class_of(instruction) == "branch":
        return []
    results = list(takewhile(_RESULT.fullmatch, instruction.operands))
    registers = [i for i, each in enumerate(results) if "R" in each]
    end = registers[1] if len(registers) > 1 else len(results)
    if instruction.name in _OF_PREDICATES:
        end = 2
    if instruction.name in _VOTES:  # a predicate, or a register and one; then what is voted on
        end = 1 + bool(registers)
    found: list[str] = []
    for kind, number in (each.groups() for each in map(_REGISTER.fullmatch, results[:end]) if each):
        width = _width(instruction) if kind in ("R", "UR") else 1
        found += [f"{kind}{int(number) + step}" for step in range(width)]
    return found


def _width(instruction: Instruction) -> int:
    """Registers that an instruction writes at most, from the one that it names on."""
    if instruction.name in _WIDEST or "128" in instruction.modifiers:
        return 4
    if instruction.name in _WIDE or any("64" in each or each == "WIDE" for each in instruction.modifiers):
        return 2
    return 1


def _value(operand: str, state: _State) -> Numbers:
    size = state.here.size
    operand = operand.removesuffix(".reuse")
    if operand in ("RZ", "URZ", "!PT", "!UPT"):
        return np.zeros(size, np.int64)
    if operand in ("PT", "UPT"):
        return np.ones(size, np.int64)
    if operand.startswith("!"):
        inner = _value(operand[1:], state)
        return np.where(inner == _UNKNOWN, _UNKNOWN, 1 - inner)
    if re.fullmatch(r"-?(0x[0-9a-f]+|\d+)", operand):
        return np.full(size, int(operand, 0))
    found = state.known.get(operand)
    return np.full(size, _UNKNOWN) if found is None else found


def _made(instruction: Instruction, state: _State) -> dict[str, Numbers]:
    """What an instruction leaves in the registers that it names, where that is followed."""
    make = _MADE.get(instruction.name)
    return make(instruction, state) if make else {}


def _thread_number(instruction: Instruction, state: _State) -> dict[str, Numbers]:
    if instruction.operands[1:] != ("SR_TID.X",):
        return {}
    return {instruction.operands[0]: np.arange(state.here.size, dtype=np.int64)}


def _shifted(instruction: Instruction, state: _State) -> dict[str, Numbers]:
    """`SHF.R.U32.HI R2, RZ, 0x7, R13`: R13 >> 7."""
    if instruction.modifiers != ("R", "U32", "HI") or instruction.operands[1] not in ("RZ", "URZ"):
        return {}
    by, of = (_value(each, state) for each in instruction.operands[2:4])
    unknown = (by == _UNKNOWN) | (of == _UNKNOWN)
    return {instruction.operands[0]: np.where(unknown, _UNKNOWN, np.where(unknown, 0, of) >> np.clip(by, 0, 32))}


def _of_first_lane(instruction: Instruction, state: _State) -> dict[str, Numbers]:
    """`SHFL.IDX PT, R2, R3, RZ, 0x1f`: what lane 0 has in R3."""
    operands = instruction.operands
    if instruction.modifiers != ("IDX",) or operands[3:] != ("RZ", "0x1f"):
        return {}
    return {operands[1]: np.repeat(_value(operands[2], state).reshape(-1, WARP)[:, 0], WARP)}


def _moved(instruction: Instruction, state: _State) -> dict[str, Numbers]:
    if len(instruction.operands) != 2:
        return {}
    return {instruction.operands[0]: _value(instruction.operands[1], state)}


def _multiplied(instruction: Instruction, state: _State) -> dict[str, Numbers]:
    """`IMAD.MOV.U32 R2, RZ, RZ, R3` moves."""
    operands = instruction.operands
    if instruction.modifiers not in (("MOV", "U32"), ("U32",)) or operands[1:3] != ("RZ", "RZ"):
        return {}
    return {operands[0]: _value(operands[3], state)}


def _added(instruction: Instruction, state: _State) -> dict[str, Numbers]:
    """Two numbers, or three; with a carry, or a minus before a register, nothing is known."""
    first, *others = instruction.operands
    sources = [each for each in others if not re.fullmatch(r"!?U?PT", each)]
    if instruction.modifiers or any(re.fullmatch(r"!?U?P\d+", each) for each in sources):
        return {}
    values = [_value(each, state) for each in sources]
    unknown = np.any([each == _UNKNOWN for each in values], axis=0)
    total = np.sum([np.where(unknown, 0, each) for each in values], axis=0)
    wrapped = (total + _WORDS // 2) % _WORDS - _WORDS // 2
    return {first: np.where(unknown, _UNKNOWN, wrapped)}


def _compared(instruction: Instruction, state: _State) -> dict[str, Numbers]:
    """`ISETP.NE.AND P0, PT, R13, RZ, PT`."""
    relation, *modifiers = instruction.modifiers
    operands = instruction.operands
    if modifiers not in (["AND"], ["U32", "AND"]) or len(operands) != 5 or relation not in _RELATIONS:
        return {}
    left, right, also = (_value(each, state) for each in operands[2:])
    if modifiers[0] == "U32":
        left, right = (
            np.where(each < 0, np.where(each == _UNKNOWN, each, each + _WORDS), each) for each in (left, right)
        )
    unknown = (left == _UNKNOWN) | (right == _UNKNOWN) | (also == _UNKNOWN)
    holds = _RELATIONS[relation](left, right)
    return {operands[0]: np.where(also == 0, 0, np.where(unknown, _UNKNOWN, holds))}


def _of_predicates(instruction: Instruction, state: _State) -> dict[str, Numbers]:
    """`PLOP3.LUT P0, PT, P1, P2, P3, 0x80, 0x0`: the bit of the table that three predicates number."""
    operands = instruction.operands
    if instruction.modifiers != ("LUT",) or len(operands) != 7:
        return {}
    inputs = [_value(each, state) for each in operands[2:5]]
    unknown = np.any([each == _UNKNOWN for each in inputs], axis=0)
    place = np.sum([np.where(unknown, 0, each) << bit for each, bit in zip(inputs, (2, 1, 0), strict=True)], axis=0)
    return {operands[0]: np.where(unknown, _UNKNOWN, int(operands[5], 0) >> place & 1)}


def _voted(instruction: Instruction, state: _State) -> dict[str, Numbers]:
    """`VOTEU.ALL UP0, P1`: whether P1 holds in all lanes of the warp, which all are here."""
    if instruction.modifiers != ("ALL",) or len(instruction.operands) != 2:
        return {}
    lanes = _value(instruction.operands[1], state).reshape(-1, WARP)
    every = np.where((lanes == 0).any(axis=1), 0, np.where((lanes == _UNKNOWN).any(axis=1), _UNKNOWN, 1))
    return {instruction.operands[0]: np.repeat(every, WARP)}


_MADE: Mapping[str, Callable[[Instruction, _State], dict[str, Numbers]]] = {
    "S2R": _thread_number,
    "SHF": _shifted,
    "USHF": _shifted,
    "SHFL": _of_first_lane,
    "R2UR": _moved,
    "MOV": _moved,
    "UMOV": _moved,
    "IMAD": _multiplied,
    "IADD3": _added,
    "UIADD3": _added,
    "VIADD": _added,
    "ISETP": _compared,
    "UISETP": _compared,
    "PLOP3": _of_predicates,
    "UPLOP3": _of_predicates,
    "VOTEU": _voted,
}
"""Instructions that are followed: each names all that it writes, a register and up to two predicates."""
