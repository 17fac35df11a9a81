"""Other programs that are run, compilers all of them: whose fault it is when one fails."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence

_SURROUNDINGS = re.compile(r"No space left|Disk quota|Read-only file system|Permission denied|[Cc]annot allocate")
"""What a compiler says where the text it was given is not to blame."""

_NO_ROOM = re.compile(r"No space left|Disk quota")
_MAKE_ROOM = "make room: kernels are kept in ~/.cache/treadle or $TREADLE_CACHE, and compilers write to $TMPDIR, too"


def run_process(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, keeping what it says."""
    return subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)


def trouble_around(process: subprocess.CompletedProcess[str]) -> str | None:
    """Why a process failed, if that is the place where it ran: a full disk, no memory."""
    if process.returncode < 0:
        return f"it was killed (signal {-process.returncode}): is there enough memory?"
    lines = (process.stderr + process.stdout).splitlines()
    found = next((line.strip() for line in lines if _SURROUNDINGS.search(line)), None) if process.returncode else None
    return f"{found}; {_MAKE_ROOM}" if found is not None and _NO_ROOM.search(found) else found
