"""The command `treadle-opt`: `xdsl-opt` with source locations, readable errors and whole output files."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from io import StringIO
from typing import IO, cast

from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass, PassPipeline
from xdsl.utils.arg_spec import ArgSpec
from xdsl.utils.exceptions import ArgSpecParseError, ShrinkException, VerifyException
from xdsl.xdsl_opt_main import xDSLOptMain

from treadle.compiler.errors import InternalError, TreadleError, describe, mistake
from treadle.compiler.files import check_output, drop_output, write_whole
from treadle.compiler.overrides import check_options, read_passes
from treadle.compiler.source import LocatingParser
from treadle.compiler.universe import PASSES, loader

_KNOWN_BY_MESSAGE = ("Unrecognized passes", "Unrecognized file extension", "Provided arguments", "Incompatible types")
"""What xDSL says with a bare ValueError about a command line."""


class TreadleOptMain(xDSLOptMain):
    """All options, passes and dialects are the stock driver's."""

    _running: ModulePass | None = None
    _offset: int = 0
    _held: StringIO | None = None

    def parse_chunk(self, chunk: IO[bytes], file_extension: str, start_offset: int = 0) -> ModuleOp | None:
        self._offset = start_offset
        return super().parse_chunk(chunk, file_extension, start_offset)

    def register_all_frontends(self) -> None:
        super().register_all_frontends()
        self.available_frontends["mlir"] = self._parse

    def _parse(self, stream: IO[bytes]) -> ModuleOp:
        as_stock = self.args.verify_diagnostics or self.args.parsing_diagnostics
        parser = LocatingParser(
            self.ctx,
            stream.read(),
            self.get_input_name(),
            line_offset=self._offset,
            # Those two options print the exceptions of the stock parser.
            readable_errors=not as_stock,
        )
        return parser.parse_module(not self.args.no_implicit_module)

    def setup_pipeline(self) -> None:
        for spec in _passes(self.args.passes or ""):
            if spec.name in PASSES:
                check_options(loader(PASSES[spec.name])(), spec)
        super().setup_pipeline()
        stock = self.pipeline.callback

        def callback(previous: ModulePass | None, module: ModuleOp, next: ModulePass | None) -> None:
            self._running = previous
            if stock is not None:
                stock(previous, module, next)
            self._running = next

        self.pipeline = PassPipeline(self.pipeline.passes, callback)

    def apply_passes(self, prog: ModuleOp) -> None:
        try:
            super().apply_passes(prog)
        except ShrinkException:
            raise
        except Exception as exception:
            if self.args.verify_diagnostics:
                raise
            raise self._described(exception, prog) from exception

    def _described(self, exception: Exception, module: ModuleOp) -> TreadleError:
        if self._running is None:
            return describe(exception, module)
        own = isinstance(exception, VerifyException) and self._running.name in PASSES
        error = mistake(exception, module) if own else describe(exception, module)
        return type(error)(f"pass '{self._running.name}': {error.message}", error.location, error.excerpt)

    def prepare_output(self) -> IO[str]:
        if self.args.output_file is None:
            return cast("IO[str] | None", sys.stdout) or _Held()  # nobody listens where it is closed
        check_output(self.args.output_file)
        self._held = _Held()
        return self._held

    def run(self) -> None:
        super().run()
        if self._held is not None:
            write_whole(self.args.output_file, self._held.getvalue())


class _Held(StringIO):
    """Output that is written when everything has succeeded; the stock driver closes it too early."""

    def close(self) -> None:
        pass


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `treadle-opt`; the exit code."""
    try:
        TreadleOptMain("treadle's optimizer driver: xdsl-opt with locations", arguments).run()
        return 0
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        drop_output()
        return 0
    except ArgSpecParseError as exception:
        return _refuse(TreadleError(str(exception)))
    except Exception as exception:
        if os.environ.get("TREADLE_TRACEBACK"):
            raise
        if isinstance(exception, ValueError) and str(exception).startswith(_KNOWN_BY_MESSAGE):
            return _refuse(TreadleError(f"{exception}{_advice(str(exception))}"))
        return _refuse(describe(exception))


def _passes(text: str) -> list[ArgSpec]:
    try:
        return read_passes(text)
    except TreadleError as error:
        raise TreadleError(f"-p is a pass pipeline, as fusion,streaming{{axis=x}}: {error}") from error


def _advice(message: str) -> str:
    if not message.startswith("Unrecognized passes"):
        return ""
    named: list[str] = re.findall(r"'([^']+)'", message)
    close = [near for name in named for near in get_close_matches(name, PASSES, n=1)]
    meant = f" did you mean '{close[0]}'?" if close else ""
    return f":{meant} 'treadle passes' lists those of treadle, 'treadle-opt --help' the others"


def _refuse(error: TreadleError) -> int:
    print(f"treadle-opt: {error}", file=sys.stderr)
    return 3 if isinstance(error, InternalError) else 2


if __name__ == "__main__":
    sys.exit(main())
