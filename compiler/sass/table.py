"""What one turn of a loop issues, as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from treadle.compiler.sass.classes import CLASSES, PRODUCTS, class_of
from treadle.compiler.sass.flow import Block, Loop, blocks_of, find_loops
from treadle.compiler.sass.listing import Function, Instruction

_SHOWN = 5


@dataclass(frozen=True)
class LoopTable:
    """The instructions that a warp issues in one turn of a loop, by opcode.

    Where the loop branches (for arrays that are not aligned, say), this is the way with the most products, then
    the widest accesses to device memory, then the fewest instructions: that of full, aligned tiles. An inner loop
    counts as often as it runs; `unknown` tells of those of which that could not be read, which count once."""

    address: int
    opcodes: Mapping[str, int]
    """Instructions by class and opcode, as in `("float", "FFMA")`, written `float FFMA`."""
    unknown: int = 0
    waits: int = 0
    """Waits for products that were started: of warpgroups, whose products run beside what follows."""
    stretches: int = 0
    """Between two such waits, one turn after the other, how often there are products: 1 where all of a turn start
    before the first wait."""

    @property
    def total(self) -> int:
        return sum(self.opcodes.values())

    @property
    def products(self) -> int:
        return self.count(PRODUCTS)

    @property
    def others(self) -> int:
        """Everything but the products."""
        return self.total - self.products

    def count(self, kind: str) -> int:
        """Instructions of one class."""
        return sum(self.of(kind).values())

    def of(self, kind: str) -> dict[str, int]:
        """Opcodes of one class, the most frequent first."""
        found = {key.removeprefix(f"{kind} "): n for key, n in self.opcodes.items() if key.startswith(f"{kind} ")}
        return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))

    def lines(self, per: float = 0, unit: str = "") -> Iterator[str]:
        """The table as text; with a number of units a turn, what a class costs for each."""
        for kind in CLASSES:
            if not (count := self.count(kind)):
                continue
            share = f"  {count / per:6.2f} a {unit}" if per else ""
            opcodes = [f"{name} {n}" for name, n in self.of(kind).items()]
            more = [f"{len(opcodes) - _SHOWN} more"] if len(opcodes) > _SHOWN else []
            yield f"{kind:13}{count:6}{share}  {', '.join([*opcodes[:_SHOWN], *more])}"
        share = f"  {self.others / per:6.2f} a {unit}" if per else ""
        yield f"{'not products':13}{self.others:6}{share}"
        if self.unknown:
            yield f"{self.unknown} inner loops of unknown length count once"


def table_of(blocks: Mapping[int, Block], loop: Loop) -> LoopTable:
    """One turn of a loop."""
    way = _best_way(blocks, loop)
    first, *others = way.between
    around = [first + others[-1], *others[:-1]] if others else [first]  # a turn goes on as the next one begins
    return LoopTable(loop.header, way.opcodes, way.unknown, len(others), sum(count > 0 for count in around))


def main_loop(function: Function) -> LoopTable | None:
    """The loop that multiplies: of those with products of their own, the one with most; then the shorter. A loop around
    one that multiplies and runs nobody knows how often (over the pieces of a block, say) is none. None if no loop has
    any."""
    blocks = blocks_of(function)
    found = [loop for loop in _walk(find_loops(blocks)) if _products(blocks, loop.own)]
    around = [loop for loop in found for each in _walk(loop.inner) if each in found and each.trips is None]
    tables = [table_of(blocks, loop) for loop in found if loop not in around]
    return max(tables, key=lambda table: (table.products, -table.total), default=None)


def _walk(loops: Sequence[Loop]) -> Iterator[Loop]:
    for loop in loops:
        yield loop
        yield from _walk(loop.inner)


def _products(blocks: Mapping[int, Block], addresses: frozenset[int]) -> int:
    return sum(1 for a in addresses for each in blocks[a].instructions if class_of(each) == PRODUCTS)


# -- the way that full tiles take ----------------------------------------------------------------------


@dataclass(frozen=True)
class _Way:
    """Instructions along one way through a loop."""

    opcodes: Counter[str]
    products: int = 0
    width: int = 0
    """The third powers of the widths of accesses to device memory, so that few wide ones count more than the many
    narrow ones that move as much, even if it is not known how many."""
    unknown: int = 0
    between: tuple[int, ...] = (0,)
    """Products before, between and after waits for products."""

    @property
    def rank(self) -> tuple[int, int, int]:
        return self.products, self.width, -self.opcodes.total()

    def then(self, other: _Way) -> _Way:
        return _Way(
            self.opcodes + other.opcodes,
            self.products + other.products,
            self.width + other.width,
            self.unknown + other.unknown,
            (*self.between[:-1], self.between[-1] + other.between[0], *other.between[1:]),
        )

    def times(self, trips: int | None) -> _Way:
        if trips is None:
            return replace(self, unknown=self.unknown + 1)
        opcodes = Counter({key: n * trips for key, n in self.opcodes.items()})
        again = replace(self, opcodes=opcodes, products=self.products * trips, width=self.width * trips)
        return replace(again, between=(sum(self.between) * trips,)) if len(self.between) == 1 else again


def _best_way(blocks: Mapping[int, Block], loop: Loop) -> _Way:
    """From the header to a branch back, with inner loops as single steps: what is left has no cycle."""
    step_of: dict[int, int] = {address: address for address in loop.own}
    for inner in loop.inner:
        step_of |= dict.fromkeys(inner.blocks, inner.header)
    inner_of = {inner.header: inner for inner in loop.inner}
    found: dict[int, _Way | None] = {}

    def cost(step: int) -> _Way:
        inner = inner_of.get(step)
        return _way(blocks[step].instructions) if inner is None else _best_way(blocks, inner).times(inner.trips)

    def nexts(step: int) -> set[int]:
        inner = inner_of.get(step)
        leaving = blocks[step].successors if inner is None else _exits(blocks, inner)
        return {step_of[target] for target in leaving if target in step_of and target != loop.header}

    def best(step: int) -> _Way | None:
        """The best way from a step to the end of the turn; None if there is none."""
        if step not in found:
            ends = any(step_of[latch] == step for latch in loop.latches)
            after = [way for target in nexts(step) if (way := best(target)) is not None]
            after += [_Way(Counter())] if ends else []
            found[step] = cost(step).then(max(after, key=lambda way: way.rank)) if after else None
        return found[step]

    return best(step_of[loop.header]) or _Way(Counter())


def _exits(blocks: Mapping[int, Block], loop: Loop) -> set[int]:
    return {target for address in loop.blocks for target in blocks[address].successors} - loop.blocks


def _way(code: Sequence[Instruction]) -> _Way:
    opcodes = Counter(f"{class_of(each)} {each.name}" for each in code)
    between = [0]
    for each in code:
        if each.name == "WARPGROUP" and "DEPBAR" in each.modifiers:
            between.append(0)
        between[-1] += class_of(each) == PRODUCTS
    return _Way(opcodes, sum(between), sum(_global_bytes(each) ** 3 for each in code), between=tuple(between))


def _global_bytes(instruction: Instruction) -> int:
    """Bytes that a thread moves from or to device memory."""
    if class_of(instruction) not in ("global", "async copies"):
        return 0
    widths = {"128": 16, "64": 8, "U16": 2, "S16": 2, "U8": 1, "S8": 1}
    return next((widths[each] for each in instruction.modifiers if each in widths), 4)
