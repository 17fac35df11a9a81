"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from treadle.compiler.errors import TreadleError


def check_output(path: str | None) -> None:
    """Refuse a file that cannot be written before any work is done for it (TreadleError)."""
    if path is None:
        return
    if not path or "\0" in path:
        raise TreadleError("cannot write the output: its name is empty or holds a zero byte")
    if path == "-":
        raise TreadleError("cannot write -: this goes to a file only, so name one (/dev/stdout is standard output)")
    try:
        problem = _problem_of_output(path)
    except OSError as error:
        problem = error.strerror or str(error)
    if problem is not None:
        raise TreadleError(f"cannot write {path}: {problem}")


def _problem_of_output(name: str) -> str | None:
    target = Path(name)
    if target.is_dir() or name.endswith("/"):
        return "it is a directory, name a file in it"
    if not target.parent.is_dir():
        return f"there is no folder {target.parent}"
    written = [target] if target.exists() else []
    if target.is_file() or not target.exists():  # a file is replaced by a new one, which its folder must take
        written.append(Path(os.path.realpath(target)).parent)
    return None if all(os.access(path, os.W_OK) for path in written) else "permission denied"


def write_whole(path: str, data: str | bytes) -> None:
    """Write a file so that nobody ever sees half of it (TreadleError)."""
    write_all_whole({path: data})


def write_all_whole(files: Mapping[str, str | bytes]) -> None:
    """Write several files so that nobody ever sees half of one, or one without the others (TreadleError)."""
    staged: list[tuple[Path, Path]] = []
    path = ""
    try:
        for path, data in files.items():
            content = data.encode() if isinstance(data, str) else data
            target = Path(path)
            if target.exists() and not target.is_file():  # /dev/stdout, a pipe: there is nothing to replace
                target.write_bytes(content)
                continue
            # A link stays a link: what it points to is replaced.
            real = Path(os.path.realpath(target))
            staged.append((_staged(real, content), real))
        # All has been written, so the disk has room: what is left is to give the files their names.
        for partial, target in staged:
            path = str(target)
            os.replace(partial, target)
    except OSError as error:
        raise TreadleError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        for partial, _ in staged:
            partial.unlink(missing_ok=True)


def drop_output() -> None:
    """Standard output goes nowhere from here on, as whoever read it has stopped (`| head`): that is no error, and
    Python would write what is left, and report the failure again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _staged(target: Path, content: bytes) -> Path:
    """A file beside `target` with its future content and permissions."""
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:100]}-")
    partial = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
        # A temporary file is its owner's alone; this one is to be as if it had been opened for writing.
        os.chmod(partial, target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask())
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    return partial


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


__all__ = ["check_output", "drop_output", "write_all_whole", "write_whole"]
