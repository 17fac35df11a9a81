"""Print the pointers that a loop carries for its copies. The compiler would make each address anew in every turn."""

from __future__ import annotations

from xdsl.dialects import arith, scf
from xdsl.ir import Block, SSAValue

from treadle.compiler.printer.addresses import AddressPrinter
from treadle.compiler.printer.copies import WHOLE, CopyPrinter, Running, pointer_type, wide_axes
from treadle.compiler.printer.indices import add, strided
from treadle.compiler.printer.scalars import term
from treadle.compiler.printer.writer import KernelWriter
from treadle.dialects import cuda
from treadle.dialects.cuda.multiples import constant_of
from treadle.dialects.diagram.array import axes_of, format_of
from treadle.dialects.diagram.formats import FORMAT_BYTES


class RunningPrinter:
    """Prints them before the loops of one kernel, for its copies to go by."""

    def __init__(self, kernel: KernelWriter, addresses: AddressPrinter, copies: CopyPrinter):
        self.kernel = kernel
        self.addresses = addresses
        self.copies = copies

    def before_loop(self, loop: scf.ForOp) -> None:
        """Declare the pointers that a loop carries for its copies, and their steps."""
        for op in loop.body.walk():
            if not isinstance(op, cuda.CopyOp) or op.is_outward or op.place is not None or self.copies.span(op) is None:
                continue
            moving = _moving_axis(op, loop)
            if moving is not None:
                self._start(op, loop, *moving)

    def _start(self, op: cuda.CopyOp, loop: scf.ForOp, axis: str, ahead: int) -> None:
        """Declare what the loop carries for one copy, which moves along `axis`, so far ahead of the loop."""
        kernel, span = self.kernel, self.copies.span(op)
        assert span is not None
        array, strides = kernel.values[op.buffer], kernel.strides[op.buffer]
        (row, count), _ = wide = wide_axes(op)
        follows = axis == row and constant_of(loop.step) == count
        pointer, down = kernel.names.fresh(f"{array}_next"), kernel.names.fresh(f"{array}_down")
        turn = down if follows else kernel.names.fresh(f"{array}_turn")
        self.copies.running[op] = Running(pointer, down, turn)
        position = add([term(kernel.values[loop.lb]), str(ahead)])
        kernel.text.line(f"{pointer_type(op)} {pointer};")
        kernel.text.line(f"int64_t {', '.join(dict.fromkeys([down, turn]))};  // bytes")
        what = f"where this thread copies from in the first turn: {axis} = {position}"
        with self.addresses.width(op, what, f"if constexpr ({WHOLE})"):
            step = kernel.names.fresh(f"{row}_step")
            kernel.text.line(f"constexpr int {step} = {kernel.kernel.threads.data} * width / {span};")
            indices = self.copies.own_place(wide, span)
            kernel.text.line(f"{pointer} = {self.addresses.where(op, indices, {axis: position}, together=True)};")
            bytes, kept = FORMAT_BYTES[str(format_of(op.buffer.type))], kernel.call("kept")
            kernel.text.line(f"{down} = {kept}({strided(step, strides[row])} * int64_t({bytes}));")
            if not follows:
                forth = strided(term(kernel.values[loop.step]), strides[axis])
                back = strided(f"({count} - {step})", strides[row])
                kernel.text.line(f"{turn} = {kept}(({forth} - {back}) * int64_t({bytes}));")


def _moving_axis(op: cuda.CopyOp, loop: scf.ForOp) -> tuple[str, int] | None:
    """The one axis along which a copy moves with its loop, and how far ahead of it; None if it moves otherwise."""
    found: list[tuple[str, int]] = []
    for axis, offset in zip(axes_of(op.buffer.type), op.offsets, strict=True):
        if constant_of(offset) is not None or not _is_made_in(offset, loop):
            continue
        ahead = _distance(offset, loop.body.block.args[0])
        if ahead is None:
            return None
        found.append((axis, ahead))
    return found[0] if len(found) == 1 else None


def _is_made_in(value: SSAValue, loop: scf.ForOp) -> bool:
    maker = value.owner.parent_op() if isinstance(value.owner, Block) else value.owner
    return maker is not None and loop.is_ancestor(maker)


def _distance(value: SSAValue, position: SSAValue) -> int | None:
    """The constant by which a value is ahead of the position of a loop."""
    if value is position:
        return 0
    owner = value.owner
    if not isinstance(owner, arith.AddiOp) or owner.lhs is not position:
        return None
    return constant_of(owner.rhs)
