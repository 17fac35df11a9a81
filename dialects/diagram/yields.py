"""`diagram.yield`: how regions of `diagram` operations end."""

from __future__ import annotations

from xdsl.dialects.utils import AbstractYieldOperation
from xdsl.ir import Attribute
from xdsl.irdl import irdl_op_definition, lazy_traits_def
from xdsl.traits import HasParent, IsTerminator, OpTrait


def _traits() -> tuple[OpTrait, ...]:
    # Imported when asked for: these operations hold regions that end with this one.
    from treadle.dialects.diagram.law import LawOp
    from treadle.dialects.diagram.map import MapOp
    from treadle.dialects.diagram.recurrence import RecurrenceOp

    return (IsTerminator(), HasParent(MapOp, LawOp, RecurrenceOp))


@irdl_op_definition
class YieldOp(AbstractYieldOperation[Attribute]):
    """The values that a region of a `diagram` operation gives back."""

    name = "diagram.yield"

    traits = lazy_traits_def(_traits)
