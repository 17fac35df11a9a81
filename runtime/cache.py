"""Where compiled files are kept between runs, and how they get there safely."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from treadle.compiler.errors import TreadleError

FOLDERS = ("cubin", "emulator", "estimates", "kernels", "ptx")
"""Where in the cache folder files are kept: whatever else lies there is somebody else's."""

DEFAULT_LIMIT = 2**30
"""Bytes that the cache folder may hold; `$TREADLE_CACHE_LIMIT` says otherwise."""

CHECKSUM = ".sha256"
"""Suffix of the file beside a kept one that says what it must hold."""

MAKING = ".making-"
"""How the name of a folder begins in which a file is being made."""

IN_USE_SECONDS = 300.0
"""For how long after its last use a file counts as in use: one is linked, or loaded, some time after it was found, by
this process or another, and a compiler that died left its folder behind if it is older."""


class CacheUnavailable(TreadleError):
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
    that a full disk or a crash has cut off, or that somebody has changed, is made again. TreadleError for a limit that
    is no number, whether or not something is made; CacheUnavailable for a folder that is full.
    """
    allowed = limit()
    if is_kept(path):
        return path
    try:
        made = _make_whole(path, make)
    except OSError as error:
        if error.errno not in _NO_PLACE:
            raise
        raise CacheUnavailable(
            f"the folder for compiled kernels, {path.parent}, cannot take another file: "
            f"{(error.strerror or '').lower()}; make room, or name another folder with TREADLE_CACHE"
        ) from error
    mark_used(path)
    _keep_within(allowed, made)
    return path


def is_kept(path: Path) -> bool:
    """Whether a file is there, and whole, which counts as a use of it."""
    if not _is_whole(path):
        return False
    mark_used(path)
    return True


def _keep_within(allowed: int, made: int) -> None:
    """Shrink the cache to its limit once this process has made a small share of it, and at first: to look through all
    that is kept takes as long as all that is kept."""
    folder = cache_directory()
    unseen = _unseen.get(folder, allowed) + made
    looks = unseen * _LOOKS >= allowed
    _unseen[folder] = 0 if looks else unseen
    if looks:
        shrink(allowed, unused_since=time.time() - IN_USE_SECONDS)


_unseen: dict[Path, int] = {}
"""Bytes that this process has made in each cache folder since it last looked through it."""

_LOOKS = 100
"""How often a process looks through the cache while it fills it."""


def _make_whole(path: Path, make: Callable[[Path], None]) -> int:
    """How many bytes it has."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=MAKING) as folder:
        made = Path(folder) / path.name
        make(made)
        checksum = Path(folder) / f"{path.name}{CHECKSUM}"
        checksum.write_text(_checksum(made), encoding="ascii")
        size = made.stat().st_size
        checksum.replace(_checksum_of(path))
        made.replace(path)
    return size


_NO_PLACE = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM),
    *(errno.EISDIR, errno.ENOTDIR, errno.EEXIST),
)
"""What the system says where a file cannot be written, whatever it holds; a folder may stand in its place, or a file in
that of its folder."""


def mark_used(path: Path) -> None:
    """What was used longest ago goes first when the folder grows too large: the time of access says when, even where
    the file system does not keep it."""
    with suppress(OSError):
        os.utime(path, ns=(time.time_ns(), path.stat().st_mtime_ns))


def entries() -> list[tuple[Path, int, float]]:
    """Every kept file in the cache folder, with its size in bytes and when it was last used, the oldest first."""
    folders = (cache_directory() / name for name in FOLDERS)
    return sorted((entry for folder in folders for entry in _files(folder)), key=lambda entry: entry[2])


def shrink(bytes_left: int, unused_since: float | None = None) -> int:
    """Remove what was used longest ago until no more than that is left, and of what was used since then (seconds since
    the epoch) nothing; how many bytes that freed. What compilers that died have left goes, too."""
    now = time.time()
    for folder in (cache_directory() / name for name in FOLDERS):
        for left in _being_made(folder):
            if _used(left) < now - IN_USE_SECONDS:
                shutil.rmtree(left, ignore_errors=True)
    found = entries()
    total = sum(size for _, size, _ in found)
    freed = 0
    for path, size, used in found:
        if total - freed <= bytes_left or (unused_since is not None and used >= unused_since):
            break
        path.unlink(missing_ok=True)
        _checksum_of(path).unlink(missing_ok=True)
        freed += size
    return freed


def limit() -> int:
    """Bytes that the cache may hold (TreadleError if `$TREADLE_CACHE_LIMIT` is no number)."""
    given = os.environ.get("TREADLE_CACHE_LIMIT")
    if given is None:
        return DEFAULT_LIMIT
    if not (given.isascii() and given.isdigit()):
        raise TreadleError(f"TREADLE_CACHE_LIMIT is '{given}': give a number of bytes, as 1000000000")
    return int(given)


def _being_made(folder: Path) -> Iterator[Path]:
    """Folders in which something is made, or was; another process may remove one at any moment, which `os.walk` bears
    and `Path.glob` does not."""
    for root, folders, _ in os.walk(folder):
        yield from (Path(root) / name for name in folders if name.startswith(MAKING))
        folders[:] = [name for name in folders if not name.startswith(MAKING)]


def _used(folder: Path) -> float:
    """When something was last put into it; now, if it is gone."""
    try:
        return folder.stat().st_mtime
    except OSError:
        return time.time()


def _files(folder: Path) -> Iterator[tuple[Path, int, float]]:
    for root, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(MAKING)]
        for name in names:
            if name.endswith(CHECKSUM):
                continue
            path = Path(root) / name
            try:
                status = path.stat()
            except OSError:  # another process removed it
                continue
            yield path, status.st_size, status.st_atime


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
