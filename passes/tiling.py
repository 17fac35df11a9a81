"""`tiling`: cut the axes that a kernel is weaved over into groups."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.passes import ModulePass

from treadle.compiler.errors import Refusal
from treadle.dialects.diagram.array import DYNAMIC, axes_of, size_text
from treadle.dialects.hierarchy import KernelOp
from treadle.dialects.hierarchy.schedule import UNDECIDED, ScheduleAttr
from treadle.passes._functions import kernels_named, label, note
from treadle.passes._parts import Part, part_of_kernel
from treadle.passes.expressions.scalars import weave
from treadle.passes.kernels.roles import WHOLE_LIMIT, keeping_together, not_grouped, repeated_products

PASS = "tiling"


@dataclass(frozen=True)
class TilingPass(ModulePass):
    """Decorate a kernel with the axes that are cut into independent groups (all that can be, or only `axis`,
    in the kernel named `kernel` or in all), and with the axes that a group holds whole.

    Before:

    ```
    !x = tensor<?xf32, #diagram.array<[i]>>
    !xd = tensor<?xf32, #diagram.array<[i], level = device>>
    !xr = tensor<?xf32, #diagram.array<[i], level = register>>
    func.func @f(%x: !x) -> !x {
      %y = hierarchy.kernel @f (%a = %x : !x as !xd) -> (!x) {
        %z = diagram.map (%b = %a : !xd) -> !xr {
          %c = math.sin %b : f32
          diagram.yield %c : f32
        }
        hierarchy.yield %z : !xr
      }
      func.return %y : !x
    }
    ```

    After:

    ```
    !x = tensor<?xf32, #diagram.array<[i]>>
    !xd = tensor<?xf32, #diagram.array<[i], level = device>>
    !xr = tensor<?xf32, #diagram.array<[i], level = register>>
    func.func @f(%x: !x) -> !x {
      %y = hierarchy.kernel @f (%a = %x : !x as !xd) -> (!x) schedule #hierarchy.schedule<group = [i = ?]> {
        %z = diagram.map (%b = %a : !xd) -> !xr {
          %c = math.sin %b : f32
          diagram.yield %c : f32
        }
        hierarchy.yield %z : !xr
      }
      func.return %y : !x
    }
    ```

    Legal: a function weaved over an axis does to each piece of it what it does to the whole, so the pieces
    are independent. An axis is refused if something is reduced along it, if a result does not have it (each
    group would save that again), or if a product does not have it (each group would compute it again), unless no
    group can hold all of it (`kernels.roles.WHOLE_LIMIT`): then each repeats that product, and the derivation says so.
    """

    name = PASS

    axis: str = ""
    kernel: str = ""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        named = kernels_named(op, self.kernel)
        chosen = [pair for pair in named if not pair[1].is_expanded and self._why_not(pair[1]) is None]
        if self.axis and not chosen:
            raise Refusal(
                _where([kernel for _, kernel in named], self.axis) or op, self._refusal([k for _, k in named])
            )
        for function, kernel in chosen:
            _decorate(function, kernel, self.axis)

    def _why_not(self, kernel: KernelOp) -> str | None:
        """Why the axis asked for cannot be cut in a kernel."""
        part = part_of_kernel(kernel)
        if self.axis and self.axis not in part.sizes:
            return f"there is no axis '{self.axis}' (there is {', '.join(part.sizes)})"
        return not_grouped(part, self.axis, WHOLE_LIMIT) if self.axis else None

    def _refusal(self, named: list[KernelOp]) -> str:
        reasons = [f"@{kernel.kernel_name.data}: {self._why_not(kernel)}" for kernel in named]
        return f"axis '{self.axis}' cannot be cut into groups: {'; '.join(reasons) or 'there is no kernel'}"


def _where(named: list[KernelOp], axis: str) -> Operation | None:
    """The operation because of which the first of these kernels does not cut an axis."""
    for kernel in named:
        found = keeping_together(part_of_kernel(kernel), axis, WHOLE_LIMIT)
        return found[0].owner if found is not None and isinstance(found[0].owner, Operation) else kernel
    return None


def _decorate(function: func.FuncOp, kernel: KernelOp, axis: str) -> None:
    part = part_of_kernel(kernel)
    old = kernel.schedule or ScheduleAttr({}, {}, {})
    streamed = old.stream.as_dict()
    refused = {axis: reason for axis in part.sizes if (reason := not_grouped(part, axis, WHOLE_LIMIT)) is not None}
    # whoever wrote the schedule has decided that groups hold it
    refused |= {name: "its schedule holds it whole" for name in old.whole.as_dict() if repeated_products(part, name)}
    free = [name for name in _in_order(part) if name not in refused and name not in streamed]
    group = {name: UNDECIDED for name in free if axis in ("", name)} | old.group.as_dict()
    whole = {
        axis: size
        for axis, size in part.sizes.items()
        if axis in refused and axis not in streamed and size not in (DYNAMIC, 0)
    }
    at, cut = f"@{kernel.kernel_name.data}", dict(old.group.as_dict())
    for name in group:
        cut = {each: size for each, size in group.items() if each in cut or each == name}
        kernel.properties["schedule"] = old.but(group=cut)
        note(function, PASS, f"{name} of {at}", "group partition: weaved over it", _repeated(part, name))
    kernel.properties["schedule"] = old.but(group=group, whole=whole)
    for name in whole:
        note(function, PASS, f"{name} of {at}", "held whole", refused[name])


def _repeated(part: Part, axis: str) -> str:
    """What every group along an axis repeats, and why."""
    products = " and ".join(label(op.result) for op in repeated_products(part, axis))
    held = f"no group holds all of its {size_text(part.sizes[axis])}"
    return f"each group repeats {products}, which lacks it: {held} (at most {WHOLE_LIMIT})" if products else ""


def _in_order(part: Part) -> tuple[str, ...]:
    """Axes in the order of memory of what leaves the kernel."""
    return weave([*(axes_of(value.type) for value in part.leaving), part.sizes])
