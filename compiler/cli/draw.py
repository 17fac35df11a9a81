"""`treadle draw`: the picture of a program, as written or after any pass, as SVG or as a page."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from pathlib import Path

from treadle.compiler.cli.program import (
    Program,
    check_outputs,
    compile_options,
    known_passes,
    load_program,
)
from treadle.compiler.draw.costs import timelines_of
from treadle.compiler.draw.page.single import page_of
from treadle.compiler.draw.program import draw_module
from treadle.compiler.draw.sequence import Frame, Frames, before_after, derivation_strip, steps_of
from treadle.compiler.draw.svg import Picture, stacked
from treadle.compiler.draw.timeline import Labels, draw_timeline
from treadle.compiler.errors import TreadleError
from treadle.compiler.files import write_whole
from treadle.compiler.machines import load_machine
from treadle.compiler.numerals import whole_number
from treadle.compiler.pipeline import LAST_HIERARCHY_PASS, Options, pipeline, run_passes, run_pipeline
from treadle.compiler.progress import progress
from treadle.compiler.sizes import set_default_sizes

PAGES = (".html", ".htm")


def command(arguments: Namespace) -> int:
    output: str | None = arguments.output
    check_outputs(arguments, output)
    if output is not None and Path(output).suffix.lower() not in ("", ".svg", *PAGES):
        raise TreadleError(f"-o {output}: a picture is SVG, alone or in a page: give a name in .svg or .html")
    if arguments.machine is not None:
        load_machine(arguments.machine)
    program = load_program(arguments)
    options = compile_options(arguments)
    set_default_sizes(program.function, program.sizes)
    picture = _picture(arguments, program, options)
    text = page_of(picture) if output is not None and output.lower().endswith(PAGES) else picture.svg()
    if output is None:
        print(text, end="")
    else:
        write_whole(output, text)
    return 0


def _picture(arguments: Namespace, program: Program, options: Options) -> Picture:
    names = [spec.name for spec in pipeline(options)]
    rewrite: str | None = arguments.rewrite
    if arguments.after is not None and (rewrite is not None or arguments.pipeline):
        what = "--pipeline" if rewrite is None else "--rewrite"
        raise TreadleError(f"{what} says itself after which pass it looks: leave --after {arguments.after} away")
    if rewrite is not None and (number := whole_number(rewrite)) is not None:
        return _numbered(program, options, number)
    known_passes([name for name in (arguments.after, rewrite) if name is not None], names)
    if rewrite is not None:
        return _rewrite(program, options, rewrite)
    if arguments.pipeline:
        return _pipeline(program, options)
    if arguments.derivation:
        return _derivation(program, options, arguments.after)
    if arguments.after is not None:
        with progress("deriving the kernels"):
            run_pipeline(program.module, options, last=arguments.after)
    return draw_module(program.module, program.sizes)


def _rewrite(program: Program, options: Options, name: str) -> Picture:
    """The program before and after the pass `name`, where it runs last."""
    specs = pipeline(options)
    place = max(i for i, spec in enumerate(specs) if spec.name == name)
    run_passes(program.module, specs[:place])
    before, told = draw_module(program.module, program.sizes, legend=False), len(steps_of(program.module))
    run_passes(program.module, [specs[place]])
    after = draw_module(program.module, program.sizes)
    return before_after(before, after, name, steps_of(program.module)[told:])


def _numbered(program: Program, options: Options, number: int) -> Picture:
    """The program before and after one rewrite, by its number in the derivation (TreadleError)."""
    frames = _frames(program, options)
    if not 0 < number < len(frames):
        there = f"the derivation has 1 to {len(frames) - 1}" if len(frames) > 1 else "the derivation has none"
        raise TreadleError(f"there is no rewrite {number} that changes the picture: {there}")
    frame = frames[number]
    return before_after(frames[number - 1].picture, frame.picture, f"{number}  {frame.name}", frame.steps)


def _frames(program: Program, options: Options, last: str | None = None) -> list[Frame]:
    frames = Frames(program.module, program.sizes)
    with progress("deriving the kernels"):
        run_pipeline(program.module, options, frames, last=last or _last(options))
    return frames.frames


def _last(options: Options) -> str | None:
    """Where streams are loops; the end of a derivation that does not come so far."""
    return LAST_HIERARCHY_PASS if any(spec.name == LAST_HIERARCHY_PASS for spec in pipeline(options)) else None


def _pipeline(program: Program, options: Options) -> Picture:
    """The loop of every stream of every kernel, as the model sees it."""
    run_pipeline(program.module, options, last=_last(options))
    pictures = [draw_timeline(timeline, Labels(title)) for title, timeline in timelines_of(program.module)]
    if not pictures:
        raise TreadleError("no kernel streams anything, so no pipeline repeats itself", program.function.sym_name.data)
    return stacked(pictures, f"pipelines of {program.function.sym_name.data}")


def _derivation(program: Program, options: Options, last: str | None) -> Picture:
    """Down to where the streams are loops, unless another pass is named."""
    *earlier, final = _frames(program, options, last)
    final = replace(final, picture=draw_module(program.module, program.sizes))
    return derivation_strip([*earlier, final], f"derivation of {program.function.sym_name.data}")
