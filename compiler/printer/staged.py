"""Print loads and stores of fragments that go through shared memory where rows begin anywhere."""

from __future__ import annotations

from collections.abc import Callable

from xdsl.ir import Operation

from treadle.compiler.printer.dealt import DealtPrinter
from treadle.compiler.printer.shared import print_shared
from treadle.compiler.printer.tiles import TilePrinter
from treadle.compiler.printer.writer import KernelWriter
from treadle.dialects import cuda


class StagedPrinter:
    """Prints the two ways of a fragment: as threads hold it, and through a tile that is copied by whole sectors.
    `width` is in scope."""

    def __init__(self, kernel: KernelWriter, dealt: DealtPrinter):
        self.kernel = kernel
        self.dealt = dealt
        self.tiles = TilePrinter(kernel)

    def print(self, op: cuda.LoadOp | cuda.StoreOp, directly: Callable[[], None]) -> None:
        """The one way or the other, as the variant of the kernel has it."""
        variants, text = cuda.alignments(self.kernel.kernel), self.kernel.text
        if op.staged is None:
            return directly()
        if op.is_staged(variants[0]):
            return self._through(op, op.staged)
        with self.kernel.names.scope(), text.block(f"if constexpr (ALIGNED >= {op.staged.below.data})", "} else {"):
            directly()
        text.depth += 1
        self._through(op, op.staged)
        text.depth -= 1
        text.line("}")

    def _through(self, op: cuda.LoadOp | cuda.StoreOp, staged: cuda.StagedAttr) -> None:
        """What the operation stands for: the operations are printed, and belong to nothing."""
        tile = cuda.SharedOp(staged.at.data, staged.tile(op.piece_type))
        buffer = op.source if isinstance(op, cuda.LoadOp) else op.destination
        tile.result.name_hint = f"{self.kernel.values[buffer]}_staged"
        print_shared(self.kernel, tile)
        bounds = list(zip(op.bound_axes, op.limits, strict=True))
        begins = list(zip(op.begun_axes, op.begins, strict=True))
        if isinstance(op, cuda.LoadOp):
            # Registers on the way would make every slot wait for its own load. A loop that copies ahead waits for those
            # copies alone, and to wait for these would be to wait for all.
            is_asynchronous = not _copies_ahead(op)
            copy = cuda.CopyOp(op.source, op.offsets, tile.result, bounds, begins=begins, asynchronous=is_asynchronous)
            read = cuda.ReadOp(tile.result, op.result.type)
            self._meet()
            self.dealt.copy(copy)
            if is_asynchronous:
                self.kernel.text.line(f"{self.kernel.call('copy_async_commit')}();")
                self.kernel.text.line(f"{self.kernel.call('copy_async_wait')}<0>();")
            self._meet()
            self.tiles.read(read, self.kernel.values[op.result])
            return _forget(read, copy, tile)
        write = cuda.WriteOp(op.value, tile.result)
        copy = cuda.CopyOp(tile.result, op.offsets, op.destination, bounds, begins=begins)
        self._meet()
        self.tiles.write(write)
        self._meet()
        self.dealt.copy(copy)
        return _forget(copy, write, tile)

    def _meet(self) -> None:
        self.kernel.text.line(f"{self.kernel.call('barrier_block')}();")


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
