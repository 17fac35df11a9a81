"""Axis labels and cost terms as mathematics: italics, subscripts and superscripts, and how wide they are."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from html import escape

_PART = re.compile(r"([_^])\{([^}]*)\}|\\rm\{([^}]*)\}|([^_^\\]+)")

SCRIPT = 0.7
"""Size of a subscript beside its letter."""

_NARROW, _WIDE = "fijlrt.,:;'|!()[]{}/ ·", "mwMWΣ⌈⌉"


@dataclass(frozen=True)
class Span:
    """A run of text in one style."""

    text: str
    style: str
    """`it` (a variable), `rm` (upright), `sub` or `sup`."""


@lru_cache(maxsize=4096)  # a picture repeats few labels often
def parse_math(source: str) -> tuple[Span, ...]:
    """`g_{q}`, `d^{16}` and `\\rm{exp}` as spans; letters are italic, digits and signs are upright."""
    spans: list[Span] = []
    for script, inner, upright, plain in _PART.findall(source):
        if script:
            spans.append(Span(inner, "sub" if script == "_" else "sup"))
        elif upright:
            spans.append(Span(upright, "rm"))
        else:
            spans += _plain(plain)
    return tuple(spans)


def _plain(text: str) -> list[Span]:
    return [
        Span(run, "it" if run[0].isalpha() and run[0] not in "ΣΠ" else "rm")
        for run in re.findall(r"[^\W\d_ΣΠ][^\W_ΣΠ]*|[^A-Za-z]+|.", text)
    ]


def _em(character: str) -> float:
    if character in _NARROW:
        return 0.42
    if character in _WIDE:
        return 1.0
    return 0.76 if character.isupper() else 0.64


@lru_cache(maxsize=4096)
def text_width(text: str, size: float) -> float:
    """A safe width of plain text in any of the fonts that a reader may have."""
    return sum(_em(character) for character in text) * size


@lru_cache(maxsize=4096)  # the labels of one array stand in every column
def math_width(source: str, size: float) -> float:
    return sum(
        text_width(span.text, size * (SCRIPT if span.style in ("sub", "sup") else 1.0)) for span in parse_math(source)
    )


def tspans(source: str) -> str:
    """The inside of a `text` element. Scripts move the baseline and what follows moves it back."""
    parts: list[str] = []
    shift = 0.0
    for span in parse_math(source):
        wanted = {"sub": 0.25, "sup": -0.45}.get(span.style, 0.0)
        dy = f' dy="{wanted - shift:.2f}em"' if wanted == 0.0 and shift else ""
        if span.style in ("sub", "sup"):
            # The unit of dy is the em of the script, which is smaller.
            dy = f' dy="{(wanted - shift) / SCRIPT:.2f}em"'
        shift = wanted
        parts.append(f'<tspan class="{span.style}"{dy}>{escape(span.text)}</tspan>')
    return "".join(parts)


def plain_text(source: str) -> str:
    """What a screen reader says: `g_q`."""
    return "".join(
        f"{'_' if s.style == 'sub' else '^' if s.style == 'sup' else ''}{s.text}" for s in parse_math(source)
    )


def joined(factors: Sequence[str]) -> str:
    """A product; numbers are parted by dots."""
    sign = " · " if any(factor.isdigit() for factor in factors) else " "
    return sign.join(factors) if factors else "1"
