"""Lengths of chunks: which are tried, and which take least time, by the cost model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import ceil, inf, prod
from typing import Any, TypeAlias

from xdsl.ir import Block, SSAValue

from treadle.compiler.machines import Machine, machine_of
from treadle.dialects.diagram.array import axes_of
from treadle.passes._functions import erase_dead, stated_sizes
from treadle.passes.products import orders
from treadle.passes.products.chains import Chain
from treadle.passes.products.chunked import InCut
from treadle.passes.products.chunked_decays import DecayChunking
from treadle.passes.products.chunked_prefixes import PrefixChunking
from treadle.passes.products.chunked_products import Chunking
from treadle.passes.products.conditions import Order, order_of
from treadle.passes.products.cuts import Cut, cut_of
from treadle.passes.products.decayed import Decayed
from treadle.passes.products.factors import Products, is_exact
from treadle.passes.products.trial import (
    Sums,
    Trials,
    multiplied_now,
    multiplied_otherwise,
    numbers_of_state,
    sums_from,
)

Orders: TypeAlias = tuple[Order, ...]
"""Of positions, for each of some sums; none where all positions count."""

Lengths: TypeAlias = tuple[int, ...]
"""Of chunks, of the chunks of these, and so on; none where nothing is cut."""

OF_PRODUCTS = (64, 128, 256)
"""Of chunks, that are tried: what tiles of tensor cores have, and what a group may hold. Longer ones are where the
longest so far is the best, and shorter ones where chunks are in chunks themselves."""

PART = 16
"""Positions of a part of a chunk, where pairs of positions have decays along another axis: as many as the least rows
that tensor cores multiply, for which the fewest pairs are left."""

OF_PREFIXES = (32, 64, 128)
"""The same where nothing but a reduction is: a row takes as many steps as its chunk has elements."""

OF_CHUNKS = (32, 64)
"""The same of chunks, where adding them up takes more time than moving them."""

WORTH = 0.9
"""Of the time of the program as it is, what another order may take."""

NO_SLOWER = 1.02
"""Of two times this near to each other none is the longer one."""

LONG = 4096
"""What an axis that is known only at launch has at least, where another order must be no slower."""


def orders_of(sums: Sums) -> Orders | str:
    """The order under which each of some sums goes, none where there is no condition; or why they cannot be written
    otherwise."""
    if (reason := next((reason for each in sums if (reason := each.why_not())), None)) is not None:
        return reason
    found: list[Order] = []
    for each in sums if any(each.conditions for each in sums) else ():
        order = order_of(each)
        if isinstance(order, str):
            return order
        found.append(order)
    return tuple(found)


def rewrite(found: Orders, parts: int, lengths: Lengths, block: Block, sums: Sums) -> None:
    """Write sums in another order, or in chunks of a length, their states in chunks of the next, and so on."""
    if not lengths:
        for each in sums:
            assert isinstance(each, Chain)
            orders.reorder(each, parts)
        return erase_dead(block)
    length, *rest = lengths
    for order in dict.fromkeys(found):
        taken = {axis for op in block.ops for value in (*op.operands, *op.results) for axis in axes_of(value.type)}
        own = [each for each, its in zip(sums, found, strict=True) if its == order]
        before = _cut(cut_of(order, own[0], length, taken), parts, block, own)
        for counted in before if rest else ():
            if (states := sums_from(counted.owner)) and not isinstance(its := orders_of(states), str):
                rewrite(its, parts, tuple(rest), block, states)
    erase_dead(block)


def _cut(cut: Cut, parts: int, block: Block, own: Sequence[Products]) -> list[SSAValue]:
    """Write sums in chunks; what counts of the states of these, for each of them."""
    outers = [each.outer for each in own]
    chunking = _chunking(cut, parts, own[0])
    for each in own:
        chunking.sum(each)
    chunking.finish(block, outers)
    return chunking.before


def _chunking(cut: Cut, parts: int, first: Products) -> InCut[Any]:
    """What writes sums of one kind, all of which share what they start from."""
    if isinstance(first, Decayed):
        return DecayChunking(cut, parts, PART)
    return Chunking(cut, parts) if isinstance(first, Chain) else PrefixChunking(cut, parts)


def by_estimate(trials: Trials, found: Orders, given: Lengths, parts: int, asked: bool) -> tuple[Lengths, str] | str:
    """How long chunks are, and why; or why the program stays as it is."""
    lengths = [()] if not found else [given] if given else [(each,) for each in _tried(trials)]
    if asked and len(lengths) == 1:
        return lengths[0], ""
    stated = stated_sizes(trials.function)
    if unknown := [axis for axis in trials.symbolic() if axis not in stated]:
        return (lengths[0], "") if asked else f"no likely size of '{unknown[0]}' is stated"
    sizes = {axis: stated[axis] for axis in trials.symbolic()}
    if not asked and (reason := _why_no_less(trials, found, sizes)) is not None:
        return reason
    best, chosen = _fastest(trials, found, parts, lengths, sizes)
    said = f"estimated {_in_us(best)}"
    if asked:
        return chosen, said
    whole = trials.time(sizes)
    compared = f"{said}{in_chunks(chosen)}, {_in_us(whole)} as it is{_at(sizes)}"
    if best > WORTH * whole:
        return f"another order must save a tenth; {compared}"
    longer = {axis: max(size, LONG) for axis, size in sizes.items()}
    if longer != sizes and trials.time(longer, partial(rewrite, found, parts, chosen)) > NO_SLOWER * trials.time(
        longer
    ):
        return f"it must be no slower where axes are long; {compared}"
    return chosen, compared


def _tried(trials: Trials) -> Sequence[int]:
    return OF_PRODUCTS if isinstance(trials.chains[0], Chain | Decayed) else OF_PREFIXES


def _fastest(
    trials: Trials, found: Orders, parts: int, lengths: Sequence[Lengths], sizes: Mapping[str, int]
) -> tuple[float, Lengths]:
    """The best lengths of chunks, and the time that they take."""
    timed = {each: trials.time(sizes, partial(rewrite, found, parts, each)) for each in lengths}
    best = min(timed, key=lambda each: timed[each])
    if not found or len(lengths) == 1:
        return timed[best], best
    while best == max(timed):
        longer = (2 * best[0],)
        timed[longer] = trials.time(sizes, partial(rewrite, found, parts, longer))
        best = min(timed, key=lambda each: timed[each])
    return _deeper(trials, found, parts, timed, sizes)


def _deeper(
    trials: Trials, found: Orders, parts: int, timed: dict[Lengths, float], sizes: Mapping[str, int]
) -> tuple[float, Lengths]:
    """The same where chunks are in chunks themselves, as long as that takes less time."""
    best = min(timed, key=lambda each: timed[each])
    if not _takes_long(trials, found, best, sizes):
        return timed[best], best
    *first, last = best
    tried = [(*first, length, deeper) for length in (last, last // 2, last // 4) for deeper in OF_CHUNKS]
    timed |= {each: trials.time(sizes, partial(rewrite, found, parts, each)) for each in tried}
    deeper = min(timed, key=lambda each: timed[each])
    return (timed[best], best) if deeper == best else _deeper(trials, found, parts, timed, sizes)


def _takes_long(trials: Trials, found: Orders, lengths: Lengths, sizes: Mapping[str, int]) -> bool:
    """Whether adding up the states of the last chunks takes longer than reading them once more, and than a launch."""
    machine, known = machine_of(trials.module), {**trials.part.sizes, **sizes}
    numbers, added = 0, 0.0
    for each, order in zip(trials.chains, found, strict=True):
        count = ceil(known[order.summed] / prod(lengths))
        of_all = count * numbers_of_state(each, sizes)
        numbers, added = numbers + of_all, added + 2 * count * of_all / _flops(machine, each)
    return added > max(machine.launch, 4 * numbers / machine.levels["device"].bandwidth)


def _flops(machine: Machine, each: Products) -> float:
    return _float_flops(machine) if is_exact(each) else machine.tensor_flops("tf32")


def _float_flops(machine: Machine) -> float:
    return 2 * machine.rates.float * machine.sms * machine.clock


def _why_no_less(trials: Trials, found: Orders, sizes: Mapping[str, int]) -> str | None:
    """Why another order can save nothing, as far as counting tells."""
    machine, now = machine_of(trials.module), multiplied_now(trials.chains, sizes)
    chains = [each for each in trials.chains if isinstance(each, Chain)]
    if not found and multiplied_otherwise(chains, sizes) >= now:
        return "another order takes no fewer multiplications"
    flops = _float_flops(machine) if isinstance(trials.chains[0], Decayed) else machine.tensor_flops("f16")
    if 2 * now / flops <= machine.launch:
        return f"its products take less time than a launch{_at(sizes)}"
    return None


def in_chunks(lengths: Lengths) -> str:
    """` in chunks of 256`, and ` in chunks of 256, these in chunks of 32`."""
    return ", these".join(f" in chunks of {length}" for length in lengths)


def _in_us(time: float) -> str:
    return f"{time:.3g} us" if time < inf else "no kernels that fit"


def _at(sizes: Mapping[str, int]) -> str:
    return f" at {', '.join(f'{axis} = {size}' for axis, size in sizes.items())}" if sizes else ""


__all__ = ["Lengths", "Orders", "by_estimate", "in_chunks", "orders_of", "rewrite"]
