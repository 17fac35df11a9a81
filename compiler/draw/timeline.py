"""The pipeline picture: what each worker (a warp, a warpgroup) does on each unit over time, widths in clocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import floor, log10

from treadle.compiler.cost.timing.schedule import WARM_UP, Slot, Timeline
from treadle.compiler.draw.mathtext import text_width
from treadle.compiler.draw.svg import Area, Line, Picture, Shape, Text
from treadle.compiler.draw.theme import LIGHT

STEPS = 3
"""Repetitions that are shown."""
WIDTH = 1300.0
HEIGHT = 26.0
"""Of a bar."""
BETWEEN = 7.0
WORKERS_APART = 14.0
MARGIN = 16.0


@dataclass(frozen=True)
class Labels:
    """How a picture speaks of its timeline."""

    title: str
    worker: str = "warp"


def draw_timeline(timeline: Timeline, labels: Labels) -> Picture:
    """Three steps, once the timeline repeats itself. A thick dotted line is a barrier: a worker was ready, and goes on
    when another leaves the unit."""
    begin = min(slot.start for slot in timeline.slots if slot.step == WARM_UP)
    end = begin + STEPS * timeline.clocks_of_step
    slots = [slot for slot in timeline.slots if slot.end > begin and slot.start < end]
    units = list(dict.fromkeys(stage.unit for stage in timeline.stages))
    names = [f"{labels.worker} {worker + 1}, {unit}" for worker in range(timeline.workers) for unit in units]
    left = MARGIN + max(text_width(name, 12) for name in names) + 12
    first = min(slot.step for slot in slots)
    frame = _Frame(first, begin, end, left, WIDTH / (end - begin), MARGIN + 50, units)
    picture = Picture(left + WIDTH + MARGIN, frame.bottom(timeline.workers) + 62, f"pipeline of {labels.title}")
    picture.shapes += [
        Text(MARGIN, MARGIN + 14, labels.title, "title"),
        Text(MARGIN, MARGIN + 34, _summary(timeline), "muted"),
        *_rows(frame, names, timeline.workers),
        *_barriers(frame, slots),  # behind the bars, so that no name is crossed
        *(shape for slot in slots for shape in _bar(frame, slot)),
        *_clock(frame, timeline.workers),
        *_legend(frame, timeline.workers),
    ]
    return picture


def _summary(timeline: Timeline) -> str:
    used = ", ".join(f"{unit} {share:.0%} busy" for unit, share in timeline.use.items())
    return f"{timeline.clocks_of_step:,.0f} clocks for one step of all; {used}"


@dataclass(frozen=True)
class _Frame:
    """Where clocks and rows stand."""

    first: int
    """The first step that is seen."""
    begin: float
    end: float
    left: float
    scale: float
    top: float
    units: Sequence[str]

    def x(self, clock: float) -> float:
        return self.left + (min(max(clock, self.begin), self.end) - self.begin) * self.scale

    def y(self, worker: int, unit: str) -> float:
        of_worker = len(self.units) * (HEIGHT + BETWEEN) + WORKERS_APART
        return self.top + worker * of_worker + self.units.index(unit) * (HEIGHT + BETWEEN)

    def bottom(self, workers: int) -> float:
        return self.y(workers - 1, self.units[-1]) + HEIGHT


def _rows(frame: _Frame, names: Sequence[str], workers: int) -> Iterator[Shape]:
    places = [(worker, unit) for worker in range(workers) for unit in frame.units]
    for name, (worker, unit) in zip(names, places, strict=True):
        y = frame.y(worker, unit)
        yield Text(frame.left - 10, y + HEIGHT / 2 + 4, name, "end")
        yield Line(((frame.left, y + HEIGHT), (frame.left + WIDTH, y + HEIGHT)), "rule")


def colour_of(unit: str) -> str:
    kind = unit.split()[0]
    return kind if kind in LIGHT.units else "other"


def _bar(frame: _Frame, slot: Slot) -> Iterator[Shape]:
    """Its name stands in it if there is room; later steps are lighter and darker in turns."""
    x0, x1, y = frame.x(slot.start), frame.x(slot.end), frame.y(slot.worker, slot.stage.unit)
    if x1 - x0 < 0.1:
        return
    about = f"{slot.stage.name} of step {slot.step - frame.first}: {slot.stage.clocks:,.0f} clocks on {slot.stage.unit}"
    odd = " odd" if slot.step % 2 else ""
    yield Area(x0, y, x1 - x0, HEIGHT, f"u-{colour_of(slot.stage.unit)}{odd}", 2.0, about)
    long, short = f"{slot.stage.name} · {slot.step - frame.first}", slot.stage.name
    label = next((text for text in (long, short) if text_width(text, 12) + 4 <= x1 - x0), "")
    if label:
        yield Text((x0 + x1) / 2, y + HEIGHT / 2 + 4, label, "mid on-unit")


def _barriers(frame: _Frame, slots: Sequence[Slot]) -> Iterator[Shape]:
    """A handover: one worker leaves a unit at the moment when another, that was ready before, begins on it."""
    ends = {(slot.worker, slot.step, slot.stage.name): slot.end for slot in slots}
    for slot in slots:
        ready = [end for name, lag in slot.stage.after if (end := ends.get((slot.worker, slot.step - lag, name)))]
        if slot.start < frame.begin or not ready or max(ready) >= slot.start - 1e-9:
            continue
        left = [other for other in slots if other.stage.unit == slot.stage.unit and abs(other.end - slot.start) < 1e-9]
        for other in left:
            if other.worker != slot.worker:
                rows = sorted((frame.y(slot.worker, slot.stage.unit), frame.y(other.worker, other.stage.unit)))
                x = frame.x(slot.start)
                yield Line(((x, rows[0] - 3), (x, rows[1] + HEIGHT + 3)), "barrier")


def _clock(frame: _Frame, workers: int) -> Iterator[Shape]:
    """The axis, in clocks."""
    y = frame.bottom(workers) + 12
    yield Line(((frame.left, y), (frame.left + WIDTH, y)), "phase")
    span = frame.end - frame.begin
    tick = 10 ** floor(log10(span / 4))
    tick *= next(factor for factor in (1, 2, 5, 10) if span / (tick * factor) <= 10)
    clocks = 0.0
    while clocks <= span:
        x = frame.left + clocks * frame.scale
        yield Line(((x, y), (x, y + 5)), "phase")
        yield Text(x, y + 17, f"{clocks:,.0f}", "small mid muted")
        clocks += tick
    yield Text(frame.left - 10, y + 17, "clocks", "small end muted")


def _legend(frame: _Frame, workers: int) -> Iterator[Shape]:
    x, y = frame.left, frame.bottom(workers) + 50
    for unit in frame.units:
        yield Area(x, y - 10, 14, 12, f"u-{colour_of(unit)}", 2.0)
        text = Text(x + 20, y, unit, "small")
        yield text
        x = text.bounds[2] + 20
    yield Line(((x + 4, y - 13), (x + 4, y + 4)), "barrier")
    yield Text(x + 14, y, "waits for another to leave the unit", "small")
