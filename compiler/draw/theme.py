"""Colours, line styles and fonts of every picture, for light pages, dark pages and paper.

The colours of levels are those of Okabe and Ito, which colour-blind readers can tell apart; levels also differ in the
width of their lines and, in print, stay apart without colour. Nothing is downloaded: fonts are what the reader has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

LEVELS = ("device", "shared", "register")

LEVEL_TITLES = {
    "device": "device memory",
    "l2": "L2",
    "cluster": "distributed shared memory",
    "shared": "shared memory",
    "register": "registers",
}


@dataclass(frozen=True)
class Palette:
    paper: str
    ink: str
    muted: str
    line: str
    box: str
    changed: str
    levels: Mapping[str, str]
    tints: Mapping[str, str]
    units: Mapping[str, str]


LIGHT = Palette(
    paper="#ffffff",
    ink="#1b1f24",
    muted="#5b6570",
    line="#b6bec8",
    box="#f4f6f8",
    changed="#fff3c4",
    levels={"device": "#1b1f24", "shared": "#c04a00", "register": "#0067a8"},
    tints={"device": "#ffffff", "shared": "#fdeee2", "register": "#e6f2fa"},
    units={
        "copies": "#e69f00",
        "tensor": "#56b4e9",
        "special": "#cc79a7",
        "scalar": "#e69f00",
        "float": "#009e73",
        "shared": "#f0e442",
        "other": "#b6bec8",
    },
)

DARK = Palette(
    paper="#0d1117",
    ink="#e6edf3",
    muted="#9aa5b1",
    line="#46505c",
    box="#1c232c",
    changed="#3d3413",
    levels={"device": "#e6edf3", "shared": "#f0a04b", "register": "#6cc0f2"},
    tints={"device": "#0d1117", "shared": "#2a2019", "register": "#142634"},
    units=LIGHT.units,
)

WIDTHS = {"device": 1.3, "shared": 2.4, "register": 1.8}

SERIF = '"STIX Two Text", "Latin Modern Math", "Cambria Math", Cambria, Georgia, "Times New Roman", serif'
SANS = 'ui-sans-serif, system-ui, "Helvetica Neue", Arial, sans-serif'


def stylesheet() -> str:
    """The rules that all pictures share; a page of several pictures has them once."""
    return "\n".join(
        [
            _fixed_rules(),
            _colours(LIGHT),
            f"@media (prefers-color-scheme: dark) {{\n{_colours(DARK)}\n}}",
            f"@media print {{\n{_colours(LIGHT)}\n.td .paper {{ fill: none; }}\n}}",
        ]
    )


def _fixed_rules() -> str:
    rules = [
        f".td text {{ font-family: {SANS}; font-size: 12px; }}",
        f".td .m {{ font-family: {SERIF}; font-size: 16px; }}",
        ".td .m .it { font-style: italic; }",
        ".td .m .sub, .td .m .sup { font-size: 70%; }",
        ".td .m .sub { font-style: italic; }",
        ".td .mid { text-anchor: middle; } .td .end { text-anchor: end; }",
        ".td .small { font-size: 11px; } .td .cell { font-size: 13px; } .td .bold { font-weight: 600; }",
        ".td .inside { pointer-events: none; }",  # who points at the text of a box means the box
        ".td .title { font-size: 14px; font-weight: 600; }",
        ".td .wire { fill: none; stroke-linecap: round; }",
        ".td .scalar { stroke-dasharray: 1 4; }",
        ".td .unit { opacity: 0.65; }",
        ".td .box { stroke-width: 1.2; stroke-linejoin: round; }",
        ".td .parting { stroke-width: 1; stroke-dasharray: 4 3; fill: none; }",
        ".td .phase { stroke-width: 1.2; fill: none; }",
        ".td .barrier { stroke-width: 3; stroke-dasharray: 2 4; fill: none; }",
        ".td .rule { stroke-width: 0.8; fill: none; }",
        ".td .odd { fill-opacity: 0.65; }",
        ".td text.on-unit { fill: #111; }",
        ".td .equals { stroke-width: 2; fill: none; }",
    ]
    return "\n".join([*rules, *(f".td .w-{level} {{ stroke-width: {w}; }}" for level, w in WIDTHS.items())])


def _colours(palette: Palette) -> str:
    rules = [
        f".td .paper {{ fill: {palette.paper}; }}",
        f".td text {{ fill: {palette.ink}; }} .td .muted {{ fill: {palette.muted}; }}",
        f".td .box {{ fill: {palette.box}; stroke: {palette.ink}; }}",
        f".td .equals {{ stroke: {palette.ink}; }}",
        f".td .parting, .td .rule {{ stroke: {palette.line}; }}",
        f".td .phase, .td .barrier {{ stroke: {palette.muted}; }}",
        f".td .changed {{ fill: {palette.changed}; }}",
    ]
    for level, colour in palette.levels.items():
        rules.append(f".td .w-{level} {{ stroke: {colour}; }} .td text.l-{level} {{ fill: {colour}; }}")
        rules.append(f".td .t-{level} {{ fill: {palette.tints[level]}; }}")
    for unit, colour in palette.units.items():
        rules.append(f".td .u-{unit} {{ fill: {colour}; stroke: {palette.paper}; }}")
    return "\n".join(rules)
