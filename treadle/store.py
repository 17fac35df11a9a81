"""Compilations kept on disk, in the user's own cache folder.

The key holds all that a compilation depends on: the program, the options, the machine's file, and treadle itself.
Entries are written whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import astuple
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.compiler.errors import TreadleError
from treadle.runtime.cache import CacheUnavailable, cache_directory, cached_file, is_kept, limit
from treadle.texts import Estimate, Texts, from_json, to_json

if TYPE_CHECKING:
    from treadle.compiler.pipeline import Options


def key_of(program: str, options: Options) -> str:
    """What a compilation is known by."""
    machine = options.machine or ""
    parts = [_self(), program, machine, _content(machine), options.arch or ""]
    parts += [f"{axis}={size}" for axis, size in sorted(options.sizes.items())]
    parts += [str(each) for each in (*options.passes, *options.overrides)]
    digest = hashlib.sha256()
    for part in parts:
        encoded = part.encode()
        digest.update(f"{len(encoded)}:".encode() + encoded)
    return digest.hexdigest()[:40]


def kept(key: str) -> Texts | None:
    """The compilation of that key, if it is there and whole (TreadleError for a limit that is no number)."""
    limit()
    try:
        path = _path(key)
        return from_json(path.read_text(encoding="utf-8"), str(path)) if is_kept(path) else None
    except (OSError, UnicodeDecodeError, TreadleError, CacheUnavailable):
        return None


def keep(key: str, texts: Texts) -> None:
    """Write a compilation down. A cache that cannot be written is no error: there is none, then."""
    try:
        path = _path(key)
        path.unlink(missing_ok=True)  # whatever stands there is whole, but could not be read
        cached_file(path, lambda target: _write(target, to_json(texts)))
    except (OSError, CacheUnavailable):
        return


def kept_estimate(key: str) -> Estimate | None:
    """What was found of the program of that key, if it is there and whole (TreadleError for a limit that is no
    number)."""
    limit()
    try:
        path = _path(key, "estimates")
        if not is_kept(path):
            return None
        kernels, time_us, device_bytes = json.loads(path.read_text(encoding="utf-8"))
        return Estimate(int(kernels), None if time_us is None else float(time_us), float(device_bytes))
    except (OSError, ValueError, TypeError, CacheUnavailable):
        return None


def keep_estimate(key: str, estimate: Estimate) -> None:
    """Write one down, as `keep` does a compilation."""
    try:
        path = _path(key, "estimates")
        path.unlink(missing_ok=True)
        text = json.dumps(astuple(estimate))
        cached_file(path, lambda target: _write(target, text))
    except (OSError, CacheUnavailable):
        return


def _path(key: str, folder: str = "kernels") -> Path:
    return cache_directory() / folder / f"{key}.json"


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
    """Treadle as it is here, and the libraries that derivations rest on."""
    return "\n".join([itself(), *(f"{name} {version(name)}" for name in _LIBRARIES)])


def itself() -> str:
    """Treadle as it is here: its version, and what its files hold. By content and not by time or place, so that no
    checkout reads what another commit compiled, and equal ones share."""
    from treadle import __version__

    digest = hashlib.sha256()
    for name, path in sorted(_sources(str(Path(__file__).parent))):
        with open(path, "rb", buffering=0) as file:  # half the time that a buffer takes
            content = file.read()
        digest.update(f"{name}:{len(content)}:".encode() + content)
    return f"{__version__}\n{digest.hexdigest()}"


def _sources(folder: str, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Every file that a compilation may depend on: its name from the package on, and its path."""
    with os.scandir(folder) as found:
        for each in found:
            if each.name in _NO_PART or each.name.startswith("."):  # an editor's own files
                continue
            if each.is_dir():
                yield from _sources(each.path, f"{prefix}{each.name}/")
            elif os.path.splitext(each.name)[1] in _SOURCES:
                yield f"{prefix}{each.name}", each.path


_SOURCES = {".py", ".cuh", ".mlir", ".toml"}
_NO_PART = {"__pycache__", "torch"}
"""Folders that nothing in a compilation is read from: the door to PyTorch only writes programs."""
_LIBRARIES = ("xdsl", "sympy", "numpy")
