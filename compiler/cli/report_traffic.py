"""`treadle run --report`: what each operation of the printed kernels cost in memory."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from treadle.compiler.gates.traffic import traffic_lines, traffic_of
from treadle.runtime.emulator import LaunchReport

_NARROW = re.compile(r"(?P<kernel>\w+?)_(?:aligned_(?P<bytes>\d+)|strided)")


def memory_lines(
    text: str | None, reports: Sequence[LaunchReport] | None, launched: Sequence[str] = ()
) -> Iterator[str]:
    """The table of operations, and which kernels ran in a variant for arrays that are less aligned than could be; only
    the emulator counts them, and only with its checks. Of a GPU, what was launched."""
    if text is None or reports is None:
        yield "memory: not known; the emulator counts it ('--backend emulator')"
        yield from (f"  launched @{name}" for name in dict.fromkeys(launched))
        return
    lines = list(traffic_lines(traffic_of(text, reports)))
    if not lines:
        yield "memory: not known; without checks nothing is counted"
        return
    yield "memory, by line of the printed file ('treadle compile' prints it), as the emulator counted it"
    yield from (f"  {line}" for line in lines)
    for name in dict.fromkeys(launched):
        if narrow := _NARROW.fullmatch(name):
            what = "rows do not begin with sectors, or less is moved at a time"
            yield f"  @{narrow['kernel']} ran as @{name}: {_why(narrow['bytes'])}, so that {what}"


def _why(bytes: str | None) -> str:
    if bytes is None:
        return "an array has gaps between the elements of its rows, or rows that divide by no vector"
    return f"addresses, strides and rows of its arrays divide by {bytes} bytes only"
