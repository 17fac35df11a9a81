"""Exchange elements between the lanes of a warp in as few shuffles as possible.

In one round every lane shows one of its registers and reads what one other lane shows (`shfl.sync.idx`, PTX ISA
9.7.9.6). What lane m must send to lane l is an edge from m to l; a round is a set of edges no two of which end, or
begin with different registers, in the same lane. Where nothing is copied this is a colouring of a bipartite graph, and
as many rounds as the busiest lane has edges suffice (König); they are found by flipping alternating paths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from treadle.compiler.layouts.maps import Map
from treadle.dialects.cuda.layout import LANES


@dataclass(frozen=True)
class Edge:
    """Register `sends` of lane `source` becomes register `takes` of lane `target`."""

    source: int
    sends: int
    target: int
    takes: int


@dataclass(frozen=True)
class Round:
    """One shuffle: what each lane does; a lane that takes nothing reads itself."""

    edges: tuple[Edge, ...]

    @property
    def sent(self) -> tuple[int, ...]:
        """The registers that some lane shows: all but one of them cost a select."""
        return tuple(sorted({edge.sends for edge in self.edges}))

    @property
    def taken(self) -> tuple[int, ...]:
        """The registers into which some lane takes: all of them cost a select if other lanes take elsewhere."""
        return tuple(sorted({edge.takes for edge in self.edges}))

    @property
    def selects(self) -> int:
        """Selects around the shuffle: of what is shown, and of where it goes."""
        places = len(self.taken)
        partial = len({edge.target for edge in self.edges}) < LANES
        return len(self.sent) - 1 + (places if places > 1 or partial else 0)


@dataclass(frozen=True)
class Exchange:
    """The rounds, and what stays in its lane (moves between registers of one lane, which may differ by lane)."""

    registers: int
    rounds: tuple[Round, ...]
    stays: tuple[Edge, ...]

    @property
    def moved(self) -> int:
        """The most elements that one lane takes."""
        taken = [0] * LANES
        for round in self.rounds:
            for edge in round.edges:
                taken[edge.target] += 1
        return max(taken)

    @property
    def selects(self) -> int:
        """Selects of all rounds, and of the elements that stay: a register that takes from n different registers, in
        different lanes, costs n - 1."""
        sources: dict[int, set[int]] = {}
        for edge in self.stays:
            sources.setdefault(edge.takes, set()).add(edge.sends)
        return sum(round.selects for round in self.rounds) + sum(len(each) - 1 for each in sources.values())

    def run(self, values: Any) -> list[list[Any]]:
        """`values[lane][register]` before gives the same after."""
        after: list[list[Any]] = [[None] * self.registers for _ in range(LANES)]
        for edges in (self.stays, *(round.edges for round in self.rounds)):
            for edge in edges:
                after[edge.target][edge.takes] = values[edge.source][edge.sends]
        return after


@dataclass
class _Colours:
    """Rounds under construction: in round c, lane l sends `sends[c][l]` and takes the edge `takes[c][l]`."""

    sends: list[dict[int, list[Edge]]] = field(default_factory=list[dict[int, list[Edge]]])
    takes: list[dict[int, Edge]] = field(default_factory=list[dict[int, Edge]])

    def add_round(self) -> int:
        self.sends.append({})
        self.takes.append({})
        return len(self.takes) - 1

    def can_send(self, colour: int, edge: Edge) -> bool:
        return all(other.sends == edge.sends for other in self.sends[colour].get(edge.source, ()))

    def put(self, colour: int, edge: Edge) -> None:
        self.sends[colour].setdefault(edge.source, []).append(edge)
        self.takes[colour][edge.target] = edge

    def remove(self, colour: int, edge: Edge) -> None:
        self.sends[colour][edge.source].remove(edge)
        if not self.sends[colour][edge.source]:
            del self.sends[colour][edge.source]
        del self.takes[colour][edge.target]


def plan_exchange(source: Map, target: Map) -> Exchange:
    """The rounds that bring every element from where `source` holds it to where `target` wants it, both maps of
    registers and lanes of one warp (the first). Among copies the own lane's is taken, else they take turns."""
    stays, edges = _edges(source, target)
    colours = _Colours()
    for edge in edges:
        _colour(colours, edge, _fewest(edges))
    rounds = tuple(Round(tuple(takes[lane] for lane in sorted(takes))) for takes in colours.takes)
    return Exchange(target.size("register"), rounds, tuple(stays))


def _edges(source: Map, target: Map) -> tuple[list[Edge], list[Edge]]:
    holders: dict[tuple[tuple[str, int], ...], list[tuple[int, int]]] = {}
    for lane in range(LANES):
        for register in range(source.size("register")):
            holders.setdefault(_key(source, register, lane), []).append((lane, register))
    stays: list[Edge] = []
    moves: list[Edge] = []
    for register in range(target.size("register")):
        for lane in range(LANES):
            found = holders[_key(target, register, lane)]
            own = next((holder for holder in found if holder[0] == lane), None)
            held = own or found[lane * len(found) // LANES]
            edge = Edge(held[0], held[1], lane, register)
            (stays if own else moves).append(edge)
    return stays, moves


def _key(map: Map, register: int, lane: int) -> tuple[tuple[str, int], ...]:
    found = map(register=register, lane=lane)
    return tuple(sorted((axis, position) for axis, position in found.items() if position))


def _fewest(edges: Sequence[Edge]) -> int:
    """Rounds that the busiest lane needs."""
    takes = [0] * LANES
    sends: list[set[int]] = [set() for _ in range(LANES)]
    for edge in edges:
        takes[edge.target] += 1
        sends[edge.source].add(edge.sends)
    return max(*takes, *(len(each) for each in sends))


def _colour(colours: _Colours, edge: Edge, fewest: int) -> None:
    """Put an edge into the first round that can take it; where none can, and there are as many as should suffice, make
    room by swapping two rounds along an alternating path."""
    free_to_take = [c for c, takes in enumerate(colours.takes) if edge.target not in takes]
    for colour in free_to_take:
        if colours.can_send(colour, edge):
            colours.put(colour, edge)
            return
    if len(colours.takes) >= fewest and free_to_take:
        free_to_send = [c for c, sends in enumerate(colours.sends) if edge.source not in sends]
        if free_to_send and _swap(colours, edge, free_to_take[0], free_to_send[0]):
            colours.put(free_to_take[0], edge)
            return
    colours.put(colours.add_round(), edge)


def _swap(colours: _Colours, edge: Edge, wanted: int, other: int) -> bool:
    """Make `edge.source` free in round `wanted`, by swapping the rounds `wanted` and `other` along the path that begins
    there; False if the path meets a lane that shows one register to several, where this need not work."""
    path: list[tuple[int, Edge]] = []
    lane, colour = edge.source, wanted
    while lane in colours.sends[colour]:
        out = colours.sends[colour][lane]
        if len(out) != 1:
            return False
        path.append((colour, out[0]))
        back = colours.takes[wanted + other - colour].get(out[0].target)
        if back is None:
            break
        if len(colours.sends[wanted + other - colour][back.source]) != 1:
            return False
        path.append((wanted + other - colour, back))
        lane = back.source
    for colour, each in path:
        colours.remove(colour, each)
    for colour, each in path:
        colours.put(wanted + other - colour, each)
    return True
