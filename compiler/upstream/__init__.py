"""Syntax of upstream MLIR that xDSL 0.74 does not read: named structured operations, as current printers write them.

They become the `linalg.generic` that they stand for."""

from treadle.compiler.upstream.forms import FORMS, Form

__all__ = ["FORMS", "Form"]
