"""The arguments of the command `treadle`: which subcommands there are, and their options and help."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, TypeAlias

from treadle import __version__
from treadle.compiler.numerals import whole_number

if TYPE_CHECKING:
    _Commands: TypeAlias = "argparse._SubParsersAction[_Parser]"  # pyright: ignore[reportPrivateUsage]

PROGRAM = "a program: an .mlir file of the diagram dialect, or of linalg on tensors"

_EXAMPLES = """examples:
  treadle run examples/attention.mlir --size q=1000 --size x=4096
  treadle compile examples/attention.mlir --arch sm_80 -o attention.cu --report
  treadle explain examples/attention.mlir --machine h100

exit codes: 0 done; 1 a result is wrong; 2 refused, with a message that says what to do; 3 a mistake of treadle's own;
4 a result cannot be verified, because the reference's own rounding errors leave nothing to compare.
"""


class _Parser(argparse.ArgumentParser):
    """What no option is called is refused by the command that lacks it, with the one that may have been meant."""

    def parse_known_args(self, *given: Any, **named: Any) -> tuple[Any, list[str]]:  # argparse has several forms of it
        parsed, unknown = super().parse_known_args(*given, **named)
        if not unknown:
            return parsed, unknown
        from difflib import get_close_matches

        option = unknown[0].partition("=")[0]
        options = [name for action in self._actions for name in action.option_strings if name.startswith("--")]
        close = get_close_matches(option, options, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")


def make_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="treadle",
        description="Derive GPU kernels from algorithms drawn as diagrams, and verify them.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"treadle {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_compile(commands)
    _add_run(commands)
    _add_explain(commands)
    _add_draw(commands)
    _add_passes(commands)
    _add_cache(commands)
    _add_check(commands)
    _add_differentiate(commands)
    _add_bench(commands)
    _add_tune(commands)
    _add_doctor(commands)
    return parser


def _add_compile(commands: _Commands) -> None:
    parser = _subcommand(commands, "compile", "print the CUDA C of a program", _COMPILE_EXAMPLES)
    _add_machine(parser)
    _add_replay(parser)
    _add_sizes(parser, "fix the size of an axis: the kernel then takes no other")
    parser.add_argument(
        "-o",
        "--output",
        type=_output,
        metavar="OUT.cu",
        help="write the CUDA C there (default, and -: standard output)",
    )
    parser.add_argument(
        "--stop-after", metavar="PASS", help="stop after this pass, and write the IR that it leaves in place of CUDA C"
    )
    parser.add_argument(
        "--html", metavar="OUT.html", help="write a page to walk through the compilation, pass by pass, in a browser"
    )
    parser.add_argument("--cubin", metavar="OUT", help="also compile it with nvcc, and write the machine code there")
    parser.add_argument(
        "--report",
        action="store_true",
        help="tell the time of each pass, the derivation, the sizes and, with nvcc, registers, occupancy, the main "
        "loop's instructions and whether the kernels pass the gates",
    )
    _add_printing(parser)


def _add_run(commands: _Commands) -> None:
    parser = _subcommand(commands, "run", "run a program and compare it with the float64 reference", _RUN_EXAMPLES)
    parser.add_argument(
        "--backend",
        choices=("auto", "gpu", "emulator", "ptx", "interpreter"),
        default="auto",
        help="where to run (default: a GPU if there is one, else the emulator, else the interpreter); ptx runs what "
        "nvcc makes of the kernels, without a GPU",
    )
    _add_machine(parser)
    _add_replay(parser)
    _add_sizes(parser, "the size of an axis (default: what the program says)")
    data = parser.add_mutually_exclusive_group()
    data.add_argument("--seed", type=_seed, default=0, metavar="N", help="of the random inputs (default: 0)")
    data.add_argument("--inputs", metavar="X.npz", help="take the inputs from this file, by the names of the arguments")
    parser.add_argument(
        "--verify-each",
        action="store_true",
        help="run after every pass, and name the first pass that changes the result",
    )
    parser.add_argument(
        "--no-checks", action="store_true", help="let the emulator run without watching memory: several times faster"
    )
    parser.add_argument(
        "--report", action="store_true", help="tell what each operation moved, in how many sectors, and bank conflicts"
    )
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="first print the derivation, the sizes and the predicted transfers"
    )
    _add_printing(parser)


def _output(text: str) -> str | None:
    """A path, or None for standard output."""
    return None if text == "-" else text


def _seed(text: str) -> int:
    seed = whole_number(text)
    if seed is None:
        raise argparse.ArgumentTypeError(f"'{text}' is not a seed: use a whole number from 0 on")
    return seed


def _add_explain(commands: _Commands) -> None:
    parser = _subcommand(
        commands, "explain", "tell transfers and memory at each level, and why these sizes", _EXPLAIN_EXAMPLES
    )
    _add_machine(parser)
    _add_replay(parser)
    _add_sizes(parser, "the size of an axis (default: what the program says), or several: x=1024:8192:2x, x=64:512:+64")
    parser.add_argument(
        "--against",
        action="append",
        default=[],
        choices=("unfused", "f8"),
        help="compare with the program without fusion, or with its 16-bit numbers in f8 (what the model says, no code)",
    )
    parser.add_argument(
        "--rates",
        choices=("datasheet", "sustained"),
        default="datasheet",
        help="estimate times with the datasheet's rates, or with those of the machine file that were measured to last",
    )
    parser.add_argument(
        "--plot",
        action="append",
        default=[],
        metavar="KIND=OUT.svg",
        help="draw roofline, time (over the size that varies) or transfers (over memory, with its slope)",
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--json", action="store_true", help="as JSON; docs/model.md documents it")
    what.add_argument(
        "--derivation",
        action="store_true",
        help="tell the rewrites, the law that allowed each, and costs before and after: a file that --replay takes",
    )


def _add_passes(commands: _Commands) -> None:
    parser = commands.add_parser(
        "passes",
        help="list the passes with their options, or tell all about one",
        description="List the passes in the order in which they run, with their options; or tell all about one.",
    )
    parser.add_argument("name", metavar="PASS", nargs="?", help="tell what this pass does, its IR before and after")


def _add_draw(commands: _Commands) -> None:
    parser = _subcommand(commands, "draw", "draw a program, as written or after any pass", _DRAW_EXAMPLES)
    _add_machine(parser)
    _add_replay(parser)
    _add_sizes(parser, "the size of an axis, for the numbers (default: what the program says)")
    parser.add_argument("--after", metavar="PASS", help="draw what this pass leaves (default: the program as written)")
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--rewrite",
        metavar="PASS|N",
        help="draw what this pass does, or rewrite N of the derivation: before = after, and by which laws",
    )
    what.add_argument(
        "--derivation", action="store_true", help="draw every rewrite, one below the other, down to loops"
    )
    what.add_argument(
        "--pipeline", action="store_true", help="draw which warp uses which unit when, in the main loop of each kernel"
    )
    parser.add_argument(
        "-o",
        "--output",
        type=_output,
        metavar="OUT.svg|OUT.html",
        help="write the picture there (default, and -: SVG to standard output)",
    )


def _add_cache(commands: _Commands) -> None:
    parser = commands.add_parser(
        "cache",
        help="tell what is kept on disk between runs, or remove it",
        description="Tell what is kept on disk between runs, or remove it.",
        epilog="TREADLE_CACHE names the folder, TREADLE_CACHE_LIMIT the bytes it may hold.",
    )
    parser.add_argument("--clear", action="store_true", help="remove everything that is kept")


def _add_check(commands: _Commands) -> None:
    parser = _subcommand(
        commands,
        "check",
        "try the laws of a file, stated and derived: whether the stream is what the meaning says",
        _CHECK,
    )
    parser.add_argument("--cases", type=_count, default=100, metavar="N", help="of each claim (default: 100)")
    parser.add_argument("--seed", type=_seed, default=0, metavar="N", help="of the random cases (default: 0)")
    parser.add_argument("--print", action="store_true", help="print each law first, as IR that a file may hold")


def _count(text: str) -> int:
    count = whole_number(text)
    if count is None or count < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is no count: use a whole number from 1 on")
    return count


def _add_differentiate(commands: _Commands) -> None:
    parser = _subcommand(
        commands, "differentiate", "derive the gradient of a program, as a program", _DIFFERENTIATE_EXAMPLES
    )
    parser.add_argument(
        "--of",
        type=_names,
        default=(),
        metavar="Q,K",
        help="the arguments whose gradients are computed (default: all that hold floats)",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=_output,
        metavar="OUT.mlir",
        help="write the program there (default, and -: standard output)",
    )


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip().removeprefix("%") for name in text.split(","))
    if not all(names):
        raise argparse.ArgumentTypeError(f"'{text}' names no argument between two commas: write it as Q,K")
    return names


def _add_bench(commands: _Commands) -> None:
    summary = "hold the model's predictions against what a GPU does"
    parser = commands.add_parser("bench", help=summary, description=f"{summary[:1].upper()}{summary[1:]}.")
    parser.add_argument(
        "suite", choices=("predict",), metavar="SUITE", help="predict: times and bytes, kernel by kernel"
    )
    parser.add_argument("files", nargs="*", default=[], metavar="FILE", help="programs (default: some of the examples)")
    parser.add_argument("--machine", metavar="NAME|FILE", help="the machine that this GPU is (default: by its name)")
    parser.add_argument("-o", "--output", metavar="OUT.json", help="where to write (default: benchmarks/results)")
    parser.add_argument(
        "--minutes", type=float, metavar="N", help="begin nothing after so many minutes (what was measured is written)"
    )
    parser.add_argument("--json", action="store_true", help="print the JSON, too")


def _add_tune(commands: _Commands) -> None:
    summary = "measure other ways to make a program's kernels on a GPU, and keep the fastest"
    parser = _subcommand(commands, "tune", summary, _TUNE_EXAMPLES)
    _add_machine(parser)
    _add_replay(parser)
    _add_sizes(parser, "fix the size of an axis: the kernels are made and measured for it")
    parser.add_argument(
        "--count", type=_count, default=8, metavar="N", help="other sizes of each kernel to try (default: 8)"
    )
    parser.add_argument(
        "-o", "--output", metavar="OUT.derivation", help="write the fastest there, for --replay to take"
    )
    parser.add_argument("--minutes", type=float, metavar="N", help="begin nothing after so many minutes")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--list", action="store_true", help="tell what would be tried; needs no GPU")
    what.add_argument("--json", action="store_true", help="print what was measured as JSON")


def _add_doctor(commands: _Commands) -> None:
    summary = "tell what of nvcc, GPU, PyCUDA, C++ compiler and PyTorch is here, and what each absence means"
    commands.add_parser("doctor", help=summary, description=f"{summary[:1].upper()}{summary[1:]}.")


def _subcommand(commands: _Commands, name: str, summary: str, examples: str) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        name,
        help=summary,
        description=f"{summary[:1].upper()}{summary[1:]}.",
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", metavar="FILE", help=PROGRAM)
    return parser


def _add_machine(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--machine",
        metavar="NAME|FILE",
        help="the machine to optimise for: a100, h100, h200, l40s, a variant as h100-pcie, or a .toml file",
    )
    parser.add_argument("--arch", metavar="ARCH", help="the architecture to make code for, as sm_80 or sm_90a")


def _add_replay(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--replay", metavar="DERIVATION", help="apply these rewrites, as treadle explain --derivation tells them"
    )
    parser.add_argument(
        "--pass",
        dest="pass_options",
        action="append",
        default=[],
        metavar="'PASS{OPTION=VALUE}'",
        help="give a pass of the pipeline other options (treadle passes lists them); may be given several times",
    )


def _add_sizes(parser: argparse.ArgumentParser, help: str) -> None:
    parser.add_argument("--size", action="append", default=[], metavar="AXIS=N", help=help)


def _add_printing(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--print-before", action="append", default=[], metavar="PASS", help="print the IR before a pass (or 'all')"
    )
    parser.add_argument(
        "--print-after", action="append", default=[], metavar="PASS", help="print the IR after a pass (or 'all')"
    )
    parser.add_argument(
        "--print-diff",
        action="append",
        default=[],
        metavar="PASS",
        help="print what a pass changes (or 'all'), as a unified diff",
    )


_COMPILE_EXAMPLES = """examples:
  treadle compile examples/attention.mlir -o attention.cu
  treadle compile examples/attention.mlir --machine h100 --size d=64 --report -o attention.cu
  treadle compile examples/attention.mlir --print-after fusion -o attention.cu
  treadle compile examples/attention.mlir --stop-after tiling --print-diff tiling
  treadle compile examples/attention.mlir --html attention.html
  treadle compile examples/linear_attention.mlir --pass 'coalescing{minimize=sectors}' --report -o linear.cu

The kernel takes any size of an axis that is '?' in the program. The file compiles alone with nvcc.
"""

_RUN_EXAMPLES = """examples:
  treadle run examples/attention.mlir
  treadle run examples/attention.mlir --size q=1 --size x=4096 --backend emulator
  treadle run examples/matmul.mlir --inputs inputs.npz --verify-each
"""

_CHECK = """examples:
  treadle check my_laws.mlir
  treadle check examples/attention.mlir --print

A law that states its stream is compared with its meaning; a law that does not, and a program, with the stream that
is derived. Sizes, numbers, pieces and the order of merging are random; a counterexample is made small.
"""

_EXPLAIN_EXAMPLES = """examples:
  treadle explain examples/attention.mlir --machine h100 --size q=4096 --size x=4096
  treadle explain examples/attention.mlir --json
  treadle explain examples/attention.mlir --machine a100,h100 --size x=1024:131072:2x --plot time=time.svg
  treadle explain examples/attention.mlir --machine h100 --against unfused --against f8
  treadle explain examples/attention.mlir --derivation > attention.derivation
  treadle compile examples/attention_bias.mlir --replay attention.derivation
"""

_TUNE_EXAMPLES = """examples:
  treadle tune examples/matmul.mlir --size m=4096 --size n=4096 --size k=4096 -o matmul.derivation
  treadle run examples/matmul.mlir --replay matmul.derivation --size m=4096 --size n=4096 --size k=4096
  treadle tune examples/attention.mlir --machine h100 --list

Other sizes come in the order in which the model likes them; then each pass that may be left out is left out. What is
faster stays, and the next is tried beside it. Results are compared with those of the model's choice.
"""

_DIFFERENTIATE_EXAMPLES = """examples:
  treadle differentiate examples/attention.mlir -o attention_gradient.mlir
  treadle differentiate examples/layer_norm.mlir --of X,gamma
  treadle run attention_gradient.mlir --machine h100

The gradient takes the arguments, the results and the cotangents of the results, and gives the gradients of the
arguments. It is a program as any other: every other command takes it.
"""

_DRAW_EXAMPLES = """examples:
  treadle draw examples/attention.mlir -o attention.svg
  treadle draw examples/attention.mlir --after hierarchy-choose-sizes -o schedule.svg
  treadle draw examples/attention.mlir --rewrite hierarchy-expand-streams -o loop.html
  treadle draw examples/attention.mlir --derivation --machine h100 -o derivation.html
  treadle draw examples/attention.mlir --pipeline --machine h100 -o pipeline.svg

Pictures are laid out from the IR; they need no network, follow a light or dark page, and print.
"""
