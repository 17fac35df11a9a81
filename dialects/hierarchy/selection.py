"""The type of what `hierarchy.select` gives."""

from __future__ import annotations

from xdsl.ir import ParametrizedAttribute, TypeAttribute
from xdsl.irdl import irdl_attr_definition


@irdl_attr_definition
class SelectionType(ParametrizedAttribute, TypeAttribute):
    """Pieces of an axis, in ascending order."""

    name = "hierarchy.selection"
