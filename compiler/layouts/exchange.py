"""Exchange elements between the lanes of a warp in as few shuffles as possible.

In one round every lane shows one of its registers and reads what one other lane shows (`shfl.sync.idx`, PTX ISA
9.7.9.6). What lane m must send to lane l is an edge from m to l; a round is a set of edges no two of which end, or
begin with different registers, in the same lane. Where nothing is copied this is a colouring of a bipartite graph, and
as many rounds as the busiest lane has edges suffice (König); they are found by flipping alternating paths.

Which registers a lane shows, and into which it takes, cost selects where lanes differ. So two plans are compared: an
element that a lane holds already stays there, or every lane takes every element, its own included, in one round for
each register, where nothing need be selected on arrival."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from treadle.compiler.layouts.bits import BitMatrix
from treadle.compiler.layouts.maps import Map
from treadle.dialects.cuda.layout import LANES, Mode

LANE_BITS = LANES.bit_length() - 1


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
    def sources(self) -> dict[int, int]:
        """The lane that each lane reads; those that take nothing are left out."""
        return {edge.target: edge.source for edge in self.edges}

    @property
    def sent(self) -> tuple[int, ...]:
        """The registers that some lane shows: all but one of them cost a select."""
        return tuple(sorted({edge.sends for edge in self.edges}))

    @property
    def taken(self) -> tuple[int, ...]:
        """The registers into which some lane takes: each costs a select if other lanes hold something there."""
        return tuple(sorted({edge.takes for edge in self.edges}))


@dataclass(frozen=True)
class Exchange:
    """The rounds, and what stays in its lane (moves between registers of one lane, which may differ by lane).

    What moves together are `width` elements in registers that follow each other; the registers of edges count in
    these."""

    registers: int
    """Of the target, in elements."""
    rounds: tuple[Round, ...]
    stays: tuple[Edge, ...]
    width: int = 1

    @property
    def moved(self) -> int:
        """The most elements that one lane takes."""
        taken = [0] * LANES
        for round in self.rounds:
            for edge in round.edges:
                taken[edge.target] += 1
        return max(taken) * self.width

    @property
    def selects(self) -> int:
        """Selects of what lanes show, and of where they put it: a register that is written n times, in different lanes,
        costs n - 1."""
        moves = {(edge.takes, edge.sends) for edge in self.stays}
        shown = sum(len(round.sent) - 1 for round in self.rounds)
        return shown + len(moves) + sum(len(round.taken) for round in self.rounds) - len(self._written)

    @property
    def _written(self) -> set[int]:
        """The registers of the target: the first write of each is made by all lanes, and the others mend it."""
        return {edge.takes for edges in (self.stays, *(each.edges for each in self.rounds)) for edge in edges}

    @property
    def tables(self) -> int:
        """Different lists of lanes to read that no matrix gives."""
        asked = {tuple(sorted(round.sources.items())): round.sources for round in self.rounds}
        return sum(lane_matrix(sources) is None for sources in asked.values())

    def run(self, values: Any) -> list[list[Any]]:
        """`values[lane][register]` before gives the same after."""
        after: list[list[Any]] = [[None] * self.registers for _ in range(LANES)]
        for edges in (self.stays, *(round.edges for round in self.rounds)):
            for edge in edges:
                for i in range(self.width):
                    held = values[edge.source][edge.sends * self.width + i]
                    after[edge.target][edge.takes * self.width + i] = held
        return after


def lane_matrix(sources: Mapping[int, int]) -> tuple[BitMatrix, int] | None:
    """A matrix and a constant by which each lane finds the one it reads, `matrix(lane) ^ constant`, where there are
    such; lanes that read nothing may be given any."""
    known: list[tuple[int, int]] = []
    for target, source in sources.items():
        given, gives = _reduced(target | 1 << LANE_BITS, source, known)
        if given:
            known.append((given, gives))
        elif gives:
            return None
    # What nothing says may be anything: 0.
    columns = tuple(_value(1 << bit, known) for bit in range(LANE_BITS + 1))
    return BitMatrix(columns[:-1]), columns[-1]


def _reduced(given: int, gives: int, known: Sequence[tuple[int, int]]) -> tuple[int, int]:
    for other, value in sorted(known, reverse=True):
        if given ^ other < given:
            given, gives = given ^ other, gives ^ value
    return given, gives


def _value(bits: int, known: Sequence[tuple[int, int]]) -> int:
    return _reduced(bits, 0, known)[1]


def bit_runs(matrix: BitMatrix) -> list[tuple[int, int, int]]:
    """The matrix as runs of bits that are moved together: (from bit, to bit, how many); their results are XORed."""
    runs: list[tuple[int, int, int]] = []
    for i, column in enumerate(matrix.columns):
        for bit in range(LANE_BITS):
            if not column >> bit & 1:
                continue
            longer = next((run for run in runs if (run[0] + run[2], run[1] + run[2]) == (i, bit)), None)
            if longer is None:
                runs.append((i, bit, 1))
            else:
                runs[runs.index(longer)] = (*longer[:2], longer[2] + 1)
    return runs


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


def plan_exchange(source: Map, target: Map, width: int = 1, keeps: bool = True) -> Exchange:
    """The rounds that bring every element from where `source` holds it to where `target` wants it, both maps of
    registers and lanes of one warp (the first), `width` neighbours in registers at a time. Among copies the own lane's
    is taken and stays, unless not `keeps`, else they take turns."""
    one, other = (_of_width(each, width) for each in (source, target))
    stays, edges = _edges(one, other, keeps)
    colours, fewest = _Colours(), _fewest(edges)
    for edge in edges:
        _colour(colours, edge, fewest)
    rounds = tuple(Round(tuple(takes[lane] for lane in sorted(takes))) for takes in colours.takes)
    return Exchange(target.size("register"), rounds, tuple(stays), width)


def _of_width(map: Map, width: int) -> Map:
    """The map of the first of every `width` elements: its fastest register digit goes in steps of so many."""
    if width == 1:
        return map
    *others, last = map.modes("register")
    fewer = (*others, Mode(last.axis, last.size // width, last.stride * width))
    return Map.from_digits({name: fewer if name == "register" else map.modes(name) for name in map.indices})


def _edges(source: Map, target: Map, keeps: bool) -> tuple[list[Edge], list[Edge]]:
    weights = _weights(source, target)
    held_by, wanted_by = (_elements(each, weights) for each in (source, target))
    holders: dict[int, list[tuple[int, int]]] = {}
    for (lane, in_lane), (register, in_register) in product(enumerate(held_by[1]), enumerate(held_by[0])):
        holders.setdefault(in_lane + in_register, []).append((lane, register))
    stays: list[Edge] = []
    moves: list[Edge] = []
    for (register, in_register), (lane, in_lane) in product(enumerate(wanted_by[0]), enumerate(wanted_by[1])):
        found = holders[in_lane + in_register]
        own = next((holder for holder in found if holder[0] == lane), None) if keeps else None
        held = own or found[lane * len(found) // LANES]
        edge = Edge(held[0], held[1], lane, register)
        (stays if own else moves).append(edge)
    return stays, moves


def _weights(*maps: Map) -> dict[str, int]:
    """By which coordinates of all axes make one number, another one for each element."""
    weights, weight = dict[str, int](), 1
    for axis in dict.fromkeys(axis for each in maps for axis in each.axes):
        weights[axis] = weight
        weight *= max(each.extent(axis) for each in maps)
    return weights


def _elements(map: Map, weights: Mapping[str, int]) -> tuple[list[int], list[int]]:
    """For each register and for each lane its part of the number of an element; a map adds up what its indices give."""

    def number(**index: int) -> int:
        return sum(weights[axis] * position for axis, position in map(**index).items())

    registers = [number(register=register) for register in range(map.size("register"))]
    return registers, [number(lane=lane) for lane in range(LANES)]


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
