"""Print loads and stores of fragments that go through shared memory where lanes would ask for sectors twice."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

from xdsl.ir import Operation, SSAValue

from treadle.compiler.printer.addresses import AddressPrinter
from treadle.compiler.printer.copies import CopyPrinter
from treadle.compiler.printer.shared import print_shared
from treadle.compiler.printer.tiles import TilePrinter
from treadle.compiler.printer.writer import KernelWriter
from treadle.dialects import cuda
from treadle.dialects.cuda.accesses import GlobalAccess
from treadle.dialects.cuda.meetings import meets_before
from treadle.dialects.cuda.staging import StagedAttr
from treadle.dialects.diagram.array import axes_of


class StagedPrinter:
    """Prints the two ways of a fragment: as threads hold it, and through a tile that the block copies. What an
    operation stands for on its way is printed as operations, which belong to nothing."""

    def __init__(self, kernel: KernelWriter, addresses: AddressPrinter, copies: CopyPrinter):
        self.kernel = kernel
        self.addresses = addresses
        self.copies = copies
        self.tiles = TilePrinter(kernel)
        self.widest = cuda.alignments(kernel.kernel)[0]

    def load(self, op: cuda.LoadOp, directly: Callable[[], None]) -> None:
        """Into registers that are declared already, the one way or the other, as the variant of the kernel has it."""
        what = f"{self._name(op.source)} to registers"
        if self.kernel.piece is None:  # a loop that walks pieces stands behind
            self.bring(op)
        with self.addresses.width(op, what):
            if op.staged is None:
                directly()
            elif op.is_staged(self.widest):
                self._read(op)
            else:
                with self.kernel.names.scope(), self.kernel.text.block(self._where_direct(op.staged), "} else {"):
                    directly()
                self.kernel.text.depth += 1
                self._read(op)
                self.kernel.text.depth -= 1
                self.kernel.text.line("}")

    def bring(self, op: cuda.LoadOp) -> None:
        """The tiles of a load and of those that meet with it, where the first of them stands."""
        if op.staged is not None and op is op.meets_with[0]:
            self._bring(op.meets_with)

    def store(self, op: cuda.StoreOp, directly: Callable[[], None]) -> None:
        """The one way or the other."""
        if op.staged is not None and op is op.meets_with[0]:
            self._send(op.meets_with)
        if op.is_staged(self.widest):
            return
        with self.addresses.width(op, f"{self._name(op.destination)} from registers"):
            if op.staged is None:
                return directly()
            with self.kernel.names.scope(), self.kernel.text.block(self._where_direct(op.staged)):
                directly()

    # -- all that meet together ----------------------------------------------------------------------

    def _bring(self, together: Sequence[GlobalAccess]) -> None:
        """Copy the tiles of loads that follow each other."""
        # Registers on the way would make every slot wait for its own load. A loop that copies ahead waits for those
        # copies alone, and to wait for these would be to wait for all.
        is_asynchronous = not _copies_ahead(together[0])
        most = max(_below(each) for each in together)
        with self._where_staged(most), self._by_all_threads(together[0]):
            if meets_before(together[0]):
                self.kernel.meet(together[0])
            for op in together:
                assert isinstance(op, cuda.LoadOp)
                with (
                    self._where_staged(_below(op), most),
                    self.addresses.width(op, f"{self._name(op.source)} to a tile"),
                ):
                    self._copy(op, op.source, is_asynchronous)
            if is_asynchronous:
                self.kernel.text.line(f"{self.kernel.call('copy_async_commit')}();")
                self.kernel.text.line(f"{self.kernel.call('copy_async_wait')}<0>();")
            self.kernel.meet(together[0])

    def _send(self, together: Sequence[GlobalAccess]) -> None:
        """Write the tiles of stores that follow each other, and copy them out."""
        with self._where_staged(most := max(_below(each) for each in together)):
            if meets_before(together[0]):
                self.kernel.meet(together[0])
            for op in together:
                assert isinstance(op, cuda.StoreOp)
                with self._where_staged(_below(op), most), self.kernel.names.scope(), self.kernel.text.block(""):
                    self._write(op)
            self.kernel.meet(together[0])
            for op in together:
                assert isinstance(op, cuda.StoreOp)
                name = f"{self._name(op.destination)} from a tile"
                with self._where_staged(_below(op), most), self.addresses.width(op, name):
                    self._copy(op, op.destination)

    # -- the two sides of a tile ---------------------------------------------------------------------

    def _copy(self, op: GlobalAccess, buffer: SSAValue, is_asynchronous: bool = False) -> None:
        """Between an array and the tile of an access, whose width is in scope."""
        tile = self._tile(op, buffer)
        bounds = list(zip(op.bound_axes, op.limits, strict=True))
        begins = list(zip(op.begun_axes, op.begins, strict=True))
        ways = (buffer, tile.result) if isinstance(op, cuda.LoadOp) else (tile.result, buffer)
        inside = op.padding, op.scatter
        copy = cuda.CopyOp(ways[0], op.offsets, ways[1], bounds, op.width_list, is_asynchronous, begins, *inside)
        self.copies.move(copy, _below(op))
        _forget(copy, tile)

    def _read(self, op: cuda.LoadOp) -> None:
        tile = self._tile(op, op.source)
        read = cuda.ReadOp(tile.result, op.result.type)
        self.tiles.read(read, self.kernel.values[op.result])
        _forget(read, tile)

    def _write(self, op: cuda.StoreOp) -> None:
        tile = self._tile(op, op.destination)
        write = cuda.WriteOp(op.value, tile.result)
        self.tiles.write(write)
        _forget(write, tile)

    def _tile(self, op: GlobalAccess, buffer: SSAValue) -> cuda.SharedOp:
        """The tile of an access, with a pointer to it in the text."""
        assert op.staged is not None
        tile = cuda.SharedOp(op.staged.at.data, op.staged.tile(op.piece_type))
        tile.result.name_hint = f"{self.kernel.values[buffer]}_staged"
        print_shared(self.kernel, tile)
        return tile

    # -- which way, by the variant of the kernel -----------------------------------------------------

    @contextmanager
    def _where_staged(self, below: int, around: int = 0) -> Generator[None]:
        """In the variants for rows aligned to fewer than so many bytes; `around` of what stands around."""
        if below > self.widest or below == around:
            yield
            return
        with self.kernel.names.scope(), self.kernel.text.block(f"if constexpr (ALIGNED < {below})"):
            yield

    @contextmanager
    def _by_all_threads(self, op: GlobalAccess) -> Generator[None]:
        """What stands before the roles of a block all of it copies, its producer's warps, too."""
        kernel, threads = self.kernel, self.kernel.threads
        if cuda.threads_at(op, kernel.kernel) == threads:
            yield
            return
        with kernel.names.scope(), kernel.text.block(""):
            kernel.text.line("const int thread = threadIdx.x;  // of all in the block")
            kernel.threads = cuda.threads_at(op, kernel.kernel)
            yield
            kernel.threads = threads

    def _where_direct(self, staged: StagedAttr) -> str:
        return f"if constexpr (ALIGNED >= {staged.below.data})"

    def _name(self, buffer: SSAValue) -> str:
        return f"{self.kernel.values[buffer]}[{', '.join(axes_of(buffer.type))}]"


def _below(op: GlobalAccess) -> int:
    return 0 if op.staged is None else op.staged.below.data


def _copies_ahead(op: Operation) -> bool:
    """Whether a loop around an operation has copies under way from turn to turn."""
    parent = op.parent_op()
    while parent is not None and not isinstance(parent, cuda.KernelOp):
        if any(isinstance(each, cuda.CopyOp) and each.asynchronous is not None for each in parent.walk()):
            return True
        parent = parent.parent_op()
    return False


def _forget(*operations: Operation) -> None:
    """Operations that were only printed use nothing any more."""
    for op in operations:
        op.erase()
