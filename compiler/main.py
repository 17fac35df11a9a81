"""The command `treadle`. Each subcommand is a file of its name in `compiler/cli`, imported when it is used."""

from __future__ import annotations

import argparse
import atexit
import gc
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module

from treadle.compiler.cli.arguments import make_parser
from treadle.compiler.files import drop_output

OK, WRONG_RESULT, REFUSED, INTERNAL, INTERRUPTED = 0, 1, 2, 3, 130

OBJECTS_BETWEEN_COLLECTIONS = 300_000
"""New objects until Python looks for cycles. A program's IR is full of cycles that live until the end; looking for
others in it, and again when the process ends, took a quarter of the time of a compilation."""

COMMANDS_THAT_COMPUTE = ("run", "check", "bench", "tune")
"""Those that multiply arrays on this machine. In the others NumPy's BLAS has no work, and its threads, which spin a
while after they are made, took a fifth of the processor time of a compilation."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    try:
        return _run(arguments)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        drop_output()
        return OK


def _run(arguments: Sequence[str] | None) -> int:
    usual = gc.get_threshold()
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS, *usual[1:])
    # What is left when the process ends needs no search for cycles: the whole of its memory goes.
    atexit.unregister(gc.freeze)
    atexit.register(gc.freeze)
    try:
        parsed = _parsed(arguments)
        if parsed.command not in COMMANDS_THAT_COMPUTE:
            os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        # What a user catches with Ctrl-C may be cut off here, but every file is written whole or not at all.
        code = _command(parsed.command)(parsed)
        print(end="", flush=True)  # unlike sys.stdout.flush(), also where standard output is closed
        return code
    except (KeyboardInterrupt, BrokenPipeError):
        raise
    except Exception as exception:
        if os.environ.get("TREADLE_TRACEBACK"):
            raise
        from treadle.compiler.errors import InternalError, describe

        _end_output()
        error = describe(exception)
        print(f"treadle: {error}", file=sys.stderr)
        return INTERNAL if isinstance(error, InternalError) else REFUSED
    finally:
        gc.set_threshold(*usual)


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    given = sys.argv[1:] if arguments is None else arguments
    try:
        return make_parser().parse_args(given or ["--help"])
    finally:
        print(end="", flush=True)  # --help and --version end here: what they printed may meet a full disk


def _end_output() -> None:
    try:
        print(end="", flush=True)
    except OSError:  # the disk is full: the caller reports it
        drop_output()


def _command(name: str) -> Callable[[argparse.Namespace], int]:
    return import_module(f"treadle.compiler.cli.{name}").command


if __name__ == "__main__":
    sys.exit(main())
