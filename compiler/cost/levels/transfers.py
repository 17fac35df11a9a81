"""H: the transfer cost of each level, in values and bytes, as a number and as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from treadle.compiler.cost.kernel.plan import Plan, Transfer

LEVELS = ("device", "shared", "register")

Term: TypeAlias = tuple[int, tuple[str, ...]]
"""A coefficient and the factors behind it."""


def transfers_at(plan: Plan, level: str) -> tuple[Transfer, ...]:
    """The transfers into and out of a level; each has device memory at its far end."""
    return tuple(transfer for transfer in plan.transfers if level in ("device", transfer.level))


def transfer_values(plan: Plan, level: str, sizes: Mapping[str, int]) -> int:
    return sum(transfer.values(sizes) for transfer in transfers_at(plan, level))


def transfer_bytes(plan: Plan, level: str, sizes: Mapping[str, int]) -> int:
    return sum(transfer.values(sizes) * transfer.width for transfer in transfers_at(plan, level))


def transfer_expression(plan: Plan, level: str) -> str:
    """H in values, as `b*h*(2*q*d + 2*x*d*ceil(q/64))`. `visited(ceil(x/128), ceil(q/64))` is how many positions of x
    the visited pieces hold, added up over the pieces of q; `at most` says that conditions may leave out more."""
    transfers = transfers_at(plan, level)
    bound = "at most " if any(each.is_at_most for each in transfers) else ""
    return bound + sum_text((1, transfer.factors) for transfer in transfers)


def sum_text(terms: Iterable[Term]) -> str:
    """A sum of products, with equal terms collected and common factors in front."""
    collected: dict[tuple[str, ...], int] = {}
    spelled: dict[tuple[str, ...], tuple[str, ...]] = {}
    for coefficient, factors in terms:
        key = tuple(sorted(factors))
        collected[key] = collected.get(key, 0) + coefficient
        spelled.setdefault(key, factors)
    if not collected:
        return "0"
    return _factored([(coefficient, spelled[key]) for key, coefficient in collected.items()])


def _factored(terms: Sequence[Term]) -> str:
    if len(terms) == 1:
        return _product(terms[0])
    shared = _common([factors for _, factors in terms])
    rest = [(coefficient, _without(factors, shared)) for coefficient, factors in terms]
    inner = _sum_by_repeats(rest)
    return "*".join([*shared, f"({inner})"]) if shared else inner


def _sum_by_repeats(terms: Sequence[Term]) -> str:
    """Terms that are repeated alike stand together, so that what is sent again can be seen."""
    parts: dict[tuple[str, ...], list[Term]] = {}
    for term in terms:
        parts.setdefault(tuple(sorted(f for f in term[1] if _is_repeat(f))), []).append(term)
    if len(parts) == 1:
        return " + ".join(_product(term) for term in terms)
    return " + ".join(_factored_last(part) for part in parts.values())


def _factored_last(terms: Sequence[Term]) -> str:
    """As `_factored`, the repeats behind the bracket: `x*(d + e)*ceil(q/64)`."""
    if len(terms) == 1:
        return _product(terms[0])
    shared = _common([factors for _, factors in terms])
    front = [factor for factor in shared if not _is_repeat(factor)]
    back = [factor for factor in shared if _is_repeat(factor)]
    inner = " + ".join(_product((c, _without(factors, shared))) for c, factors in terms)
    if not shared:
        return inner
    return "*".join([*front, f"({inner})", *back])


def _is_repeat(factor: str) -> bool:
    return "(" in factor


def _product(term: Term) -> str:
    coefficient, factors = term
    ordered = [f for f in factors if not _is_repeat(f)] + [f for f in factors if _is_repeat(f)]
    if not ordered:
        return str(coefficient)
    return "*".join(ordered if coefficient == 1 else [str(coefficient), *ordered])


def _common(products: Sequence[tuple[str, ...]]) -> list[str]:
    counts = Counter(products[0])
    for factors in products[1:]:
        counts &= Counter(factors)
    return [factor for factor in dict.fromkeys(products[0]) for _ in range(counts[factor])]


def _without(factors: tuple[str, ...], removed: Sequence[str]) -> tuple[str, ...]:
    left = Counter(removed)
    kept: list[str] = []
    for factor in factors:
        if left[factor]:
            left[factor] -= 1
        else:
            kept.append(factor)
    return tuple(kept)
