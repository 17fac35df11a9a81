"""`treadle compile`: the CUDA C of a program, and what it took to derive it."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from xdsl.dialects.builtin import ModuleOp

from treadle.compiler.cli.program import (
    Printing,
    Program,
    check_outputs,
    compile_options,
    known_passes,
    load_program,
)
from treadle.compiler.cli.story import derivation_lines, pass_lines, schedule_lines
from treadle.compiler.derivation.story import Story
from treadle.compiler.errors import TreadleError
from treadle.compiler.files import write_all_whole
from treadle.compiler.machines import machine_of
from treadle.compiler.pipeline import Observer, Observers, Options, PassRun, pipeline, print_cuda, run_pipeline
from treadle.compiler.progress import progress

if TYPE_CHECKING:
    from treadle.compiler.draw.page.record import Record
    from treadle.runtime.nvcc import Cubin


def command(arguments: Namespace) -> int:
    check_outputs(arguments, arguments.output, arguments.cubin, arguments.html)
    program = load_program(arguments)
    options = compile_options(arguments, program.sizes)
    if arguments.stop_after is not None:
        return _stop_after(program, options, arguments)
    story = Story(compares=arguments.report)
    module = program.module
    observers: list[Observer] = [Printing(arguments, options), story]
    record = _record(program, arguments)
    with progress("deriving the kernels"):
        runs = run_pipeline(module, options, Observers(*observers, *([record] if record else [])))
        text = print_cuda(module)
    found = _machine_code(text, module, arguments)
    code = _code_lines(module, found, arguments)
    # Everything has succeeded: only now do files appear, all of them or none.
    files: dict[str, str | bytes] = {}
    if arguments.cubin is not None and not isinstance(found, str):
        files[arguments.cubin] = found.image
    if arguments.output is not None:
        files[arguments.output] = text
    if record is not None:
        with progress("drawing"):
            files[arguments.html] = _page(record, program, text, code, arguments)
    write_all_whole(files)
    if arguments.output is None and arguments.html is None:
        print(text, end="")
    if arguments.report:
        stream = sys.stderr if arguments.output is None else sys.stdout
        print("\n".join(_report(runs, story, module, code)), file=stream)
    return 0


def _stop_after(program: Program, options: Options, arguments: Namespace) -> int:
    """The IR that a pass leaves, in place of CUDA C (TreadleError)."""
    for option, given in (("--cubin", arguments.cubin), ("--html", arguments.html), ("--report", arguments.report)):
        if given:
            raise TreadleError(f"{option} needs the whole pipeline: leave out --stop-after {arguments.stop_after}")
    known_passes([arguments.stop_after], [spec.name for spec in pipeline(options)])
    run_pipeline(program.module, options, Printing(arguments, options), last=arguments.stop_after)
    text = f"{program.module!s}\n"
    if arguments.output is None:
        print(text, end="")
    else:
        write_all_whole({arguments.output: text})
    return 0


def _record(program: Program, arguments: Namespace) -> Record | None:
    if arguments.html is None:
        return None
    from treadle.compiler.draw.page.record import Record

    return Record(program.module, program.sizes)


def _page(record: Record, program: Program, text: str, code: Sequence[str], arguments: Namespace) -> str:
    from treadle.compiler.draw.page.compilation import Ending, compilation_page

    title = f"@{program.function.sym_name.data} for {machine_of(program.module).name}"
    source = Path(arguments.file).read_text(encoding="utf-8")
    return compilation_page(record, Ending(title, Path(arguments.file).name, source, text, code))


def _machine_code(text: str, module: ModuleOp, arguments: Namespace) -> Cubin | str:
    """What nvcc makes of it, or why that is not known: only who asks for the code itself needs it (TreadleError)."""
    if arguments.cubin is None and arguments.html is None and not arguments.report:
        return "nobody asked for it"
    from treadle.compiler.cli.report_code import machine_code

    arch = machine_of(module).arch
    with progress(f"nvcc {arch}"):
        found = machine_code(text, arch, arguments.file)
    if isinstance(found, str) and arguments.cubin is not None:
        raise TreadleError(f"{found}; without it, leave --cubin away", arguments.file)
    return found


def _code_lines(module: ModuleOp, found: Cubin | str, arguments: Namespace) -> Sequence[str]:
    """What is told of the machine code, for those who are told of it."""
    if arguments.html is None and not arguments.report:
        return ()
    from treadle.compiler.cli.report_code import code_lines

    with progress("reading the machine code"):
        return list(code_lines(module, found))


def _report(runs: Sequence[PassRun], story: Story, module: ModuleOp, code: Sequence[str]) -> Iterator[str]:
    yield "derivation"
    yield from derivation_lines(story.derivation)
    yield "sizes"
    yield from schedule_lines(story.schedules)
    yield "passes"
    yield from pass_lines(runs)
    if lines := list(_alignments(module)):
        yield "accesses to device memory, each made once by a block, by how the rows of all arrays are aligned"
        yield from lines
    yield "machine code (nvcc)"
    yield from code


def _alignments(module: ModuleOp) -> Iterator[str]:
    """What accesses cost for arrays that are not aligned."""
    from treadle.compiler.gates.alignment import alignment_lines, assumed_line
    from treadle.dialects.cuda import KernelOp

    lines = [line for op in module.body.block.ops if isinstance(op, KernelOp) for line in alignment_lines(op)]
    yield from (f"  {line}" for line in ([assumed_line(), *lines] if lines else []))
