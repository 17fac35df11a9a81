"""One function of diagrams as `linalg` on plain tensors: one operation after another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, cast

from xdsl.builder import ImplicitBuilder
from xdsl.dialects import arith, func, linalg, tensor
from xdsl.dialects.builtin import (
    AffineMapAttr,
    AnyFloat,
    FloatAttr,
    FunctionType,
    IndexType,
    IntegerAttr,
    TensorType,
    UnrealizedConversionCastOp,
    f32,
    i32,
)
from xdsl.dialects.linalg.attrs import IteratorTypeAttr
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.ir.affine import AffineExpr, AffineMap
from xdsl.rewriter import Rewriter

from treadle.compiler.errors import Refusal
from treadle.dialects.diagram import CastOp, ContractOp, ExtentOp, FillOp, IndexOp, MapOp, ReadOp, ReduceOp
from treadle.dialects.diagram.array import DYNAMIC, Number, axes_of, format_of, is_array, shape_of, sizes_of
from treadle.dialects.diagram.formats import number_format
from treadle.dialects.diagram.operation import DiagramOperation

Scalars: TypeAlias = Sequence[SSAValue]

Combine: TypeAlias = Callable[[SSAValue, SSAValue], Operation]

COMBINE: dict[str, tuple[Combine, Combine, float, int]] = {
    "add": (arith.AddfOp, arith.AddiOp, 0.0, 0),
    "mul": (arith.MulfOp, arith.MuliOp, 1.0, 1),
    "max": (arith.MaximumfOp, arith.MaxSIOp, float("-inf"), -(2**31)),
    "min": (arith.MinimumfOp, arith.MinSIOp, float("inf"), 2**31 - 1),
}
"""By the kind of a reduction: what combines floats and integers, and their neutral elements."""


class Lowering:
    """Rewrites one function in place."""

    def __init__(self, function: func.FuncOp):
        self.function = function
        self.block = function.body.block
        self.values: dict[SSAValue, SSAValue] = {}
        """For each array the plain tensor that it is now."""
        self.named: dict[SSAValue, tuple[str, ...]] = {}
        """The axes that a plain tensor stands for."""
        self.sources: dict[str, tuple[SSAValue, int]] = {}
        """For each axis a tensor that has it, and as which dimension."""
        self.before: Operation | None = None

    def run(self) -> None:
        for argument in list(self.block.args):
            axes = axes_of(argument.type)
            if is_array(argument.type):
                self._made(axes, Rewriter.replace_value_with_new_type(argument, plain(argument.type)))
        old = [op for op in self.block.ops if isinstance(op, DiagramOperation | UnrealizedConversionCastOp)]
        for op in old:
            self._lower(op)
        for op in reversed(old):
            if op.parent is not None:
                op.detach()
                op.erase()
        terminator = self.block.last_op
        assert terminator is not None
        inputs = [argument.type for argument in self.block.args]
        outputs = [operand.type for operand in terminator.operands]
        self.function.properties["function_type"] = FunctionType.from_lists(inputs, outputs)
        self.function.attributes.pop("sizes", None)

    def _lower(self, op: Operation) -> None:
        self.before = op
        if isinstance(op, UnrealizedConversionCastOp):
            self._uncast(op)
            return
        result = op.results[0]
        axes = axes_of(result.type)
        value = self._value(op)
        value.name_hint = result.name_hint
        if is_array(result.type):
            self._made(axes, value)
        # What is left to lower asks for its axes: they are those of the old type.
        self.values[result] = value
        for use in list(result.uses):
            if not isinstance(use.operation, DiagramOperation):
                use.operation.operands[use.index] = value

    def _uncast(self, op: UnrealizedConversionCastOp) -> None:
        """A conversion between an array and the plain tensor that it is."""
        if len(op.inputs) != 1 or not (is_array(op.outputs[0].type) or is_array(op.inputs[0].type)):
            return
        value = self.values.get(op.inputs[0], op.inputs[0])
        if is_array(op.outputs[0].type):
            self._made(axes_of(op.outputs[0].type), value)
        self.values[op.outputs[0]] = value
        for use in list(op.outputs[0].uses):
            if not isinstance(use.operation, DiagramOperation):
                use.operation.operands[use.index] = value

    def _value(self, op: Operation) -> SSAValue:
        match op:
            case ContractOp():
                return self._contract(op)
            case ReduceOp():
                return self._reduce(op)
            case MapOp():
                return self._map(op)
            case CastOp():
                format = format_of(op.result.type)
                return self._elementwise(op.result.type, [op.operand], lambda scalars: converted(scalars[0], format))
            case FillOp():
                return self._filled(op.value, op.result.type)
            case ExtentOp():
                return self._extent(op)
            case IndexOp():
                return self._elementwise(op.result.type, [], lambda _: _position())
            case ReadOp():
                return self._read(op)
            case _:
                raise Refusal(
                    op,
                    "linalg has nothing like it: a condition or law of this kind stays in the diagram dialect "
                    "(convert-diagram-to-linalg takes contract, reduce, map, cast, fill, extent, index and read)",
                )

    # -- operations ------------------------------------------------------------------------------

    def _contract(self, op: ContractOp) -> SSAValue:
        format = op.accumulate
        type = TensorType(format, shape_of(op.result.type))
        direct = op.init is not None and format_of(op.result.type) == format
        init = self._now(op.init) if direct and op.init is not None else self._start("add", op, format)
        multiply, add = (arith.MuliOp, arith.AddiOp) if format == i32 else (arith.MulfOp, arith.AddfOp)

        def body(scalars: Scalars) -> SSAValue:
            left, right = (converted(each, format) for each in scalars[:2])
            return add(scalars[2], multiply(left, right)).results[0]

        sum = self._generic([op.lhs, op.rhs], axes_of(op.result.type), op.over_axes, init, type, body)
        if format_of(op.result.type) == format and (direct or op.init is None):
            return sum
        return self._rounded(op, sum)

    def _rounded(self, op: ContractOp, sum: SSAValue) -> SSAValue:
        """The sum, with what it is added to, in the format of the result."""
        axes = axes_of(op.result.type)
        format = format_of(op.result.type)
        rest = [] if op.init is None else [op.init]
        add = arith.AddiOp if op.accumulate == i32 else arith.AddfOp

        def body(scalars: Scalars) -> SSAValue:
            value = scalars[0]
            if rest:
                value = add(value, converted(scalars[1], op.accumulate)).results[0]
            return converted(value, format)

        out = self._empty(op.result.type)
        self.named[sum] = axes
        return self._generic([sum, *rest], axes, (), out, plain(op.result.type), body)

    def _reduce(self, op: ReduceOp) -> SSAValue:
        format = format_of(op.result.type)
        init = self._start(op.kind.data, op, format) if op.init is None else self._now(op.init)
        real, whole, _, _ = COMBINE[op.kind.data]
        combine = whole if format == i32 else real

        def body(scalars: Scalars) -> SSAValue:
            return combine(converted(scalars[0], format), scalars[1]).results[0]

        return self._generic([op.operand], axes_of(op.result.type), op.over_axes, init, plain(op.result.type), body)

    def _map(self, op: MapOp) -> SSAValue:
        def body(scalars: Scalars) -> SSAValue:
            values: dict[SSAValue, SSAValue] = dict(zip(op.body.block.args, scalars, strict=False))
            for inner in list(op.body.block.ops)[:-1]:
                new = inner.clone(values)  # which the builder around puts into the body
                values.update(zip(inner.results, new.results, strict=True))
            return values.get(op.yielded, op.yielded)

        return self._elementwise(op.result.type, op.inputs, body)

    def _extent(self, op: ExtentOp) -> SSAValue:
        source, dimension = self.sources.get(op.axis.data, (None, 0))
        if source is not None and (size := shape_of(source.type)[dimension]) != DYNAMIC:
            return self._add(arith.ConstantOp(IntegerAttr(size, i32)))
        return self._add(arith.IndexCastOp(self._size(op.axis.data, DYNAMIC), i32))

    def _read(self, op: ReadOp) -> SSAValue:
        loops = axes_of(op.result.type)
        forms = [
            sum(
                (AffineExpr.dimension(loops.index(str(axis))) * factor for axis, factor in form.terms.items()),
                AffineExpr.constant(form.constant),
            )
            for form in op.place.forms
        ]
        return self._generic(
            [op.operand],
            loops,
            (),
            self._empty(op.result.type),
            plain(op.result.type),
            lambda scalars: scalars[0],
            maps=[AffineMap(len(loops), 0, tuple(forms))],
        )

    # -- building --------------------------------------------------------------------------------

    def _elementwise(
        self, type: Attribute, inputs: Sequence[SSAValue], body: Callable[[Scalars], SSAValue]
    ) -> SSAValue:
        return self._generic(inputs, axes_of(type), (), self._empty(type), plain(type), body)

    def _generic(
        self,
        inputs: Sequence[SSAValue],
        kept: Sequence[str],
        over: Sequence[str],
        init: SSAValue,
        type: Attribute,
        body: Callable[[Scalars], SSAValue],
        maps: Sequence[AffineMap] | None = None,
    ) -> SSAValue:
        """A `linalg.generic` over the axes that are kept, then those that are combined."""
        loops = [*kept, *over]
        values = [self._now(value) for value in inputs]
        if maps is None:
            maps = [_map_of(self.named.get(value, ()), loops) for value in values]
        region = Region(Block(arg_types=[format_of(value.type) for value in (*values, init)]))
        with ImplicitBuilder(region) as scalars:
            linalg.ops.YieldOp(body(scalars))
        attributes = [AffineMapAttr(each) for each in (*maps, _map_of(kept, loops))]
        kinds = [IteratorTypeAttr.parallel()] * len(kept) + [IteratorTypeAttr.reduction()] * len(over)
        return self._add(linalg.ops.GenericOp(values, [init], region, attributes, kinds, [type]))

    def _start(self, kind: str, op: ContractOp | ReduceOp, format: Attribute) -> SSAValue:
        """An array of neutral elements with the axes of the result."""
        _, _, real, integer = COMBINE[kind]
        number: Number = IntegerAttr(integer, i32) if format == i32 else FloatAttr(real, format)  # pyright: ignore
        return self._filled(number, op.result.type)

    def _filled(self, number: Number, type: Attribute) -> SSAValue:
        format = number.type
        scalar = self._add(arith.ConstantOp(number))
        empty = self._empty(type, format)
        return self._add(linalg.ops.FillOp([scalar], [empty], [empty.type]))

    def _empty(self, type: Attribute, format: Attribute | None = None) -> SSAValue:
        dynamic = [self._size(axis, size) for axis, size in sizes_of(type).items() if size == DYNAMIC]
        return self._add(tensor.EmptyOp(dynamic, TensorType(format or format_of(type), shape_of(type))))

    def _size(self, axis: str, size: int) -> SSAValue:
        """The size of an axis, as an index (Refusal if no tensor so far has it)."""
        assert self.before is not None
        if axis not in self.sources:
            raise Refusal(self.before, f"no tensor before it tells the size of axis '{axis}': make it static")
        value, dimension = self.sources[axis]
        static = shape_of(value.type)[dimension]
        if static != DYNAMIC:
            return self._add(arith.ConstantOp(IntegerAttr(static, IndexType())))
        index = self._add(arith.ConstantOp(IntegerAttr(dimension, IndexType())))
        return self._add(tensor.DimOp(value, index))

    def _now(self, value: SSAValue) -> SSAValue:
        return self.values.get(value, value)

    def _made(self, axes: Sequence[str], value: SSAValue) -> None:
        self.named[value] = tuple(axes)
        for dimension, axis in enumerate(axes):
            self.sources.setdefault(axis, (value, dimension))

    def _add(self, op: Operation) -> SSAValue:
        assert self.before is not None
        self.block.insert_op_before(op, self.before)
        op.location = self.before.location
        return op.results[0]


def plain(type: Attribute) -> Attribute:
    """The type without names of axes."""
    return TensorType(format_of(type), shape_of(type)) if is_array(type) else type


def converted(value: SSAValue, format: Attribute) -> SSAValue:
    """A scalar in another format, in the body under construction."""
    if value.type == format:
        return value
    if value.type == i32 and number_format(format).saturates:  # arith.sitofp does not
        return converted(converted(value, f32), format)
    if value.type == i32:
        return arith.SIToFPOp(value, format).results[0]  # pyright: ignore
    narrow, wide = number_format(value.type), number_format(format)
    if narrow.bytes == wide.bytes:  # f16 and bf16: neither holds the other
        return converted(converted(value, f32), format)
    if narrow.bytes < wide.bytes:
        return arith.ExtFOp(value, format).results[0]  # pyright: ignore
    if wide.saturates:  # arith.truncf does not
        low, high = (
            arith.ConstantOp(FloatAttr(sign * wide.largest, cast(AnyFloat, value.type))).result for sign in (-1, 1)
        )
        value = arith.MinimumfOp(arith.MaximumfOp(value, low).result, high).result
    return arith.TruncFOp(value, format).results[0]  # pyright: ignore


def _position() -> SSAValue:
    return arith.IndexCastOp(linalg.ops.IndexOp(0), i32).results[0]


def _map_of(axes: Sequence[str], loops: Sequence[str]) -> AffineMap:
    return AffineMap(len(loops), 0, tuple(AffineExpr.dimension(loops.index(axis)) for axis in axes))
