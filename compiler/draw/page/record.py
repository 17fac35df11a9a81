"""What a page tells of a compilation, taken down while the passes run."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from zlib import compress

from xdsl.dialects.builtin import ModuleOp

from treadle.compiler.draw.costs import explain_kernels
from treadle.compiler.draw.page.costs import Costs, costs_of
from treadle.compiler.draw.page.lines import Known, Line, lines_of, marked, printed
from treadle.compiler.draw.program import draw_module
from treadle.compiler.draw.sequence import steps_of
from treadle.compiler.explain.text import explanation_text
from treadle.compiler.pipeline import LAST_HIERARCHY_PASS, Observer, PassRun, pass_sentence

SOURCE = "the program"
"""What stands first in the list of passes."""


@dataclass(frozen=True)
class Moment:
    """The program after a pass."""

    name: str
    does: str
    """The first sentence of the pass."""
    options: str
    milliseconds: float
    changed: bool
    steps: Sequence[Sequence[str]]
    """Rewrite, subject, law and reason of what the pass derived."""
    lines: Sequence[tuple[str, int]]
    """Mark of each line, and its place in the list of lines."""
    picture: int
    """Its place in the list of pictures."""
    costs: Costs


class Record(Observer):
    """Takes down every moment of a compilation. It compares by itself, for it prints the module anyway."""

    def __init__(self, module: ModuleOp, sizes: Mapping[str, int]):
        self.sizes = sizes
        self.moments: list[Moment] = []
        self.pictures: list[str] = []
        self.explanation = ""
        self.text = ""
        self.known: Known = {}
        self.lines: list[Line] = []
        self.places: dict[Line, int] = {}
        """All lines of all moments in the order of their places: most of them stand in many moments."""
        self.told = 0
        lines = self._lines(module)
        self._note(module, SOURCE, "what the file says", "", 0.0, True, [("=", line) for _, line in lines])

    def after_pass(self, run: PassRun, module: ModuleOp) -> None:
        before = self.text
        lines = self._lines(module)
        options = str(run.spec).removeprefix(run.name)
        changed = self.text != before
        self._note(module, run.name, pass_sentence(run.spec), options, run.seconds * 1e3, changed, lines)
        if run.name == LAST_HIERARCHY_PASS:
            explanation = explain_kernels(module, self.sizes)
            self.explanation = "" if explanation is None else explanation_text(explanation)

    def _lines(self, module: ModuleOp) -> list[tuple[str, Line]]:
        """What the module says now, each line marked by whether it is new."""
        now = printed(module, self.known)
        if now.text == self.text:
            return [("=", line) for line in self.lines]
        before, self.text, self.lines = self.lines, now.text, lines_of(now)
        return list(marked(before, self.lines))

    def _note(
        self,
        module: ModuleOp,
        name: str,
        does: str,
        options: str,
        milliseconds: float,
        changed: bool,
        lines: Sequence[tuple[str, Line]],
    ) -> None:
        steps = steps_of(module)
        new, self.told = steps[self.told :], max(self.told, len(steps))
        shown = [(mark, self.places.setdefault(line, len(self.places))) for mark, line in lines]
        costs = costs_of(module, self.sizes) if changed else self.moments[-1].costs
        picture = self._picture(module) if changed else self.moments[-1].picture
        moment = Moment(name, does, options, milliseconds, changed, [s.texts() for s in new], shown, picture, costs)
        self.moments.append(moment)

    def _picture(self, module: ModuleOp) -> int:
        svg = draw_module(module, self.sizes).svg(styled=False)
        if svg not in self.pictures:
            self.pictures.append(svg)
        return self.pictures.index(svg)

    def as_data(self) -> dict[str, object]:
        """What the page's script reads; pictures, most of a page, are packed."""
        lines = [(line.text, line.origin, line.defines) for line in self.places]
        pictures = [packed(picture) for picture in self.pictures]
        return {"moments": [dict(vars(moment)) for moment in self.moments], "lines": lines, "pictures": pictures}


def packed(text: str) -> str:
    """A text as zlib (RFC 1950) in base64, which browsers unpack by themselves (`DecompressionStream`)."""
    return b64encode(compress(text.encode(), 9)).decode()
