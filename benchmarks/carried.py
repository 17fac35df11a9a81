"""Machine code that was compiled beforehand, as one file: to a lent machine goes no more than 64 MiB.

Two thirds of what nvcc makes are the PTX that profilers show; packed, it is a tenth."""

from __future__ import annotations

import tarfile
from collections.abc import Iterable
from pathlib import Path

MOST = 64 * 2**20
"""Bytes that are carried to a lent machine."""

PRESET = 6
"""Of xz: it remembers 8 MiB, in which there are several ways to make one program's kernels; these take 0.6 of what they
do with 2, in four times as long, and with more it takes longer for little."""


def pack(names: Iterable[str], archive: Path, others: Iterable[Path] = ()) -> int:
    """Cubins of the cache by name, alike ones near each other, what ptxas said of them, and their check sums, and other
    files and folders of the cache; the bytes of the archive."""
    from treadle.runtime.cache import CHECKSUM, cache_directory

    folder = cache_directory()
    partial = archive.with_name(f"{archive.name}.partial")
    with tarfile.open(partial, "w:xz", preset=PRESET) as packed:
        for name in names:
            cubin = folder / "cubin" / name
            for path in (cubin, cubin.with_suffix(".log"), cubin.with_name(f"{name}{CHECKSUM}")):
                packed.add(path, path.relative_to(folder))
        for path in others:
            packed.add(path, path.relative_to(folder))
    partial.replace(archive)
    return archive.stat().st_size


def with_checksum(path: Path) -> tuple[Path, Path]:
    """A file of the cache, as `pack` takes it: whole only beside its check sum."""
    from treadle.runtime.cache import CHECKSUM

    return path, path.with_name(f"{path.name}{CHECKSUM}")


def unpack(archive: Path) -> None:
    """Into the cache of this machine."""
    from treadle.runtime.cache import cache_directory

    with tarfile.open(archive) as packed:
        packed.extractall(cache_directory(), filter="data")


def judged(nbytes: int) -> str:
    """How large it is, and whether that is too large."""
    told = f"{nbytes / 2**20:.1f} MiB"
    return told if nbytes <= MOST else f"{told}: MORE than the {MOST // 2**20} MiB that are carried to a lent machine"
