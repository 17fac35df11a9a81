"""`treadle tune`: other ways to make a program's kernels, measured on a GPU; the fastest is kept as a derivation."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterator, Sequence
from math import inf
from pathlib import Path
from time import monotonic
from typing import Any

from xdsl.dialects.builtin import ModuleOp

from treadle.compiler.cli.bench import machine_called
from treadle.compiler.cli.program import Program, check_outputs, compile_options, load_program
from treadle.compiler.derivation.record import Recorder
from treadle.compiler.errors import TreadleError
from treadle.compiler.explain.text import aligned
from treadle.compiler.files import write_whole
from treadle.compiler.machines import load_machine
from treadle.compiler.pipeline import pipeline, run_passes
from treadle.compiler.progress import clear, progress
from treadle.compiler.sizes import default_sizes, set_default_sizes
from treadle.compiler.tune.alternatives import Alternative, left_out, sized_kernels
from treadle.compiler.tune.search import OWN, STATED, Tried, fastest, tune


def command(arguments: Namespace) -> int:
    if arguments.minutes is not None and not arguments.minutes > 0:
        raise TreadleError(f"--minutes is {arguments.minutes:g}: give a positive number of minutes")
    program = load_program(arguments)
    check_outputs(arguments, arguments.output)
    if arguments.list:
        set_default_sizes(program.function, program.sizes)
        return _list(program, arguments)
    return _measure(program, arguments)


def _list(program: Program, arguments: Namespace) -> int:
    passes = pipeline(compile_options(arguments, dict(program.sizes)))
    with progress("looking for alternatives"):
        kernels = list(sized_kernels(program.module, passes, arguments.count))
        without = list(left_out(program.module, passes))
    rows = [("way", "model us")]
    rows += [_row(each.own, f"; {OWN if each.is_model else STATED}") for each in kernels]
    rows += [_row(other) for each in kernels for other in each.others]
    rows += [_row(each) for each in without]
    print("\n".join(aligned(rows, left={0})))
    return 0


def _row(way: Alternative, how: str = "") -> tuple[str, str]:
    return f"{way}{how}", "" if way.model_us is None else f"{way.model_us:.4g}"


def _measure(program: Program, arguments: Namespace) -> int:
    from treadle.runtime.gpu import missing_for_gpu

    if (missing := missing_for_gpu()) is not None:
        raise TreadleError(f"{missing}; nothing was measured (--list tells what would be)")
    from treadle.compiler.bench.gpu import Gpu
    from treadle.compiler.tune.gpu import Runs

    gpu = Gpu()
    machine = load_machine(arguments.machine) if arguments.machine else machine_called(gpu.name)
    arguments.machine = arguments.machine or machine.name
    set_default_sizes(program.function, program.sizes)
    passes = pipeline(compile_options(arguments, dict(program.sizes)))
    sizes = default_sizes(program.function) | program.sizes
    until = inf if arguments.minutes is None else monotonic() + 60 * arguments.minutes
    own = STATED if arguments.replay or arguments.pass_options else OWN
    tried: list[Tried] = []
    with progress("measuring"):
        runs = Runs(gpu, machine, program.function, sizes)
        for each in tune(program.module, passes, runs, arguments.count, until, own):
            tried.append(each)
            if not arguments.json:
                clear()
                print(line_of(each, tried[0]), flush=True)
    if arguments.output is not None:
        name = program.function.sym_name.data
        write_whole(arguments.output, derivation_text(program.module, name, gpu.name, sizes, tried))
    print(_json(gpu.name, machine.name, sizes, tried) if arguments.json else "\n".join(_end(tried, arguments.output)))
    return 0


def line_of(tried: Tried, first: Tried) -> str:
    """`1.08  12.3 us (model 12.9)  @matmul with m = 128, n = 256, k = 64; stays`"""
    if tried.seconds is None or first.seconds is None:
        return f"   -  {tried.what}: {tried.reason}"
    model = "" if tried.model_us is None else f" (model {tried.model_us:.4g})"
    stays = "; stays" if tried.stays and tried is not first else ""
    return f"{first.seconds / tried.seconds:4.2f}  {tried.seconds * 1e6:.4g} us{model}  {tried.what}{stays}"


def derivation_text(module: ModuleOp, name: str, device: str, sizes: dict[str, int], tried: Sequence[Tried]) -> str:
    """The fastest, with all that its passes decide, as `--replay` takes it; what was measured as comments."""
    recorder = Recorder(sizes)
    run_passes(module.clone(), fastest(tried).passes, recorder)
    measured = "".join(f"#   {line_of(each, tried[0])}\n" for each in tried)
    head = f"# the fastest of these on {device}, beside the first:\n{measured}\n"
    return head + recorder.text(f"derivation of @{name}")


def _end(tried: Sequence[Tried], path: str | None) -> Iterator[str]:
    best, first = fastest(tried), tried[0]
    if best is first:
        yield f"nothing was faster than the first, {first.what}"
    elif best.seconds is not None and first.seconds is not None:
        yield f"the fastest takes {best.seconds * 1e6:.4g} us, {first.seconds / best.seconds:.2f} times as fast"
    if path is not None:
        yield f"written to {path}: treadle compile FILE --replay {Path(path).name}"


def _json(device: str, machine: str, sizes: dict[str, int], tried: Sequence[Tried]) -> str:
    rows: list[dict[str, Any]] = [
        {
            "what": each.what,
            "measured_us": None if each.seconds is None else each.seconds * 1e6,
            "model_us": each.model_us,
            "reason": each.reason,
            "stays": each.stays,
        }
        for each in tried
    ]
    passes = [str(each) for each in fastest(tried).passes]
    data = {"what": "tune", "machine": device, "model": machine, "sizes": sizes, "tried": rows, "passes": passes}
    return json.dumps(data, indent=2)
