"""`diagram-expand-laws`: replace a law by its meaning."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ArrayAttr, IntegerAttr, ModuleOp, StringAttr, i32
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter

from treadle.compiler.errors import Refusal
from treadle.compiler.laws import standard_law, standard_laws
from treadle.dialects.diagram import (
    ApplyOp,
    CastOp,
    ContractOp,
    ExtentOp,
    FillOp,
    LawOp,
    RecurrenceOp,
    ReduceOp,
    YieldOp,
)
from treadle.dialects.diagram.array import DYNAMIC, array_type, axes_of, format_of, is_array, sizes_of
from treadle.passes._functions import fresh_hint, functions, label, note, replace
from treadle.passes.expressions.scalars import weave


@dataclass(frozen=True)
class DiagramExpandLawsPass(ModulePass):
    """Replace `diagram.apply @law` by the meaning of the law: the module's own law of that name, else the
    standard one.

    Before:

    ```
    !S = tensor<?x?xf32, #diagram.array<[q, k]>>
    func.func @f(%S: !S) -> !S {
      %P = diagram.apply @softmax(%S) over [k] : (!S) -> !S
      func.return %P : !S
    }
    ```

    After:

    ```
    !S = tensor<?x?xf32, #diagram.array<[q, k]>>
    !r = tensor<?xf32, #diagram.array<[q]>>
    func.func @f(%S: !S) -> !S {
      %m = diagram.reduce max %S over [k] : !S -> !r
      %e = diagram.map (%a = %S : !S, %b = %m : !r) -> !S {
        %shifted = arith.subf %a, %b : f32
        %exp = math.exp %shifted : f32
        diagram.yield %exp : f32
      }
      %l = diagram.reduce add %e over [k] : !S -> !r
      %P = diagram.map (%a = %e : !S, %b = %l : !r) -> !S {
        %share = arith.divf %a, %b : f32
        diagram.yield %share : f32
      }
      func.return %P : !S
    }
    ```

    Legal: it is the definition of the law. The axes of the law become those in `over`; an axis that an
    operand has besides is weaved: every value that depends on the operand gets it. The law computes in the
    formats that it states, with casts where operands or result have others.
    """

    name = "diagram-expand-laws"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        laws = {law.sym_name.data: law for law in op.walk() if isinstance(law, LawOp)}
        for function in functions(op):
            expand_laws(function, laws)


def expand_laws(
    function: func.FuncOp, laws: Mapping[str, LawOp], chosen: Callable[[ApplyOp], bool] = lambda _: True
) -> None:
    """Replace the applications of a function that are chosen, also those in the meaning of a law."""
    # A law may apply another: what stands in its meaning is expanded after it.
    waiting: list[tuple[ApplyOp, tuple[str, ...]]]
    waiting = [(item, ()) for item in reversed(list(function.walk())) if isinstance(item, ApplyOp) and chosen(item)]
    while waiting:
        apply, around = waiting.pop()
        name, new = _expand(function, apply, laws, around)
        inner = [item for item in reversed(new) if isinstance(item, ApplyOp) and chosen(item)]
        waiting += [(item, (*around, name)) for item in inner]


def _expand(
    function: func.FuncOp, apply: ApplyOp, laws: Mapping[str, LawOp], around: tuple[str, ...]
) -> tuple[str, list[Operation]]:
    """Put the meaning of a law in the place of its application, which stood in the meaning of the laws `around`."""
    name = apply.law.string_value()
    law = laws.get(name) or standard_law(name)
    if law is None:
        axes = ", ".join(f"'{axis}'" for axis in apply.over_axes)
        known = sorted({*laws, *standard_laws()})
        near = get_close_matches(name, known, n=1, cutoff=0.8)
        meant = f"; perhaps @{near[0]} is meant" if near else ""
        raise Refusal(
            apply,
            f"no law for '{name}' on axis {axes}{meant}: define @{name} with diagram.law, its meaning as contractions, "
            f"maps and reductions, which nothing has that puts elements in order (known laws: {', '.join(known)})",
        )
    if name in around:
        raise Refusal(apply, f"law @{name} applies itself, so its meaning has no end")
    if (problem := law.why_not(apply)) is not None:
        raise Refusal(apply, problem)
    subject = f"{label(apply.result)} = @{name} over [{', '.join(apply.over_axes)}]"
    weaving = _Weaving(apply, law)
    new, values = weaving.meaning()
    summary = weaving.summary(new)
    replace(apply, new, *values)
    note(function, "diagram-expand-laws", subject, f"definition of @{name}", summary)
    return name, new


class _Weaving:
    """The body of one law, rewritten for the axes and operands of one application."""

    def __init__(self, apply: ApplyOp, law: LawOp):
        self.apply = apply
        self.law = law
        self.axis = dict(zip(law.over_axes, apply.over_axes, strict=True))
        self.sizes = {axis: size for value in apply.inputs for axis, size in sizes_of(value.type).items()}
        self.values: dict[SSAValue, SSAValue] = {}
        self.weaved: dict[SSAValue, tuple[str, ...]] = {}
        """Axes that a value of the law has here beyond those that the law gives it."""
        self.ops: list[Operation] = []

    def meaning(self) -> tuple[list[Operation], list[SSAValue]]:
        """The operations that compute the law here, and their results."""
        for argument, operand in zip(self.law.body.block.args, self.apply.inputs, strict=True):
            self._bind(argument, operand)
        *body, terminator = self.law.body.block.ops
        assert isinstance(terminator, YieldOp)
        for op in body:
            self._clone(op)
        pairs = zip(terminator.operands, self.apply.outputs, strict=True)
        return self.ops, [self._finish(self.values[made], output) for made, output in pairs]

    def summary(self, ops: Sequence[Operation]) -> str:
        words = [op.kind.data if isinstance(op, ReduceOp) else op.name.split(".")[1] for op in ops]
        return f"its meaning is {', '.join(words)}"

    def _names(self, type: Attribute) -> tuple[str, ...]:
        return tuple(self.axis.get(axis, axis) for axis in axes_of(type))

    def _bind(self, argument: SSAValue, operand: SSAValue) -> None:
        own = self._names(argument.type)
        given = axes_of(operand.type)
        if missing := [axis for axis in own if axis not in given]:
            raise Refusal(
                self.apply,
                f"law @{self.law.sym_name.data} needs axis '{missing[0]}' in {label(operand)}, "
                f"which has [{', '.join(given)}]",
            )
        self.weaved[argument] = tuple(axis for axis in given if axis not in own)
        format = format_of(argument.type)
        if format == format_of(operand.type):
            self.values[argument] = operand
            return
        cast = CastOp(operand, array_type(format, sizes_of(operand.type)))
        self._add(cast, f"{operand.name_hint}_{format}" if operand.name_hint else None)
        self.values[argument] = cast.result

    def _clone(self, op: Operation) -> None:
        weaved = weave(self.weaved[operand] for operand in op.operands)
        new = op.clone(self.values)
        for old, result in zip(op.results, new.results, strict=True):
            self.weaved[old] = weaved
            if not is_array(old.type):
                continue
            axes = self._order({*self._names(old.type), *weaved}, new.operands)
            sizes = {axis: self._size(axis, old.type) for axis in axes}
            Rewriter.replace_value_with_new_type(result, array_type(format_of(old.type), sizes))
        if isinstance(new, ApplyOp | ContractOp | ReduceOp):
            new.properties["over"] = ArrayAttr(StringAttr(self.axis.get(axis, axis)) for axis in new.over_axes)
        if isinstance(new, ExtentOp):
            new = self._extent(self.axis.get(new.axis.data, new.axis.data))
        self._add(new, op.results[0].name_hint)
        self.values[op.results[0]] = new.results[0]

    def _extent(self, axis: str) -> Operation:
        """How many elements an axis has. At a position of a recurrence it is a number, for what a step reduces is held
        whole."""
        if not isinstance(self.apply.parent_op(), RecurrenceOp):
            return ExtentOp(axis)
        size = self.sizes[axis]
        if size == DYNAMIC:
            raise Refusal(
                self.apply,
                f"law @{self.law.sym_name.data} in the body of a recurrence divides by the size of '{axis}', which is "
                "known only at launch: give the axis a size",
            )
        return FillOp(IntegerAttr(size, i32), array_type(i32, {}))

    def _order(self, axes: set[str], operands: Sequence[SSAValue]) -> tuple[str, ...]:
        """The order of memory of a result: as the operands have it, longest first."""
        by_rank = sorted(operands, key=lambda value: -len(axes_of(value.type)))
        met = weave([*(axes_of(value.type) for value in by_rank), self.sizes])
        return tuple(axis for axis in met if axis in axes)

    def _size(self, axis: str, type: Attribute) -> int:
        return self.sizes.get(axis, sizes_of(type).get(axis, 0))

    def _finish(self, value: SSAValue, output: SSAValue) -> SSAValue:
        """A result in the type that the application states."""
        wanted = output.type
        if sizes_of(value.type).keys() != sizes_of(wanted).keys():
            raise Refusal(
                self.apply,
                f"law @{self.law.sym_name.data} gives axes [{', '.join(axes_of(value.type))}] here, "
                f"{label(output)} has [{', '.join(axes_of(wanted))}]",
            )
        last = value.owner
        if value.type == wanted and last in self.ops:
            value.name_hint = output.name_hint
            return value
        cast = CastOp(value, wanted)
        cast.location = self.apply.location
        cast.result.name_hint = output.name_hint
        self.ops.append(cast)
        return cast.result

    def _add(self, op: Operation, hint: str | None) -> None:
        op.results[0].name_hint = fresh_hint(self.apply.result, hint)
        op.location = self.apply.location
        self.ops.append(op)
