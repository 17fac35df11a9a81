"""Writing the derivation of a program while passes run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from textwrap import fill

from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.arg_spec import ArgSpec

from treadle.compiler.derivation.costs import moved_bytes
from treadle.compiler.derivation.story import REFUSALS
from treadle.compiler.pipeline import Observer, PassRun
from treadle.dialects.hierarchy import KernelOp
from treadle.dialects.hierarchy.schedule import UNDECIDED, ScheduleAttr, StepAttr, derivation_of
from treadle.passes._functions import functions

WIDTH = 118


@dataclass(frozen=True)
class Entry:
    """One line of a derivation: a pass with its decisions, and what it did."""

    spec: str
    steps: tuple[StepAttr, ...]
    before: int | None
    after: int | None
    """Bytes that cross the border of device memory; None where that is not known."""


@dataclass
class Recorder(Observer):
    """Notes each pass with the decisions that it made, the laws that it used, and the cost before and after."""

    sizes: Mapping[str, int]
    compares: bool = True
    entries: list[Entry] = field(default_factory=list[Entry])
    _known: set[StepAttr] = field(default_factory=set[StepAttr])
    _before: int | None = None
    _schedules: Mapping[str, ScheduleAttr] = field(default_factory=dict[str, ScheduleAttr])

    def before_pass(self, spec: ArgSpec, module: ModuleOp) -> None:
        self._before = _cost(module, self.sizes)
        self._schedules = {kernel.kernel_name.data: kernel.schedule for kernel in _kernels(module) if kernel.schedule}

    def after_pass(self, run: PassRun, module: ModuleOp) -> None:
        steps = [step for function in functions(module) for step in derivation_of(function.attributes)]
        new = tuple(step for step in steps if step not in self._known)
        self._known |= set(new)
        after = _cost(module, self.sizes)
        *first, last = _decided(run.spec, module, self._schedules)
        self.entries += [Entry(spec, (), None, None) for spec in first]
        self.entries.append(Entry(last, new, self._before, after))

    def text(self, title: str) -> str:
        """The derivation as a file, which `replay` reads."""
        return "\n".join(_lines(title, self.sizes, self.entries)) + "\n"


def _cost(module: ModuleOp, sizes: Mapping[str, int]) -> int | None:
    lowered = any(op.dialect_name() == "cuda" for op in module.walk())
    return None if lowered else moved_bytes(module, sizes)


def _kernels(module: ModuleOp) -> list[KernelOp]:
    return [op for op in module.walk() if isinstance(op, KernelOp)]


def _decided(spec: ArgSpec, module: ModuleOp, before: Mapping[str, ScheduleAttr]) -> list[str]:
    """The pass once for each kernel whose schedule it has changed, with what it has decided there as options: what
    earlier lines decided is theirs to say. The kernel is named only where there are several, so that a derivation fits
    other programs with the same axes."""
    kernels = _kernels(module)
    lines: list[str] = []
    for kernel in kernels:
        own = kernel.kernel_name.data
        name = f"kernel={own} " if len(kernels) > 1 else ""
        if kernel.schedule is None or kernel.schedule == before.get(own):
            continue
        for options in _options(spec.name, kernel.schedule, before.get(own)):
            lines.append(f"{spec.name}{{{name}{options}}}" if name or options else spec.name)
    return lines or [str(spec)]


def _options(name: str, schedule: ScheduleAttr, before: ScheduleAttr | None) -> list[str]:
    """What a pass has decided for a kernel, once for each time that it has to be asked; nothing where it decides
    nothing that an option says."""
    if name == "streaming":
        return [f"axis={axis}" for axis in schedule.stream.as_dict()]
    if name == "hierarchy-choose-sizes":
        return [" ".join(_sizes(schedule))]
    if name == "hierarchy-promote-sums":
        promoted = schedule.promote.as_dict().items()
        return [f"axis={axis} every={size}" for axis, size in promoted]
    if name == "hierarchy-subloop":
        walked = before.subloop.as_dict() if before is not None else {}
        pieces = schedule.subloop.as_dict().items()
        return [f"axis={axis} size={size}" for axis, size in pieces if walked.get(axis) != size]
    return []


def _sizes(schedule: ScheduleAttr) -> Iterator[str]:
    parts = {"group": schedule.group, "stream": schedule.stream, "warps": schedule.warps, "cluster": schedule.cluster}
    yield from (f'{key}="{_spell(part.as_dict())}"' for key, part in parts.items() if part.as_dict())
    if schedule.left.data:
        yield f"left={schedule.left.data}"
    if schedule.turns.data != UNDECIDED:
        yield f"turns={schedule.turns.data}"


def _spell(sizes: Mapping[str, int]) -> str:
    return ",".join(f"{axis}={size}" for axis, size in sizes.items())


def _lines(title: str, sizes: Mapping[str, int], entries: list[Entry]) -> Iterator[str]:
    yield f"# {title}"
    at = ", ".join(f"{axis} = {size}" for axis, size in sizes.items())
    if all(entry.after is None for entry in entries):
        yield "# no costs, which are for sizes of the axes: give them, as in --size q=1000"
    else:
        yield f"# costs: bytes over the border of device memory{f' at {at}' if at else ''}"
    for entry in entries:
        yield ""
        yield entry.spec
        for step in entry.steps:
            rewrite, subject, law, reason = step.texts()
            refused = next((f"{word} " for word in REFUSALS if rewrite.startswith(word)), "")
            said = f"{refused}{subject}: {law}" if law else f"{refused}{subject}"
            yield fill(
                f"{said}; {reason}" if reason else said,
                WIDTH,
                initial_indent="#   ",
                subsequent_indent="#     ",
                break_on_hyphens=False,
                break_long_words=False,
            )
        if entry.after is not None:
            change = "" if entry.before == entry.after else f"{entry.before or 0:,} -> "
            yield f"#   cost {change}{entry.after:,}"
