"""Tensor copies from shared to device memory, and what orders them with the threads that fill and reuse the tile
(PTX ISA 9.7.9.27.1.2, 9.7.9.27.2 and 9.7.13.4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from xdsl.dialects.builtin import IndexType, MemRefType, UnitAttr
from xdsl.ir import SSAValue
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, opt_prop_def, var_operand_def
from xdsl.parser import Parser
from xdsl.printer import Printer

from treadle.dialects.cuda.boxes import BoxesAttr
from treadle.dialects.cuda.roles import check_by_groups, consumers_around
from treadle.dialects.cuda.tensor_maps import TensorMapType, check_mapped
from treadle.dialects.cuda.tiles import boxes_of
from treadle.dialects.cuda.waits import Pending
from treadle.dialects.syntax import parse_attributes, print_types


@irdl_op_definition
class TensorFenceOp(IRDLOperation):
    """What a thread has written to shared memory, tensor copies may read, once a barrier has told whoever starts them
    (PTX ISA 9.7.13.4, fence.proxy.async)."""

    name = "cuda.tensor_fence"
    assembly_format = "attr-dict"

    def __init__(self) -> None:
        super().__init__()


@irdl_op_definition
class TensorStoreOp(IRDLOperation):
    """One thread starts the copies of a tile, box by box, to device memory, and closes their group; what lies outside
    of the array is not written (PTX ISA 9.7.9.27.1.2 and 9.7.9.27.2.1). Between the writes of the tile and this stand a
    `cuda.tensor_fence` and a barrier.

    ```
    cuda.tensor_store %C_staged into %C_map[%m0, %n0] : !Cs, !C_map
    cuda.tensor_store %C_staged into %C_map[%m0, %n0] by groups : !Cs, !C_map
    ```

    `by groups`: a thread of each consumer warpgroup copies an equal share of the rows of the boxes, which that
    warpgroup has written, once it has met among itself (`cuda.barrier by groups`).
    """

    name = "cuda.tensor_store"

    tile = operand_def(MemRefType)
    map = operand_def(TensorMapType)
    offsets = var_operand_def(IndexType())
    by_groups = opt_prop_def(UnitAttr)

    def __init__(self, tile: SSAValue, map: SSAValue, offsets: Sequence[SSAValue], by_groups: bool = False):
        properties = {"by_groups": UnitAttr() if by_groups else None}
        super().__init__(operands=[tile, map, offsets], properties=properties)

    @property
    def shares(self) -> int:
        """Warpgroups that copy the tile, each a share of it."""
        return 1 if self.by_groups is None else consumers_around(self)

    @property
    def map_type(self) -> TensorMapType:
        assert isinstance(self.map.type, TensorMapType)
        return self.map.type

    @property
    def boxes(self) -> BoxesAttr:
        return boxes_of(self.tile.type)

    def verify_(self) -> None:
        check_by_groups(self, self.by_groups)
        check_mapped(self.tile.type, self.map_type, len(self.offsets), self.shares)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        tile = parser.parse_unresolved_operand()
        parser.parse_keyword("into")
        map = parser.parse_unresolved_operand()
        offsets = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_unresolved_operand)
        by_groups = parse_by_groups(parser)
        attributes = parse_attributes(parser)
        tile_type = parser.parse_type()
        parser.parse_punctuation(",")
        op = cls(
            parser.resolve_operand(tile, tile_type),
            parser.resolve_operand(map, parser.parse_type()),
            [parser.resolve_operand(offset, IndexType()) for offset in offsets],
            by_groups,
        )
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_operand(self.tile)
        printer.print_string(" into ")
        printer.print_operand(self.map)
        printer.print_string("[")
        printer.print_list(self.offsets, printer.print_operand)
        printer.print_string("]" if self.by_groups is None else "] by groups")
        print_types(printer, self, (self.tile.type, self.map.type))


@irdl_op_definition
class TensorWaitOp(Pending):
    """The thread that started tensor stores waits until at most `pending` of its newest groups still read shared memory
    (PTX ISA 9.7.9.27.2.2, cp.async.bulk.wait_group.read). A barrier must follow before others write there again.
    `by groups`: the thread of each consumer warpgroup that started its share of such stores."""

    name = "cuda.tensor_wait"

    by_groups = opt_prop_def(UnitAttr)

    def __init__(self, pending: int = 0, by_groups: bool = False):
        super().__init__(pending)
        self.by_groups = UnitAttr() if by_groups else None

    def verify_(self) -> None:
        super().verify_()
        check_by_groups(self, self.by_groups)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        parser.parse_keyword("pending")
        op = cls(parser.parse_integer(), parse_by_groups(parser))
        op.attributes |= parser.parse_optional_attr_dict()
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(f" pending {self.pending.data}{'' if self.by_groups is None else ' by groups'}")
        printer.print_op_attributes(self.attributes)


def parse_by_groups(parser: Parser) -> bool:
    if parser.parse_optional_keyword("by") is None:
        return False
    parser.parse_keyword("groups")
    return True
