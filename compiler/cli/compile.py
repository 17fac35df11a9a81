"""`treadle compile`: the CUDA C of a program, and what it took to derive it."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from xdsl.dialects.builtin import ModuleOp

from treadle.compiler.cli.program import (
    Observers,
    Printing,
    check_outputs,
    compile_options,
    load_program,
    progress,
    write_all_whole,
)
from treadle.compiler.cli.story import Story, derivation_lines, pass_lines, schedule_lines
from treadle.compiler.errors import InternalError, TreadleError
from treadle.compiler.machines import machine_of
from treadle.compiler.pipeline import PassRun, print_cuda, run_pipeline

if TYPE_CHECKING:
    from treadle.runtime.nvcc import Cubin


def command(arguments: Namespace) -> int:
    check_outputs(arguments, arguments.output, arguments.cubin)
    program = load_program(arguments)
    options = compile_options(arguments, program.sizes)
    story = Story(compares=arguments.report)
    module = program.module
    runs = run_pipeline(module, options, Observers(Printing(arguments, options), story))
    text = print_cuda(module)
    cubin = _machine_code(text, module, arguments)
    # Everything has succeeded: only now do files appear, all of them or none.
    files: dict[str, str | bytes] = {}
    if arguments.cubin is not None and cubin is not None:
        files[arguments.cubin] = cubin.image
    if arguments.output is not None:
        files[arguments.output] = text
    write_all_whole(files)
    if arguments.output is None:
        print(text, end="")
    if arguments.report:
        stream = sys.stderr if arguments.output is None else sys.stdout
        print("\n".join(_report(runs, story, module, cubin)), file=stream)
    return 0


def _machine_code(text: str, module: ModuleOp, arguments: Namespace) -> Cubin | None:
    """What nvcc makes of it, where that is asked for and can be had (TreadleError)."""
    if arguments.cubin is None and not arguments.report:
        return None
    from treadle.runtime.cache import CacheUnavailable
    from treadle.runtime.nvcc import NvccFailure, NvccUnavailable, compile_cubin, find_nvcc

    if arguments.cubin is None and find_nvcc() is None:
        return None
    arch = machine_of(module).arch
    try:
        with progress(f"nvcc {arch}"):
            return compile_cubin(text, arch)
    except (CacheUnavailable, NvccUnavailable) as error:
        raise TreadleError(str(error), arguments.file) from error
    except NvccFailure as error:
        raise InternalError(f"nvcc refuses what treadle printed: {error}", arguments.file) from error


def _report(runs: Sequence[PassRun], story: Story, module: ModuleOp, cubin: Cubin | None) -> Iterator[str]:
    from treadle.compiler.cli.report_code import code_lines

    yield "derivation"
    yield from derivation_lines(story.derivation)
    yield "sizes"
    yield from schedule_lines(story.schedules)
    yield "passes"
    yield from pass_lines(runs)
    yield "machine code (nvcc)"
    yield from code_lines(module, cubin)
