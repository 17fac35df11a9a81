"""Operations of the `cuda` dialect."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Self, cast

from xdsl.dialects.builtin import (
    ArrayAttr,
    FloatAttr,
    IndexType,
    IntAttr,
    IntegerAttr,
    MemRefType,
    StringAttr,
    SymbolNameConstraint,
    SymbolRefAttr,
    TensorType,
    UnitAttr,
)
from xdsl.ir import Attribute, Operation, Region, SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer
from xdsl.traits import IsolatedFromAbove, NoTerminator, Pure, SymbolOpInterface
from xdsl.utils.exceptions import VerifyException

from treadle.dialects.cuda.boxes import SPANS, BoxesAttr
from treadle.dialects.cuda.layout import LayoutAttr, RowsAttr
from treadle.dialects.diagram.array import (
    Number,
    axes_of,
    check_axis_name,
    encoding_of,
    format_of,
    level_of,
    parse_axis_list,
    print_axis_list,
    sizes_of,
)
from treadle.dialects.diagram.ops import REDUCTIONS

PRODUCTS = {
    "m16n8k16": ("f16", "bf16"),
    "m16n8k8_tf32": ("f32",),
    "fma": ("f16", "bf16", "f32", "i32"),
}
"""Instructions of `cuda.product`, with the operand formats they take."""


def layout_of(type: Attribute) -> LayoutAttr:
    """The layout of a fragment (VerifyException if it has none)."""
    layout = encoding_of(type).layout
    if not isinstance(layout, LayoutAttr):
        raise VerifyException(f"{type} is not a fragment: it has no #cuda.layout")
    return layout


def rows_of(type: Attribute) -> RowsAttr:
    """The layout of a tile in shared memory (VerifyException if it has none)."""
    layout = encoding_of(type).layout
    if not isinstance(layout, RowsAttr):
        raise VerifyException(f"{type} is not a tile in shared memory: it has no #cuda.rows")
    return layout


def boxes_of(type: Attribute) -> BoxesAttr:
    """The layout of a tile for tensor copies (VerifyException if it has none)."""
    layout = encoding_of(type).layout
    if not isinstance(layout, BoxesAttr):
        raise VerifyException(f"{type} is not a tile for tensor copies: it has no #cuda.boxes")
    return layout


def is_boxed(type: Attribute) -> bool:
    """Whether a tile lies in shared memory as tensor copies bring it."""
    return is_shared(type) and isinstance(encoding_of(type).layout, BoxesAttr)


def is_fragment(type: Attribute) -> bool:
    return isinstance(encoding_of(type).layout, LayoutAttr)


def is_buffer(type: Attribute) -> bool:
    return isinstance(type, MemRefType)


def is_shared(type: Attribute) -> bool:
    return is_buffer(type) and level_of(type) == "shared"


def _check_fragment(type: Attribute, what: str) -> None:
    if not is_fragment(type):
        raise VerifyException(f"{what} is {type}: expected a fragment, a tensor with a #cuda.layout")
    layout, sizes = layout_of(type), sizes_of(type)
    for axis in layout.axes():
        if axis not in sizes:
            raise VerifyException(f"{what} has no axis '{axis}', along which its layout spreads it")
    for axis, size in sizes.items():
        if layout.extent(axis) < size:
            raise VerifyException(
                f"{what} has {size} elements along '{axis}', but its layout reaches only {layout.extent(axis)}"
            )


def _check_tile(type: Attribute, what: str) -> None:
    if not is_shared(type):
        raise VerifyException(f"{what} is {type}: expected a tile in shared memory")
    if isinstance(encoding_of(type).layout, BoxesAttr):
        return _check_boxes(type, what)
    rows, sizes = rows_of(type), sizes_of(type)
    if len(rows.shape) != len(sizes):
        raise VerifyException(f"{what} has {len(sizes)} axes, its #cuda.rows {len(rows.shape)}")
    for (axis, size), extent in zip(sizes.items(), rows.shape, strict=True):
        if extent < size:
            raise VerifyException(f"{what} has {size} elements along '{axis}', but its #cuda.rows only {extent}")
    if rows.row_axis is not None and rows.pitch.data < rows.shape[rows.row_axis]:
        raise VerifyException(f"rows of {rows.shape[rows.row_axis]} elements lie {rows.pitch.data} apart")
    if rows.swizzle_bits and rows.pitch.data % ((16 // format_bytes(type)) << rows.swizzle_bits):
        raise VerifyException(
            f"{what} is swizzled by {rows.swizzle_bits} bits, but a row of {rows.pitch.data} elements is no multiple "
            f"of {1 << rows.swizzle_bits} chunks of 16 bytes: its chunks would leave it"
        )


def _check_boxes(type: Attribute, what: str) -> None:
    boxes = boxes_of(type)
    if boxes.shape != tuple(sizes_of(type).values()):
        raise VerifyException(f"{what} has {tuple(sizes_of(type).values())} elements, its #cuda.boxes {boxes.shape}")
    if boxes.span.data * format_bytes(type) not in SPANS:
        raise VerifyException(
            f"{what} has rows of {boxes.span.data * format_bytes(type)} bytes in its boxes: 32, 64 or 128"
        )


@irdl_op_definition
class KernelOp(IRDLOperation):
    """A kernel: its arguments are buffers at device level, scalars, sizes of symbolic axes and what is known
    of alignments (`index`). The body is what every block runs.

    ```
    cuda.kernel @attention (%Q: memref<...>, %O: memref<...>, %q: index) threads 128 shared 27648 { ... }
    ```
    """

    name = "cuda.kernel"

    sym_name = prop_def(SymbolNameConstraint())
    threads = prop_def(IntAttr)
    shared_bytes = prop_def(IntAttr)
    body = region_def("single_block")

    traits = traits_def(SymbolOpInterface(), IsolatedFromAbove(), NoTerminator())

    def __init__(self, name: str, threads: int, shared_bytes: int, body: Region):
        super().__init__(
            properties={
                "sym_name": StringAttr(name),
                "threads": IntAttr(threads),
                "shared_bytes": IntAttr(shared_bytes),
            },
            regions=[body],
        )

    def verify_(self) -> None:
        check_axis_name(self.sym_name.data)
        threads = self.threads.data
        if threads % 32 or not 32 <= threads <= 1024:
            raise VerifyException(f"a block of {threads} threads: use a multiple of 32 up to 1024")
        for i, arg in enumerate(self.body.block.args):
            if is_buffer(arg.type) and level_of(arg.type) != "device":
                raise VerifyException(f"argument {i} is a buffer at level {level_of(arg.type)}, not 'device'")

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        name = parser.parse_symbol_name().data
        arguments = parser.parse_comma_separated_list(
            parser.Delimiter.PAREN, lambda: parser.parse_argument(expect_type=True)
        )
        parser.parse_keyword("threads")
        threads = parser.parse_integer()
        parser.parse_keyword("shared")
        shared = parser.parse_integer()
        attributes = parser.parse_optional_attr_dict_with_keyword()
        op = cls(name, threads, shared, parser.parse_region(arguments))
        if attributes is not None:
            op.attributes |= attributes.data
        return op

    def print(self, printer: Printer) -> None:
        printer.enter_scope()
        printer.print_string(" ")
        printer.print_symbol_name(self.sym_name.data)
        printer.print_string(" (")
        printer.print_list(self.body.block.args, printer.print_block_argument)
        printer.print_string(f") threads {self.threads.data} shared {self.shared_bytes.data}")
        if self.attributes:
            printer.print_op_attributes(self.attributes, print_keyword=True)
        printer.print_string(" ")
        printer.print_region(self.body, print_entry_block_args=False)
        printer.exit_scope()


@irdl_op_definition
class LaunchOp(IRDLOperation):
    """Run a kernel over a grid of blocks, in the variant for rows that are aligned to so many bytes; in the host
    function.

    ```
    cuda.launch @attention grid %blocks aligned %bytes (%Q, %O, %q) : memref<...>, memref<...>, index
    ```
    """

    name = "cuda.launch"

    kernel = prop_def(SymbolRefAttr)
    grid = operand_def(IndexType())
    alignment = operand_def(IndexType())
    arguments = var_operand_def()

    assembly_format = "$kernel `grid` $grid `aligned` $alignment `(` $arguments `)` attr-dict `:` type($arguments)"

    def __init__(
        self,
        kernel: str,
        grid: SSAValue | Operation,
        alignment: SSAValue | Operation,
        arguments: Sequence[SSAValue | Operation],
    ):
        super().__init__(operands=[grid, alignment, arguments], properties={"kernel": SymbolRefAttr(kernel)})


@irdl_op_definition
class AlignmentOp(IRDLOperation):
    """The bytes, a power of two and at most 16, that the rows of all these buffers are aligned to: their addresses,
    their strides and the sizes of their last axes are multiples of it. In the host function.

    ```
    %aligned = cuda.alignment %Q, %K : memref<...>, memref<...>
    ```
    """

    name = "cuda.alignment"

    buffers = var_operand_def(MemRefType)
    result = result_def(IndexType())

    traits = traits_def(Pure())
    assembly_format = "$buffers attr-dict `:` type($buffers)"

    def __init__(self, buffers: Sequence[SSAValue]):
        super().__init__(operands=[buffers], result_types=[IndexType()])


@irdl_op_definition
class BlockIndexOp(IRDLOperation):
    """The index of this block in the grid (`blockIdx.x`)."""

    name = "cuda.block_index"

    result = result_def(IndexType())

    traits = traits_def(Pure())
    assembly_format = "attr-dict"

    def __init__(self) -> None:
        super().__init__(result_types=[IndexType()])


@irdl_op_definition
class SharedOp(IRDLOperation):
    """A tile in the block's shared memory, at an offset in bytes; with `stages`, that many of it one after another. An
    `alias` is used only when all other tiles are dead, and lies where they lay.

    ```
    %K_shared = cuda.shared at 16384 stages 2 : memref<...>
    ```
    """

    name = "cuda.shared"

    offset = prop_def(IntAttr)
    stages = prop_def(IntAttr)
    alias = opt_prop_def(UnitAttr)
    result = result_def(MemRefType)

    def __init__(self, offset: int, type: Attribute, stages: int = 1, alias: bool = False):
        super().__init__(
            properties={
                "offset": IntAttr(offset),
                "stages": IntAttr(stages),
                "alias": UnitAttr() if alias else None,
            },
            result_types=[type],
        )

    @property
    def stage_bytes(self) -> int:
        """Bytes of one stage, a multiple of 128, or of 1024 where the tile lies in boxes."""
        return tile_bytes(self.result.type)

    def verify_(self) -> None:
        _check_tile(self.result.type, "the tile")
        if self.offset.data % 16:
            raise VerifyException(f"a tile at byte {self.offset.data}: tiles are aligned to 16 bytes")
        if is_boxed(self.result.type) and self.offset.data % 1024:
            raise VerifyException(f"a tile at byte {self.offset.data}: in boxes it is aligned to 1024 bytes")
        if self.stages.data < 1:
            raise VerifyException(f"a tile with {self.stages.data} stages: it has 1 or more")

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        parser.parse_keyword("at")
        offset = parser.parse_integer()
        stages = parser.parse_integer() if parser.parse_optional_keyword("stages") else 1
        alias = parser.parse_optional_keyword("alias") is not None
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        op = cls(offset, parser.parse_type(), stages, alias)
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        stages = f" stages {self.stages.data}" if self.stages.data != 1 else ""
        stages += " alias" if self.alias is not None else ""
        printer.print_string(f" at {self.offset.data}{stages}")
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.result.type)


def place_tiles(tiles: Iterable[SharedOp]) -> int:
    """Give every tile its offset, one after another; gives the bytes that all take. Aliases begin at 0."""
    end = most = 0
    for tile in tiles:
        bytes = tile.stages.data * tile.stage_bytes
        if tile.alias is not None:
            tile.offset = IntAttr(0)
            most = max(most, bytes)
            continue
        tile.offset = IntAttr(end)
        end += bytes
    return max(end, most)


def format_bytes(type: Attribute) -> int:
    """Bytes of an element."""
    return 2 if str(format_of(type)) in ("f16", "bf16") else 4


def tile_bytes(type: Attribute) -> int:
    """Bytes that a tile takes in shared memory, a multiple of 128, or of 1024 where it lies in boxes."""
    boxed = is_boxed(type)
    elements = boxes_of(type).elements if boxed else rows_of(type).elements
    unit = 1024 if boxed else 128
    return -(-elements * format_bytes(type) // unit) * unit


@irdl_op_definition
class StageOp(IRDLOperation):
    """One stage of a tile.

    ```
    %K_now = cuda.stage %K_shared[%turn] : memref<...>
    ```
    """

    name = "cuda.stage"

    tile = operand_def(MemRefType)
    index = operand_def(IndexType())
    result = result_def(MemRefType)

    traits = traits_def(Pure())

    def __init__(self, tile: SSAValue, index: SSAValue):
        super().__init__(operands=[tile, index], result_types=[tile.type])

    def verify_(self) -> None:
        if not isinstance(self.tile.owner, SharedOp):
            raise VerifyException("a stage is taken of a tile made by cuda.shared")
        if self.result.type != self.tile.type:
            raise VerifyException("a stage has the type of its tile")

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        tile = parser.parse_unresolved_operand()
        parser.parse_punctuation("[")
        index = parser.parse_unresolved_operand()
        parser.parse_punctuation("]")
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        op = cls(parser.resolve_operand(tile, parser.parse_type()), parser.resolve_operand(index, IndexType()))
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_operand(self.tile)
        printer.print_string("[")
        printer.print_operand(self.index)
        printer.print_string("]")
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.tile.type)


@irdl_op_definition
class CommitOp(IRDLOperation):
    """Close a group: the asynchronous copies that this thread started since the last (PTX ISA 9.7.9.25.3.2)."""

    name = "cuda.commit"
    assembly_format = "attr-dict"

    def __init__(self) -> None:
        super().__init__()


@irdl_op_definition
class WaitOp(IRDLOperation):
    """Wait until at most `pending` of this thread's newest groups of copies are under way (PTX ISA 9.7.9.25.3.3); a
    barrier must follow before another thread reads what they brought."""

    name = "cuda.wait"

    pending = prop_def(IntAttr)

    def __init__(self, pending: int):
        super().__init__(properties={"pending": IntAttr(pending)})

    def verify_(self) -> None:
        if self.pending.data < 0:
            raise VerifyException("fewer than no groups cannot be pending")

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        parser.parse_keyword("pending")
        op = cls(parser.parse_integer())
        op.attributes |= parser.parse_optional_attr_dict()
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(f" pending {self.pending.data}")
        printer.print_op_attributes(self.attributes)


@irdl_op_definition
class BarrierOp(IRDLOperation):
    """All threads of the block meet; what they wrote to shared memory before is seen after."""

    name = "cuda.barrier"
    assembly_format = "attr-dict"

    def __init__(self) -> None:
        super().__init__()


class GlobalAccess(IRDLOperation):
    """What accesses to device memory share: a buffer, the offset of the tile along each axis, the axes along which
    the tile may reach past the end with the sizes to test against, and what is known of alignment.

    `widths` are the vector widths, in elements, among which the alignment chooses at run time; `coalescing` sets
    them. `partial` says that the tile surely reaches past the end. Elements outside are read as zero and not
    written."""

    offsets = var_operand_def(IndexType())
    limits = var_operand_def(IndexType())
    bounds = prop_def(ArrayAttr[StringAttr])
    widths = opt_prop_def(ArrayAttr[IntAttr])
    partial = opt_prop_def(UnitAttr)

    irdl_options = (AttrSizedOperandSegments(as_property=True),)

    @property
    def buffer_type(self) -> Attribute:
        """The type of the array at device level."""
        return next(value.type for value in (*self.operands, *self.results) if level_of(value.type) == "device")

    @property
    def bound_axes(self) -> tuple[str, ...]:
        return tuple(axis.data for axis in self.bounds)

    @property
    def width_list(self) -> tuple[int, ...]:
        return () if self.widths is None else tuple(width.data for width in self.widths)

    def check_access(self, buffer: Attribute, tile: Attribute) -> None:
        if not is_buffer(buffer) or level_of(buffer) != "device":
            raise VerifyException(f"{buffer} is not a buffer at device level")
        if axes_of(buffer) != axes_of(tile):
            raise VerifyException(
                f"the tile has axes [{', '.join(axes_of(tile))}], its buffer [{', '.join(axes_of(buffer))}]"
            )
        if format_of(buffer) != format_of(tile):
            raise VerifyException(f"a tile of {format_of(tile)} of a buffer of {format_of(buffer)}")
        if len(self.offsets) != len(axes_of(buffer)):
            raise VerifyException(f"{len(self.offsets)} offsets for {len(axes_of(buffer))} axes")
        if len(self.limits) != len(self.bounds):
            raise VerifyException(f"{len(self.limits)} limits for {len(self.bounds)} bounded axes")
        for axis in self.bound_axes:
            if axis not in axes_of(buffer):
                raise VerifyException(f"bounded axis '{axis}' is not an axis of the buffer")

    def print_access(self, printer: Printer, buffer: SSAValue) -> None:
        printer.print_operand(buffer)
        printer.print_string("[")
        printer.print_list(self.offsets, printer.print_operand)
        printer.print_string("]")

    def print_tail(self, printer: Printer) -> None:
        if self.bound_axes:
            printer.print_string(" bounds [")

            def entry(bound: tuple[str, SSAValue]) -> None:
                printer.print_string(f"{bound[0]} < ")
                printer.print_operand(bound[1])

            printer.print_list(list(zip(self.bound_axes, self.limits, strict=True)), entry)
            printer.print_string("]")
        if self.partial is not None:
            printer.print_string(" partial")
        if self.widths is not None:
            printer.print_string(f" widths [{', '.join(str(width) for width in self.width_list)}]")
        printer.print_op_attributes(self.attributes)


class _Access:
    """The parsed parts of a global access."""

    def __init__(self, parser: Parser, may_be_bare: bool = False):
        self.buffer = parser.parse_unresolved_operand()
        offsets = parser.parse_optional_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_unresolved_operand)
        if offsets is None and not may_be_bare:
            parser.raise_error("expected the offsets of the tile in its buffer")
        self.has_offsets = offsets is not None
        self.offsets: list[UnresolvedOperand] = offsets or []
        self.bounds: list[tuple[str, UnresolvedOperand]] = []
        self.widths: list[int] | None = None

    def parse_destination(self, parser: Parser) -> UnresolvedOperand:
        """The other side of a copy, with offsets if the source had none."""
        destination = parser.parse_unresolved_operand()
        if not self.has_offsets:
            self.offsets = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_unresolved_operand)
        return destination

    def parse_tail(self, parser: Parser) -> None:
        def bound() -> tuple[str, UnresolvedOperand]:
            axis = parser.parse_identifier()
            parser.parse_punctuation("<")
            return axis, parser.parse_unresolved_operand()

        if parser.parse_optional_keyword("bounds"):
            self.bounds = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, bound)
        self.partial = parser.parse_optional_keyword("partial") is not None
        if parser.parse_optional_keyword("widths"):
            self.widths = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_integer)
        self.attributes = parser.parse_optional_attr_dict()

    def operands(self, parser: Parser) -> tuple[list[SSAValue], list[SSAValue]]:
        def index(operand: UnresolvedOperand) -> SSAValue:
            return parser.resolve_operand(operand, IndexType())

        offsets = [index(operand) for operand in self.offsets]
        limits = [index(operand) for _, operand in self.bounds]
        return offsets, limits


def _access_properties(bounds: Iterable[str], widths: Iterable[int] | None) -> dict[str, Attribute | None]:
    return {
        "bounds": ArrayAttr(StringAttr(axis) for axis in bounds),
        "widths": None if widths is None else ArrayAttr(IntAttr(width) for width in widths),
    }


@irdl_op_definition
class CopyOp(GlobalAccess):
    """The block's threads copy a tile from device to shared memory, where what lies outside the bounds, and padding,
    becomes zero; or from shared to device memory, where it is not written. The offsets are those of the buffer at
    device level. `async`, which is for copies to shared memory, only starts the copy (PTX ISA 9.7.9.25.3.1). A barrier
    must follow before another thread reads the tile.

    ```
    cuda.copy %Q[%b, %h, %q0, %zero] into %Qs bounds [q < %q] widths [8, 2, 1] : !Q, !Qs
    ```
    """

    name = "cuda.copy"

    source = operand_def(MemRefType)
    destination = operand_def(MemRefType)
    asynchronous = opt_prop_def(UnitAttr)

    def __init__(
        self,
        source: SSAValue,
        offsets: Sequence[SSAValue],
        destination: SSAValue,
        bounds: Sequence[tuple[str, SSAValue]] = (),
        widths: Iterable[int] | None = None,
        asynchronous: bool = False,
    ):
        super().__init__(
            operands=[
                source,
                destination,
                offsets,
                [limit for _, limit in bounds],
            ],
            properties={
                **_access_properties((axis for axis, _ in bounds), widths),
                "asynchronous": UnitAttr() if asynchronous else None,
            },
        )

    @property
    def is_outward(self) -> bool:
        """Whether the copy goes from shared to device memory."""
        return is_shared(self.source.type)

    @property
    def buffer(self) -> SSAValue:
        """The array at device level."""
        return self.destination if self.is_outward else self.source

    @property
    def tile(self) -> SSAValue:
        """The tile in shared memory."""
        return self.source if self.is_outward else self.destination

    def verify_(self) -> None:
        _check_tile(self.tile.type, "the source" if self.is_outward else "the destination")
        self.check_access(self.buffer.type, self.tile.type)
        if self.asynchronous is not None and self.is_outward:
            raise VerifyException("only a copy to shared memory can be asynchronous")

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        asynchronous = parser.parse_optional_keyword("async") is not None
        access = _Access(parser, may_be_bare=True)
        parser.parse_keyword("into")
        destination = access.parse_destination(parser)
        access.parse_tail(parser)
        parser.parse_punctuation(":")
        source_type = parser.parse_type()
        parser.parse_punctuation(",")
        destination_type = parser.parse_type()
        offsets, limits = access.operands(parser)
        op = cls(
            parser.resolve_operand(access.buffer, source_type),
            offsets,
            parser.resolve_operand(destination, destination_type),
            list(zip((axis for axis, _ in access.bounds), limits, strict=True)),
            access.widths,
            asynchronous,
        )
        op.attributes |= access.attributes
        op.partial = UnitAttr() if access.partial else None
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" async " if self.asynchronous is not None else " ")
        if self.is_outward:
            printer.print_operand(self.source)
            printer.print_string(" into ")
            self.print_access(printer, self.destination)
        else:
            self.print_access(printer, self.source)
            printer.print_string(" into ")
            printer.print_operand(self.destination)
        self.print_tail(printer)
        printer.print_string(" : ")
        printer.print_list((self.source.type, self.destination.type), printer.print_attribute)


@irdl_op_definition
class LoadOp(GlobalAccess):
    """Each thread loads its elements of a tile from device memory; what lies outside the bounds becomes zero.

    ```
    %f = cuda.load %X[%n0] bounds [n < %n] widths [4, 1] : !X -> !f
    ```
    """

    name = "cuda.load"

    source = operand_def(MemRefType)
    result = result_def(TensorType)

    def __init__(
        self,
        source: SSAValue,
        offsets: Sequence[SSAValue],
        result_type: Attribute,
        bounds: Sequence[tuple[str, SSAValue]] = (),
        widths: Iterable[int] | None = None,
    ):
        super().__init__(
            operands=[source, offsets, [limit for _, limit in bounds]],
            properties=_access_properties((axis for axis, _ in bounds), widths),
            result_types=[result_type],
        )

    def verify_(self) -> None:
        _check_fragment(self.result.type, "the result")
        self.check_access(self.source.type, self.result.type)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        access = _Access(parser)
        access.parse_tail(parser)
        parser.parse_punctuation(":")
        source_type = parser.parse_type()
        parser.parse_punctuation("->")
        result_type = parser.parse_type()
        offsets, limits = access.operands(parser)
        op = cls(
            parser.resolve_operand(access.buffer, source_type),
            offsets,
            result_type,
            list(zip((axis for axis, _ in access.bounds), limits, strict=True)),
            access.widths,
        )
        op.attributes |= access.attributes
        op.partial = UnitAttr() if access.partial else None
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        self.print_access(printer, self.source)
        self.print_tail(printer)
        printer.print_string(" : ")
        printer.print_attribute(self.source.type)
        printer.print_string(" -> ")
        printer.print_attribute(self.result.type)


@irdl_op_definition
class StoreOp(GlobalAccess):
    """Each thread stores its elements of a tile to device memory; copies and what lies outside are not written.

    ```
    cuda.store %o into %O[%q0, %zero] bounds [q < %q] widths [2, 1] : !o, !O
    ```
    """

    name = "cuda.store"

    value = operand_def(TensorType)
    destination = operand_def(MemRefType)

    def __init__(
        self,
        value: SSAValue,
        destination: SSAValue,
        offsets: Sequence[SSAValue],
        bounds: Sequence[tuple[str, SSAValue]] = (),
        widths: Iterable[int] | None = None,
    ):
        super().__init__(
            operands=[
                value,
                destination,
                offsets,
                [limit for _, limit in bounds],
            ],
            properties=_access_properties((axis for axis, _ in bounds), widths),
        )

    def verify_(self) -> None:
        _check_fragment(self.value.type, "the value")
        self.check_access(self.destination.type, self.value.type)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        value = parser.parse_unresolved_operand()
        parser.parse_keyword("into")
        access = _Access(parser)
        access.parse_tail(parser)
        parser.parse_punctuation(":")
        value_type = parser.parse_type()
        parser.parse_punctuation(",")
        destination_type = parser.parse_type()
        offsets, limits = access.operands(parser)
        op = cls(
            parser.resolve_operand(value, value_type),
            parser.resolve_operand(access.buffer, destination_type),
            offsets,
            list(zip((axis for axis, _ in access.bounds), limits, strict=True)),
            access.widths,
        )
        op.attributes |= access.attributes
        op.partial = UnitAttr() if access.partial else None
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_operand(self.value)
        printer.print_string(" into ")
        self.print_access(printer, self.destination)
        self.print_tail(printer)
        printer.print_string(" : ")
        printer.print_list((self.value.type, self.destination.type), printer.print_attribute)


@irdl_op_definition
class ReadOp(IRDLOperation):
    """Each thread reads its elements of a tile from shared memory."""

    name = "cuda.read"

    source = operand_def(MemRefType)
    result = result_def(TensorType)

    assembly_format = "$source attr-dict `:` type($source) `->` type($result)"

    def __init__(self, source: SSAValue, result_type: Attribute):
        super().__init__(operands=[source], result_types=[result_type])

    def verify_(self) -> None:
        _check_tile(self.source.type, "the source")
        _check_fragment(self.result.type, "the result")
        if sizes_of(self.source.type) != sizes_of(self.result.type):
            raise VerifyException("a tile is read with the axes and sizes that it has")


@irdl_op_definition
class WriteOp(IRDLOperation):
    """Each thread writes its elements of a tile to shared memory; padding of the tile becomes zero."""

    name = "cuda.write"

    value = operand_def(TensorType)
    destination = operand_def(MemRefType)

    assembly_format = "$value `into` $destination attr-dict `:` type($value) `,` type($destination)"

    def __init__(self, value: SSAValue, destination: SSAValue):
        super().__init__(operands=[value, destination])

    def verify_(self) -> None:
        _check_fragment(self.value.type, "the value")
        _check_tile(self.destination.type, "the destination")
        if sizes_of(self.value.type) != sizes_of(self.destination.type):
            raise VerifyException("a tile is written with the axes and sizes that it has")


@irdl_op_definition
class ProductOp(IRDLOperation):
    """Sum of products over one axis, added to the accumulator's fragments by every warp: `using m16n8k16` or
    `m16n8k8_tf32` on tensor cores (PTX ISA 9.7.14.5), `fma` on the others. An operand is a tile in shared memory or the
    fragments of the left operand in registers; the left operand has the rows.

    ```
    %S = cuda.product %Qs, %Ks into %zero over [d] using m16n8k16 : !Qs, !Ks -> !S
    ```
    """

    name = "cuda.product"

    lhs = operand_def()
    rhs = operand_def(MemRefType)
    accumulator = operand_def(TensorType)
    over = prop_def(StringAttr)
    instruction = prop_def(StringAttr)
    result = result_def(TensorType)

    traits = traits_def(Pure())

    def __init__(
        self,
        lhs: SSAValue,
        rhs: SSAValue,
        accumulator: SSAValue,
        over: str,
        instruction: str,
    ):
        super().__init__(
            operands=[lhs, rhs, accumulator],
            properties={"over": StringAttr(over), "instruction": StringAttr(instruction)},
            result_types=[accumulator.type],
        )

    @property
    def axis(self) -> str:
        return self.over.data

    def verify_(self) -> None:
        formats = PRODUCTS.get(self.instruction.data)
        if formats is None:
            raise VerifyException(f"unknown instruction '{self.instruction.data}' (known: {', '.join(PRODUCTS)})")
        if str(format_of(self.rhs.type)) not in formats:
            raise VerifyException(f"'{self.instruction.data}' does not take {format_of(self.rhs.type)}")
        if format_of(self.lhs.type) != format_of(self.rhs.type):
            raise VerifyException(f"operands are {format_of(self.lhs.type)} and {format_of(self.rhs.type)}")
        _check_tile(self.rhs.type, "the right operand")
        if not is_shared(self.lhs.type):
            _check_fragment(self.lhs.type, "the left operand")
        _check_fragment(self.accumulator.type, "the accumulator")
        if self.result.type != self.accumulator.type:
            raise VerifyException("the result has the type of the accumulator")
        for type, what in ((self.lhs.type, "left"), (self.rhs.type, "right")):
            if self.axis not in axes_of(type):
                raise VerifyException(f"axis '{self.axis}' is not in the {what} operand")

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        lhs = parser.parse_unresolved_operand()
        parser.parse_punctuation(",")
        rhs = parser.parse_unresolved_operand()
        parser.parse_keyword("into")
        accumulator = parser.parse_unresolved_operand()
        parser.parse_keyword("over")
        over = parse_axis_list(parser)
        parser.parse_keyword("using")
        instruction = parser.parse_identifier()
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        lhs_type = parser.parse_type()
        parser.parse_punctuation(",")
        rhs_type = parser.parse_type()
        parser.parse_punctuation("->")
        type = parser.parse_type()
        if len(over) != 1:
            parser.raise_error("a product sums over one axis")
        op = cls(
            parser.resolve_operand(lhs, lhs_type),
            parser.resolve_operand(rhs, rhs_type),
            parser.resolve_operand(accumulator, type),
            over[0],
            instruction,
        )
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_list((self.lhs, self.rhs), printer.print_operand)
        printer.print_string(" into ")
        printer.print_operand(self.accumulator)
        printer.print_string(" over ")
        print_axis_list(printer, (self.axis,))
        printer.print_string(f" using {self.instruction.data}")
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_list((self.lhs.type, self.rhs.type), printer.print_attribute)
        printer.print_string(" -> ")
        printer.print_attribute(self.result.type)


@irdl_op_definition
class MaskOp(IRDLOperation):
    """Elements at or past the end of an axis become `other`, the neutral element of what follows: an element outside
    does not exist.

    ```
    %M = cuda.mask %S where x from %x0 < %x else 0xFF800000 : f32 : !S
    ```
    """

    name = "cuda.mask"

    value = operand_def(TensorType)
    offset = operand_def(IndexType())
    limit = operand_def(IndexType())
    axis = prop_def(StringAttr)
    other = prop_def(FloatAttr | IntegerAttr)
    result = result_def(TensorType)

    traits = traits_def(Pure())

    def __init__(
        self,
        value: SSAValue,
        axis: str,
        offset: SSAValue,
        limit: SSAValue,
        other: Number,
    ):
        super().__init__(
            operands=[value, offset, limit],
            properties={"axis": StringAttr(axis), "other": other},
            result_types=[value.type],
        )

    def verify_(self) -> None:
        _check_fragment(self.value.type, "the value")
        if self.axis.data not in axes_of(self.value.type):
            raise VerifyException(f"axis '{self.axis.data}' is not in the value")
        if self.other.type != format_of(self.value.type):
            raise VerifyException(f"{self.other} is not an element of {format_of(self.value.type)}")

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        value = parser.parse_unresolved_operand()
        parser.parse_keyword("where")
        axis = parser.parse_identifier()
        parser.parse_keyword("from")
        offset = parser.parse_unresolved_operand()
        parser.parse_punctuation("<")
        limit = parser.parse_unresolved_operand()
        parser.parse_keyword("else")
        attribute = parser.parse_attribute()
        if not isinstance(attribute, FloatAttr | IntegerAttr):
            parser.raise_error("expected a number with its format")
        other = cast(Number, attribute)
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        index = IndexType()
        bounds = parser.resolve_operand(offset, index), parser.resolve_operand(limit, index)
        op = cls(parser.resolve_operand(value, parser.parse_type()), axis, *bounds, other)
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_operand(self.value)
        printer.print_string(f" where {self.axis.data} from ")
        printer.print_operand(self.offset)
        printer.print_string(" < ")
        printer.print_operand(self.limit)
        printer.print_string(" else ")
        printer.print_attribute(self.other)
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.value.type)


@irdl_op_definition
class IndexOp(IRDLOperation):
    """Each thread's positions along one axis, of a piece that starts at an offset.

    ```
    %at_x = cuda.index %x0 -> !at_x
    ```
    """

    name = "cuda.index"

    offset = operand_def(IndexType())
    result = result_def(TensorType)

    traits = traits_def(Pure())
    assembly_format = "$offset attr-dict `->` type($result)"

    def __init__(self, offset: SSAValue, result_type: Attribute):
        super().__init__(operands=[offset], result_types=[result_type])

    @property
    def axis(self) -> str:
        return axes_of(self.result.type)[0]

    def verify_(self) -> None:
        _check_fragment(self.result.type, "the result")
        if len(axes_of(self.result.type)) != 1 or str(format_of(self.result.type)) != "i32":
            raise VerifyException(f"positions are i32 along one axis, the result is {self.result.type}")


@irdl_op_definition
class CombineOp(IRDLOperation):
    """Combine what the lanes hold as parts of one result, by exchanges with the lanes whose numbers differ in these
    bits: the end of reductions that were marked `partial`, each lane of which kept to its own elements.

    ```
    %l = cuda.combine add %l_parts lanes [1, 2] : !l
    ```
    """

    name = "cuda.combine"

    value = operand_def(TensorType)
    kind = prop_def(StringAttr)
    lanes = prop_def(ArrayAttr[IntAttr])
    result = result_def(TensorType)

    traits = traits_def(Pure())

    def __init__(self, kind: str, value: SSAValue, lanes: Iterable[int]):
        super().__init__(
            operands=[value],
            properties={"kind": StringAttr(kind), "lanes": ArrayAttr(IntAttr(lane) for lane in lanes)},
            result_types=[value.type],
        )

    @property
    def masks(self) -> tuple[int, ...]:
        return tuple(lane.data for lane in self.lanes)

    def verify_(self) -> None:
        _check_fragment(self.value.type, "the value")
        if self.kind.data not in REDUCTIONS:
            raise VerifyException(f"unknown reduction '{self.kind.data}' (known: {', '.join(REDUCTIONS)})")
        if any(mask not in (1, 2, 4, 8, 16) for mask in self.masks):
            raise VerifyException(f"lanes differ in one bit of five, not in {list(self.masks)}")
        if self.result.type != self.value.type:
            raise VerifyException("the result has the type of the value")

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        kind = parser.parse_identifier(" for the reduction")
        value = parser.parse_unresolved_operand()
        parser.parse_keyword("lanes")
        lanes = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_integer)
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        op = cls(kind, parser.resolve_operand(value, parser.parse_type()), lanes)
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(f" {self.kind.data} ")
        printer.print_operand(self.value)
        printer.print_string(f" lanes [{', '.join(str(mask) for mask in self.masks)}]")
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.value.type)


PARTIAL = "partial"
"""Attribute of a `diagram.reduce` on fragments whose lanes keep to their own elements; a `cuda.combine` must follow."""


def lane_masks(layout: LayoutAttr, axes: Sequence[str]) -> list[int]:
    """The exchanges, as bits in which the numbers of two lanes differ, that combine all lanes along some axes."""
    masks: list[int] = []
    below = 1
    for mode in reversed(tuple(layout.lane)):
        if mode.axis in axes:
            step = 1
            while step < mode.size:
                masks.append(below * step)
                step *= 2
        below *= mode.size
    return masks


def alignments(kernel: KernelOp) -> tuple[int, ...]:
    """The alignments, in bytes, for which a kernel has a variant, the widest first: one for each vector width that an
    access may take."""
    found = {
        width * format_bytes(access.buffer_type)
        for access in kernel.walk()
        if isinstance(access, GlobalAccess)
        for width in (access.width_list or (1,))
    }
    return tuple(sorted(found, reverse=True)) or (1,)


def variant_name(kernel: KernelOp, alignment: int) -> str:
    """The C function of a kernel's variant for rows aligned to so many bytes; the widest has the kernel's own name."""
    name = kernel.sym_name.data
    return name if alignment == alignments(kernel)[0] else f"{name}_aligned_{alignment}"
