"""Operations of other dialects, which stand between kernels as they stood between diagrams."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from xdsl.dialects import tensor
from xdsl.dialects.builtin import UnrealizedConversionCastOp
from xdsl.interpreter import Interpreter, InterpreterFunctions, PythonValues, impl, register_impls
from xdsl.ir import Attribute, Operation

from treadle.dialects.diagram.array import axes_of, format_of, is_array, shape_of
from treadle.runtime.foreign import compute, merged_shape
from treadle.runtime.interpreter.arrays import Array, CannotRun, Numbers, array_of, dtype_of
from treadle.runtime.interpreter.session import Session


def foreign_functions(session: Session) -> InterpreterFunctions:
    """Implementations of `session.foreign`, and of conversions between arrays and plain tensors."""

    def run(functions: Any, interpreter: Interpreter, op: Operation, args: PythonValues) -> PythonValues:
        given = [_plain(value, operand.type) for value, operand in zip(args, op.operands, strict=True)]
        made = compute(op, given, session.foreign)
        return tuple(_held(session, value, result.type) for value, result in zip(made, op.results, strict=True))

    def convert(functions: Any, interpreter: Interpreter, op: Operation, args: PythonValues) -> PythonValues:
        (value,), operand, result = args, op.operands[0], op.results[0]
        if shape_of(operand.type) != shape_of(result.type):
            raise CannotRun(f"a conversion from {operand.type} to {result.type} cannot be run")
        numbers = array_of(value).aligned(axes_of(operand.type)) if is_array(operand.type) else cast(Numbers, value)
        return (_named(session, numbers, result.type),)

    def merge(functions: Any, interpreter: Interpreter, op: Operation, args: PythonValues) -> PythonValues:
        assert isinstance(op, tensor.CollapseShapeOp)
        numbers = cast(Numbers, args[0])
        shape = merged_shape(op, numbers.value.shape)
        return (numbers.reshaped(lambda each: each.reshape(shape)),)

    methods: dict[str, Any] = {f"foreign_{i}": impl(each)(run) for i, each in enumerate(session.foreign)}
    if tensor.CollapseShapeOp not in session.foreign:
        methods["merge"] = impl(tensor.CollapseShapeOp)(merge)
    methods["convert"] = impl(UnrealizedConversionCastOp)(convert)
    return register_impls(type("ForeignFunctions", (InterpreterFunctions,), methods))()


def _plain(value: Any, type: Attribute) -> Any:
    """A value as whoever computes a foreign operation knows it."""
    return array_of(value).filled(0).aligned(axes_of(type)).value if is_array(type) else cast(Numbers, value).value


def _held(session: Session, value: Any, type: Attribute) -> Array | Numbers:
    return _named(session, Numbers(np.asarray(value).astype(dtype_of(format_of(type)))), type)


def _named(session: Session, numbers: Numbers, type: Attribute) -> Array | Numbers:
    if not is_array(type):
        return numbers
    session.scope.learn(type, numbers.value.shape)
    return Array(axes_of(type), numbers)
