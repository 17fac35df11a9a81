"""Runs compute-sanitizer's initcheck, and counts what it tells of kernels alone.

    python benchmarks/initcheck.py compute-sanitizer COMMAND...

initcheck does not see what bulk tensor copies store, and so takes results for uninitialised when they are copied to the
host: hundreds of reports of copies, for right results. A kernel that reads what nobody wrote is told by a report that
names the thread that read it; copies have none. Only such reports count. To fill results before a launch would silence
the others as well, and with them a kernel that leaves a part of its result unwritten: that is what verifying is for."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence

OPTIONS = ("--tool", "initcheck", "--print-limit", "1000000")
FOUND = 9
"""The status where a kernel read what nobody wrote."""
UNKNOWN = 8
"""Where the tool did not end as it does."""

_LINE = re.compile(r"^========= ?(.*)$")
_THREAD = re.compile(r"\bby thread \(")


def reports(said: str) -> list[list[str]]:
    """The lines of each: a head, then indented ones, to an empty line."""
    found: list[list[str]] = []
    for line in said.splitlines():
        match = _LINE.match(line)
        if match is None or not match[1].strip():
            continue
        if match[1].startswith(" ") and found:
            found[-1].append(match[1].strip())
        else:
            found.append([match[1].strip()])
    return found


def of_kernels(said: str) -> list[str]:
    """The heads of reports that name a thread, with the place."""
    return ["; ".join(each[:3]) for each in reports(said) if any(_THREAD.search(line) for line in each)]


def is_whole(said: str) -> bool:
    """Whether the tool ran to its end, and printed all that it found."""
    return "ERROR SUMMARY: " in said and "errors were not printed" not in said


def main(command: Sequence[str]) -> int:
    sanitizer, *checked = command
    done = subprocess.run(
        [sanitizer, *OPTIONS, *checked], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    print("\n".join(line for line in done.stdout.splitlines() if not line.startswith("=========")))
    found = of_kernels(done.stdout)
    copies = len([each for each in reports(done.stdout) if len(each) > 1]) - len(found)
    print(*found[:5], f"{len(found)} reports of kernels; {copies} of others, which do not count", sep="\n")
    if found:
        return FOUND
    return done.returncode if done.returncode or is_whole(done.stdout) else UNKNOWN


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
