"""A compilation as text: what is saved, and kept on disk."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from treadle.compiler.errors import TreadleError

FILE_FORMAT = "treadle kernel 1"
"""What a saved kernel begins with; another number is another layout of the file."""


@dataclass(frozen=True)
class Texts:
    """A compilation as text, which is all that is kept of it on disk."""

    version: str
    machine: str
    arch: str
    diagram: str
    """The program, as it was given."""
    hierarchy: str
    """The program after its schedule was chosen and its streams were expanded."""
    host: str
    """The module at `cuda` level."""
    cuda: str
    derivation: Sequence[Sequence[str]] = field(default_factory=list[list[str]])
    estimate: Sequence[float | None] = ()
    """The fields of an `Estimate`, once somebody asked for it."""


@dataclass(frozen=True)
class Estimate:
    """What a compilation costs at the sizes that the program says, in short: it is kept beside the texts, for to read
    the cost off the schedule takes longer than to read all of it from disk."""

    kernels: int
    time_us: float | None
    device_bytes: float
    """Of all arrays that kernels read or write, one kernel after the other."""


def to_json(texts: Texts) -> str:
    return json.dumps({"format": FILE_FORMAT, **asdict(texts)}, indent=1)


def from_json(text: str, name: str) -> Texts:
    """What `to_json` wrote (TreadleError)."""
    from treadle import __version__

    try:
        data = json.loads(text)
        if data.pop("format") != FILE_FORMAT:
            raise KeyError("format")
        texts = Texts(**data)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise TreadleError(f"{name} is no saved kernel: write one with Kernel.save") from None
    if texts.version != __version__:
        raise TreadleError(
            f"{name} was saved by treadle {texts.version}, this is {__version__}: compile the program again"
        )
    return texts


__all__ = ["Estimate", "Texts", "from_json", "to_json"]
