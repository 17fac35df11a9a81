"""One function of diagrams as `linalg` on plain tensors: one operation after another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, cast

from xdsl.builder import ImplicitBuilder
from xdsl.dialects import arith, func, linalg, tensor
from xdsl.dialects.builtin import (
    AffineMapAttr,
    ArrayAttr,
    FunctionType,
    IndexType,
    IntegerAttr,
    TensorType,
    UnrealizedConversionCastOp,
    i32,
    i64,
)
from xdsl.dialects.linalg.attrs import IteratorTypeAttr
from xdsl.ir import Attribute, Block, BlockArgument, Operation, Region, SSAValue
from xdsl.ir.affine import AffineExpr, AffineMap

from treadle.compiler.errors import Refusal
from treadle.compiler.lowering.absent import neutral_number
from treadle.compiler.lowering.fitting import fitting_size
from treadle.compiler.lowering.numbers import neutral_of
from treadle.dialects.diagram import (
    CastOp,
    CollapseOp,
    ContractOp,
    ExpandOp,
    ExtentOp,
    FillOp,
    IndexOp,
    MapOp,
    ReadOp,
    ReduceOp,
    WhereOp,
)
from treadle.dialects.diagram.array import DYNAMIC, Format, Number, axes_of, format_of, is_array, shape_of, sizes_of
from treadle.dialects.diagram.condition import Linear
from treadle.dialects.diagram.operation import DiagramOperation
from treadle.dialects.diagram.random import RandomOp
from treadle.passes.linalg.presence import Presence
from treadle.passes.linalg.random_words import random_in_arith
from treadle.passes.linalg.scalars import COMBINE, converted, position

Scalars: TypeAlias = Sequence[SSAValue]


LOWERED = (DiagramOperation, UnrealizedConversionCastOp)


class Lowering:
    """Rewrites one function in place."""

    def __init__(self, function: func.FuncOp):
        self.function = function
        self.block = function.body.block
        self.values: dict[SSAValue, SSAValue] = {}
        """For each array the plain tensor that it is now."""
        self.sources: dict[str, tuple[SSAValue, int]] = {}
        """For each axis a tensor that has it, and as which dimension."""
        self.fitted: dict[str, tuple[SSAValue, ReadOp]] = {}
        """For each symbolic axis that a read gave a size, the size and the read."""
        self.before: Operation | None = None

    def run(self) -> None:
        for op in self.block.ops:
            if not isinstance(op, LOWERED) and any(is_array(result.type) for result in op.results):
                raise Refusal(op, "it gives an array, which is no plain tensor: inline the function that it calls, say")
        old = [op for op in self.block.ops if isinstance(op, LOWERED)]
        arrays = [argument for argument in self.block.args if is_array(argument.type)]
        for argument in arrays:
            self._enter(argument)
        for op in old:
            self._lower(op)
        for op in reversed(old):
            if op.parent is not None:
                op.detach()
                op.erase()
        for argument in arrays:
            self.block.erase_arg(argument)
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
        if not is_array(result.type) and isinstance(value.type, TensorType):
            value = self._add(tensor.ExtractOp(value, [], format_of(result.type)))
        if not isinstance(op, WhereOp):
            value.name_hint = result.name_hint
        if is_array(result.type):
            self._made(axes, value)
        self._replace(result, value)

    def _enter(self, argument: BlockArgument) -> None:
        """A plain tensor beside an argument of the function, which operations that are left to lower need."""
        value = self.block.insert_arg(plain(argument.type), argument.index)
        value.name_hint, value.location = argument.name_hint, argument.location
        self._made(axes_of(argument.type), value)
        self._replace(argument, value)

    def _replace(self, array: SSAValue, value: SSAValue) -> None:
        """Give a tensor to what uses an array; what is left to lower asks for its axes, and takes the tensor later."""
        self.values[array] = value
        leaves = [use for use in array.uses if not isinstance(use.operation, LOWERED)]
        saved = self._saved(array, value) if leaves else value
        for use in leaves:
            use.operation.operands[use.index] = saved

    def _saved(self, result: SSAValue, value: SSAValue) -> SSAValue:
        """An array as it leaves the diagrams: with a zero for each element that is absent."""
        presence = Presence.of([result])
        if not presence.wheres:
            return value
        axes = axes_of(result.type)
        saved = self._elementwise(
            result.type, [result, *presence.inputs], lambda scalars: presence.kept(scalars[0], scalars[1:-1], axes, 0.0)
        )
        saved.name_hint = result.name_hint
        return saved

    def _uncast(self, op: UnrealizedConversionCastOp) -> None:
        """A conversion between an array and the plain tensor that it is."""
        if len(op.inputs) != 1 or not (is_array(op.outputs[0].type) or is_array(op.inputs[0].type)):
            return
        value = self._saved(op.inputs[0], self._now(op.inputs[0]))
        if is_array(op.outputs[0].type):
            self._made(axes_of(op.outputs[0].type), value)
        self._replace(op.outputs[0], value)

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
                return self._elementwise(op.result.type, [], lambda _: position(0))
            case ReadOp():
                return self._read(op)
            case CollapseOp() | ExpandOp():
                return self._regrouped(op)
            case WhereOp():
                return self._now(op.operand)  # whose elements are tested where they are combined or saved
            case _:
                raise Refusal(
                    op,
                    "linalg has nothing like it (convert-diagram-to-linalg takes contract, reduce, map, cast, fill, "
                    "extent, index, read, collapse, expand and where)",
                )

    # -- operations ------------------------------------------------------------------------------

    def _contract(self, op: ContractOp) -> SSAValue:
        format = op.accumulate
        type = TensorType(format, shape_of(op.result.type))
        direct = op.init is not None and format_of(op.result.type) == format
        init = self._begun(op.init) if direct and op.init is not None else self._start("add", op, format)
        multiply, add = (arith.MuliOp, arith.AddiOp) if format == i32 else (arith.MulfOp, arith.AddfOp)
        presence = Presence.of([op.lhs, op.rhs])
        kept = axes_of(op.result.type)

        def body(scalars: Scalars) -> SSAValue:
            left, right, *data, sum = scalars
            product = multiply(converted(left, format), converted(right, format)).results[0]
            return add(sum, presence.kept(product, data, [*kept, *op.over_axes], 0.0)).results[0]

        sum = self._generic([op.lhs, op.rhs, *presence.inputs], kept, op.over_axes, init, type, body)
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
        maps = [_map_of(axes, axes), *(_map_of(axes_of(each.type), axes) for each in rest)]
        return self._generic([sum, *rest], axes, (), out, plain(op.result.type), body, maps)

    def _reduce(self, op: ReduceOp) -> SSAValue:
        format = format_of(op.result.type)
        init = self._start(op.kind.data, op, format) if op.init is None else self._begun(op.init)
        real, whole = COMBINE[op.kind.data]
        combine = whole if format == i32 else real
        presence = Presence.of([op.operand])
        kept = axes_of(op.result.type)

        def body(scalars: Scalars) -> SSAValue:
            element, *data, sofar = scalars
            neutral = neutral_number(op.kind.data, op.result)
            element = presence.kept(converted(element, format), data, [*kept, *op.over_axes], neutral)
            return combine(element, sofar).results[0]

        inputs = [op.operand, *presence.inputs]
        return self._generic(inputs, kept, op.over_axes, init, plain(op.result.type), body)

    def _map(self, op: MapOp) -> SSAValue:
        def body(scalars: Scalars) -> SSAValue:
            values: dict[SSAValue, SSAValue] = dict(zip(op.body.block.args, scalars, strict=False))
            for inner in list(op.body.block.ops)[:-1]:
                if isinstance(inner, RandomOp):
                    values[inner.result] = random_in_arith(inner, *(values[each] for each in inner.operands))
                    continue
                new = inner.clone(values)  # which the builder around puts into the body
                values.update(zip(inner.results, new.results, strict=True))
            return values.get(op.yielded, op.yielded)

        return self._elementwise(op.result.type, op.inputs, body)

    def _extent(self, op: ExtentOp) -> SSAValue:
        source, dimension = self.sources.get(op.axis.data, (None, 0))
        if source is not None and (size := shape_of(source.type)[dimension]) != DYNAMIC:
            return self._add(arith.ConstantOp(IntegerAttr(size, i32)))
        return self._add(arith.IndexCastOp(self._size(op.axis.data), i32))

    def _read(self, op: ReadOp) -> SSAValue:
        if Presence.of([op.operand]).wheres:
            raise Refusal(op, "it reads elements that a condition leaves absent: put the condition after the read")
        if op.is_scattered:
            raise Refusal(
                op, f"it reads at '{op.place.text.data}', which no map of linalg says: gather the array before"
            )
        if op.is_padded:
            raise Refusal(op, "it reads zeros around an array, which no map of linalg says: pad the array before")
        loops, sizes = axes_of(op.result.type), sizes_of(op.result.type)
        for axis in op.by_factor():
            if sizes[axis] == DYNAMIC and not self._is_known(axis):
                self.fitted[axis] = fitting_size(op, axis, self._is_known, self._size, self._add), op
        forms = [
            sum(
                (AffineExpr.dimension(loops.index(str(axis))) * factor for axis, factor in form.terms.items()),
                AffineExpr.constant(form.constant),
            )
            for form in op.place.forms
        ]
        return self._generic(
            [self._reached(op)],
            loops,
            (),
            self._empty(op.result.type),
            plain(op.result.type),
            lambda scalars: scalars[0],
            maps=[AffineMap(len(loops), 0, tuple(forms))],
        )

    def _regrouped(self, op: CollapseOp | ExpandOp) -> SSAValue:
        """The operation of `tensor` of that name."""
        if Presence.of([op.operand]).wheres:
            raise Refusal(op, "it regroups axes of an array of which a condition leaves elements absent")
        source, shape = self._now(op.operand), shape_of(op.result.type)
        type = TensorType(format_of(op.result.type), shape)
        groups = ArrayAttr(ArrayAttr(IntegerAttr(dim, i64) for dim in group) for group in op.dimensions)
        if isinstance(op, CollapseOp):
            properties = {"reassociation": groups}
            return self._add(tensor.CollapseShapeOp(operands=[source], result_types=[type], properties=properties))
        dynamic = [self._size(axis) for axis, size in sizes_of(op.result.type).items() if size == DYNAMIC]
        return self._add(tensor.ExpandShapeOp(source, dynamic, groups, shape, type))

    def _reached(self, op: ReadOp) -> SSAValue:
        """The operand up to where the read goes along each axis on which one loop goes alone: in `linalg`, that loop is
        as long as the dimension."""
        source = self._now(op.operand)
        whole, reached = sizes_of(op.operand.type), sizes_of(op.result.type)
        alone = {along: str(next(iter(form.terms))) for along, form in op.forms.items() if _is_one_loop(form)}
        cut = {along: axis for along, axis in alone.items() if not self._is_as_long(op, along, axis)}
        if not cut:
            return source
        ends: list[SSAValue | int] = []
        for dimension, (along, length) in enumerate(whole.items()):
            if along in cut:
                ends.append(self._size(cut[along]) if reached[cut[along]] == DYNAMIC else reached[cut[along]])
            else:
                ends.append(self._dimension(source, dimension) if length == DYNAMIC else length)
        shape = [DYNAMIC if isinstance(end, SSAValue) else end for end in ends]
        type = TensorType(format_of(source.type), shape)
        return self._add(tensor.ExtractSliceOp(source, [0] * len(ends), ends, [1] * len(ends), type))

    def _is_as_long(self, op: ReadOp, along: str, axis: str) -> bool:
        """Whether an axis of a read has the size of the one of the operand along which it goes alone."""
        length, size = sizes_of(op.operand.type)[along], sizes_of(op.result.type)[axis]
        if DYNAMIC not in (length, size) or axis == along:
            return length == size
        is_fitted = length == size and self.fitted.get(axis, (None, None))[1] is op
        return is_fitted and sum(axis in form.terms for form in op.place.forms) == 1  # and nothing else limits it

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
            maps = [_map_of(axes_of(value.type), loops) for value in inputs]
        region = Region(Block(arg_types=[format_of(value.type) for value in (*values, init)]))
        with ImplicitBuilder(region) as scalars:
            linalg.ops.YieldOp(body(scalars))
        attributes = [AffineMapAttr(each) for each in (*maps, _map_of(kept, loops))]
        kinds = [IteratorTypeAttr.parallel()] * len(kept) + [IteratorTypeAttr.reduction()] * len(over)
        return self._add(linalg.ops.GenericOp(values, [init], region, attributes, kinds, [type]))

    def _start(self, kind: str, op: ContractOp | ReduceOp, format: Attribute) -> SSAValue:
        """An array of neutral elements with the axes of the result."""
        return self._filled(neutral_of(kind, cast(Format, format)), op.result.type)

    def _begun(self, init: SSAValue) -> SSAValue:
        """What a combination starts from, as a tensor."""
        value = self._now(init)
        return value if isinstance(value.type, TensorType) else self._spread(value, self._empty(init.type))

    def _filled(self, number: Number, type: Attribute) -> SSAValue:
        format = number.type
        scalar = self._add(arith.ConstantOp(number))
        empty = self._empty(type, format)
        return self._spread(scalar, empty)

    def _spread(self, scalar: SSAValue, room: SSAValue) -> SSAValue:
        return self._add(linalg.ops.FillOp([scalar], [room], [room.type]))

    def _empty(self, type: Attribute, format: Attribute | None = None) -> SSAValue:
        dynamic = [self._size(axis) for axis, size in sizes_of(type).items() if size == DYNAMIC]
        return self._add(tensor.EmptyOp(dynamic, TensorType(format or format_of(type), shape_of(type))))

    def _is_known(self, axis: str) -> bool:
        return axis in self.sources or axis in self.fitted

    def _size(self, axis: str) -> SSAValue:
        """The size of an axis, as an index (Refusal if neither a tensor so far has it nor a read gave it one)."""
        assert self.before is not None
        if axis in self.fitted:
            return self.fitted[axis][0]
        if axis not in self.sources:
            raise Refusal(self.before, f"no tensor before it tells the size of axis '{axis}': make it static")
        value, dimension = self.sources[axis]
        static = shape_of(value.type)[dimension]
        if static != DYNAMIC:
            return self._add(arith.ConstantOp(IntegerAttr(static, IndexType())))
        return self._dimension(value, dimension)

    def _dimension(self, value: SSAValue, dimension: int) -> SSAValue:
        index = self._add(arith.ConstantOp(IntegerAttr(dimension, IndexType())))
        return self._add(tensor.DimOp(value, index))

    def _now(self, value: SSAValue) -> SSAValue:
        return self.values.get(value, value)

    def _made(self, axes: Sequence[str], value: SSAValue) -> None:
        for dimension, axis in enumerate(axes):
            self.sources.setdefault(axis, (value, dimension))

    def _add(self, op: Operation) -> SSAValue:
        assert self.before is not None
        self.block.insert_op_before(op, self.before)
        op.location = self.before.location
        return op.results[0]


def plain(type: Attribute) -> Attribute:
    """The type without names of axes; a number is a tensor without dimensions."""
    return TensorType(format_of(type), shape_of(type))


def _is_one_loop(form: Linear) -> bool:
    return list(form.terms.values()) == [1] and form.constant == 0


def _map_of(axes: Sequence[str], loops: Sequence[str]) -> AffineMap:
    return AffineMap(len(loops), 0, tuple(AffineExpr.dimension(loops.index(axis)) for axis in axes))
