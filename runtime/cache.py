"""Where compiled files are kept between runs, and how they get there safely."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

CHECKSUM = ".sha256"
"""Suffix of the file beside a kept one that says what it must hold."""


class CacheUnavailable(Exception):
    """The folder that `$TREADLE_CACHE` names cannot be used."""


def cache_directory() -> Path:
    """The user's own cache folder, made if need be (CacheUnavailable).

    `$TREADLE_CACHE` decides, and what it names must be usable; else `$XDG_CACHE_HOME/treadle`, else
    `~/.cache/treadle`, and where that cannot be written, a temporary folder. What lies in it is loaded and
    executed, so only its owner may enter it.
    """
    if chosen := os.environ.get("TREADLE_CACHE", "").strip():
        folder = Path(chosen).expanduser().absolute()
        if (problem := _problem_of(folder)) is not None:
            raise CacheUnavailable(
                f"the folder for compiled kernels, $TREADLE_CACHE = {chosen!r}, cannot be used: {problem}; "
                "name a folder of your own, or unset it for ~/.cache/treadle"
            )
        return folder
    base = os.environ.get("XDG_CACHE_HOME")
    folder = Path(base) / "treadle" if base else Path("~/.cache/treadle").expanduser()
    return folder if _problem_of(folder) is None else _temporary_directory()


def cached_file(path: Path, make: Callable[[Path], None]) -> Path:
    """`path`, made by `make` into a temporary file first unless it is there already, whole.

    The rename is atomic, so that of two processes at work on one file, neither sees half of it; and a file
    that a full disk or a crash has cut off, or that somebody has changed, is made again.
    """
    if _is_whole(path):
        return path
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".making-") as folder:
        made = Path(folder) / path.name
        make(made)
        checksum = Path(folder) / f"{path.name}{CHECKSUM}"
        checksum.write_text(_checksum(made), encoding="ascii")
        checksum.replace(_checksum_of(path))
        made.replace(path)
    return path


def _is_whole(path: Path) -> bool:
    try:
        return _checksum_of(path).read_text(encoding="ascii") == _checksum(path)
    except (OSError, UnicodeDecodeError):
        return False


def _checksum_of(path: Path) -> Path:
    return path.with_name(f"{path.name}{CHECKSUM}")


def _checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _problem_of(folder: Path) -> str | None:
    """Why a folder cannot hold what will be executed; None if it can."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except FileExistsError:
        return "it is no folder"
    except OSError as error:
        return (error.strerror or str(error)).lower()
    if status.st_uid != os.getuid():
        return "it belongs to somebody else, and what lies in it is executed"
    if status.st_mode & 0o022:
        return "others may write to it, and what lies in it is executed (chmod go-w would help)"
    return None if os.access(folder, os.W_OK | os.X_OK) else "permission denied"


@cache
def _temporary_directory() -> Path:
    """One folder for this process, removed when it ends."""
    import atexit

    folder = Path(tempfile.mkdtemp(prefix="treadle-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
