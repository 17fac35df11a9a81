"""What every subcommand does first: read the program, and check what was asked about it."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import unified_diff

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.utils.arg_spec import ArgSpec

from treadle.compiler.derivation.replay import read_derivation, read_overrides
from treadle.compiler.errors import TreadleError
from treadle.compiler.files import check_output
from treadle.compiler.overrides import check_runs
from treadle.compiler.pipeline import Observer, Options, PassRun, pipeline
from treadle.compiler.progress import clear, progress
from treadle.compiler.raised import raised
from treadle.compiler.sizes import check_axes, check_defaults, check_sizes, parse_sizes
from treadle.compiler.source import load_module, only_function
from treadle.compiler.synchronised import check_synchronised


@dataclass(frozen=True)
class Program:
    """A file that was read, the function in it, and the sizes that were given for its axes."""

    module: ModuleOp
    function: FuncOp
    sizes: dict[str, int]


def load_program(arguments: Namespace) -> Program:
    """Read and check the file and the sizes on the command line (TreadleError, Refusal)."""
    sizes = parse_sizes(arguments.size)
    with progress(f"reading {os.path.basename(arguments.file)}"):
        module = raised(load_module(arguments.file))
    check_synchronised(module)
    function = only_function(module, arguments.file)
    check_axes(function)
    check_defaults(function)
    check_sizes(function, sizes)
    return Program(module, function, sizes)


def compile_options(arguments: Namespace, static_sizes: dict[str, int] | None = None) -> Options:
    path = getattr(arguments, "replay", None)
    passes = () if path is None else read_derivation(path)
    overrides = read_overrides(getattr(arguments, "pass_options", ()))
    return Options(arguments.machine, arguments.arch, static_sizes or {}, passes=passes, overrides=overrides)


class Printing(Observer):
    """Prints the IR before and after the passes that were named, to standard error."""

    def __init__(self, arguments: Namespace, options: Options):
        names = ["all", *(spec.name for spec in pipeline(options))]
        self.before = known_passes(arguments.print_before, names)
        self.after = known_passes(arguments.print_after, names)
        self.diffs = known_passes(arguments.print_diff, names)
        self.compares = bool(self.after)
        self.text = ""

    def before_pass(self, spec: ArgSpec, module: ModuleOp) -> None:
        if {"all", spec.name} & self.diffs:
            self.text = str(module)
        if {"all", spec.name} & self.before:
            clear()
            print(f"// -- before {spec} --\n{module!s}", file=sys.stderr)

    def after_pass(self, run: PassRun, module: ModuleOp) -> None:
        if {"all", run.name} & self.after:
            unchanged = "" if run.changed else " (unchanged)"
            clear()
            print(f"// -- after {run.spec} --{unchanged}\n{module!s}", file=sys.stderr)
        if {"all", run.name} & self.diffs:
            clear()
            print("\n".join(_diff(self.text, str(module), str(run.spec))), file=sys.stderr)


def _diff(before: str, after: str, name: str) -> Iterator[str]:
    """As `diff -u` says it, with colours on a terminal."""
    lines = unified_diff(before.splitlines(), after.splitlines(), f"before {name}", f"after {name}", lineterm="")
    if not sys.stderr.isatty():
        return lines
    return (f"\x1b[{_COLOURS[line[0]]}m{line}\x1b[0m" if line[0] in _COLOURS else line for line in lines)


_COLOURS = {"+": "32", "-": "31", "@": "36"}


def known_passes(wanted: Sequence[str], names: Sequence[str]) -> set[str]:
    for name in wanted:
        check_runs(name, names)
    return set(wanted)


def check_outputs(arguments: Namespace, *paths: str | None) -> None:
    """Refuse files that cannot be written, or that are one file, before any work is done for them (TreadleError)."""
    taken = {os.path.realpath(arguments.file): "the program itself"}
    taken |= {os.path.realpath(name): "the machine file" for name in (arguments.machine or "").split(",") if name}
    if replayed := getattr(arguments, "replay", None):
        taken[os.path.realpath(replayed)] = "the derivation to replay"
    for path in paths:
        if path is None:
            continue
        check_output(path)
        real = os.path.realpath(path)
        if real in taken and (os.path.isfile(real) or not os.path.exists(real)):
            raise TreadleError(f"cannot write {path}: it is {taken[real]} too; give each file a name of its own")
        taken[real] = "another output"
