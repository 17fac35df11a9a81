"""Decide how wide every access to device memory is."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, IntAttr, ModuleOp
from xdsl.ir import Attribute
from xdsl.passes import ModulePass
from xdsl.utils.exceptions import PassFailedException

from treadle.compiler.lowering.plan import FORMAT_BYTES
from treadle.dialects import cuda
from treadle.dialects.cuda.layout import LayoutAttr
from treadle.dialects.cuda.ops import GlobalAccess, layout_of
from treadle.dialects.diagram.array import axes_of, format_of, shape_of


@dataclass(frozen=True)
class CoalescingPass(ModulePass):
    """Give every access to device memory the vector widths among which the alignment of its buffer chooses at launch.

    A copy to shared memory hands neighbouring vectors of the contiguous axis to neighbouring threads, so that a warp
    moves whole lines where rows are contiguous and aligned. Fragments move as many elements at once as a thread holds
    neighbours. Legal always: a vector never leaves a row, since the launch allows a width only if address, strides and
    the size of the last axis are multiples of it, and here only if the piece is, too. Narrower widths serve other
    alignments.

    Before:
    ```
    #fragment = #cuda.layout<register = [n:2:1], lane = [n:32:2], warp = []>
    !X = memref<64xf32, strided<[1], offset: ?>, #diagram.array<[n], level = device>>
    !t = tensor<64xf32, #diagram.array<[n], level = register, layout = #fragment>>
    cuda.kernel @copy_kernel (%x: !X, %y: !X, %x_vector: index, %y_vector: index) threads 32 shared 0 {
      %zero = arith.constant 0 : index
      %a = cuda.load %x[%zero] aligned %x_vector : !X -> !t
      cuda.store %a into %y[%zero] aligned %y_vector : !t, !X
    }
    ```

    After:
    ```
    #fragment = #cuda.layout<register = [n:2:1], lane = [n:32:2], warp = []>
    !X = memref<64xf32, strided<[1], offset: ?>, #diagram.array<[n], level = device>>
    !t = tensor<64xf32, #diagram.array<[n], level = register, layout = #fragment>>
    cuda.kernel @copy_kernel (%x: !X, %y: !X, %x_vector: index, %y_vector: index) threads 32 shared 0 {
      %zero = arith.constant 0 : index
      %a = cuda.load %x[%zero] aligned %x_vector widths [2, 1] : !X -> !t
      cuda.store %a into %y[%zero] aligned %y_vector widths [2, 1] : !t, !X
    }
    ```
    """

    name = "coalescing"

    max_bytes: int = 16
    """The widest vector, in bytes: a power of two, at most 16."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.max_bytes not in (2, 4, 8, 16):
            raise PassFailedException(f"max-bytes={self.max_bytes}: a vector has 2, 4, 8 or 16 bytes")
        for access in op.walk():
            if isinstance(access, GlobalAccess):
                access.properties["widths"] = ArrayAttr(IntAttr(width) for width in self.widths(access))

    def widths(self, access: GlobalAccess) -> list[int]:
        """Vector widths in elements, the widest first; the last is 1."""
        match access:
            case cuda.CopyOp():
                buffer, tile = access.source.type, access.destination.type
                neighbours = shape_of(tile)[-1] if axes_of(tile) else 1
            case cuda.LoadOp():
                buffer, neighbours = access.source.type, _neighbours(access.result.type)
            case cuda.StoreOp():
                buffer, neighbours = access.destination.type, _neighbours(access.value.type)
            case _:
                return [1]
        bytes = FORMAT_BYTES[str(format_of(buffer))]
        most = min(max(self.max_bytes // bytes, 1), neighbours & -neighbours if neighbours else 1)
        return [width for width in dict.fromkeys((most, 4 // bytes, 1)) if width <= most]


def _neighbours(fragment: Attribute) -> int:
    """How many neighbours along the contiguous axis a thread holds in registers that follow each other."""
    axes = axes_of(fragment)
    layout: LayoutAttr = layout_of(fragment)
    modes = tuple(layout.register)
    if not modes or not axes or modes[-1].stride != 1 or modes[-1].axis != axes[-1]:
        return 1
    return modes[-1].size
