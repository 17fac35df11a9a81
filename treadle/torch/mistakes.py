# pyright: standard
"""Mistakes of treadle's own that an attempt at a graph meets: the graph runs all the same, and the user is told of each
once. Without a word a graph would be cut where none has to be, and nobody would know what to report."""

from __future__ import annotations

import os
import traceback
import warnings
from collections.abc import Sequence

from torch.fx import Node

from treadle.compiler.errors import InternalError, describe
from treadle.torch.report import said, source
from treadle.torch.tensors import Failed, Unsupported

SHOWN = 12
"""Operations that one warning names."""


class Mistakes:
    """Of all attempts at one graph, each with the fewest operations that led to it."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[Sequence[Node], Exception]] = {}

    def note(self, nodes: Sequence[Node], error: Exception) -> str:
        """Why these nodes are no program. A refusal is no mistake, and is only said."""
        told = error if isinstance(error, Unsupported) else describe(error)
        known = self._found.get(str(told))
        if isinstance(told, InternalError | Failed) and (known is None or len(nodes) < len(known[0])):
            self._found[str(told)] = nodes, error
        return str(told)

    def tell(self) -> None:
        """One warning for each (RuntimeWarning), and where it happened if TREADLE_TRACEBACK asks for that."""
        for what, (nodes, error) in self._found.items():
            if os.environ.get("TREADLE_TRACEBACK"):
                traceback.print_exception(error)
            warnings.warn(_told(nodes, what), RuntimeWarning, stacklevel=4)


def _told(nodes: Sequence[Node], what: str) -> str:
    names = [said(node) for node in nodes]
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    lines = dict.fromkeys(filter(None, map(source, nodes)))
    written = f" (written as {'; '.join([*lines][:SHOWN])})" if lines else ""
    return (
        f"treadle failed at {', '.join(names[:SHOWN])}{more}{written}, which PyTorch or other kernels do instead. "
        f"Results are right, if slower. {what}"
    )


__all__ = ["Mistakes"]
