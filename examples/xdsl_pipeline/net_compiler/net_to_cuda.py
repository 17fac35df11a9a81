"""`net-to-cuda`: the pipeline of this compiler, of which treadle's is a part."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.transforms.canonicalize import CanonicalizePass

from net_compiler.convert_net_to_diagram import ConvertNetToDiagramPass
from treadle.passes.treadle import TreadlePass


@dataclass(frozen=True)
class NetToCudaPass(ModulePass):
    """From `net` to kernels and a host function, in which what treadle does not know stands between launches."""

    name = "net-to-cuda"

    machine: str = "a100"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        CanonicalizePass().apply(ctx, op)
        ConvertNetToDiagramPass().apply(ctx, op)
        TreadlePass(machine=self.machine).apply(ctx, op)
