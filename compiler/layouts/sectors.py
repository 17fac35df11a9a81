"""Device memory: how many sectors and lines the requests of an access touch, and the fewest possible.

A warp's request moves whole sectors of 32 bytes, four of which make a line of 128. The sectors of a request are those
that its lanes' bytes lie in; the fewest possible for an access is the number of distinct sectors of all its bytes:
reached if and only if no sector is asked for twice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from treadle.compiler.layouts.accesses import Access

SECTOR_BYTES = 32
LINE_BYTES = 128


@dataclass(frozen=True)
class Traffic:
    """Of one access, over all its requests: bytes asked for by lanes, sectors and lines that the requests touch, and
    the distinct ones, which are the fewest possible."""

    requests: int
    bytes: int
    sectors: int
    fewest_sectors: int
    lines: int
    fewest_lines: int

    @property
    def sectors_per_request(self) -> float:
        return self.sectors / max(self.requests, 1)

    @property
    def fewest_per_request(self) -> float:
        """Sectors a request, were each sector asked for by one request only."""
        return self.fewest_sectors / max(self.requests, 1)

    @property
    def is_fewest(self) -> bool:
        return self.sectors == self.fewest_sectors

    @property
    def has_whole_lines(self) -> bool:
        """Whether every line is asked for once, and all of it."""
        return self.lines == self.fewest_lines and self.bytes == LINE_BYTES * self.fewest_lines

    def __add__(self, other: Traffic) -> Traffic:
        """Both, one after the other; sectors that both ask for count twice among the fewest."""
        return Traffic(
            self.requests + other.requests,
            self.bytes + other.bytes,
            self.sectors + other.sectors,
            self.fewest_sectors + other.fewest_sectors,
            self.lines + other.lines,
            self.fewest_lines + other.fewest_lines,
        )


def traffic(
    access: Access,
    strides: Mapping[str, int],
    element_bytes: int,
    base: int = 0,
    limits: Mapping[str, int] | None = None,
) -> Traffic:
    """The traffic of an access to an array with these strides, in elements; `base` is the byte address of the tile's
    first element, modulo 128 if you like, and elements at or past `limits` along an axis are not accessed."""
    steps = {axis: stride * element_bytes for axis, stride in strides.items()}
    return traffic_of_requests(_active(access, steps, limits or {}), access.width * element_bytes, base)


def traffic_of_requests(requests: Iterable[tuple[int, ...]], bytes: int, base: int = 0) -> Traffic:
    """The traffic of requests, given as the byte offset of each active lane's vector of so many bytes."""
    count = sectors = lines = moved = 0
    every: set[int] = set()
    for addresses in requests:
        if not addresses:
            continue
        touched = _sectors(addresses, base, bytes)
        every |= touched
        count += 1
        sectors += len(touched)
        lines += len({sector * SECTOR_BYTES // LINE_BYTES for sector in touched})
        moved += len(addresses) * bytes
    distinct_lines = {sector * SECTOR_BYTES // LINE_BYTES for sector in every}
    return Traffic(count, moved, sectors, len(every), lines, len(distinct_lines))


def _sectors(addresses: tuple[int, ...], base: int, bytes: int) -> set[int]:
    """The sectors of a request. A vector of at most 32 bytes that is aligned lies in one; any lies between its ends."""
    first = {(address + base) // SECTOR_BYTES for address in addresses}
    last = {(address + base + bytes - 1) // SECTOR_BYTES for address in addresses}
    return first | last


def _active(access: Access, steps: Mapping[str, int], limits: Mapping[str, int]) -> Iterator[tuple[int, ...]]:
    """Byte offsets of each request's active lanes."""
    bound = [axis for axis, limit in limits.items() if access.places.extent(axis) > limit]
    if not bound:
        yield from access.requests(steps)
        return
    for addresses, places in zip(access.requests(steps), access.coordinates(bound), strict=True):
        yield tuple(
            address
            for address, place in zip(addresses, places, strict=True)
            if all(position < limits[axis] for axis, position in zip(bound, place, strict=True))
        )


def dense_strides(axes: tuple[str, ...], sizes: Mapping[str, int]) -> dict[str, int]:
    """Strides, in elements, of a row-major array."""
    strides: dict[str, int] = {}
    step = 1
    for axis in reversed(axes):
        strides[axis] = step
        step *= sizes[axis]
    return strides
