"""From a program to what is kept of its compilation."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from treadle.compiler.errors import TreadleError
from treadle.texts import Texts

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp
    from xdsl.dialects.func import FuncOp

    from treadle.compiler.pipeline import Options


def derived(module: ModuleOp, text: str, options: Options) -> Texts:
    """`_derive`, with every refusal told as the command line tells it."""
    from treadle.compiler.errors import describe

    try:
        return _derive(module, text, options)
    except Exception as error:
        raise describe(error, module) from error


def _derive(module: ModuleOp, text: str, options: Options) -> Texts:
    from xdsl.utils.arg_spec import ArgSpec

    from treadle import __version__
    from treadle.compiler.derivation.story import Story
    from treadle.compiler.machines import machine_of
    from treadle.compiler.pipeline import (
        LAST_HIERARCHY_PASS,
        Observer,
        Observers,
        PassRun,
        print_cuda,
        run_passes,
        run_pipeline,
    )

    class Schedule(Observer):
        text = ""

        def after_pass(self, run: PassRun, module: ModuleOp) -> None:
            if run.name == LAST_HIERARCHY_PASS:
                self.text = str(module)

    checked(module, options)
    if options.sizes:
        texts = tuple(f"{axis}={size}" for axis, size in options.sizes.items())
        run_passes(module, [ArgSpec("diagram-set-sizes", {"sizes": texts})])
        text = str(module)  # what the kernel computes, of which `sizes` is a part
    story, schedule = Story(), Schedule()
    run_pipeline(module, options, Observers(story, schedule))
    made_for = machine_of(module)
    steps = [list(step.texts()) for step in story.derivation]
    return Texts(__version__, made_for.name, made_for.arch, text, schedule.text, str(module), print_cuda(module), steps)


def checked(module: ModuleOp, options: Options) -> FuncOp:
    """The function of a program, whose axes and sizes are as they may be (Refusal, TreadleError)."""
    from treadle.compiler.sizes import check_axes, check_defaults, check_sizes
    from treadle.compiler.source import only_function

    function = only_function(module)
    check_axes(function)
    check_defaults(function)
    check_sizes(function, options.sizes)
    return function


def module_of(program: str | os.PathLike[str] | ModuleOp) -> ModuleOp:
    """A copy of the program that may be rewritten, checked."""
    from xdsl.dialects.builtin import ModuleOp

    from treadle.compiler.raised import raised
    from treadle.compiler.source import load_module, parse_module, verify_module
    from treadle.compiler.synchronised import check_synchronised

    if isinstance(program, ModuleOp):
        verify_module(program)
        module = program.clone()
    elif isinstance(program, str) and "\n" in program:
        module = parse_module(program)
    else:
        module = load_module(Path(path_text("program", program)))
    check_synchronised(module)
    return raised(module)


def check_numbers(sizes: Mapping[str, Any]) -> None:
    """(TreadleError)"""
    from treadle.dialects.diagram.array import LARGEST_SIZE

    given: Any = sizes
    if not isinstance(given, Mapping):
        raise TreadleError(f"sizes are {given!r}: give a dict of them, as {{'m': 64, 'n': 64}}")

    for axis, size in sizes.items():
        if not hasattr(size, "__index__") or not 0 <= size <= LARGEST_SIZE:
            range = f"from 0 to {LARGEST_SIZE}"
            raise TreadleError(f"the size of axis '{axis}' is {size!r}: sizes are whole numbers {range}")


def path_text(what: str, path: Any) -> str:
    """(TreadleError for what is neither a name nor a path)"""
    if not isinstance(path, str | os.PathLike):
        how = ", a text or a module (that of a kernel is its .program)" if what == "program" else ", or a text"
        raise TreadleError(f"the {what} is a {type(path).__name__}: give the path of a file{how}")
    return os.fsdecode(cast("str | os.PathLike[str]", path))


__all__ = ["check_numbers", "checked", "derived", "module_of", "path_text"]
