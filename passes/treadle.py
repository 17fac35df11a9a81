"""`treadle`: the whole, from a diagram to the `cuda` level."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from treadle.compiler.errors import Reported, TreadleError
from treadle.compiler.pipeline import Options, run_pipeline
from treadle.compiler.sizes import parse_sizes


@dataclass(frozen=True)
class TreadlePass(ModulePass):
    """Run the pipeline of `treadle.compiler.pipeline`, through the pass named `last` or to its end.

    Before:

    ```
    !x = tensor<?xf32, #diagram.array<[n]>>
    func.func @negate(%x: !x) -> !x attributes {sizes = #diagram.sizes<n = 8>} {
      %y = diagram.map (%a = %x : !x) -> !x {
        %b = arith.negf %a : f32
        diagram.yield %b : f32
      }
      func.return %y : !x
    }
    ```

    After `treadle{last="diagram-set-sizes" sizes="n=16"}` (to its end it gives a launch of a kernel):

    ```
    !x = tensor<16xf32, #diagram.array<[n]>>
    func.func @negate(%x: !x) -> !x {
      %y = diagram.map (%a = %x : !x) -> !x {
        %b = arith.negf %a : f32
        diagram.yield %b : f32
      }
      func.return %y : !x
    }
    ```
    """

    name = "treadle"

    machine: str | None = None
    arch: str | None = None
    sizes: tuple[str, ...] = ()
    last: str | None = None

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        try:
            options = Options(self.machine, self.arch, parse_sizes(self.sizes))
            run_pipeline(op, options, context=ctx, last=self.last)
        except TreadleError as error:
            raise Reported(error) from error
