"""Pictures of one program at several moments: `before = after` of one pass, and a derivation as a strip."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from treadle.compiler.draw.program import MARGIN, draw_module
from treadle.compiler.draw.svg import Line, Picture, Text
from treadle.compiler.pipeline import Observer, PassRun
from treadle.dialects.hierarchy.schedule import StepAttr, derivation_of

LINE = 18.0
EQUALS = 56.0
WIDEST = 1700.0
"""Pictures that together are wider than this stand one below the other."""


@dataclass(frozen=True)
class Frame:
    """A program after a pass, with what the pass says that it did; the first frame is the program as written."""

    name: str
    steps: Sequence[StepAttr]
    picture: Picture


class Frames(Observer):
    """Keeps a picture of the program as written and after every pass that changes the picture."""

    def __init__(self, module: ModuleOp, sizes: Mapping[str, int], table: bool = False):
        self.sizes = sizes
        self.table = table
        self.told = 0
        self.frames = [Frame("", (), self.draw(module))]

    def draw(self, module: ModuleOp) -> Picture:
        return draw_module(module, self.sizes, table=self.table, legend=self.table)

    def after_pass(self, run: PassRun, module: ModuleOp) -> None:
        steps = steps_of(module)
        picture = self.draw(module)
        if picture.body() != self.frames[-1].picture.body():
            self.frames.append(Frame(run.name, steps[self.told :], picture))
            self.told = len(steps)


def steps_of(module: ModuleOp) -> list[StepAttr]:
    """The derivation of the module's function so far."""
    functions = (op for op in module.walk() if isinstance(op, FuncOp))
    return [step for function in functions for step in derivation_of(function.attributes)]


def before_after(before: Picture, after: Picture, name: str, steps: Sequence[StepAttr]) -> Picture:
    """One pass: the program before it and after it, with an equals sign between, and the laws that allow it below."""
    wide = before.width + EQUALS + after.width > WIDEST
    picture = Picture(0, 0, f"{name}: before = after")
    if wide:
        _stack(picture, [before, after])
    else:
        _side_by_side(picture, before, after)
    return _with_reasons(picture, name, steps)


def derivation_strip(frames: Sequence[Frame], title: str) -> Picture:
    """All frames from top to bottom; an equals sign, the pass and its laws stand between them."""
    picture = Picture(0, MARGIN, title)
    for i, frame in enumerate(frames):
        lines = reasons(frame.steps)
        if i:
            picture.shapes += _heading(frame.name, lines, picture.height)
            picture.height += LINE * (1 + len(lines)) + 14
        picture.put(frame.picture, MARGIN, picture.height)
        picture.height += frame.picture.height
        picture.width = max([picture.width, frame.picture.width + 2 * MARGIN, *_right_ends(lines)])
    return picture


def reasons(steps: Sequence[StepAttr]) -> list[str]:
    """One line for each law that was used, with what it was used on."""
    subjects: dict[str, list[str]] = {}
    for rewrite, subject, law, _ in (step.texts() for step in steps):
        subjects.setdefault(law or rewrite, []).append(subject)
    return [f"{law}: {_few(what)}" for law, what in subjects.items()]


def _few(subjects: Sequence[str]) -> str:
    shown = "; ".join(subjects[:3])
    return shown if len(subjects) <= 3 else f"{shown} and {len(subjects) - 3} more"


def _right_ends(lines: Sequence[str]) -> Iterator[float]:
    return (Text(MARGIN + 44, 0, line, "muted").bounds[2] + MARGIN for line in lines)


def _heading(name: str, lines: Sequence[str], top: float) -> Iterator[Line | Text]:
    yield Line(((MARGIN + 2, top + 14), (MARGIN + 26, top + 14)), "equals")
    yield Line(((MARGIN + 2, top + 22), (MARGIN + 26, top + 22)), "equals")
    yield Text(MARGIN + 44, top + LINE, name, "title")
    for i, line in enumerate(lines):
        yield Text(MARGIN + 44, top + LINE * (i + 2), line, "muted")


def _side_by_side(picture: Picture, before: Picture, after: Picture) -> None:
    picture.height = max(before.height, after.height)
    middle = picture.height / 2
    picture.put(before, 0, (picture.height - before.height) / 2)
    x = before.width + 14
    picture.shapes += [Line(((x, y), (x + EQUALS - 28, y)), "equals") for y in (middle - 5, middle + 5)]
    picture.put(after, before.width + EQUALS, (picture.height - after.height) / 2)
    picture.width = before.width + EQUALS + after.width


def _stack(picture: Picture, pictures: Sequence[Picture]) -> None:
    for i, part in enumerate(pictures):
        if i:
            picture.shapes += [
                Line(((MARGIN, picture.height + y), (MARGIN + 28, picture.height + y)), "equals") for y in (10, 20)
            ]
            picture.height += 30
        picture.put(part, 0, picture.height)
        picture.height += part.height
        picture.width = max(picture.width, part.width)


def _with_reasons(picture: Picture, name: str, steps: Sequence[StepAttr]) -> Picture:
    lines = reasons(steps)
    picture.shapes.append(Text(MARGIN, picture.height + LINE, name, "title"))
    for i, line in enumerate(lines):
        picture.shapes.append(Text(MARGIN, picture.height + LINE * (i + 2), line, "muted"))
    picture.width = max([picture.width, *_right_ends(lines)])
    picture.height += LINE * (1 + len(lines)) + MARGIN
    return picture
