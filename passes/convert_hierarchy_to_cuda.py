"""From groups and streams to blocks, fragments and products."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import MemRefType, ModuleOp
from xdsl.passes import ModulePass

from treadle.compiler.lowering.host import HostLowering
from treadle.compiler.machines import machine_of
from treadle.dialects.diagram import LawOp
from treadle.dialects.diagram.operation import DiagramOperation
from treadle.dialects.hierarchy import KernelOp


@dataclass(frozen=True)
class ConvertHierarchyToCudaPass(ModulePass):
    """Lower kernels in explicit form to `cuda.kernel`, and the functions that hold them to host functions with one
    `cuda.launch` each.

    A group becomes a block; the pieces a contraction uses go to shared memory, contractions become products on the
    widest instruction their formats allow, and every other value becomes fragments whose layout follows from the
    products (see `compiler/lowering/layouts.py`). A stream becomes a loop over its full pieces, without any test for
    the edge, and one turn for a last, smaller piece, in which elements outside are masked by the neutral element of
    what uses them. Barriers stand where a tile is read after it was written, or written after it was read. A kernel
    without products states how many blocks an SM is to hold (`resident`): those that the cost model counted on. One
    with products does where they are several and leave registers that the model may not know of.

    Before:
    ```
    !X = tensor<64xf32, #diagram.array<[n]>>
    !Xd = tensor<64xf32, #diagram.array<[n], level = device>>
    !Yd = memref<64xf32, #diagram.array<[n], level = device>>
    !t = tensor<64xf32, #diagram.array<[n], level = register>>
    func.func @double(%X: !X) -> !X {
      %Y = hierarchy.kernel @double (%x = %X : !X as !Xd) saves (%y: !Yd) -> (!X)
          schedule #hierarchy.schedule<group = [n = 64], warps = [n = 1]> {
        hierarchy.group [n = 64] {
          %a = hierarchy.load %x : !Xd -> !t
          %b = diagram.map (%v = %a : !t) -> !t {
            %w = arith.addf %v, %v : f32
            diagram.yield %w : f32
          }
          hierarchy.save %b into %y : !t, !Yd
        }
        hierarchy.yield
      }
      func.return %Y : !X
    }
    ```

    After:
    ```
    #fragment = #cuda.layout<register = [n:4:1], lane = [2, n:16:4], warp = []>
    !X = memref<64xf32, strided<[1], offset: ?>, #diagram.array<[n], level = device>>
    !t = tensor<64xf32, #diagram.array<[n], level = register, layout = #fragment>>
    cuda.kernel @double_kernel (%x: !X, %y: !X) threads 32 shared 0 resident 32 {
      %0 = arith.constant 0 : index
      %a = cuda.load %x[%0] : !X -> !t
      %b = diagram.map (%v = %a : !t) -> !t {
        %w = arith.addf %v, %v : f32
        diagram.yield %w : f32
      }
      %1 = arith.constant 0 : index
      cuda.store %b into %y[%1] : !t, !X
    }
    func.func @double(%X: !X) -> !X {
      %Y = memref.alloc() : !X
      %aligned = cuda.alignment %X, %Y : !X, !X
      %blocks = arith.constant 1 : index
      cuda.launch @double_kernel grid %blocks aligned %aligned(%X, %Y) : !X, !X
      func.return %Y : !X
    }
    ```
    """

    name = "convert-hierarchy-to-cuda"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        functions = [inner for inner in op.body.block.ops if isinstance(inner, func.FuncOp) and inner.body.blocks]
        for function in functions:
            if not _is_lowered(function) and any(
                isinstance(inner, KernelOp | DiagramOperation) for inner in function.body.block.ops
            ):
                HostLowering(function, machine_of(op)).lower()
        for law in [inner for inner in op.body.block.ops if isinstance(inner, LawOp)]:
            law.detach()
            law.erase()


def _is_lowered(function: func.FuncOp) -> bool:
    """Whether this pass has made a host function of it: reads and regroupings of arrays stay in it as they are."""
    types = (*function.function_type.inputs, *function.function_type.outputs)
    return any(isinstance(each, MemRefType) for each in types)
