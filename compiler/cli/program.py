"""What every subcommand does first: read the program, check what was asked about it; and last: write files."""

from __future__ import annotations

import os
import sys
import tempfile
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches, unified_diff
from pathlib import Path

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.utils.arg_spec import ArgSpec

from treadle.compiler.cli.progress import clear, progress
from treadle.compiler.derivation.replay import read_derivation
from treadle.compiler.errors import TreadleError
from treadle.compiler.pipeline import Observer, Options, PassRun, pipeline
from treadle.compiler.raised import raised
from treadle.compiler.sizes import check_axes, check_defaults, check_sizes, parse_sizes
from treadle.compiler.source import load_module


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
    function = only_function(module, arguments.file)
    check_axes(function)
    check_defaults(function)
    check_sizes(function, sizes)
    return Program(module, function, sizes)


def only_function(module: ModuleOp, file: str) -> FuncOp:
    """The program of a file: it holds one function with a body, which is what a command is about."""
    functions = [op for op in module.walk() if isinstance(op, FuncOp) and op.body.blocks and op.body.block.ops]
    if len(functions) == 1:
        return functions[0]
    if not functions:
        raise TreadleError("there is no func.func with a body: a program is one function over arrays", file)
    names = ", ".join(f"@{function.sym_name.data}" for function in functions)
    raise TreadleError(f"there are {len(functions)} functions ({names}): keep one in a file", file)


def compile_options(arguments: Namespace, static_sizes: dict[str, int] | None = None) -> Options:
    path = getattr(arguments, "replay", None)
    passes = () if path is None else read_derivation(path)
    return Options(arguments.machine, arguments.arch, static_sizes or {}, passes=passes)


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


class Observers(Observer):
    """Several at once."""

    def __init__(self, *observers: Observer):
        self.observers = observers
        self.compares = any(observer.compares for observer in observers)

    def before_pass(self, spec: ArgSpec, module: ModuleOp) -> None:
        for observer in self.observers:
            observer.before_pass(spec, module)

    def after_rewrite(self, module: ModuleOp) -> None:
        for observer in self.observers:
            observer.after_rewrite(module)

    def after_pass(self, run: PassRun, module: ModuleOp) -> None:
        for observer in self.observers:
            observer.after_pass(run, module)


def known_passes(wanted: Sequence[str], names: Sequence[str]) -> set[str]:
    for name in wanted:
        if name not in names:
            close = get_close_matches(name, names, n=1, cutoff=0.6)
            hint = f"did you mean '{close[0]}'?" if close else f"its passes are {', '.join(dict.fromkeys(names))}"
            raise TreadleError(f"the pipeline has no pass '{name}': {hint}")
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


def check_output(path: str | None) -> None:
    """Refuse a file that cannot be written before any work is done for it (TreadleError)."""
    if path is None:
        return
    if not path or "\0" in path:
        raise TreadleError("cannot write the output: its name is empty or holds a zero byte")
    if path == "-":
        raise TreadleError("cannot write -: this goes to a file only, so name one (/dev/stdout is standard output)")
    try:
        problem = _problem_of_output(Path(path))
    except OSError as error:
        problem = error.strerror or str(error)
    if problem is not None:
        raise TreadleError(f"cannot write {path}: {problem}")


def _problem_of_output(target: Path) -> str | None:
    if target.is_dir():
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
