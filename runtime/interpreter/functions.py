"""How xDSL's interpreter runs scalar operations, functions, and the arrays of the `diagram` dialect."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import cast

import numpy as np
from xdsl.dialects import func
from xdsl.interpreter import (
    Interpreter,
    InterpreterFunctions,
    PythonValues,
    ReturnedValues,
    TerminatorValue,
    impl,
    impl_callable,
    impl_terminator,
    register_impls,
)
from xdsl.ir import Attribute, Operation, SSAValue

from treadle.compiler.errors import at
from treadle.compiler.sizes import default_sizes, sizes_of_whole_arrays
from treadle.compiler.told_sizes import check_told, told_axes, told_sizes
from treadle.dialects import diagram
from treadle.dialects.diagram.array import DYNAMIC, axes_of, format_of, shape_of
from treadle.dialects.diagram.collapse import Regrouping
from treadle.dialects.diagram.condition import Term, evaluate
from treadle.dialects.diagram.swap import swapped
from treadle.runtime.formats import rounded, saturated
from treadle.runtime.interpreter import bounds
from treadle.runtime.interpreter.arrays import (
    COMBINE,
    AnyArray,
    Array,
    AxisMismatch,
    CannotRun,
    Numbers,
    absent_in,
    array_of,
    dtype_of,
    is_float,
    merged_sizes,
    neutral,
    padded,
    reduce,
    scan,
    with_weaved,
)
from treadle.runtime.interpreter.exact import exact, exact_value_of
from treadle.runtime.interpreter.laws import find_law
from treadle.runtime.interpreter.paths import Paths
from treadle.runtime.interpreter.pieces import run_in_pieces
from treadle.runtime.interpreter.places import Places, sums_at
from treadle.runtime.interpreter.present import contract_present
from treadle.runtime.interpreter.recurrences import at_each, at_position
from treadle.runtime.interpreter.rounding import is_rounded
from treadle.runtime.interpreter.scalars import SCALAR_OPERATIONS, value_of
from treadle.runtime.interpreter.scope import Scope
from treadle.runtime.interpreter.session import Session


@dataclass
class SessionFunctions(InterpreterFunctions):
    """Functions that share the state of one run."""

    session: Session


def _run_scalar(functions: SessionFunctions, _: Interpreter, op: Operation, args: PythonValues) -> PythonValues:
    operands = cast("tuple[Numbers, ...]", args)
    session = functions.session
    rule = exact_value_of if session.exact else value_of
    value = rule(op, tuple(operand.value for operand in operands))
    error = bounds.scalar_error(op, operands, value) if session.bounded else None
    return (Numbers(value, error),)


# Made once: xDSL looks through all attributes of all methods, in milliseconds, and a law is run thousands of times.
ScalarFunctions: type[SessionFunctions] = register_impls(
    type(
        "ScalarFunctions",
        (SessionFunctions,),
        {op.name.replace(".", "_"): impl(op)(_run_scalar) for op in SCALAR_OPERATIONS},
    )
)
"""`arith` and `math`, from the tables of what each operation computes."""


@register_impls
class FuncFunctions(SessionFunctions):
    """A function starts with sizes of its own: those of its arguments, what its types say, and what its reads tell from
    these, as a launch has them; only of other axes does it take sizes that are given, then its defaults."""

    @impl_callable(func.FuncOp)
    def call_func(self, interpreter: Interpreter, op: func.FuncOp, args: PythonValues) -> PythonValues:
        if not op.body.blocks or op.body.block.first_op is None:
            raise at(op, "the function has no body to run")
        scope = Scope()
        for type, value in zip(op.function_type.inputs, args, strict=True):
            scope.learn(type, array_of(value).numbers.value.shape)
        given = self.session.scope.whole
        for axis, size in sizes_of_whole_arrays(op).items():
            if size != DYNAMIC:  # positions, say, are made of nothing: no argument may have their axis
                scope.whole.setdefault(axis, size)
        check_told(op, given, scope.whole)
        scope.whole |= {axis: each.size for axis, each in told_sizes(op, scope.whole).items()}
        told = told_axes(op)
        for axis, size in {**default_sizes(op), **given}.items():
            if axis not in told:  # which a read tells when it runs, if nothing has told it yet
                scope.whole.setdefault(axis, size)

        def run(values: PythonValues) -> PythonValues:
            return interpreter.run_ssacfg_region(op.body, values, op.sym_name.data)

        with self.session.in_scope(scope):
            return run(args) if self.session.exact else run_in_pieces(op, scope, args, run)

    @impl(func.CallOp)
    def run_call(self, interpreter: Interpreter, op: func.CallOp, args: PythonValues) -> PythonValues:
        with self.session.in_scope(Scope()):
            return interpreter.call_op(op.callee, args)

    @impl_terminator(func.ReturnOp)
    def run_return(
        self, interpreter: Interpreter, op: func.ReturnOp, args: PythonValues
    ) -> tuple[TerminatorValue, PythonValues]:
        return ReturnedValues(args), ()


@register_impls
class DiagramFunctions(SessionFunctions):
    """Each operation on operands that may have more axes than their types say: a law is weaved over
    those."""

    @impl(diagram.ContractOp)
    def run_contract(self, interpreter: Interpreter, op: diagram.ContractOp, args: PythonValues) -> PythonValues:
        left, right = self._operands((op.lhs, op.rhs), args)
        if not is_float(op.accumulate):  # whose operands may be narrower, and would wrap
            left, right = (Array(each.axes, self._in_i32(each.numbers)) for each in (left, right))
        axes = with_weaved(axes_of(op.result.type), (left, right), op.over_axes)
        with np.errstate(all="ignore"):
            value = self._held(contract_present(op, left, right, axes), format_of(op.result.type))
        error, coarse, likely = None, self.session.coarse, self.session.likely
        if self.session.bounded:
            error = bounds.contract_error(op, left, right, value, axes, coarse, self.session.lenient, likely)
        gamma = bounds.contract_gamma(op, left, right, coarse, likely)
        result = self._into(op.result.type, "add", args[2:], Array(axes, Numbers(value, error)), gamma)
        return self._result(op, result)

    @impl(diagram.ReduceOp)
    def run_reduce(self, interpreter: Interpreter, op: diagram.ReduceOp, args: PythonValues) -> PythonValues:
        (operand,) = self._operands((op.operand,), args)
        operand = operand.filled(neutral(op.kind.data, operand.numbers.value.dtype))
        axes, format = with_weaved(axes_of(op.result.type), (operand,), op.over_axes), format_of(op.result.type)
        data = operand.aligned((*axes, *op.over_axes))
        data = self._converted(data, format_of(op.operand.type), format)
        dimensions = tuple(range(len(axes), len(axes) + len(op.over_axes)))
        with np.errstate(all="ignore"):
            value = np.asarray(reduce(op.kind.data, data.value, dimensions))
        error = None
        if self.session.bounded:
            error = bounds.reduce_error(op.kind.data, data, value, dimensions, format, self.session.likely)
            if (order := bounds.order_of(op)) is not None:
                (array,) = interpreter.get_values((order.array,))
                error = bounds.order_error(order, array_of(array), axes, value, error)
        gamma = bounds.reduce_gamma(prod(data.value.shape[len(axes) :]), format, self.session.likely)
        result = Array(axes, Numbers(value, error))
        return self._result(op, self._into(op.result.type, op.kind.data, args[1:], result, gamma))

    @impl(diagram.ScanOp)
    def run_scan(self, interpreter: Interpreter, op: diagram.ScanOp, args: PythonValues) -> PythonValues:
        (operand,) = self._operands((op.operand,), args)
        operand, axis = operand.filled(neutral(op.kind.data, operand.numbers.value.dtype)), op.axis.data
        axes, format = with_weaved(axes_of(op.result.type), (operand,)), format_of(op.result.type)
        axes = (*(each for each in axes if each != axis), axis)
        data = self._converted(operand.aligned(axes), format_of(op.operand.type), format)
        with np.errstate(all="ignore"):
            value = scan(op.kind.data, data.value, op.is_exclusive, op.is_reverse)
        likely = self.session.likely
        error = bounds.scan_error(op, data, value, likely) if self.session.bounded else None
        gamma = bounds.reduce_gamma(data.value.shape[-1], format, likely)
        init = args[1 if op.total is None else 2 :]
        scanned = self._into(op.result.type, op.kind.data, init, Array(axes, Numbers(value, error)), gamma)
        wanted = with_weaved(axes_of(op.result.type), (scanned,))
        return self._result(op, Array(wanted, scanned.aligned(wanted)))

    @impl(diagram.MapOp)
    def run_map(self, interpreter: Interpreter, op: diagram.MapOp, args: PythonValues) -> PythonValues:
        operands = self._operands(op.inputs, args)
        axes = with_weaved(axes_of(op.result.type), operands)
        scalars = tuple(operand.aligned(axes) for operand in operands)
        (result,) = interpreter.run_ssacfg_region(op.body, scalars, "map")
        sizes = {**self._sizes(op.result.type), **merged_sizes(operands)}
        shape = tuple(sizes[axis] for axis in axes)
        numbers = cast(Numbers, result).reshaped(lambda data: np.broadcast_to(data, shape))
        return self._result(op, Array(axes, numbers.without(absent_in(scalars))))

    @impl(diagram.CastOp)
    def run_cast(self, interpreter: Interpreter, op: diagram.CastOp, args: PythonValues) -> PythonValues:
        (operand,) = self._operands((op.operand,), args)
        axes = with_weaved(axes_of(op.result.type), (operand,))
        aligned, format = operand.aligned(axes), format_of(op.result.type)
        if is_float(format) and not self.session.exact and is_rounded(op):
            error = None if aligned.error is None else bounds.fixed_cast_error(aligned, format)
            numbers = Numbers(rounded(aligned.value, format).astype(np.float64), error, aligned.absent)
        else:
            numbers = self._converted(aligned, format_of(op.operand.type), format)
        return self._result(op, Array(axes, numbers))

    @impl(diagram.FillOp)
    def run_fill(self, interpreter: Interpreter, op: diagram.FillOp, args: PythonValues) -> PythonValues:
        type = op.result.type
        shape = tuple(self._sizes(type)[axis] for axis in axes_of(type))
        value = np.broadcast_to(self._held(np.asarray(op.number), format_of(type)), shape)
        error = np.broadcast_to(np.float64(0), shape) if self.session.bounded else None
        return (Array(axes_of(type), Numbers(value, error)),)

    @impl(diagram.ExtentOp)
    def run_extent(self, interpreter: Interpreter, op: diagram.ExtentOp, args: PythonValues) -> PythonValues:
        value = np.asarray(self.session.scope.whole_size(op.axis.data), np.int32)
        return (Numbers(value, np.zeros(()) if self.session.bounded else None),)

    @impl(diagram.WhereOp)
    def run_where(self, interpreter: Interpreter, op: diagram.WhereOp, args: PythonValues) -> PythonValues:
        operand, *inputs = self._operands((op.operand, *op.inputs), args)
        axes = with_weaved(axes_of(op.result.type), (operand, *inputs))
        given = dict(zip(op.inputs, (array.aligned(axes).value for array in inputs), strict=True))

        def value(term: Term) -> AnyArray:
            if isinstance(term, SSAValue):
                return given[term].astype(np.int64)
            piece = self.session.scope.piece(str(term))
            along = tuple(-1 if axis == term else 1 for axis in axes)
            return np.arange(piece.start, piece.stop, dtype=np.int64).reshape(along)

        holds = np.asarray(evaluate(op.holds, value))
        _check_known(op, holds, value)
        kept = operand.spread(axes, merged_sizes((operand, *inputs)))
        return self._result(op, Array(axes, kept.numbers.without(~np.broadcast_to(holds, kept.numbers.value.shape))))

    @impl(diagram.SwapOp)
    def run_swap(self, interpreter: Interpreter, op: diagram.SwapOp, args: PythonValues) -> PythonValues:
        (operand,) = self._operands((op.operand,), args)
        axis = op.axis.data
        place = [swapped(at, op.length) for at in range(operand.sizes[axis])]
        along = operand.axes.index(axis)
        return self._result(op, Array(operand.axes, operand.numbers.reshaped(lambda data: data.take(place, along))))

    @impl(diagram.RenameOp)
    def run_rename(self, interpreter: Interpreter, op: diagram.RenameOp, args: PythonValues) -> PythonValues:
        (operand,) = self._operands((op.operand,), args)
        names = op.names
        return self._result(op, Array(tuple(names.get(axis, axis) for axis in operand.axes), operand.numbers))

    @impl(diagram.ReadOp)
    def run_read(self, interpreter: Interpreter, op: diagram.ReadOp, args: PythonValues) -> PythonValues:
        source, axes = array_of(args[0]), axes_of(op.result.type)
        whole = self.session.scope.whole
        for axis, size in op.fitting({**whole, **source.sizes}).items():
            whole.setdefault(axis, size)
        sizes = [whole[axis] for axis in axes]
        places = Places(op, dict(zip(axes, np.indices(sizes, dtype=np.int64, sparse=True), strict=True)), args[1:])
        position = [np.asarray(form.evaluate(places.of)) for form in op.forms.values()]
        numbers = source.aligned(axes_of(op.operand.type))
        if op.is_padded:
            there = places.there(sizes)
            return self._result(op, Array(axes, numbers.reshaped(lambda data: padded(data, position, there))))
        for along, place in zip(op.forms, position, strict=True):
            if all(sizes) and place.max() >= source.sizes[along]:
                raise AxisMismatch(f"it reads at {place.max()} along axis '{along}', which has {source.sizes[along]}")
        return self._result(op, Array(axes, numbers.reshaped(lambda data: data[tuple(position)])))

    @impl(diagram.ScatterOp)
    def run_scatter(self, interpreter: Interpreter, op: diagram.ScatterOp, args: PythonValues) -> PythonValues:
        (operand,) = self._operands((op.operand,), args)
        begin = 1 if op.init is None else 2
        axes, sizes = axes_of(op.result.type), self._sizes(op.result.type)
        data = operand.filled(0).aligned(axes_of(op.operand.type))
        sums = sums_at(op, data.value.shape, args[begin:], [sizes[axis] for axis in axes])
        with np.errstate(all="ignore"):
            value = sums.of(data.value)
        error, gamma = None, 0.0
        if self.session.bounded:
            error, gamma = bounds.scatter_error(sums, data, value, format_of(op.result.type), self.session.likely)
        return self._result(
            op, self._into(op.result.type, "add", args[1:begin], Array(axes, Numbers(value, error)), gamma)
        )

    @impl(diagram.RecurrenceOp)
    def run_recurrence(self, interpreter: Interpreter, op: diagram.RecurrenceOp, args: PythonValues) -> PythonValues:
        axis, arrays = op.axis.data, self._operands(op.operands, args)
        states, inputs = arrays[: len(op.states)], arrays[len(op.states) :]
        made: list[list[Array]] = [[] for _ in op.outputs]

        def step(given: Sequence[Array], bounded: bool) -> tuple[Array, ...]:
            with self.session.bounding(bounded):
                return cast("tuple[Array, ...]", interpreter.run_ssacfg_region(op.body, tuple(given), "position"))

        is_likely = self.session.bounded and self.session.likely
        paths = Paths(states, inputs, axis) if is_likely else None
        order = range(merged_sizes(inputs)[axis])
        for place in reversed(order) if op.is_reverse else order:
            here = tuple(at_position(each, axis, place) for each in inputs)
            if paths is None:
                after = step((*states, *here), self.session.bounded)
            else:
                after = paths.after(step, states, here, place)
            states = after[: len(states)]
            for known, each in zip(made, after[len(states) :], strict=True):
                known.append(each)
        outputs = [
            at_each(each[::-1] if op.is_reverse else each, axis, axes_of(output.type))
            if each
            else self._empty(output.type)
            for each, output in zip(made, op.outputs, strict=True)
        ]
        return tuple(self._checked(each, array) for each, array in zip(op.results, (*states, *outputs), strict=True))

    def _empty(self, type: Attribute) -> Array:
        shape = tuple(self._sizes(type).values())
        value = self._held(np.zeros(shape), format_of(type))
        return Array(axes_of(type), Numbers(value, np.zeros(shape) if self.session.bounded else None))

    @impl(diagram.CollapseOp)
    def run_collapse(self, interpreter: Interpreter, op: diagram.CollapseOp, args: PythonValues) -> PythonValues:
        return self._regrouped(op, args)

    @impl(diagram.ExpandOp)
    def run_expand(self, interpreter: Interpreter, op: diagram.ExpandOp, args: PythonValues) -> PythonValues:
        return self._regrouped(op, args)

    def _regrouped(self, op: Regrouping, args: PythonValues) -> PythonValues:
        source, axes, whole = array_of(args[0]), axes_of(op.results[0].type), self.session.scope.whole
        whole |= op.fitting({**whole, **source.sizes})
        shape = tuple(source.sizes.get(axis, whole[axis]) for axis in axes)  # of other axes there may be a piece
        if prod(shape) != prod(source.sizes.values()):
            raise AxisMismatch(f"axis '{op.whole}' of {whole[op.whole]} elements stands for others of other sizes")
        numbers = source.aligned(axes_of(op.operands[0].type))
        return self._result(op, Array(axes, numbers.reshaped(lambda data: np.asarray(data).reshape(shape))))

    @impl(diagram.IndexOp)
    def run_index(self, interpreter: Interpreter, op: diagram.IndexOp, args: PythonValues) -> PythonValues:
        piece = self.session.scope.piece(op.axis)
        value = np.arange(piece.start, piece.stop, dtype=np.int32)
        error = np.zeros(value.shape) if self.session.bounded else None
        return (Array((op.axis,), Numbers(value, error)),)

    @impl(diagram.ApplyOp)
    def run_apply(self, interpreter: Interpreter, op: diagram.ApplyOp, args: PythonValues) -> PythonValues:
        law = find_law(interpreter.module, op)
        names = dict(zip(op.over_axes, law.over_axes, strict=True))
        scope, operands = self._enter_law(op, law, names, self._operands(op.inputs, args))
        with self.session.in_scope(scope):
            results = interpreter.run_ssacfg_region(law.body, operands, law.sym_name.data)
        made = zip(cast("tuple[Array, ...]", results), law.outputs, op.outputs, strict=True)
        left = [self._leave_law(array, type, output, names) for array, type, output in made]
        given = self._operands(op.inputs, args)
        return tuple(bounds.without_untold_rows(op, law, given, array) for array in left)

    def _leave_law(self, result: Array, made: Attribute, output: SSAValue, names: dict[str, str]) -> Array:
        """A result of a law in the axes and the format of its application."""
        array = result.renamed({inner: outer for outer, inner in names.items()})
        array = array.renamed({_aside(axis): axis for axis in names.values()})
        wanted_axes = with_weaved(axes_of(output.type), (array,))
        array = array.spread(wanted_axes, {**self._sizes(output.type), **array.sizes})
        numbers = self._converted(array.numbers, format_of(made), format_of(output.type))
        return self._checked(output, Array(array.axes, numbers))

    @impl_terminator(diagram.YieldOp)
    def run_yield(
        self, interpreter: Interpreter, op: diagram.YieldOp, args: PythonValues
    ) -> tuple[TerminatorValue, PythonValues]:
        return ReturnedValues(args), ()

    def _enter_law(
        self, op: diagram.ApplyOp, law: diagram.LawOp, names: dict[str, str], operands: Sequence[Array]
    ) -> tuple[Scope, tuple[Array, ...]]:
        """What the law's axes mean, and the operands in the law's axes and formats. A weaved axis that has
        the name of one of the law's own is kept aside under another name."""
        outer = self.session.scope
        aside = {axis: _aside(axis) for axis in names.values() if axis not in names}
        scope = Scope(
            {aside.get(axis, axis): size for axis, size in outer.whole.items() if axis not in names},
            {aside.get(axis, axis): piece for axis, piece in outer.pieces.items() if axis not in names},
        )
        for axis, size in merged_sizes(operands).items():
            if axis in names:
                scope.whole[names[axis]] = outer.whole.get(axis, size)
                scope.pieces[names[axis]] = outer.pieces.get(axis) or slice(0, size)
        given: list[Array] = []
        for argument, value, operand in zip(law.body.block.args, op.inputs, operands, strict=True):
            inner = operand.renamed({**aside, **names})
            lengths = {axis: scope.size(axis) for axis in axes_of(argument.type) if axis in scope.whole}
            inner = inner.spread(with_weaved(axes_of(argument.type), (inner,)), lengths)
            numbers = self._converted(inner.numbers, format_of(value.type), format_of(argument.type))
            given.append(Array(inner.axes, numbers))
        return scope, tuple(given)

    def _converted(self, numbers: Numbers, given: Attribute, wanted: Attribute) -> Numbers:
        """Elements in another format: over the reals the same, with a bound for the rounding."""
        if given == wanted:
            return numbers
        value = saturated(numbers.value, wanted)
        if dtype_of(wanted) != dtype_of(given):
            value = self._held(value, wanted)
        error = None if numbers.error is None else bounds.cast_error(numbers, given, wanted)
        return Numbers(value, error, numbers.absent)

    def _in_i32(self, numbers: Numbers) -> Numbers:
        return Numbers(numbers.value.astype(np.int32), numbers.error, numbers.absent)

    def _held(self, value: AnyArray, format: Attribute) -> AnyArray:
        """Elements as this run holds those of a format."""
        if self.session.exact and is_float(format):
            return exact(value)
        return value.astype(dtype_of(format))

    def _into(self, type: Attribute, kind: str, into: PythonValues, result: Array, gamma: float) -> Array:
        """`result` combined with the array that `into` names, if it names one; `gamma` is the relative
        error of the steps that led to `result`, and start from that array."""
        if not into:
            return result
        init = array_of(into[0])
        axes = with_weaved(result.axes, (init,))
        merged_sizes((init, result))
        left, right = init.aligned(axes), result.aligned(axes)
        with np.errstate(all="ignore"):
            value = np.asarray(COMBINE[kind](left.value, right.value))
        error = None
        if self.session.bounded:
            error = bounds.combine_error(kind, left, right, value, format_of(type), gamma)
        return Array(axes, Numbers(value, error))

    def _operands(self, values: Sequence[SSAValue], args: PythonValues) -> tuple[Array, ...]:
        """The operands as arrays; each must agree with the others about the axes they share."""
        arrays = tuple(array_of(arg) for arg in args[: len(values)])
        merged_sizes(arrays)
        return arrays

    def _sizes(self, type: Attribute) -> dict[str, int]:
        """Sizes of the axes of an array that this operation makes: the current piece of each."""
        scope = self.session.scope
        return {
            axis: size if axis not in scope.whole and size >= 0 else scope.size(axis)
            for axis, size in zip(axes_of(type), shape_of(type), strict=True)
        }

    def _result(self, op: Operation, array: Array) -> PythonValues:
        return (self._checked(op.results[0], array),)

    def _checked(self, value: SSAValue, array: Array) -> Array:
        """A result, once its sizes are seen to be those of the current pieces: a tile kept from another
        step of a stream would be caught here."""
        sizes = array.sizes
        for axis, size in self._sizes(value.type).items():
            if sizes[axis] != size:
                raise AxisMismatch(f"axis '{axis}' of the result has {sizes[axis]} elements where {size} are meant")
        return array


def _check_known(op: diagram.WhereOp, holds: AnyArray, value: Callable[[Term], AnyArray]) -> None:
    """What is told of a condition must be so."""
    if op.within is not None and np.any(holds & ~np.asarray(evaluate(op.may_hold, value))):
        raise CannotRun(f"'{op.condition.text.data}' holds where '{op.within.text.data}' does not")
    if op.throughout is not None and np.any(np.asarray(evaluate(op.surely_holds, value)) & ~holds):
        raise CannotRun(f"'{op.condition.text.data}' does not hold throughout '{op.throughout.text.data}'")


def _aside(axis: str) -> str:
    """A name that no axis can have."""
    return f"{axis}'"
