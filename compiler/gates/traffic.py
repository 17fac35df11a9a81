"""What the operations of printed kernels cost in memory, as the emulator counted it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from treadle.compiler.gates.checks import Gate
from treadle.runtime.emulator import LaunchReport

SECTOR = 32
"""Bytes of device memory that move together."""

WIDEST_REQUEST = 512
"""Bytes that a warp moves at most in one instruction."""

SHARED = ("load_shared", "store_shared", "load_matrix", "store_matrix", "copy_async")
"""Operations that touch shared memory."""

DEVICE = (
    ("loaded from device memory", ("load_global", "copy_async"), "tensor_load"),
    ("stored to device memory", ("store_global",), "tensor_store"),
)
"""What goes to and from device memory: by requests of warps, and by tensor copies."""

BOXES = tuple(kind for _, _, kind in DEVICE)
"""Tensor copies: each asks for every sector of its box once, and no instruction for those of two boxes."""

_KERNEL = re.compile(r"void (?:__launch_bounds__\([\d, ]+\) )?(\w+?)(?:_body)?\($")
_TEXT_SHOWN = 100
_HEAD = f"{'requests':>10}{'bytes':>14}{'sectors':>12}{'a request':>11}{'fewest':>12}{'conflicts':>11}"


@dataclass(frozen=True)
class Traffic:
    """One operation of a printed file, over all launches: what it asked for and what that took."""

    kernel: str
    line: int
    text: str
    """The line of C."""
    kind: str
    requests: int
    bytes: int
    sectors: int
    conflicts: int
    distinct: int
    """Sectors, without those that one execution asks for twice."""

    @property
    def aligned_sectors(self) -> int:
        """Of device memory: no fewer hold so many bytes, however they lie."""
        return -(-self.bytes // SECTOR) if self.sectors else 0

    @property
    def fewest_sectors(self) -> int:
        """Of device memory: no way to share out the elements to threads asks for fewer, as they lie. (Between two
        barriers an operation may well ask for the same elements again, hence the bytes.)"""
        return min(self.sectors, max(self.distinct, self.aligned_sectors))

    @property
    def counts(self) -> bool:
        """Whether it touches memory at all."""
        return bool(self.bytes or self.conflicts)


def traffic_of(text: str, reports: Sequence[LaunchReport]) -> list[Traffic]:
    """The operations of a printed file, in its order; those of several launches are added up."""
    lines = text.splitlines()
    kernels = list(_kernels(lines))
    added: dict[tuple[int, str], list[int]] = {}
    for count in (count for report in reports for count in report.operations):
        numbers = (count.requests, count.bytes, count.sectors, count.conflicts, count.distinct)
        before = added.get((count.line, count.kind), [0] * len(numbers))
        added[count.line, count.kind] = [a + b for a, b in zip(before, numbers, strict=True)]
    return [
        Traffic(kernels[line - 1], line, lines[line - 1].strip(), kind, *numbers)
        for (line, kind), numbers in sorted(added.items())
        if 0 < line <= len(lines)
    ]


def _kernels(lines: Sequence[str]) -> Iterator[str]:
    """For each line, the kernel that it is in."""
    name = ""
    for line in lines:
        if found := _KERNEL.search(line):
            name = found[1]
        yield name


def check_traffic(operations: Sequence[Traffic]) -> list[Gate]:
    """Whether memory is accessed as well as can be; of sectors only where any were counted."""
    gates = [Gate("bank conflicts", sum(each.conflicts for each in operations), "<=", 0)]
    counted = [each for each in operations if each.sectors]
    if counted:
        beyond = sum(each.sectors - each.fewest_sectors for each in counted if each.kind not in BOXES)
        gates.append(Gate("sectors beyond the fewest", beyond, "<=", 0))
    return gates


def traffic_lines(operations: Sequence[Traffic]) -> Iterator[str]:
    """A table for each kernel: lines of C, and under each what its operations cost; then the totals."""
    shown = [each for each in operations if each.counts]
    kernel, line = None, 0
    for each in shown:
        if each.kernel != kernel:
            kernel, line = each.kernel, 0
            yield f"@{kernel}"
            yield f"  {'':18}{_HEAD}"
        if each.line != line:
            line = each.line
            yield f"  {line}: {_shortened(each.text)}"
        yield _row(each)
    if shown:
        yield "together"
        yield from (f"  {line}" for line in _totals(shown))
        yield from (f"  {'   ' if gate.ok else '>> '}{gate}" for gate in check_traffic(shown))
        if any(each.sectors > each.fewest_sectors for each in shown if each.kind not in BOXES):
            yield "     'treadle compile --report' says which accesses ask for them, and why"
        if _copies_meet_banks(shown):
            yield "     copies meet a bank twice where rows fill their tile in part, as at the end of an axis, or begin"
            yield "     inside a sector; of whole tiles 'treadle compile --report' says what no order spares, and why"


def _copies_meet_banks(operations: Sequence[Traffic]) -> bool:
    """Whether there are conflicts on a line that moves something between device and shared memory."""
    device = {kind for _, kinds, _ in DEVICE for kind in kinds}
    lines = {each.line for each in operations if each.kind in device}
    return any(each.conflicts for each in operations if each.line in lines)


def _row(each: Traffic) -> str:
    sectors = f"{each.sectors:12,}{each.sectors / each.requests:11.2f}{each.fewest_sectors:12,}"
    device = sectors if each.sectors else " " * 35
    return f"    {each.kind:16}{each.requests:10,}{each.bytes:14,}{device}{each.conflicts:11,}"


def _totals(operations: Sequence[Traffic]) -> Iterator[str]:
    for what, kinds, copy in DEVICE:
        chosen = [each for each in operations if each.kind in kinds]
        boxes = [each for each in operations if each.kind == copy]
        if chosen or not boxes:
            yield _moved(what, chosen)
            yield _requests(chosen)
        if boxes:
            yield _moved(what, boxes, "the fewest of boxes; of rows that are not cut")
            yield f"  by {sum(each.requests for each in boxes):,} tensor copies"
    shared = [each for each in operations if each.kind in SHARED]
    conflicts = sum(each.conflicts for each in shared)
    yield f"shared memory: {sum(each.requests for each in shared):,} requests, {conflicts:,} bank conflicts"


def _moved(what: str, chosen: Sequence[Traffic], least: str = "the fewest are") -> str:
    sectors, fewest = sum(each.sectors for each in chosen), sum(each.fewest_sectors for each in chosen)
    aligned, moved = sum(each.aligned_sectors for each in chosen), sum(each.bytes for each in chosen)
    more = f"; {aligned:,} full ones would hold so many bytes" if aligned < fewest else ""
    least = "the fewest are" if sectors == fewest else least
    return f"{what}: {moved:,} bytes in {sectors:,} sectors of {SECTOR} bytes; {least} {fewest:,}{more}"


def _requests(chosen: Sequence[Traffic]) -> str:
    """By what requests of warps it moved."""
    requests, moved = sum(each.requests for each in chosen), sum(each.bytes for each in chosen)
    return f"  by {requests:,} requests of a warp; at 16 bytes a thread {-(-moved // WIDEST_REQUEST):,} would do"


def _shortened(text: str) -> str:
    return text if len(text) <= _TEXT_SHOWN else f"{text[: _TEXT_SHOWN - 3]}..."


__all__ = ["SECTOR", "Traffic", "check_traffic", "traffic_lines", "traffic_of"]
