"""`cuda.kernel` and its launch from the host function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from xdsl.dialects.builtin import (
    DenseArrayBase,
    IndexType,
    IntAttr,
    IntegerType,
    MemRefType,
    StringAttr,
    SymbolNameConstraint,
    SymbolRefAttr,
    UnitAttr,
)
from xdsl.ir import Operation, Region, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    ParsePropInAttrDict,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import IsolatedFromAbove, NoTerminator, Pure, SymbolOpInterface
from xdsl.utils.exceptions import VerifyException

from treadle.dialects.cuda.accesses import GlobalAccess
from treadle.dialects.cuda.tiles import format_bytes, is_buffer
from treadle.dialects.cuda.transfers import CopyOp
from treadle.dialects.diagram.array import (
    check_axis_name,
    level_of,
)
from treadle.dialects.syntax import parse_region_attributes, print_region_attributes

MOST_THREADS = 2048
"""Of all blocks that are on a multiprocessor at a time (CUDA C++ Programming Guide, compute capabilities)."""

MOST_IN_CLUSTER = 8
"""Blocks of a cluster that every device with clusters takes."""


@irdl_op_definition
class KernelOp(IRDLOperation):
    """A kernel: its arguments are buffers at device level, scalars, sizes of symbolic axes and what is known
    of alignments (`index`). The body is what every block runs.

    ```
    cuda.kernel @attention (%Q: memref<...>, %O: memref<...>, %q: index) threads 128 shared 27648 { ... }
    ```

    With `cluster 2` after its shared memory, two blocks that are neighbours in the grid run at the same time and may
    reach into each other's shared memory (PTX ISA 5.1, clusters; CUDA C++, `__cluster_dims__`). With `resident 4` a
    multiprocessor is to hold four blocks at a time: a thread may have the registers that this leaves (CUDA C++, the
    second number of `__launch_bounds__`), and without it the compiler weighs blocks against registers itself. With
    `fallback` it runs only where another kernel cannot, because its tensor maps take no array whose address or strides
    are not multiples of 16 bytes.
    """

    name = "cuda.kernel"

    sym_name = prop_def(SymbolNameConstraint())
    threads = prop_def(IntAttr)
    shared_bytes = prop_def(IntAttr)
    blocks = opt_prop_def(IntAttr)
    resident = opt_prop_def(IntAttr)
    fallback = opt_prop_def(UnitAttr)
    body = region_def("single_block")

    traits = traits_def(SymbolOpInterface(), IsolatedFromAbove(), NoTerminator())

    def __init__(self, name: str, threads: int, shared_bytes: int, body: Region, cluster: int = 1):
        super().__init__(
            properties={
                "sym_name": StringAttr(name),
                "threads": IntAttr(threads),
                "shared_bytes": IntAttr(shared_bytes),
                "blocks": IntAttr(cluster) if cluster != 1 else None,
            },
            regions=[body],
        )

    @property
    def cluster(self) -> int:
        """Blocks of a cluster; 1 for a kernel without clusters."""
        return 1 if self.blocks is None else self.blocks.data

    def verify_(self) -> None:
        check_axis_name(self.sym_name.data)
        threads = self.threads.data
        if threads % 32 or not 32 <= threads <= 1024:
            raise VerifyException(f"a block of {threads} threads: use a multiple of 32 up to 1024")
        if self.blocks is not None and not 2 <= self.cluster <= MOST_IN_CLUSTER:
            raise VerifyException(f"a cluster of {self.cluster} blocks: it has 2 to {MOST_IN_CLUSTER}")
        if self.resident is not None and not threads <= self.resident.data * threads <= MOST_THREADS:
            raise VerifyException(
                f"{self.resident.data} resident blocks of {threads} threads: a multiprocessor holds "
                f"one block at least, and {MOST_THREADS:,} threads at most"
            )
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
        cluster = parser.parse_integer() if parser.parse_optional_keyword("cluster") else None
        resident = parser.parse_integer() if parser.parse_optional_keyword("resident") else None
        is_fallback = parser.parse_optional_keyword("fallback") is not None
        attributes = parse_region_attributes(parser)
        op = cls(name, threads, shared, parser.parse_region(arguments))
        op.blocks = None if cluster is None else IntAttr(cluster)
        op.resident = None if resident is None else IntAttr(resident)
        op.fallback = UnitAttr() if is_fallback else None
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        printer.enter_scope()
        printer.print_string(" ")
        printer.print_symbol_name(self.sym_name.data)
        printer.print_string(" (")
        printer.print_list(self.body.block.args, printer.print_block_argument)
        cluster = "" if self.blocks is None else f" cluster {self.cluster}"
        resident = "" if self.resident is None else f" resident {self.resident.data}"
        fallback = "" if self.fallback is None else " fallback"
        printer.print_string(f") threads {self.threads.data} shared {self.shared_bytes.data}")
        printer.print_string(f"{cluster}{resident}{fallback}")
        print_region_attributes(printer, self)
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
    """The bytes, a power of two and at most 32, that the rows of all these buffers are aligned to: their addresses and
    their strides are multiples of it, and the sizes of their last axes, of it or of 16, the widest vector. 0 if the
    elements along the last axis of one are no neighbours in memory. Buffers whose numbers `by_element` lists are
    accessed by single elements, so that only the latter matters. In the host function.

    ```
    %aligned = cuda.alignment %Q, %K, %L {by_element = array<i64: 2>} : memref<...>, memref<...>, memref<...>
    ```
    """

    name = "cuda.alignment"

    buffers = var_operand_def(MemRefType)
    by_element = opt_prop_def(DenseArrayBase[IntegerType])
    result = result_def(IndexType())

    traits = traits_def(Pure())
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = "$buffers attr-dict `:` type($buffers)"

    def verify_(self) -> None:
        for number in self.single:
            if not 0 <= number < len(self.buffers):
                raise VerifyException(f"by_element names buffer {number}, there are {len(self.buffers)}")

    @property
    def single(self) -> tuple[int, ...]:
        """The numbers of the buffers that are accessed by single elements."""
        return () if self.by_element is None else tuple(self.by_element.get_values())

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


WHOLE_SECTORS = 32
"""Bytes that move together: rows that are aligned to them begin with them."""

ANY_STRIDES = 0
"""What stands for an alignment where elements along the last axis are no neighbours: the variant that takes any
strides, element by element."""


WITHOUT_MAPS = "without_maps"
"""An attribute of a kernel that runs where another cannot, because its tensor maps do not take the arrays: lanes copy
all that those would bring."""

TURNS = "turns"
"""An attribute of a kernel: how many blocks of a multiprocessor take pieces one after another, as it was decided with
the sizes (`#hierarchy.schedule<turns = ..>`); 0 where each piece has a block of its own."""


def turns_of(kernel: Operation) -> int | None:
    """How many blocks of a multiprocessor take pieces one after another; None where that is not decided."""
    match kernel.attributes.get(TURNS):
        case IntAttr(data=blocks):
            return int(blocks)
        case _:
            return None


def blocks_that_share(kernel: Operation) -> int:
    """How many blocks share a multiprocessor, since their producers give registers to the consumers."""
    return max(1, turns_of(kernel) or 1)


TURN_REGISTERS = "registers"
"""An attribute of a stream's loop in a kernel without products: the registers of a thread in a turn, as the cost model
counts them (`compiler/cost/reading/turn_registers.py`)."""

ALONG = "along"
"""An attribute of a kernel of clusters: the axes of the grid along which they lie, as a drawing says it."""

FEWEST_SECTORS = "fewest_sectors"
"""An attribute of a kernel whose accesses are to ask for the fewest sectors, and for whole lines, whatever that takes
otherwise (`coalescing{minimize=sectors}`)."""


def is_for_sectors(kernel: Operation) -> bool:
    """Whether the accesses of a kernel are to ask for the fewest sectors whatever that takes."""
    return FEWEST_SECTORS in kernel.attributes


NARROW = "narrow"
"""Attribute of a division of numbers, or of a loop over them, that are below 2^31, as those of pieces and of positions
in arrays with tensor maps are: printed in 32 bits, since 64 take twice the registers, and a call for each division by a
number known only at launch."""


@irdl_op_definition
class GridSizeOp(IRDLOperation):
    """How many blocks the grid has (`gridDim.x`)."""

    name = "cuda.grid_size"

    result = result_def(IndexType())

    traits = traits_def(Pure())
    assembly_format = "attr-dict"

    def __init__(self) -> None:
        super().__init__(result_types=[IndexType()])


def alignments(kernel: KernelOp) -> tuple[int, ...]:
    """The alignments, in bytes, for which a kernel has a variant, the widest first: one for each vector that an access
    may take; for copies by the widest vectors, one where rows begin with a sector, and for what goes through shared
    memory elsewhere, one where it need not; and last `ANY_STRIDES`. What stands beside a kernel with tensor maps has
    none for whole sectors: those rows the maps take."""
    accesses = [op for op in kernel.walk() if isinstance(op, GlobalAccess)]
    found = {width * format_bytes(op.buffer_type) for op in accesses for width in op.width_list if width > 1}
    needless = {op.staged.below.data for op in accesses if op.staged is not None and found}
    found |= {below for below in needless if below <= WHOLE_SECTORS}
    if any(isinstance(op, CopyOp) and op.has_widest_vectors for op in accesses):
        found.add(WHOLE_SECTORS)
    if kernel.fallback is not None or WITHOUT_MAPS in kernel.attributes:
        found.discard(WHOLE_SECTORS)
    return (*sorted(found, reverse=True), ANY_STRIDES)


def shared_bytes(kernel: KernelOp, alignment: int) -> int:
    """The bytes of dynamic shared memory of a kernel's variant for rows aligned to so many bytes."""
    accesses = [op for op in kernel.walk() if isinstance(op, GlobalAccess)]
    ends = [op.staged.end(op.piece_type) for op in accesses if op.staged is not None and op.is_staged(alignment)]
    return max(kernel.shared_bytes.data, *ends, 0)


def variant_name(kernel: KernelOp, alignment: int) -> str:
    """The C function of a kernel's variant for rows aligned to so many bytes; the widest has the kernel's own name."""
    name = kernel.sym_name.data
    if alignment == alignments(kernel)[0]:
        return name
    return f"{name}_strided" if alignment == ANY_STRIDES else f"{name}_aligned_{alignment}"


def kernel_names(module: Operation) -> list[str]:
    """The kernels of a module at `cuda` level, by the names that the printed file gives them."""
    kernels = [op for op in module.walk() if isinstance(op, KernelOp)]
    return [variant_name(kernel, each) for kernel in kernels for each in alignments(kernel)]
