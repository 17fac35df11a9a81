"""Reading a derivation: the passes of a file, in order, with their options; and options of single passes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from xdsl.utils.arg_spec import ArgSpec

from treadle.compiler.derivation.line import Line
from treadle.compiler.errors import TreadleError, excerpt
from treadle.compiler.overrides import read_override, read_passes
from treadle.compiler.pipeline import make_pass
from treadle.compiler.universe import PASSES


def read_derivation(path: str) -> tuple[ArgSpec, ...]:
    """The passes of a derivation (TreadleError): one a line; `#` begins a comment,
    but in quotes."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")  # some editors begin a file with a mark of the encoding
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        raise TreadleError(f"cannot read the derivation {path}: {reason}") from error
    specs: list[ArgSpec] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if _without_comment(line):
            specs.append(_read_line(path, number, line))
    if not specs:
        raise TreadleError("there is no pass in this derivation: write one a line, as treadle explain does", path)
    return tuple(specs)


def read_overrides(texts: str | Sequence[str]) -> tuple[ArgSpec, ...]:
    """Passes as `coalescing{minimize=sectors}`, each with the options that it is to have (TreadleError)."""
    specs = [read_override(text) for text in ([texts] if isinstance(texts, str) else texts)]
    for spec in specs:
        if spec.name in PASSES:  # else the pipeline says which it has
            make_pass(spec)
    return tuple(specs)


def _without_comment(line: str) -> str:
    """What stands before the first `#` that is in no quotes."""
    quoted = False
    for i, character in enumerate(line):
        if character == "#" and not quoted:
            return line[:i].strip()
        if character == '"':
            quoted = not quoted
    return line.strip()


def _read_line(path: str, number: int, line: str) -> ArgSpec:
    """The pass of a line, once it is known that there is such a pass and that it takes these options."""
    where, shown = f"{path}:{number}:1", excerpt(line, number, 1, len(line.rstrip()))
    try:
        specs = read_passes(_without_comment(line))
    except TreadleError as error:
        raise TreadleError(f"a line of a derivation is pass{{option=value}}: {error}", where, shown) from error
    if len(specs) != 1:
        raise TreadleError(f"a line holds one pass, this one holds {len(specs)}", where, shown)
    try:
        make_pass(specs[0])
    except TreadleError as error:
        raise TreadleError(error.message, where, shown) from error
    return Line(specs[0].name, specs[0].parameters, where, shown)
