"""A compilation as a terminal tells it: the derivation, the sizes, and the time of each pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from textwrap import fill
from typing import TypeAlias

from treadle.compiler.derivation.story import REFUSALS
from treadle.compiler.pipeline import PassRun
from treadle.dialects.hierarchy.schedule import StepAttr

WIDTH = 110

CHOICE = "choose sizes"
"""What the derivation calls a choice of sizes."""

NOT_TAKEN = ("refused", "recomputation")
"""The laws of rewrites that do less; why is what a reader wants to know."""

Texts: TypeAlias = tuple[str, str, str, str]
"""Rewrite, subject, law, reason."""


def derivation_lines(steps: Sequence[StepAttr], *, reasons: bool = True) -> Iterator[str]:
    """One paragraph a step: what, of what, by which law, and, with `reasons`, why. Without, only refusals say why;
    the choice of sizes, which is all reason, is left to `schedule_lines`."""
    shown = [step.texts() for step in steps]
    if not reasons:
        shown = [texts if _refuses(texts) else (*texts[:3], "") for texts in shown if texts[0] != CHOICE]
    width = max((len(texts[0]) for texts in shown), default=0)
    for rewrite, subject, law, reason in _joined(shown) if reasons else _summed(_joined(shown)):
        said = f"{subject}: {law}" if law else subject
        yield _hanging(f"  {rewrite:{width}}  ", f"{said}; {reason}" if reason else said)


def _refuses(texts: Texts) -> bool:
    """Whether a step is one that was not taken, or not as far as it might."""
    return texts[0].startswith(REFUSALS) or texts[2] in NOT_TAKEN


def _summed(steps: Iterator[Texts]) -> Iterator[Texts]:
    """Neighbours that say the same of many things, as one."""
    for (rewrite, law, reason), group in groupby(steps, key=lambda texts: (texts[0], texts[2], texts[3])):
        subjects = [texts[1] for texts in group]
        more = f" and {len(subjects) - 1} more" if len(subjects) > 1 else ""
        yield rewrite, subjects[0] + more, law, reason


def _joined(steps: Sequence[Texts]) -> Iterator[Texts]:
    """Neighbours that differ only in the axis, as one: `b, h, q of @attention`."""
    kept: Texts | None = None
    for step in steps:
        if kept is not None and _same_but_axis(kept, step):
            axes, _, kernel = kept[1].partition(" of ")
            kept = (kept[0], f"{axes}, {step[1].partition(' of ')[0]} of {kernel}", kept[2], kept[3])
            continue
        if kept is not None:
            yield kept
        kept = step
    if kept is not None:
        yield kept


def _same_but_axis(left: Texts, right: Texts) -> bool:
    (_, of_left, kernel_left), (_, of_right, kernel_right) = left[1].partition(" of "), right[1].partition(" of ")
    return bool(of_left and of_right) and (left[0], kernel_left, *left[2:]) == (right[0], kernel_right, *right[2:])


def schedule_lines(schedules: dict[str, str], steps: Sequence[StepAttr] = ()) -> Iterator[str]:
    """The sizes of each kernel and, from the derivation, why these."""
    why = {subject: reason for rewrite, subject, _, reason in (step.texts() for step in steps) if rewrite == CHOICE}
    for kernel, text in schedules.items():
        yield _hanging(f"  @{kernel}  ", text)
        if reason := why.get(f"@{kernel}"):
            yield _hanging(f"  {'':{len(kernel) + 1}}  because: ", reason)


def pass_lines(runs: Sequence[PassRun]) -> Iterator[str]:
    width = max((len(run.name) for run in runs), default=0)
    for run in runs:
        yield f"  {run.name:{width}}  {run.seconds * 1e3:8.1f} ms{'' if run.changed else '  (unchanged)'}"
    yield f"  {'all':{width}}  {sum(run.seconds for run in runs) * 1e3:8.1f} ms"


def _hanging(head: str, text: str) -> str:
    return fill(text, WIDTH, initial_indent=head, subsequent_indent=" " * len(head), break_on_hyphens=False)
