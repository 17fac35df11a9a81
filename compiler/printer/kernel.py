"""Print one `cuda.kernel` as a CUDA C function: its signature, and which part prints each operation, on one screen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from xdsl.dialects import arith, scf, tensor
from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from treadle.compiler.errors import Refusal
from treadle.compiler.printer import arithmetic, elementwise
from treadle.compiler.printer.accesses import AccessPrinter
from treadle.compiler.printer.boxed_copies import wait_within
from treadle.compiler.printer.control_flow import print_branch, print_loop, print_yield
from treadle.compiler.printer.exchanges import print_exchange
from treadle.compiler.printer.finish import Finish, finishes_of
from treadle.compiler.printer.launches import launch_lines
from treadle.compiler.printer.masks import print_mask
from treadle.compiler.printer.matrices import read_accumulator, read_left_in_boxes
from treadle.compiler.printer.products import ProductPrinter
from treadle.compiler.printer.reductions import print_combine, print_reduce, scaled_start
from treadle.compiler.printer.renames import print_rename
from treadle.compiler.printer.scalars import c_type
from treadle.compiler.printer.scans import print_scan
from treadle.compiler.printer.selections import print_select, print_selected, print_selected_before
from treadle.compiler.printer.shared import print_shared, print_stage
from treadle.compiler.printer.summands import is_summand
from treadle.compiler.printer.swaps import print_swap
from treadle.compiler.printer.tensor_stores import print_boxed_write, print_on_the_way_out
from treadle.compiler.printer.tiles import TilePrinter
from treadle.compiler.printer.unused import without_unused
from treadle.compiler.printer.votes import print_exceeds
from treadle.compiler.printer.warpgroups import WarpgroupPrinter
from treadle.compiler.printer.writer import KernelWriter
from treadle.dialects import cuda
from treadle.dialects.cuda.accesses import GlobalAccess
from treadle.dialects.cuda.layout import LANES
from treadle.dialects.cuda.tiles import is_boxed
from treadle.dialects.diagram import CastOp, FillOp, MapOp, ReduceOp, ScanOp
from treadle.dialects.diagram.array import axes_of, is_array

TENSOR_MAP = "const TensorMap&"


class KernelPrinter(KernelWriter):
    """Prints one kernel."""

    def __init__(self, kernel: cuda.KernelOp, launch: cuda.LaunchOp | None = None):
        _check_widths(kernel)
        super().__init__(kernel)
        self.launch = launch
        self.last_strides: set[str] = set()
        """Those of last axes, which are 1 in all variants but that for any strides."""
        self.accesses = AccessPrinter(self)
        self.warpgroups = WarpgroupPrinter(self)
        self.accesses.copies.boxed.wait = self.warpgroups.acquire

    # -- the function ------------------------------------------------------------------------------

    def print(self) -> str:
        """The kernel: its body, once, and a function for each alignment of rows that it has a variant for."""
        variants = cuda.alignments(self.kernel)
        name = f"{self.kernel.sym_name.data}_body"
        self.names.scopes[0].add(name)
        parameters = [self._parameter(arg) for arg in self.kernel.body.block.args]
        for line in launch_lines(self.kernel, self.launch, self.values):
            self.text.comment(line)
        self.text.comment("The rows of all arrays are aligned to so many bytes; 0: they have any strides.")
        self.text.line("template <int ALIGNED>")
        self.text.line(f"__device__ __forceinline__ void {name}(")
        self._signature(parameters)
        self.text.depth = 1
        if self.roles is None:
            self._threads()
        else:
            self.warpgroups.threads()
        self.block(self.kernel.body.block)
        self.text.depth = 0
        self.text.line("}")
        self.text.lines = without_unused(self.text.lines)
        for alignment in variants:
            self._entry(alignment, name, parameters)
        return "\n".join(self.text.lines) + "\n"

    def _signature(self, parameters: Sequence[Sequence[tuple[str, str]]]) -> None:
        for i, group in enumerate(parameters):
            end = "," if i < len(parameters) - 1 else ") {"
            self.text.line(f"    {', '.join(f'{type} {name}' for type, name in group)}{end}")
        if not parameters:
            self.text.line("    ) {")

    def _entry(self, alignment: int, body: str, parameters: Sequence[Sequence[tuple[str, str]]]) -> None:
        name = cuda.variant_name(self.kernel, alignment)
        self.text.line()
        blocks = self._blocks(alignment)
        bounds = f"{self.kernel.threads.data}{f', {blocks}' if blocks else ''}"
        cluster = "" if self.kernel.cluster == 1 else f"__cluster_dims__({self.kernel.cluster}, 1, 1) "
        self.text.line(f'extern "C" __global__ void {cluster}__launch_bounds__({bounds}) {name}(')
        one = set[str]() if alignment == cuda.ANY_STRIDES else self.last_strides
        self._signature([[(_of_entry(type), name) for type, name in group if name not in one] for group in parameters])
        arguments = ", ".join("1" if name in one else name for group in parameters for _, name in group)
        self.text.line(f"  {body}<{alignment}>({arguments});")
        self.text.line("}")

    def _blocks(self, alignment: int) -> int:
        """How many blocks an entry says that a multiprocessor is to hold; 0 if it says nothing. Registers move between
        roles only where the least number of blocks is stated; and where none is, ptxas would rather spill a register of
        the arithmetic that copies of narrower rows need than hold one block less. What a kernel states holds where its
        accesses are as wide as they were planned: any strides take more registers. Entries that deal tiles by sectors,
        copies or what is staged, state one block, but for those of roles, which have others of their own."""
        stated = 0 if self.kernel.resident is None else self.kernel.resident.data
        if self.roles is not None and (stated == 0 or any(self.roles.registers)):
            return max(stated, 1)
        every = [op for op in self.kernel.walk() if isinstance(op, GlobalAccess)]
        deals = alignment < cuda.WHOLE_SECTORS and any(
            isinstance(op, cuda.CopyOp) or op.is_staged(alignment) for op in every
        )
        if deals and self.roles is None:
            return 1
        return 0 if alignment == cuda.ANY_STRIDES else stated

    def _threads(self) -> None:
        # The lane of the unsigned index, so that it is a mask, and what is taken of it shifts and masks.
        parts = f"lane = threadIdx.x % {LANES}, warp = thread / {LANES}"
        self.text.line(f"const int thread = threadIdx.x, {parts};")
        self.text.line("(void)lane, (void)warp;")

    def _parameter(self, arg: BlockArgument) -> list[tuple[str, str]]:
        """The C parameters of one argument, with their types: of a buffer its address, then its strides in
        elements."""
        name = self.names.fresh(arg.name_hint, "array" if is_array(arg.type) else "size")
        self.values[arg] = name
        if isinstance(arg.type, cuda.TensorMapType):
            return [(TENSOR_MAP, name)]
        if not is_array(arg.type):
            return [(c_type(arg.type), name)]
        axes = axes_of(arg.type)
        strides = {axis: self.names.fresh(f"{name}_{axis}") for axis in axes}
        self.strides[arg] = strides
        self.last_strides.update(strides[axis] for axis in axes[-1:])
        stored = any(_stores_to(use.operation, arg) for use in arg.uses)
        pointer = f"{'' if stored else 'const '}{c_type(arg.type)}* __restrict__"
        return [(pointer, name), *(("int64_t", stride) for stride in strides.values())]

    def block(self, block: Block) -> None:
        finishes = finishes_of(self.kernel, block)
        later = {each for finish in finishes.values() for each in (*finish.walked, *finish.behind)}
        for op in block.ops:
            if op in finishes:
                self._finish(finishes[op])
            elif op not in later:
                self._operation(op)
            elif isinstance(op, cuda.LoadOp):
                self.accesses.bring(op)

    def _finish(self, finish: Finish) -> None:
        """Maps of finished sums, with what they need, piece by piece: arrays first, then the loop."""
        if finish.piece is None:
            return elementwise.print_map(self, finish.maps[0], is_kept=True)
        for op in finish.walked:
            match op:
                case MapOp():
                    self.over(op.result, op.inputs, op)
                case cuda.LoadOp():
                    self.array_of(op.result)
                case cuda.StoreOp():
                    pass
                case _:
                    self.declare(op.results[0])
        with self.names.scope():
            variable = self.names.fresh(f"{finish.piece.axis}{finish.piece.extent}")
            self.piece = replace(finish.piece, variable=variable)
            with self.text.block(str(self.piece)):
                for op in finish.walked:
                    if isinstance(op, MapOp):
                        elementwise.print_map(self, op, is_kept=True)
                    else:
                        self._operation(op)
        self.piece = None
        for op in finish.behind:
            self._operation(op)

    def before_loop(self, op: scf.ForOp) -> None:
        self.accesses.before_loop(op)

    # -- operations --------------------------------------------------------------------------------

    def _operation(self, op: Operation) -> None:
        if _is_printed_elsewhere(op):
            return
        if (printed := PRINTED.get(type(op))) is not None:
            printed(self, op)
        elif op.name in arithmetic.INDEX_OPERATORS:
            arithmetic.print_binary(self, op)
        elif not (self.warpgroups.print(op) or print_on_the_way_out(self, op)):
            raise Refusal(op, f"'{op.name}' has no CUDA C: lower it before printing")

    def meet(self, op: Operation) -> None:
        if self.roles is not None and self.roles.is_ancestor(op):
            self.warpgroups.barrier(isinstance(op, cuda.BarrierOp) and op.by_groups is not None)
        else:
            self.text.line(f"{self.call('barrier_block')}();")


def _check_widths(kernel: cuda.KernelOp) -> None:
    """Before anything asks which variants there are, which follow from the widths (Refusal)."""
    for op in kernel.walk():
        if isinstance(op, GlobalAccess) and not op.width_list:
            raise Refusal(op, "an access to device memory without widths: run coalescing before printing")


def _of_entry(type: str) -> str:
    """The type of a parameter where the launch gives it: a tensor map must lie in the kernel's own parameters."""
    return "const __grid_constant__ TensorMap" if type == TENSOR_MAP else type


def _stores_to(op: Operation, buffer: SSAValue) -> bool:
    return isinstance(op, cuda.StoreOp | cuda.CopyOp) and op.destination is buffer


# -- which part prints an operation ----------------------------------------------------------------


def _is_printed_elsewhere(op: Operation) -> bool:
    match op:
        case MapOp() if scaled_start(op.result) is not None:
            return True  # the sum after it begins with the product
        case MapOp():
            return is_summand(op)  # the reduction makes its elements
        case cuda.AcquireOp() if isinstance(copy := op.next_op, cuda.CopyOp):
            return wait_within(copy) is op
        case _:
            return isinstance(op, cuda.KeepOp)


def _block_index(printer: KernelPrinter, op: cuda.BlockIndexOp) -> None:
    printer.comment_of(op)
    arithmetic.define_index(printer, op, "int64_t(blockIdx.x)")


def _parts(printer: KernelPrinter, op: cuda.PartsOp) -> None:
    printer.values[op.result] = printer.values[op.value]


def _read(printer: KernelPrinter, op: cuda.ReadOp) -> None:
    name = printer.declare(op.result)
    if ProductPrinter(printer).read_left_operand(op, name):
        return
    if not read_accumulator(printer, op, name) and not read_left_in_boxes(printer, op, name):
        TilePrinter(printer).read(op, name)


def _write(printer: KernelPrinter, op: cuda.WriteOp) -> None:
    if is_boxed(op.destination.type):
        print_boxed_write(printer, op)
    else:
        TilePrinter(printer).write(op)


def _commit(printer: KernelPrinter, _: cuda.CommitOp) -> None:
    printer.text.line(f"{printer.call('copy_async_commit')}();")


def _wait(printer: KernelPrinter, op: cuda.WaitOp) -> None:
    printer.text.line(f"{printer.call('copy_async_wait')}<{op.pending.data}>();")


PRINTED: dict[type[Operation], Callable[[KernelPrinter, Any], None]] = {
    arith.ConstantOp: arithmetic.print_constant,
    arith.CeilDivUIOp: arithmetic.print_ceiling_division,
    arith.FloorDivSIOp: arithmetic.print_signed_division,
    arith.CeilDivSIOp: arithmetic.print_signed_division,
    arith.MaxSIOp: arithmetic.print_larger_or_smaller,
    arith.MinSIOp: arithmetic.print_larger_or_smaller,
    arith.SelectOp: arithmetic.print_select,
    arith.CmpiOp: arithmetic.print_comparison,
    arith.IndexCastOp: arithmetic.print_index_cast,
    tensor.ExtractOp: lambda printer, op: arithmetic.define_index(printer, op, printer.values[op.tensor]),
    cuda.BlockIndexOp: _block_index,
    cuda.GridSizeOp: lambda printer, op: arithmetic.define_index(printer, op, "int64_t(gridDim.x)"),
    scf.ForOp: print_loop,
    scf.IfOp: print_branch,
    scf.YieldOp: print_yield,
    FillOp: elementwise.print_fill,
    cuda.IndexOp: elementwise.print_index,
    MapOp: elementwise.print_map,
    CastOp: elementwise.print_cast,
    cuda.MaskOp: print_mask,
    ReduceOp: print_reduce,
    ScanOp: print_scan,
    cuda.ExchangeOp: print_exchange,
    cuda.RenameOp: print_rename,
    cuda.SwapOp: print_swap,
    cuda.ExceedsOp: print_exceeds,
    cuda.CombineOp: print_combine,
    cuda.PartsOp: _parts,
    cuda.ProductOp: lambda printer, op: ProductPrinter(printer).print(op),
    cuda.SharedOp: print_shared,
    cuda.StageOp: print_stage,
    cuda.SelectOp: print_select,
    cuda.SelectedOp: print_selected,
    cuda.SelectedBeforeOp: print_selected_before,
    cuda.ReadOp: _read,
    cuda.ReadClusterOp: lambda printer, op: TilePrinter(printer).read(op, printer.declare(op.result)),
    cuda.WriteOp: _write,
    cuda.CopyOp: lambda printer, op: printer.accesses.copy(op),
    cuda.LoadOp: lambda printer, op: printer.accesses.load(op),
    cuda.StoreOp: lambda printer, op: printer.accesses.store(op),
    cuda.BarrierOp: lambda printer, op: printer.meet(op),
    cuda.CommitOp: _commit,
    cuda.WaitOp: _wait,
}
