"""`tiling`: cut the axes that a kernel is weaved over into groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.passes import ModulePass

from treadle.compiler.errors import Refusal
from treadle.dialects.diagram.array import size_text
from treadle.dialects.hierarchy import KernelOp
from treadle.passes._decisions import decide
from treadle.passes._functions import kernels_named, label, note
from treadle.passes._parts import part_of_kernel
from treadle.passes.kernels.groups import Groups, groups_of
from treadle.passes.kernels.roles import WHOLE_LIMIT, keeping_together, may_repeat, not_grouped, repeated_products
from treadle.passes.kernels.whole_or_repeated import best_groups

PASS = "tiling"

NONE = "none"
"""What `repeated` says where groups repeat products along no axis that they can hold."""


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

    A short axis that a map spreads a product along (`kernels.spread`: scores times a number for each head) is held
    whole, or cut while each group repeats that product, whichever takes less time by the cost model
    (`kernels.whole_or_repeated`). `repeated` says along which of these axes groups repeat products, or `none`."""

    name = PASS

    axis: str = ""
    kernel: str = ""
    repeated: tuple[str, ...] = ()

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        named = kernels_named(op, self.kernel)
        chosen = [pair for pair in named if not pair[1].is_expanded and self._why_not(pair[1]) is None]
        if self.axis and not chosen:
            raise Refusal(
                _where([kernel for _, kernel in named], self.axis) or op, self._refusal([k for _, k in named])
            )
        found = [(function, kernel, groups_of(kernel)) for function, kernel in chosen]
        self._check_repeated(op, [given for _, _, given in found])
        is_open = not self.axis and any(given.able for _, _, given in found)
        for function, kernel, given in found:
            groups, why = self._groups(op, function, kernel, given)
            _decorate(function, kernel, self.axis, groups, why)
            if is_open:
                decide(kernel, repeated=groups.repeated or (NONE,))

    def _groups(
        self, module: ModuleOp, function: func.FuncOp, kernel: KernelOp, given: Groups
    ) -> tuple[Groups, Mapping[str, str]]:
        """The groups that are asked for, or the best ones, and why an axis is cut that could be held whole, or held
        that could be cut (Refusal)."""
        if not self.repeated and not self.axis:
            return best_groups(module, function, kernel, given)
        groups = given.repeating(tuple(axis for axis in given.able if axis in self.repeated))
        if self.repeated and given.able and (reason := groups.impossible) is not None:
            raise Refusal(kernel, f"no kernel repeats products along so few axes: {reason}")
        return groups, {}

    def _check_repeated(self, module: ModuleOp, found: Iterable[Groups]) -> None:
        able = {axis for given in found for axis in (*given.able, *given.old.group.as_dict())}
        if unable := [axis for axis in self.repeated if axis not in able and axis != NONE]:
            raise Refusal(
                module,
                f"groups along axis '{unable[0]}' would repeat no product: the axes of up to {WHOLE_LIMIT} that a map "
                f"spreads a product along are {', '.join(repr(axis) for axis in sorted(able)) or 'none'}",
            )

    def _why_not(self, kernel: KernelOp) -> str | None:
        """Why the axis asked for cannot be cut in a kernel."""
        part = part_of_kernel(kernel)
        if self.axis and self.axis not in part.sizes:
            return f"there is no axis '{self.axis}' (there is {', '.join(part.sizes)})"
        reason = not_grouped(part, self.axis, WHOLE_LIMIT, self.repeated) if self.axis else None
        if reason is None or self.axis not in may_repeat(part):
            return reason
        return f"{reason}: ask for that, too, with repeated={self.axis}"

    def _refusal(self, named: list[KernelOp]) -> str:
        reasons = [f"@{kernel.kernel_name.data}: {self._why_not(kernel)}" for kernel in named]
        return f"axis '{self.axis}' cannot be cut into groups: {'; '.join(reasons) or 'there is no kernel'}"


def _where(named: list[KernelOp], axis: str) -> Operation | None:
    """The operation because of which the first of these kernels does not cut an axis."""
    for kernel in named:
        found = keeping_together(part_of_kernel(kernel), axis, WHOLE_LIMIT)
        return found[0].owner if found is not None and isinstance(found[0].owner, Operation) else kernel
    return None


def _decorate(function: func.FuncOp, kernel: KernelOp, axis: str, groups: Groups, why: Mapping[str, str]) -> None:
    at, old, group, whole = f"@{kernel.kernel_name.data}", groups.old, groups.group(axis), groups.whole
    cut = dict(old.group.as_dict())
    for name in group:
        cut = {each: size for each, size in group.items() if each in cut or each == name}
        kernel.properties["schedule"] = old.but(group=cut)
        reason = _repeated(groups, name, why.get(name, "asked for"))
        note(function, PASS, f"{name} of {at}", "group partition: weaved over it", reason)
    kernel.properties["schedule"] = old.but(group=group, whole=whole)
    for name in whole:
        reason = "; ".join(each for each in (groups.refused[name], why.get(name)) if each)
        note(function, PASS, f"{name} of {at}", "held whole", reason)


def _repeated(groups: Groups, axis: str, why: str) -> str:
    """What every group along an axis repeats, and why."""
    part, repeated = groups.part, groups.repeated
    products = " and ".join(label(op.result) for op in repeated_products(part, axis, WHOLE_LIMIT, repeated))
    held = f"no group holds all of its {size_text(part.sizes[axis])} (at most {WHOLE_LIMIT})"
    return f"each group repeats {products}, which lacks it: {why if axis in repeated else held}" if products else ""
