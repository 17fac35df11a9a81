"""A kernel in another number format, as the model sees it: nothing of it can be compiled, but what it would cost can
be said."""

from __future__ import annotations

from dataclasses import replace

from treadle.compiler.cost.kernel.issue import DEPTH, Product
from treadle.compiler.cost.reading.sketch import Crossing, Sketch, Task
from treadle.dialects.diagram.formats import SIXTEEN_BIT

F8_DEPTH = DEPTH["f8"]


def as_f8(sketch: Sketch) -> Sketch | None:
    """The same kernel with every 16-bit number as f8, as the model sees it; None where there is none."""
    if not any(each.width == 2 for each in sketch.crossings):
        return None

    def narrow(width: int) -> int:
        return 1 if width == 2 else width

    def of_task(task: Task) -> Task:
        match task.work:
            case Product(format=format) if format in SIXTEEN_BIT:
                return replace(task, work=replace(task.work, format="f8"))
            case Crossing(width=width):
                return replace(task, work=replace(task.work, width=narrow(width)))
            case _:
                return task

    multiplies = any(each.format in SIXTEEN_BIT for each in sketch.products)
    return replace(
        sketch,
        alignment=F8_DEPTH if multiplies else sketch.alignment,
        arrays=tuple((axes, narrow(width)) for axes, width in sketch.arrays),
        crossings=tuple(replace(each, width=narrow(each.width)) for each in sketch.crossings),
        tasks=tuple(map(of_task, sketch.tasks)),
        holdings=tuple(replace(each, width=narrow(each.width)) for each in sketch.holdings),
    )


def as_tf32(sketch: Sketch) -> Sketch | None:
    """The same kernel with its products of f32 on tensor cores, as `as tf32` says; None where there is none."""
    if not any(each.format == "f32" for each in sketch.products):
        return None

    def of_task(task: Task) -> Task:
        match task.work:
            case Product(format="f32"):
                return replace(task, work=replace(task.work, format="tf32"))
            case _:
                return task

    return replace(sketch, tasks=tuple(map(of_task, sketch.tasks)))
