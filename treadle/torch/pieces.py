# pyright: standard
"""Into which programs a group is cut: those whose predicted times add up to the least.

Everything that can be one program need not be one: its kernels may fit no machine, or be slower than two. A group is
cut before products and reductions, a piece has a few of them at most, and the cost model says which cuts are best. What
becomes no program so is cut wherever that helps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Generic, TypeVar

from torch.fx import Node

from treadle.compiler.counting import counted
from treadle.torch.operations import CONTRACTIONS, PRODUCTS, REDUCTIONS
from treadle.torch.program import ARGUMENTS, is_free, sums_over_several
from treadle.torch.raised import MOVED

T = TypeVar("T")

MOST_PRODUCTS = 3
"""Products in one piece: with more, there is little left to gain, and every piece that is tried costs a compilation."""

MOST_REDUCTIONS = 8
"""Others in one piece: a loop that a graph holds turn by turn, as of rows that are substituted one after another, would
be one piece otherwise, and what fusion tries grows faster than what there is."""

AGAIN = "treadle_made_again"
"""What `meta` says of a node that a backward makes again. The product before and the product after have two gradients
each, which go with it."""

LEFT = 1e9
"""Microseconds charged for a piece that stays with PyTorch: more than any kernel takes."""


@dataclass(frozen=True)
class Piece(Generic[T]):
    """Nodes that go together; what was made of them, or why nothing was."""

    nodes: Sequence[Node]
    made: T | None
    time_us: float
    reason: str = ""
    divisible: bool = True
    """Whether a part of them may become something where the whole does not."""


def best_pieces(nodes: Sequence[Node], attempt: Callable[[Sequence[Node]], Piece[T]]) -> list[Piece[T]]:
    """Cut the nodes, which are in order; `attempt` makes a piece and says what it costs."""
    known: dict[tuple[int, int], Piece[T]] = {}

    def tried(first: int, end: int) -> Piece[T]:
        if (first, end) not in known:
            known[first, end] = attempt(nodes[first:end])
        return known[first, end]

    starts = _starts(nodes)
    ends = [*starts[1:], len(nodes)]
    starts = [start for segment in zip(starts, ends, strict=True) for start in _fitting(nodes, *segment, tried)]
    ends = [*starts[1:], len(nodes)]
    best: list[tuple[float, list[Piece[T]]]] = [(0.0, [])]
    for last, end in enumerate(counted(ends, "places to cut at")):
        found: tuple[float, list[Piece[T]]] = (inf, [])
        for first in range(last, -1, -1):
            inside = nodes[starts[first] : end]
            if first < last and _others(inside) > MOST_REDUCTIONS:
                break
            if first < last and _has_too_many_products(inside):
                if not any(AGAIN in node.meta for node in nodes[: starts[first]]):
                    break
                continue
            piece = tried(starts[first], end)
            total = best[first][0] + piece.time_us
            if total < found[0]:
                found = total, [*best[first][1], piece]
        best.append(found)
    return best[-1][1]


def _has_too_many_products(nodes: Sequence[Node]) -> bool:
    products = [node for node in nodes if node.target in CONTRACTIONS]
    again = sum(AGAIN in node.meta for node in products)
    return len(products) > MOST_PRODUCTS + 2 * again


def _others(nodes: Sequence[Node]) -> int:
    """Reductions that are no products."""
    return sum(node.target in REDUCTIONS and node.target not in CONTRACTIONS for node in nodes)


def _fitting(nodes: Sequence[Node], first: int, end: int, tried: Callable[[int, int], Piece[T]]) -> list[int]:
    """Where pieces begin that each become a program, as far as they can: one that does not is cut, near its middle,
    where the fewest bytes go from one piece to the next."""
    piece = tried(first, end)
    if piece.made is not None or end - first < 2 or not piece.divisible:
        return [first]
    near = (end - first) // 4
    places = range(first + max(near, 1), end - near)
    at = min(places, key=lambda at: (_crossing(nodes[first:end], at - first), abs(2 * at - first - end)))
    return [*_fitting(nodes, first, at, tried), *_fitting(nodes, at, end, tried)]


def _starts(nodes: Sequence[Node]) -> list[int]:
    """Where a piece may begin: before a product, the first reduction after one, or one too many, at the place of the
    elementwise operations before it where the fewest bytes go from one piece to the next, but behind what is rolled,
    which a product would read in several ways; and right before a product that would sum over several axes of what
    they make."""
    starts, last = [0], 0
    after_product = False
    for i, node in enumerate(nodes):
        if node.target not in REDUCTIONS:
            continue
        product = node.target in CONTRACTIONS
        is_full = not product and _others(nodes[starts[-1] : i]) >= MOST_REDUCTIONS
        if last < i and (product or after_product or is_full):
            starts.append(
                min(range(last + 1, i + 1), key=lambda at: (_crossing(nodes, at), nodes[at].target in MOVED, at))
            )
            if node.target in PRODUCTS and starts[-1] < i and sums_over_several(nodes[starts[-1] : i + 1]):
                starts.append(i)
        last, after_product = i, product
    return sorted({*starts} - {len(nodes)})


def _crossing(nodes: Sequence[Node], at: int) -> float:
    """Bytes that are computed before a place and read after it; of what no program reads, without end."""
    after = set(nodes[at:])
    crossing = [node.meta["val"] for node in nodes[:at] if any(_reaches(user, after) for user in node.users)]
    return sum(value.nbytes if value.dtype in ARGUMENTS else inf for value in crossing)


def _reaches(user: Node, after: set[Node]) -> bool:
    return user in after or (is_free(user) and any(_reaches(each, after) for each in user.users))


__all__ = ["AGAIN", "LEFT", "Piece", "best_pieces"]
