"""`hierarchy.yield`: how regions of `hierarchy` operations end."""

from __future__ import annotations

from xdsl.dialects.utils import AbstractYieldOperation
from xdsl.ir import Attribute
from xdsl.irdl import irdl_op_definition, lazy_traits_def
from xdsl.traits import HasParent, IsTerminator, OpTrait


def _traits() -> tuple[OpTrait, ...]:
    # Imported when asked for: both operations hold regions that end with this one.
    from treadle.dialects.hierarchy.kernel import KernelOp
    from treadle.dialects.hierarchy.stream import StreamOp

    return (IsTerminator(), HasParent(KernelOp, StreamOp))


@irdl_op_definition
class YieldOp(AbstractYieldOperation[Attribute]):
    """The values that a region of a `hierarchy` operation gives back."""

    name = "hierarchy.yield"

    traits = lazy_traits_def(_traits)
