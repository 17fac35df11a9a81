"""What warps hold as parts of one result: on the way to the whole, each warp's part is an element along an axis."""

from __future__ import annotations

from collections.abc import Iterable

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, result_def, traits_def
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from treadle.dialects.cuda.layout import LayoutAttr, Mode
from treadle.dialects.cuda.tiles import check_fragment, layout_of
from treadle.dialects.diagram.array import axes_of, format_of, sizes_of


@irdl_op_definition
class PartsOp(IRDLOperation):
    """What each warp holds as its part of one result, as an element along an axis that is the last of its own: the
    warps that held copies by their types lie along it. Nothing moves, and no thread does anything.

    ```
    %m_parts = cuda.parts %m : !m -> !m_by_warp
    ```

    It follows a reduction along an axis that several warps share, marked `partial`, whose lanes were combined.
    """

    name = "cuda.parts"

    value = operand_def(TensorType)
    result = result_def(TensorType)

    traits = traits_def(Pure())
    assembly_format = "$value attr-dict `:` type($value) `->` type($result)"

    def __init__(self, value: SSAValue, result_type: Attribute):
        super().__init__(operands=[value], result_types=[result_type])

    @property
    def axis(self) -> str:
        """The axis along which the parts lie."""
        return axes_of(self.result.type)[-1]

    def verify_(self) -> None:
        check_fragment(self.value.type, "the value")
        check_fragment(self.result.type, "the result")
        sizes, parts = sizes_of(self.value.type), sizes_of(self.result.type)
        *others, last = parts or [""]
        if others != list(sizes) or {axis: parts[axis] for axis in others} != sizes:
            raise VerifyException("parts have the axes and sizes of the value, and one axis more behind them")
        if format_of(self.value.type) != format_of(self.result.type):
            raise VerifyException(f"parts are {format_of(self.value.type)}, as the value is")
        layout = layout_of(self.result.type)
        along = [mode for mode in layout.warp if mode.axis == last]
        if {mode.axis for mode in (*layout.register, *layout.lane)} & {last} or layout.extent(last) != parts[last]:
            raise VerifyException(f"parts lie along '{last}' by warps alone, one of each warp that has one")
        if not along or layout.slice(sizes) != layout_of(self.value.type):
            raise VerifyException("parts lie in the threads and registers of the value")


def warps_along(layout: LayoutAttr, axes: Iterable[str]) -> int:
    """How many warps share the elements along some axes."""
    over = set(axes)
    count = 1
    for mode in layout.warp:
        count *= mode.size if mode.axis in over else 1
    return count


def parts_layout(layout: LayoutAttr, axes: Iterable[str], parts: str) -> LayoutAttr:
    """The layout of the parts of what is reduced along `axes`: those of its warps lie along `parts`."""
    over = set(axes)
    kept = {axis for axis in layout.axes() if axis not in over}
    sliced, stride = layout.slice(kept), 1
    warps: list[Mode] = []
    for mode in reversed(tuple(layout.warp)):
        if mode.axis in over:
            warps.insert(0, Mode(parts, mode.size, stride))
            stride *= mode.size
        else:
            warps.insert(0, mode)
    return LayoutAttr(sliced.register, sliced.lane, warps)


def gathered_layout(layout: LayoutAttr, parts: str, count: int) -> LayoutAttr:
    """Where `layout` is that of a result, the layout in which every thread holds all parts of its elements."""
    return LayoutAttr((*layout.register, Mode(parts, count, 1)), layout.lane, layout.warp)
