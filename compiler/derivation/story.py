"""What a compilation leaves behind to be told: the derivation, and the schedule of each kernel."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from treadle.compiler.pipeline import LAST_DECORATING_PASS, Observer, PassRun
from treadle.dialects.hierarchy import KernelOp
from treadle.dialects.hierarchy.schedule import StepAttr, derivation_of

REFUSALS = ("decline", "keep apart")
"""How the steps begin of rewrites that were not made."""


class Story(Observer):
    """Notes, while passes run, what later levels no longer show."""

    def __init__(self, compares: bool = False) -> None:
        self.compares = compares
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
        ("subloop", schedule.subloop),
        ("cluster", schedule.cluster),
        ("promote", schedule.promote),
    )
    return "; ".join(
        f"{name} {', '.join(f'{axis} = {size}' for axis, size in part.as_dict().items())}"
        for name, part in parts
        if part.as_dict()
    )


__all__ = ["REFUSALS", "Story", "schedule_text"]
