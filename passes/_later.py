"""Passes that come later in the pipeline, run where one before them tries something: by name, for their files import
what tries it."""

from __future__ import annotations

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from treadle.compiler.universe import PASSES, loader


def run_later(module: ModuleOp, *names: str) -> None:
    """Run passes, without options, in this order (Refusal, TreadleError as they raise)."""
    for name in names:
        loader(PASSES[name])()().apply(Context(), module)


__all__ = ["run_later"]
