"""Pieces of arrays, and what moves them between levels."""

from __future__ import annotations

from xdsl.dialects.builtin import IndexType, StringAttr
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from treadle.dialects.diagram.array import (
    axes_of,
    check_array,
    format_of,
    level_of,
    shape_of,
    size_text,
)
from treadle.dialects.hierarchy.stream import GroupOp, StreamOp


@irdl_op_definition
class LoadOp(IRDLOperation):
    """Bring the piece of an array that the enclosing groups and streams select to a nearer level.

    ```
    %Qt = hierarchy.load %Q : !Q -> tensor<64x64xf16, #diagram.array<[q, d], level = shared>>
    ```
    """

    name = "hierarchy.load"

    source = operand_def()
    result = result_def()

    traits = traits_def(Pure())
    assembly_format = "$source attr-dict `:` type($source) `->` type($result)"

    def __init__(self, source: SSAValue | Operation, result_type: Attribute):
        super().__init__(operands=[source], result_types=[result_type])

    def verify_(self) -> None:
        check_array(self.source.type, "the source")
        check_array(self.result.type, "the piece")
        _check_piece(self, self.result.type, self.source.type, "loaded")


@irdl_op_definition
class SaveOp(IRDLOperation):
    """Write a piece to its place in an array at device level.

    ```
    hierarchy.save %o into %O : !Ot, memref<?x64xf16, #diagram.array<[q, d], level = device>>
    ```
    """

    name = "hierarchy.save"

    value = operand_def()
    destination = operand_def()

    assembly_format = "$value `into` $destination attr-dict `:` type($value) `,` type($destination)"

    def __init__(self, value: SSAValue | Operation, destination: SSAValue):
        super().__init__(operands=[value, destination])

    def verify_(self) -> None:
        check_array(self.value.type, "the piece")
        check_array(self.destination.type, "the destination")
        _check_piece(self, self.value.type, self.destination.type, "saved")


@irdl_op_definition
class PieceOp(IRDLOperation):
    """Where the piece of an axis that the enclosing groups and streams select begins, and where it ends (one past its
    last position); of an axis that none of them cuts, all of it.

    ```
    %q0, %q_end = hierarchy.piece "q" : index, index
    ```
    """

    name = "hierarchy.piece"

    axis = prop_def(StringAttr)
    first = result_def(IndexType())
    end = result_def(IndexType())

    traits = traits_def(Pure())
    assembly_format = "$axis attr-dict `:` type($first) `,` type($end)"

    def __init__(self, axis: str):
        super().__init__(properties={"axis": StringAttr(axis)}, result_types=[IndexType(), IndexType()])


def partitions_around(op: Operation) -> dict[str, int]:
    """Size of the pieces of every axis that a group or stream around `op` partitions."""
    sizes: dict[str, int] = {}
    parent = op.parent_op()
    while parent is not None:
        if isinstance(parent, GroupOp | StreamOp):
            sizes = {**parent.partition.as_dict(), **sizes}
        parent = parent.parent_op()
    return sizes


def _check_piece(op: Operation, piece: Attribute, whole: Attribute, verb: str) -> None:
    if axes_of(piece) != axes_of(whole):
        raise VerifyException(f"axes [{', '.join(axes_of(whole))}] are {verb} as [{', '.join(axes_of(piece))}]")
    if format_of(piece) != format_of(whole):
        raise VerifyException(f"{format_of(whole)} is {verb} as {format_of(piece)}: cast it at a near level")
    if level_of(whole) != "device":
        raise VerifyException(f"pieces are {verb} between a nearer level and 'device', not {level_of(whole)}")
    parts = partitions_around(op)
    for axis, size, full in zip(axes_of(piece), shape_of(piece), shape_of(whole), strict=True):
        wanted = parts.get(axis, full)
        if size != wanted:
            raise VerifyException(
                f"axis '{axis}' of the piece has size {size_text(size)}, but its pieces here are {size_text(wanted)}"
            )
