"""The laws of a file: those that it states, and those that are derived from what it states."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from treadle.compiler.errors import InternalError, TreadleError, at
from treadle.compiler.pipeline import Options, pipeline, run_passes
from treadle.dialects.diagram import ContractOp, LawOp
from treadle.dialects.hierarchy import KernelOp
from treadle.passes.expressions.reductions import keep_states_apart, reduce_alone
from treadle.passes.streams.laws import function_of, laws_of_kernel

LAST_PASS = "streaming"
"""After it a kernel says what it streams, and by which laws."""


@dataclass(frozen=True)
class Derived:
    """What the compiler derives for one function."""

    laws: tuple[LawOp, ...]
    refused: str = ""
    """Why there is no law, if there is none."""


def laws_in(module: ModuleOp) -> list[LawOp]:
    return [op for op in module.body.block.ops if isinstance(op, LawOp)]


def derive_laws(module: ModuleOp, function: FuncOp) -> Derived:
    """The laws of the streams of a function's kernels (TreadleError where a pass refuses the function)."""
    name = function.sym_name.data
    others = [law.clone() for law in laws_in(module) if law.sym_name.data != name]
    alone = ModuleOp([*others, function.clone()])
    specs = pipeline(Options())
    names = [spec.name for spec in specs]
    run_passes(alone, specs[: names.index(LAST_PASS) + 1])
    kernels = [op for op in alone.walk() if isinstance(op, KernelOp)]
    laws: list[LawOp] = []
    for kernel in kernels:
        if kernel.schedule is not None and (axes := kernel.schedule.stream.as_dict()):
            for op in [each for each in kernel.body.block.ops if isinstance(each, ContractOp)]:
                reduce_alone(op)  # what a sum begins with is none of the law
            keep_states_apart(kernel, next(iter(axes)))
            laws += laws_of_kernel(kernel)
    if laws:
        return Derived(tuple(laws))
    return Derived((), "nothing is reduced over an axis" if kernels else "no operation of it can be a kernel")


def derive_stream(module: ModuleOp, law: LawOp) -> Derived:
    """The streams that follow from the meaning of a law (TreadleError where none does)."""
    if len(law.over_axes) != 1:
        return Derived((), f"it is over {len(law.over_axes)} axes, and one is streamed at a time")
    try:
        return derive_laws(module, function_of(law))
    except InternalError:  # a mistake of treadle's own says nothing about the law
        raise
    except TreadleError as error:
        raise at(law, f"no stream follows from its meaning: {error.message}") from error
