"""Names and places of what is emitted: those of the operations that it comes from."""

from __future__ import annotations

from xdsl.ir import Operation, SSAValue


def plain_name(value: SSAValue) -> str | None:
    """The name of the array that a value is a part or a state of."""
    name = value.name_hint
    for suffix in ("_piece", "_so_far", "_to", "_end"):
        name = name.removesuffix(suffix) if name else name
    return name


def named(value: SSAValue, name: str | None) -> SSAValue:
    value.name_hint = name
    return value


def hinted(value: SSAValue, source: SSAValue) -> SSAValue:
    if source.name_hint is not None:
        value.name_hint = source.name_hint
    return value


def placed(op: Operation, source: Operation, result: SSAValue, old: SSAValue) -> SSAValue:
    op.location = source.location
    return hinted(result, old)
