"""Where compiled files are kept between runs, and how they get there safely."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path


def cache_directory() -> Path:
    """The user's own cache folder, made if need be; a temporary one where that cannot be written.

    `$TREADLE_CACHE` decides, else `$XDG_CACHE_HOME/treadle`, else `~/.cache/treadle`. What lies in it
    is loaded and executed, so only its owner may enter it.
    """
    if chosen := os.environ.get("TREADLE_CACHE"):
        folder = Path(chosen).expanduser()
    elif base := os.environ.get("XDG_CACHE_HOME"):
        folder = Path(base) / "treadle"
    else:
        folder = Path("~/.cache/treadle").expanduser()
    return folder if _is_ours(folder) else _temporary_directory()


def cached_file(path: Path, make: Callable[[Path], None]) -> Path:
    """`path`, made by `make` into a temporary file first unless it is there already.

    The rename is atomic, so that of two processes at work on one file, neither sees half of it.
    """
    if path.exists():
        return path
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".making-") as folder:
        made = Path(folder) / path.name
        make(made)
        made.replace(path)
    return path


def _is_ours(folder: Path) -> bool:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError:
        return False
    private = status.st_uid == os.getuid() and not status.st_mode & 0o022
    return private and os.access(folder, os.W_OK | os.X_OK)


@cache
def _temporary_directory() -> Path:
    """One folder for this process, removed when it ends."""
    import atexit

    folder = Path(tempfile.mkdtemp(prefix="treadle-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
