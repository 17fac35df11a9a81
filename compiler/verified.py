"""What is known to be valid IR: a module that verified, and is what it was then."""

from __future__ import annotations

from typing import Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

State = list[tuple[Any, ...]]
"""All that a verifier can see of each operation of a module. It keeps what it names alive, so that nothing else can
come to be in the same place."""


class Verified:
    """Verifies a module when it is another than the last time: half of the passes find nothing to rewrite, and finding
    that out takes a tenth of the time of verifying."""

    def __init__(self) -> None:
        self._known: State | None = None

    def verify(self, module: ModuleOp) -> None:
        """(VerifyException)"""
        now = [_state(op) for op in module.walk()]
        if now == self._known:
            return
        self._known = None
        module.verify()
        self._known = now


def _state(op: Operation) -> tuple[Any, ...]:
    blocks = tuple((block, tuple(arg.type for arg in block.args)) for region in op.regions for block in region.blocks)
    return (
        op,
        op.parent,
        op.operands[:],
        tuple(result.type for result in op.results),
        tuple(op.properties.items()),
        tuple(op.attributes.items()),
        blocks,
        op.successors[:],
    )
