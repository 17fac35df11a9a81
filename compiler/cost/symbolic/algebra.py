"""The door to sympy, which states no types and takes half a second to import: only what prints or solves expressions
comes through here, never what chooses sizes."""

from __future__ import annotations

from importlib import import_module
from typing import Any, TypeAlias

Expr: TypeAlias = Any
"""A sympy expression."""

sympy: Any = import_module("sympy")
simplex: Any = import_module("sympy.solvers.simplex")
