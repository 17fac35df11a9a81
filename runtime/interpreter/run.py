"""Running a function of a module on numpy arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.interpreter import Interpreter, PythonValues
from xdsl.ir import Block, Operation, SSAValue

from treadle.compiler.errors import TreadleError, at, is_lack_of_memory, no_room
from treadle.dialects import diagram
from treadle.dialects.diagram.array import DYNAMIC, axes_of, format_of, is_array, shape_of
from treadle.runtime.foreign import Foreign
from treadle.runtime.interpreter.arrays import AnyArray, Array, CannotRun, FloatArray, Numbers, array_of, dtype_of
from treadle.runtime.interpreter.bounds import CONFIDENCE, SLACK, order_of
from treadle.runtime.interpreter.foreign import foreign_functions
from treadle.runtime.interpreter.functions import DiagramFunctions, FuncFunctions, ScalarFunctions
from treadle.runtime.interpreter.hierarchy import HierarchyFunctions
from treadle.runtime.interpreter.scope import Scope
from treadle.runtime.interpreter.session import Session, TransferCounts

Argument: TypeAlias = "NDArray[Any] | np.generic | float | int"


@dataclass(frozen=True)
class Execution:
    """What a function returned, as float64 (integers as they are), and what each of its kernels moved, in
    the order in which they ran."""

    results: tuple[AnyArray, ...]
    transfers: tuple[TransferCounts, ...]


@dataclass(frozen=True)
class Bounded:
    """A result, and for each element how far a correct kernel may be from it. An element that is infinite
    or NaN has the bound 0: it is compared by its kind."""

    value: AnyArray
    error: FloatArray


def run_function(
    module: ModuleOp,
    arguments: Sequence[Argument],
    *,
    function: str | None = None,
    sizes: Mapping[str, int] | None = None,
    foreign: Foreign | None = None,
) -> Execution:
    """Run a function (see `entry_function`) in float64. `sizes` gives axes that no argument has; `foreign` says what
    operations of other dialects compute, of arrays in float64."""
    session = Session(foreign=foreign or {})
    results = _run(module, arguments, function, sizes, session)
    return Execution(tuple(result.value for result in results), tuple(session.transfers))


def run_with_bounds(
    module: ModuleOp,
    arguments: Sequence[Argument],
    *,
    function: str | None = None,
    sizes: Mapping[str, int] | None = None,
    coarse: float = 0,
    lenient: bool = True,
    likely: bool = False,
) -> tuple[Bounded, ...]:
    """Run a function with an error bound for each element, `bounds.SLACK` included. It must not have been
    expanded: the bounds belong to the algorithm. `coarse` is how many 8-bit products are added up with few bits,
    `lenient` asks for the bounds of kernels that multiply zeros for what is absent, `likely` for those that hold, but
    for a rare chance, where roundings are independent (`Session`, `bounds.CONFIDENCE`)."""
    bounded: list[Bounded] = []
    session = Session(bounded=True, coarse=coarse, lenient=lenient, likely=likely)
    for result in _run(module, arguments, function, sizes, session):
        assert result.error is not None
        bounded.append(Bounded(result.value, SLACK * (CONFIDENCE if likely else 1.0) * result.error))
    return tuple(bounded)


def entry_function(module: ModuleOp, name: str | None = None) -> func.FuncOp:
    """The function that is meant: the one of that name, else the only one with a body, else the only such
    one that is not private."""
    functions = [op for op in module.body.block.ops if isinstance(op, func.FuncOp)]
    known = ", ".join(f"@{op.sym_name.data}" for op in functions) or "none"
    if name is not None:
        for op in functions:
            if op.sym_name.data == name:
                return op
        raise TreadleError(f"there is no function @{name} (functions: {known})")
    candidates = [op for op in functions if op.body.blocks and op.body.block.first_op is not None]
    if len(candidates) > 1:
        candidates = [op for op in candidates if op.sym_visibility is None or op.sym_visibility.data == "public"]
    if len(candidates) != 1:
        raise TreadleError(f"which function is meant? Name one, or make all but one private (functions: {known})")
    return candidates[0]


def _run(
    module: ModuleOp,
    arguments: Sequence[Argument],
    name: str | None,
    sizes: Mapping[str, int] | None,
    session: Session,
) -> tuple[Numbers, ...]:
    function = entry_function(module, name)
    values = _values_of(function, arguments, session.bounded)
    session.scope = Scope(dict(sizes or {}))
    interpreter, trace = make_interpreter(module, session)
    try:
        results = interpreter.call_op(function, values)
    except TreadleError:
        raise
    except Exception as exception:
        raise explained(exception, trace.running, function) from exception
    return tuple(
        Numbers(np.array(numbers.value), numbers.error)
        for numbers in (array_of(cast("Array | Numbers", result)).numbers.filled(0) for result in results)
    )


def make_interpreter(module: ModuleOp, session: Session) -> tuple[Interpreter, Trace]:
    """An interpreter of all that runs, and what tells which operation it is at."""
    interpreter = Interpreter(module)
    trace = Trace()
    interpreter.listeners = (trace, _Forget(interpreter))
    for functions in (
        ScalarFunctions(session),
        FuncFunctions(session),
        DiagramFunctions(session),
        HierarchyFunctions(session),
        foreign_functions(session),
    ):
        interpreter.register_implementations(functions)
    return interpreter, trace


def _values_of(function: func.FuncOp, arguments: Sequence[Argument], bounded: bool) -> PythonValues:
    """Arguments as the interpreter holds them (TreadleError where shapes and types disagree)."""
    inputs = function.body.block.args
    if len(arguments) != len(inputs):
        raise at(function, f"takes {len(inputs)} arguments, is given {len(arguments)}")
    sizes: dict[str, int] = {}
    values: list[Array | Numbers] = []
    for argument, given in zip(inputs, arguments, strict=True):
        what = f"argument %{argument.name_hint or argument.index}"
        with np.errstate(invalid="ignore"):  # a NaN of f32 that signals
            data = np.asarray(given).astype(dtype_of(format_of(argument.type)))
        axes = axes_of(argument.type)
        if data.ndim != len(shape_of(argument.type)):
            wanted = f"axes [{', '.join(axes)}]" if axes or not shape_of(argument.type) else str(argument.type)
            raise at(function, f"{what} has {data.ndim} dimensions: expected {wanted}")
        if not axes and any(a not in (DYNAMIC, b) for a, b in zip(shape_of(argument.type), data.shape, strict=True)):
            raise at(function, f"{what} has the shape {list(data.shape)}: expected {argument.type}")
        for axis, static, size in zip(axes, shape_of(argument.type), data.shape, strict=bool(axes)):
            wanted = sizes.setdefault(axis, size if static < 0 else static)
            if size != wanted:
                raise at(function, f"{what} has {size} elements along axis '{axis}': expected {wanted}")
        error = np.broadcast_to(np.float64(0), data.shape) if bounded else None
        numbers = Numbers(data, error)
        values.append(Array(axes, numbers) if is_array(argument.type) else numbers)
    return tuple(values)


def explained(exception: Exception, running: Operation | None, function: Operation) -> TreadleError:
    """The error that a rule raised, said of the operation that it ran; xDSL wraps one in another for each
    region around it."""
    cause: BaseException | None = exception
    while cause is not None:
        if isinstance(cause, TreadleError):
            return cause
        if isinstance(cause, CannotRun) and running is not None:
            return at(running, str(cause))
        if cause.__cause__ is None and cause.__context__ is None:
            break
        cause = cause.__cause__ or cause.__context__
    if cause is not None and is_lack_of_memory(cause):
        return at(running or function, no_room(cause))
    if running is None:
        return at(function, f"cannot be run: {exception}")
    if "Could not find interpretation function" in str(exception):
        return at(running, f"the interpreter does not know '{running.name}'")
    return at(running, f"cannot be run: {cause}")


@dataclass
class Trace(Interpreter.Listener):
    """Remembers the operation that is running, for messages."""

    running: Operation | None = None

    def will_interpret_op(self, op: Operation, args: PythonValues) -> None:
        self.running = op


class _Forget(Interpreter.Listener):
    """Lets go of the values of a function, law or map once nothing will use them: the intermediates of a large program
    do not all fit in memory."""

    def __init__(self, interpreter: Interpreter):
        self.interpreter = interpreter
        self.last_uses: dict[Block, dict[Operation, list[SSAValue]]] = {}

    def did_interpret_op(self, op: Operation, results: PythonValues) -> None:
        block = op.parent
        if block is None or not isinstance(block.parent_op(), func.FuncOp | diagram.LawOp | diagram.MapOp):
            return
        if block not in self.last_uses:
            self.last_uses[block] = _last_uses(block)
        self.interpreter.set_values((value, None) for value in self.last_uses[block].get(op, ()))


def _last_uses(block: Block) -> dict[Operation, list[SSAValue]]:
    """For each operation of a block, the values that it is the last to use."""
    last: dict[SSAValue, Operation] = {}
    for op in block.ops:
        for inner in op.walk():
            for operand in _used(inner):
                if operand.owner is block or (isinstance(operand.owner, Operation) and operand.owner.parent is block):
                    last[operand] = op
    uses: dict[Operation, list[SSAValue]] = {}
    for value, op in last.items():
        uses.setdefault(op, []).append(value)
    return uses


def _used(op: Operation) -> Iterator[SSAValue]:
    """Its operands, and what its bound is told from."""
    yield from op.operands
    if isinstance(op, diagram.ReduceOp) and (order := order_of(op)) is not None:
        yield order.array


__all__ = [
    "Argument",
    "Bounded",
    "Execution",
    "Trace",
    "entry_function",
    "explained",
    "make_interpreter",
    "run_function",
    "run_with_bounds",
]
