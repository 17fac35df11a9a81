"""How the cost model calls an array."""

from __future__ import annotations

from xdsl.ir import SSAValue


def name_of(value: SSAValue, otherwise: str) -> str:
    return value.name_hint or otherwise
