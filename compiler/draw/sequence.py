"""Pictures of one program at several moments: `before = after`, and a derivation as a strip, rewrite by rewrite."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.utils.arg_spec import ArgSpec

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
    """A program after a rewrite of a pass, with the steps of the derivation that say what was done; the first frame
    is the program as written."""

    name: str
    steps: Sequence[StepAttr]
    picture: Picture


class Frames(Observer):
    """Keeps a picture of the program as written and after every rewrite that changes the picture. Steps that leave
    the picture as it is, a second law of one rewrite or a refusal, stand with the rewrite that they belong to."""

    def __init__(self, module: ModuleOp, sizes: Mapping[str, int], table: bool = False):
        self.sizes = sizes
        self.table = table
        self.running = ""
        self.told = steps_of(module)
        self.drawn = _text_of(module)
        self.waiting: list[StepAttr] = []
        self.frames = [Frame("", (), self.draw(module))]

    def draw(self, module: ModuleOp) -> Picture:
        return draw_module(module, self.sizes, table=self.table, legend=self.table)

    def before_pass(self, spec: ArgSpec, module: ModuleOp) -> None:
        self.running = spec.name

    def after_rewrite(self, module: ModuleOp) -> None:
        self._look(module)

    def after_pass(self, run: PassRun, module: ModuleOp) -> None:
        self._look(module)

    def _look(self, module: ModuleOp) -> None:
        steps = steps_of(module)
        new = [*(step for step in steps if step not in self.told), *self.waiting]
        self.told, self.waiting = steps, []
        last, text = self.frames[-1], _text_of(module)
        picture = last.picture if text == self.drawn else self.draw(module)
        self.drawn = text
        if picture.shapes != last.picture.shapes:
            self.frames.append(Frame(self.running, new, picture))
        elif last.name == self.running:
            self.frames[-1] = replace(last, steps=(*last.steps, *new))
        else:
            self.waiting = new


def _text_of(module: ModuleOp) -> str:
    """All that is drawn of a module: its operations without what the function says of itself."""
    parts = (op.body.ops if isinstance(op, FuncOp) else (op,) for op in module.ops)
    return "\n".join(str(op) for part in parts for op in part)


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
    """All frames from top to bottom; between them an equals sign, the number of the rewrite, its pass and its laws."""
    picture = Picture(0, MARGIN, title)
    for i, frame in enumerate(frames):
        lines = reasons(frame.steps)
        if i:
            picture.shapes += _heading(f"{i}  {frame.name}", lines, picture.height)
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
