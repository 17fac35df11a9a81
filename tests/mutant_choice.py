"""Chooses sizes with one mistake in the way, in a process of its own: `python mutant_choice.py NAME`.

Exits with 1 at the first promise that is not kept, with 0 if all are: the choice is the fastest of all candidates by
estimates one by one, at the sizes of the program; what is asked for is taken; what is predicted is what the lowered
kernel has in shared memory and what the interpreter counts; nothing has more than the machine."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from math import log
from typing import Any

from mutated import ROOT, mutate
from mutations_choice import MUTATIONS

MACHINE = "a100"
CHOOSING = "hierarchy-choose-sizes"
PROGRAMS: dict[str, Mapping[str, int]] = {
    "examples/matmul.mlir": {"m": 300, "n": 264, "k": 328},
    "examples/attention.mlir": {"b": 1, "h": 2, "q": 150, "x": 333},
    "examples/attention_causal.mlir": {"b": 1, "h": 2, "q": 150, "x": 150},
    "examples/attention_bias.mlir": {"b": 1, "h": 2, "q": 150, "x": 333},
    "examples/softmax_matmul.mlir": {"row": 67, "x": 150, "e": 40},
}
"""And sizes at which transfers are counted."""
LARGE = {"m": 8192, "n": 4096, "k": 4096, "b": 8, "h": 16, "q": 2048, "x": 2048, "row": 16384, "e": 512}
"""Sizes that a choice is made for, none of them what it takes where nothing is said."""
ASKED = {
    "examples/matmul.mlir": {"group": "m=64,n=32", "stream": "k=32"},
    "examples/attention.mlir": {"group": "b=1,h=1,q=32", "stream": "x=48"},
    "examples/attention_causal.mlir": {"group": "b=1,h=1,q=32", "stream": "x=48"},
    "examples/attention_bias.mlir": {"group": "b=1,h=1,q=32", "stream": "x=48"},
    "examples/softmax_matmul.mlir": {"group": "row=32,e=16", "stream": "x=48"},
}
"""Not what would be chosen."""
MORE = 1.02
"""What reductions exchange between warps is so little that the model leaves it out."""
WITHIN = 0.02
"""Estimates so near to each other say nothing, as a logarithm."""


def complaints() -> Iterator[str]:
    for path in PROGRAMS:
        for promise in (is_fastest, takes_what_is_asked, keeps_what_is_stated, predicts_memory, predicts_transfers):
            yield from (f"{path}: {said}" for said in promise(path))


def through(
    path: str, last: str, asked: Mapping[str, str] | None = None, before: Callable[[Any], None] | None = None
) -> Any:
    """A program after the pass `last`, made for large sizes; `asked` of the choice, `before` of its schedules."""
    from xdsl.utils.arg_spec import ArgSpec

    from treadle.compiler.pipeline import Options, pipeline, run_passes
    from treadle.compiler.sizes import set_default_sizes
    from treadle.compiler.source import load_module
    from treadle.runtime.interpreter import entry_function

    module = load_module(ROOT / path)
    function = entry_function(module)
    set_default_sizes(function, {axis: LARGE[axis] for axis in PROGRAMS[path]})
    options = {CHOOSING: {key: (text,) for key, text in (asked or {}).items()}}
    specs = [ArgSpec(each.name, options.get(each.name, each.parameters)) for each in pipeline(Options(machine=MACHINE))]
    names = [each.name for each in specs]
    first = names.index(CHOOSING)
    run_passes(module, specs[:first])
    if before is not None:
        before(kernel_of(module))
    run_passes(module, specs[first : names.index(last) + 1])
    return module


def kernel_of(module: Any) -> Any:
    from treadle.dialects.hierarchy import KernelOp

    (kernel,) = (op for op in module.walk() if isinstance(op, KernelOp))
    return kernel


def is_fastest(path: str) -> Iterator[str]:
    from treadle.compiler.cost import estimate, merit, plan_of, sketch_of
    from treadle.compiler.cost.choice.candidates import candidates
    from treadle.compiler.machines import load_machine
    from treadle.dialects.diagram.array import DYNAMIC

    machine, kernel = load_machine(MACHINE), kernel_of(through(path, CHOOSING))
    sketch = sketch_of(kernel, kernel.schedule)
    sizes = {axis: LARGE[axis] if size == DYNAMIC else size for axis, size in sketch.sizes.items()}
    chosen = estimate(plan_of(kernel), machine, sizes)
    if chosen is None:
        yield "what is chosen does not fit"
        return
    if chosen.footprint.registers_per_thread > machine.limits.registers_per_thread or chosen.footprint.spilled:
        yield f"{chosen.footprint.registers_per_thread} registers a thread, and {chosen.footprint.spilled} more"
    for each in every(candidates(sketch, sizes, {})):
        found = estimate(sketch.plan(each.tiles, each.warps, rereads=each.rereads), machine, sizes)
        if found is None:
            continue
        its, best = merit(found), merit(chosen)
        if its.spills < best.spills or (its.spills == best.spills and log(its.time_us / best.time_us) < -WITHIN):
            yield f"{each.tiles} would take {its.time_us:.4g} us, and what is chosen {best.time_us:.4g}"
            return


def every(found: Any) -> Iterator[Any]:
    return (found[i] for i in range(len(found)))


def takes_what_is_asked(path: str) -> Iterator[str]:
    yield from _differences(kernel_of(through(path, CHOOSING, ASKED[path])), path)


def keeps_what_is_stated(path: str) -> Iterator[str]:
    kernel = kernel_of(through(path, CHOOSING, before=partial(_state, path=path)))
    yield from _differences(kernel, path)


def _pieces(path: str) -> dict[str, dict[str, int]]:
    split = {kind: (entry.split("=") for entry in text.split(",")) for kind, text in ASKED[path].items()}
    return {kind: {axis: int(size) for axis, size in entries} for kind, entries in split.items()}


def _state(kernel: Any, path: str) -> None:
    """Write down the size of the pieces of each axis, as a person may in the IR."""
    schedule, pieces = kernel.schedule, _pieces(path)
    kernel.schedule = schedule.but(group=pieces["group"], stream=pieces["stream"])


def _differences(kernel: Any, path: str) -> Iterator[str]:
    schedule, pieces = kernel.schedule, _pieces(path)
    got = {"group": schedule.group.as_dict(), "stream": schedule.stream.as_dict()}
    if got != pieces:
        yield f"{pieces} was said, and {got} is taken"


def predicts_memory(path: str) -> Iterator[str]:
    from treadle.compiler.cost import plan_of
    from treadle.compiler.cost.levels.memory import footprint
    from treadle.compiler.machines import load_machine
    from treadle.dialects import cuda

    machine = load_machine(MACHINE)
    predicted = footprint(plan_of(kernel_of(through(path, CHOOSING))), machine).shared_bytes
    kernels = (op for op in through(path, "coalescing").walk() if isinstance(op, cuda.KernelOp))
    for kernel in kernels:
        if not predicted <= kernel.shared_bytes.data <= MORE * predicted:
            yield f"{kernel.shared_bytes.data} bytes of shared memory, {predicted} predicted"
        if kernel.shared_bytes.data > machine.limits.shared_per_block:
            yield f"{kernel.shared_bytes.data} bytes of shared memory are more than a block has"


def predicts_transfers(path: str) -> Iterator[str]:
    """Of the decorated kernel, what the interpreter then counts of the explicit one."""
    from treadle.compiler.cost import plan_of, sizes_of_kernel, transfer_bytes
    from treadle.runtime.inputs import axis_sizes, make_inputs
    from treadle.runtime.interpreter import entry_function, run_function

    kernel, module = kernel_of(through(path, CHOOSING)), through(path, "hierarchy-expand-streams")
    function = entry_function(module)
    sizes = axis_sizes(function, PROGRAMS[path])
    execution = run_function(module, make_inputs(function, sizes, 0), sizes=sizes)
    counted = sum(sum((*each.loaded_bytes.values(), *each.saved_bytes.values())) for each in execution.transfers)
    predicted = transfer_bytes(plan_of(kernel), "device", sizes_of_kernel(kernel, None, sizes))
    if counted != predicted:
        yield f"{counted} bytes cross the border of device memory, {predicted} predicted"


if __name__ == "__main__":
    mutate(MUTATIONS, sys.argv[1:])
    said = next(complaints(), "")
    print(said)
    sys.exit(1 if said else 0)
