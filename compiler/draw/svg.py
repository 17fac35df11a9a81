"""A picture as shapes with coordinates, and its text as SVG."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from itertools import groupby
from typing import TypeAlias

from treadle.compiler.draw.mathtext import math_width, plain_text, text_width, tspans
from treadle.compiler.draw.theme import stylesheet

Point: TypeAlias = tuple[float, float]

SIZES = {"m": 16.0, "cell": 13.0, "small": 11.0, "title": 14.0}
"""Font sizes by class, in pixels; all else is 12."""


@dataclass(frozen=True)
class Text:
    """One line of text; `y` is its baseline."""

    x: float
    y: float
    text: str
    kind: str = ""
    """Classes: `m` for mathematics, `mid` or `end` for where `x` is, `small`, `muted`, `l-shared` ..."""
    about: str = ""
    """What pointing at it tells."""

    @property
    def size(self) -> float:
        classes = self.kind.split()
        return next((SIZES[name] for name in ("cell", "small", "title", "m") if name in classes), 12.0)

    @property
    def width(self) -> float:
        measure = math_width if "m" in self.kind.split() else text_width
        return measure(self.text, self.size)

    @property
    def bounds(self) -> tuple[float, float, float, float]:
        """Left, top, right, bottom."""
        classes = self.kind.split()
        left = self.x - (self.width / 2 if "mid" in classes else self.width if "end" in classes else 0)
        return (left, self.y - 0.75 * self.size, left + self.width, self.y + 0.2 * self.size)


@dataclass(frozen=True)
class Wire:
    """A curve through points, with horizontal tangents there."""

    points: Sequence[Point]
    kind: str = ""


@dataclass(frozen=True)
class Box:
    """A function: `shape` is `box`, `map`, `contract`, `fold`, `cast` or `source`."""

    x: float
    y: float
    width: float
    height: float
    shape: str = "box"
    about: str = ""
    mark: str = ""
    """An identity for scripts."""


@dataclass(frozen=True)
class Line:
    """Straight lines from point to point."""

    points: Sequence[Point]
    kind: str


@dataclass(frozen=True)
class Area:
    """A filled rectangle."""

    x: float
    y: float
    width: float
    height: float
    kind: str
    radius: float = 0.0
    about: str = ""


@dataclass(frozen=True)
class Band:
    """A filled region between an upper and a lower edge, each a smooth curve from left to right."""

    upper: Sequence[Point]
    lower: Sequence[Point]
    kind: str


Shape: TypeAlias = Text | Wire | Box | Line | Area | Band


@dataclass
class Picture:
    """Shapes, from back to front, in a frame that begins at 0, 0."""

    width: float
    height: float
    title: str
    shapes: list[Shape] = field(default_factory=list[Shape])

    def put(self, other: Picture, x: float, y: float) -> None:
        """Copy another picture into this one."""
        self.shapes += [moved(shape, x, y) for shape in other.shapes]

    def texts(self) -> list[Text]:
        return [shape for shape in self.shapes if isinstance(shape, Text)]

    def boxes(self) -> list[Box]:
        return [shape for shape in self.shapes if isinstance(shape, Box)]

    def wires(self) -> list[Wire]:
        return [shape for shape in self.shapes if isinstance(shape, Wire)]

    def body(self) -> str:
        """Only the elements, for a page that has the rules and frames already."""
        return "\n".join(_elements(self.shapes))

    def svg(self, styled: bool = True) -> str:
        """A whole SVG file, or with `styled=False` an element for a page with the rules."""
        width, height = round(self.width), round(self.height)
        style = f"<style>{stylesheet()}</style>\n" if styled else ""
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="td" xml:space="preserve" '
            f'viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
            f'aria-label="{escape(self.title)}">\n{style}'
            f'<rect class="paper" width="{width}" height="{height}"/>\n{self.body()}\n</svg>\n'
        )


def moved(shape: Shape, x: float, y: float) -> Shape:
    if isinstance(shape, Wire | Line):  # most of what a picture holds, and `replace` takes its time
        return type(shape)(_moved(shape.points, x, y), shape.kind)
    if isinstance(shape, Band):
        return replace(shape, upper=_moved(shape.upper, x, y), lower=_moved(shape.lower, x, y))
    if isinstance(shape, Text):
        return Text(shape.x + x, shape.y + y, shape.text, shape.kind, shape.about)
    return replace(shape, x=shape.x + x, y=shape.y + y)


def _moved(points: Sequence[Point], x: float, y: float) -> list[Point]:
    return [(px + x, py + y) for px, py in points]


def stacked(pictures: Sequence[Picture], title: str, gap: float = 24) -> Picture:
    """Pictures one below the other."""
    whole = Picture(max((p.width for p in pictures), default=0), 0, title)
    for picture in pictures:
        whole.put(picture, 0, whole.height)
        whole.height += picture.height + gap
    whole.height = max(0.0, whole.height - gap)
    return whole


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _elements(shapes: Sequence[Shape]) -> Iterator[str]:
    """Neighbouring wires of one kind are one element: most of a picture is wires, and its text half as long."""
    for wires, group in groupby(shapes, key=lambda shape: isinstance(shape, Wire)):
        if not wires:
            yield from (_element(shape) for shape in group)
            continue
        kinds: dict[str, list[str]] = {}
        for wire in group:
            assert isinstance(wire, Wire)
            kinds.setdefault(wire.kind, []).append(_smooth(wire.points))
        yield from (_path("".join(parts), f"wire {kind}") for kind, parts in kinds.items())


def _element(shape: Shape) -> str:
    if isinstance(shape, Text):
        return _text(shape)
    if isinstance(shape, Wire):
        return _path(_smooth(shape.points), f"wire {shape.kind}")
    if isinstance(shape, Line):
        return _path(_straight(shape.points), shape.kind)
    if isinstance(shape, Band):
        back = _smooth(list(reversed(shape.lower))).replace("M", "L", 1)
        return _path(f"{_smooth(shape.upper)}{back}Z", shape.kind)
    if isinstance(shape, Area):
        radius = f' rx="{_number(shape.radius)}"' if shape.radius else ""
        return _titled(
            f'<rect class="{shape.kind}" x="{_number(shape.x)}" y="{_number(shape.y)}" '
            f'width="{_number(shape.width)}" height="{_number(shape.height)}"{radius}',
            "rect",
            shape.about,
        )
    mark = f' data-op="{escape(shape.mark)}"' if shape.mark else ""
    return _titled(f'<path class="box"{mark} d="{_outline(shape)}"', "path", shape.about)


def _text(text: Text) -> str:
    classes = f' class="{text.kind}"' if text.kind else ""
    inner = tspans(text.text) if "m" in text.kind.split() else escape(text.text)
    label = f' aria-label="{escape(plain_text(text.text))}"' if "<tspan" in inner and inner.count("<tspan") > 1 else ""
    title = f"<title>{escape(text.about)}</title>" if text.about else ""
    return f'<text{classes} x="{_number(text.x)}" y="{_number(text.y)}"{label}>{title}{inner}</text>'


def _path(data: str, kind: str, about: str = "") -> str:
    return _titled(f'<path class="{kind.strip()}" d="{data}"', "path", about)


def _titled(start: str, tag: str, about: str) -> str:
    return f"{start}><title>{escape(about)}</title></{tag}>" if about else f"{start}/>"


def _straight(points: Iterable[Point]) -> str:
    return "M" + "L".join(f"{_number(x)} {_number(y)}" for x, y in points)


def _smooth(points: Sequence[Point]) -> str:
    """Cubic curves with horizontal tangents at every point; level stretches stay straight."""
    (x0, y0), *rest = points
    parts = [f"M{_number(x0)} {_number(y0)}"]
    for x, y in rest:
        if abs(y - y0) < 0.05:
            parts.append(f"H{_number(x)}")
        else:
            middle = _number((x0 + x) / 2)
            parts.append(f"C{middle} {_number(y0)} {middle} {_number(y)} {_number(x)} {_number(y)}")
        x0, y0 = x, y
    return "".join(parts)


def _outline(box: Box) -> str:
    left, top, right, bottom = box.x, box.y, box.x + box.width, box.y + box.height
    n, middle = _number, _number((top + bottom) / 2)
    if box.shape == "contract":  # flat where the wires come in, round where they have met
        r = min(box.height / 2, box.width * 0.75)
        return (
            f"M{n(left)} {n(top)}H{n(right - r)}A{n(r)} {n(box.height / 2)} 0 0 1 {n(right - r)} {n(bottom)}H{n(left)}Z"
        )
    if box.shape == "fold":  # narrows: many become one
        inset = box.height * 0.28
        return f"M{n(left)} {n(top)}L{n(right)} {n(top + inset)}V{n(bottom - inset)}L{n(left)} {n(bottom)}Z"
    if box.shape == "map":  # an arrow: each element goes its own way
        return f"M{n(left)} {n(top)}H{n(right - 7)}L{n(right)} {middle}L{n(right - 7)} {n(bottom)}H{n(left)}Z"
    if box.shape == "cast":
        return (
            f"M{n(left)} {n(top)}H{n(right - 6)}L{n(right)} {middle}L{n(right - 6)} {n(bottom)}"
            f"H{n(left)}L{n(left + 6)} {middle}Z"
        )
    r = n(min(6.0 if box.shape == "box" else 11.0, box.height / 2))
    return (
        f"M{n(left + float(r))} {n(top)}H{n(right - float(r))}a{r} {r} 0 0 1 {r} {r}V{n(bottom - float(r))}"
        f"a{r} {r} 0 0 1 -{r} {r}H{n(left + float(r))}a{r} {r} 0 0 1 -{r} -{r}V{n(top + float(r))}"
        f"a{r} {r} 0 0 1 {r} -{r}Z"
    )
