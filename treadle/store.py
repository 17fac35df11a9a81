"""Compilations kept on disk, in the user's own cache folder.

The key holds all that a compilation depends on: the program, the options, the machine's file, and treadle itself.
Entries are written whole or not at all."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.compiler.errors import TreadleError
from treadle.runtime.cache import CacheUnavailable, cache_directory, cached_file, mark_used

if TYPE_CHECKING:
    from treadle.compiled import Texts
    from treadle.compiler.pipeline import Options


def key_of(program: str, options: Options) -> str:
    """What a compilation is known by."""
    machine = options.machine or ""
    parts = [_self(), program, machine, _content(machine), options.arch or ""]
    parts += [f"{axis}={size}" for axis, size in sorted(options.sizes.items())]
    digest = hashlib.sha256()
    for part in parts:
        encoded = part.encode()
        digest.update(f"{len(encoded)}:".encode() + encoded)
    return digest.hexdigest()[:40]


def kept(key: str) -> Texts | None:
    """The compilation of that key, if it is there and whole."""
    from treadle.compiled import from_json

    try:
        path = _path(key)
        text = path.read_text(encoding="utf-8")
        mark_used(path)
        return from_json(text, str(path))
    except (OSError, UnicodeDecodeError, TreadleError, CacheUnavailable):
        return None


def keep(key: str, texts: Texts) -> None:
    """Write a compilation down. A cache that cannot be written is no error: there is none, then."""
    from treadle.compiled import to_json

    try:
        path = _path(key)
        path.unlink(missing_ok=True)  # whatever stands there could not be read
        cached_file(path, lambda target: _write(target, to_json(texts)))
    except (OSError, CacheUnavailable):
        return


def _path(key: str) -> Path:
    return cache_directory() / "kernels" / f"{key}.json"


def _write(target: Path, text: str) -> None:
    target.write_text(text, encoding="utf-8")


def _content(machine: str) -> str:
    """A user's machine file may change under its name."""
    try:
        return Path(machine).read_text(encoding="utf-8") if machine.endswith(".toml") else ""
    except (OSError, UnicodeDecodeError):
        return ""


@cache
def _self() -> str:
    """Treadle as it is installed: its version, and, for who works on it, the state of its files."""
    from treadle import __version__

    here = Path(__file__).parent
    folders = [here / name for name in ("compiler", "dialects", "passes", "runtime", "language")]
    inside = (path for folder in folders for path in folder.resolve().rglob("*"))
    files = sorted(path for path in (*here.iterdir(), *inside) if path.suffix in _SOURCES)
    states = [f"{path}:{(status := path.stat()).st_mtime_ns}:{status.st_size}" for path in files]
    return "\n".join([__version__, *states])


_SOURCES = {".py", ".cuh", ".mlir", ".toml"}
