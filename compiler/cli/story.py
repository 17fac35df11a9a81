"""What a reader is told about a compilation: the derivation, the sizes, and the time of each pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import fill

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from treadle.compiler.pipeline import LAST_DECORATING_PASS, Observer, PassRun
from treadle.dialects.hierarchy.ops import KernelOp
from treadle.dialects.hierarchy.schedule import StepAttr, derivation_of

WIDTH = 110


class Story(Observer):
    """Notes, while passes run, what later levels no longer show."""

    def __init__(self) -> None:
        self.derivation: tuple[StepAttr, ...] = ()
        self.schedules: dict[str, str] = {}

    def after_pass(self, run: PassRun, module: ModuleOp) -> None:
        functions = [op for op in module.ops if isinstance(op, FuncOp)]
        steps = tuple(step for function in functions for step in derivation_of(function.attributes))
        self.derivation = steps or self.derivation
        if run.name == LAST_DECORATING_PASS:
            kernels = [op for op in module.walk() if isinstance(op, KernelOp)]
            self.schedules = {kernel.kernel_name.data: schedule_text(kernel) for kernel in kernels}


def schedule_text(kernel: KernelOp) -> str:
    """`group q = 64; stream x = 64; whole d = 64; warps q = 4`"""
    schedule = kernel.schedule
    if schedule is None:
        return "no schedule"
    parts = (
        ("group", schedule.group),
        ("stream", schedule.stream),
        ("whole", schedule.whole),
        ("warps", schedule.warps),
    )
    return "; ".join(
        f"{name} {', '.join(f'{axis} = {size}' for axis, size in part.as_dict().items())}"
        for name, part in parts
        if part.as_dict()
    )


def derivation_lines(steps: Sequence[StepAttr]) -> Iterator[str]:
    """One paragraph a step: what, of what, by which law, and why."""
    width = max((len(step.rewrite.data) for step in steps), default=0)
    for step in steps:
        rewrite, subject, law, reason = step.texts()
        said = f"{subject}: {law}" if law else subject
        yield _hanging(f"  {rewrite:{width}}  ", f"{said}; {reason}" if reason else said)


def schedule_lines(schedules: dict[str, str]) -> Iterator[str]:
    for kernel, text in schedules.items():
        yield _hanging(f"  @{kernel}  ", text)


def pass_lines(runs: Sequence[PassRun]) -> Iterator[str]:
    width = max((len(run.name) for run in runs), default=0)
    for run in runs:
        yield f"  {run.name:{width}}  {run.seconds * 1e3:8.1f} ms{'' if run.changed else '  (unchanged)'}"
    yield f"  {'all':{width}}  {sum(run.seconds for run in runs) * 1e3:8.1f} ms"


def _hanging(head: str, text: str) -> str:
    return fill(text, WIDTH, initial_indent=head, subsequent_indent=" " * len(head), break_on_hyphens=False)
