"""Executes the host function of a module at `cuda` level on a backend: allocations, sizes, launches.

The function in the IR is the launch plan; nothing of it is repeated here."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects import arith, func, memref, scf, tensor
from xdsl.dialects.builtin import (
    AnyFloat,
    FloatAttr,
    IntegerAttr,
    IntegerType,
    MemRefType,
    ModuleOp,
    TensorType,
    UnrealizedConversionCastOp,
)
from xdsl.ir import Attribute, Operation, SSAValue

from treadle.dialects import cuda
from treadle.dialects.cuda import ANY_STRIDES, WHOLE_SECTORS
from treadle.dialects.diagram import CollapseOp, ExpandOp, ReadOp
from treadle.dialects.diagram.array import DYNAMIC, LARGEST_SIZE, axes_of, format_of, shape_of, sizes_of
from treadle.dialects.diagram.padding import scattered_read
from treadle.dialects.diagram.place import reach, step_along
from treadle.runtime.arguments import HostError, alignment, pack, scalar, why_not_mappable
from treadle.runtime.backend import Backend, Prepares
from treadle.runtime.clusters import why_no_cluster
from treadle.runtime.foreign import Foreign, compute, merged_shape
from treadle.runtime.formats import DTYPES, rounded
from treadle.runtime.interpreter.arrays import dtype_of
from treadle.runtime.interpreter.scalars import SCALAR_OPERATIONS, value_of
from treadle.runtime.views import contiguous_strides, regrouped

MAX_GRID = 2**31 - 1
"""Blocks that a launch may have along x."""

ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "arith.addi": lambda a, b: a + b,
    "arith.subi": lambda a, b: a - b,
    "arith.muli": lambda a, b: a * b,
    "arith.divui": lambda a, b: a // b,
    "arith.remui": lambda a, b: a % b,
    "arith.floordivsi": lambda a, b: a // b,
    "arith.maxsi": max,
    "arith.minsi": min,
    "arith.ceildivui": lambda a, b: -(-a // b),
}
"""Of sizes (`index`)."""


COMPARISONS: tuple[Callable[[int, int], bool], ...] = (
    operator.eq,
    operator.ne,
    operator.lt,
    operator.le,
    operator.gt,
    operator.ge,
)
"""Of sizes, by the number of the predicate: those of signed numbers."""


def _is_of_numbers(op: Operation) -> bool:
    """Whether the program computes with numbers here, which have a format and wrap or are rounded; sizes, which are
    `index`, do not."""
    types = (*op.operand_types, *op.result_types)
    return all(isinstance(type, IntegerType | AnyFloat) for type in types) and type(op) in SCALAR_OPERATIONS


@dataclass(frozen=True)
class Launched:
    """One launch: the kernel, its grid, and what the backend reported."""

    kernel: str
    grid: tuple[int, int, int]
    report: Any


@dataclass
class HostExecution:
    """One execution of a host function."""

    module: ModuleOp
    backend: Backend
    values: dict[SSAValue, Any] = field(default_factory=dict[SSAValue, Any])
    fitted: dict[str, int] = field(default_factory=dict[str, int])
    """Sizes of axes that only reads have."""
    launches: list[Launched] = field(default_factory=list[Launched])
    sizes: dict[str, tuple[int, str | None]] = field(default_factory=dict[str, tuple[int, str | None]])
    """The size of each axis, and the first argument that has it."""
    foreign: Foreign = field(default_factory=dict[type[Operation], Callable[..., Any]])
    """What operations of other dialects compute, of arrays in the memory of the host."""

    def run(self, function: func.FuncOp, arguments: Sequence[NDArray[Any] | float | int]) -> tuple[Any, ...]:
        """Results of the function, downloaded. Arrays may have any strides that are whole elements (HostError)."""
        block = function.body.block
        if len(arguments) != len(block.args):
            raise HostError(f"{len(arguments)} arguments for a function of {len(block.args)}")
        for arg, argument in zip(block.args, arguments, strict=True):
            self.values[arg] = self._argument(arg, argument)
        for op in block.ops:
            if isinstance(op, func.ReturnOp):
                return tuple(self._download(operand) for operand in op.operands)
            self._execute(op)
        raise HostError(f"@{function.sym_name.data} returns nothing")

    def _argument(self, arg: SSAValue, argument: NDArray[Any] | float | int) -> Any:
        type: Attribute = arg.type
        if isinstance(arg.type, TensorType):
            return self._tensor(arg, np.asarray(argument))
        if not isinstance(arg.type, MemRefType):
            return scalar(arg, argument)
        # What a backend put on its device already goes on as it is, checked like any other.
        on_device = hasattr(argument, "pointer")
        array: Any = argument if on_device else np.asarray(argument)
        wanted = DTYPES[str(format_of(type))]
        if not axes_of(type) and isinstance(argument, int | float):
            array = np.asarray(scalar(arg, argument), wanted)  # a plain number may stand for an array without axes
        if array.dtype != wanted:
            raise HostError(f"argument '{arg.name_hint}' has elements {array.dtype}, expected {wanted}")
        self._check_shape(arg, array.shape)
        size, itemsize = prod(array.shape), array.dtype.itemsize
        strides = [stride for stride, length in zip(array.strides, array.shape, strict=True) if length > 1]
        address = array.pointer if on_device else array.ctypes.data
        if size and any(number % itemsize for number in (address, *strides)):
            raise HostError(
                f"argument '{arg.name_hint}' begins in the middle of an element, or a row of it does: pass a copy"
            )
        return self.backend.upload(array)

    def _tensor(self, arg: SSAValue, array: NDArray[Any]) -> NDArray[Any]:
        """An argument that only operations of other dialects use, which stays in the memory of the host."""
        wanted, shape = DTYPES.get(str(format_of(arg.type))), shape_of(arg.type)
        if wanted not in (None, array.dtype):
            raise HostError(f"argument '{arg.name_hint}' has elements {array.dtype}, expected {wanted}")
        if len(shape) != array.ndim or any(a not in (DYNAMIC, b) for a, b in zip(shape, array.shape, strict=True)):
            raise HostError(f"argument '{arg.name_hint}' has the shape {list(array.shape)}, its type is {arg.type}")
        return array

    def _check_shape(self, arg: SSAValue, shape: Sequence[int]) -> None:
        """An axis has one size: the static one, or that of the first argument that has the axis."""
        axes = axes_of(arg.type)
        if len(shape) != len(axes):
            wanted = f"expected {len(axes)}, axes [{', '.join(axes)}]"
            raise HostError(f"argument '{arg.name_hint}' has {len(shape)} dimensions: {wanted}")
        for axis, static, size in zip(axes, shape_of(arg.type), shape, strict=True):
            if static not in (DYNAMIC, size):
                raise HostError(
                    f"axis '{axis}' of argument '{arg.name_hint}' has {size} elements: it is {static} in the program"
                )
            known, owner = self.sizes.setdefault(axis, (size, arg.name_hint))
            if known != size:
                raise HostError(
                    f"axis '{axis}' has {known} elements in argument '{owner}', but {size} in '{arg.name_hint}'"
                )

    def _download(self, value: SSAValue) -> Any:
        result = self.values[value]
        if not isinstance(value.type, MemRefType):
            return result
        array = self.backend.download(result)
        # A view of what a kernel wrote may be read only; a result is the caller's own. PyTorch's tensors have no flags.
        writeable: bool = getattr(getattr(array, "flags", None), "writeable", True)
        return array if writeable else array.copy()

    def _execute(self, op: Operation) -> None:
        if type(op) not in self.foreign and _is_of_numbers(op):
            self.values[op.results[0]] = self._number(op)
            return
        if op.name in ARITHMETIC:
            left, right = (self.values[operand] for operand in op.operands)
            self.values[op.results[0]] = ARITHMETIC[op.name](left, right)
            return
        match op:
            case arith.ConstantOp():
                assert isinstance(op.value, IntegerAttr | FloatAttr)
                self.values[op.result] = op.value.value.data
            case arith.CmpiOp():
                holds = COMPARISONS[op.predicate.value.data](self.values[op.lhs], self.values[op.rhs])
                self.values[op.result] = holds
            case arith.IndexCastOp():
                self.values[op.result] = min(self.values[op.input], 2**31 - 1)
            case memref.DimOp():
                self.values[op.result] = int(self.values[op.source].shape[self.values[op.index]])
            case memref.AllocOp():
                self.values[op.memref] = self._allocate(op)
            case ReadOp():
                self.values[op.result] = self._read(op)
            case CollapseOp() | ExpandOp():
                self.values[op.result] = self._regrouped(op)
            case cuda.AlignmentOp():
                self.values[op.result] = self._alignment(op)
            case cuda.LaunchOp():
                self._launch(op)
            case cuda.MappableOp():
                arrays = [self.values[buffer] for buffer in op.buffers]
                fits = all(why_not_mappable(array) is None for array in arrays)
                whole = all(
                    array.shape[axes_of(buffer.type).index(axis)] % size == 0
                    for buffer, array in zip(op.buffers, arrays, strict=True)
                    for axis, size in op.wanted.items()
                    if axis in axes_of(buffer.type)
                )
                self.values[op.result] = fits and whole and self.backend.has_tensor_maps
            case cuda.TensorMapOp():
                self.values[op.result] = self._tensor_map(op)
            case scf.IfOp():
                taken = op.true_region if self.values[op.cond] else op.false_region
                for inner in taken.block.ops if taken.blocks else ():
                    if not isinstance(inner, scf.YieldOp):
                        self._execute(inner)
            case UnrealizedConversionCastOp():
                self._convert(op)
            case tensor.CollapseShapeOp() if tensor.CollapseShapeOp not in self.foreign:
                self.values[op.result] = self._merge(op)
            case _:
                self._compute(op)

    def _number(self, op: Operation) -> Any:
        """As the reference computes it, and in the format of the result."""
        operands = (np.asarray(self.values[each], dtype_of(each.type)) for each in op.operands)
        made, type = value_of(op, tuple(operands)), op.results[0].type
        return (rounded(made, type) if isinstance(type, AnyFloat) and str(type) in DTYPES else made).item()

    def _convert(self, op: UnrealizedConversionCastOp) -> None:
        """Between buffers of the backend and tensors, which are arrays in the memory of the host."""
        operand, result = op.operands[0], op.results[0]
        given: Attribute = operand.type
        wanted: Attribute = result.type
        value = self.values[operand]
        if isinstance(given, MemRefType) and not all(self._is_merge(use.operation) for use in result.uses):
            value = self.backend.download(value)
        merged = isinstance(operand.owner, Operation) and self._is_merge(operand.owner)
        if isinstance(wanted, MemRefType) and not (merged and self._is_on_backend(value)):
            value = self._argument(result, value)
        self.values[result] = value

    def _is_merge(self, op: Operation) -> bool:
        return isinstance(op, tensor.CollapseShapeOp) and tensor.CollapseShapeOp not in self.foreign

    def _is_on_backend(self, value: Any) -> bool:
        return not isinstance(value, np.ndarray)

    def _merge(self, op: tensor.CollapseShapeOp) -> Any:
        """The same memory with fewer dimensions (HostError where there are gaps; what a kernel writes has none)."""
        array = self.values[op.src]
        shape = merged_shape(op, array.shape)
        if not self._is_on_backend(array):
            return array.reshape(shape)
        if prod(shape) and tuple(array.strides) != contiguous_strides(array.shape, array.dtype.itemsize):
            raise HostError(f"dimensions of '{op.src.name_hint}' are merged, which has gaps between them")
        return self.backend.view(array, 0, shape, contiguous_strides(shape, array.dtype.itemsize))

    def _compute(self, op: Operation) -> None:
        if type(op) not in self.foreign:
            raise HostError(f"{op.name} stands between kernels: 'foreign' must say what it computes")
        try:
            results = compute(op, [self.values[operand] for operand in op.operands], self.foreign)
        except ValueError as error:
            raise HostError(str(error)) from error
        self.values |= zip(op.results, results, strict=True)

    def _read(self, op: ReadOp) -> Any:
        """The operand's memory with other strides (HostError where it would reach past it)."""
        array = self.values[op.operand]
        known = {axis: size for axis, (size, _) in self.sizes.items()} | self.fitted
        if scattered_read(op.result) is not None:  # a kernel is given what it is read from, and the entries
            for value in (op.operand, *op.inputs):
                if scattered_read(value) is None:
                    known |= dict(zip(axes_of(value.type), self.values[value].shape, strict=True))
            self.fitted |= op.fitting(known)
            return array
        known |= dict(zip(op.forms, array.shape, strict=True))
        self.fitted |= op.fitting(known)
        sizes = {axis: {**known, **self.fitted}[axis] for axis in axes_of(op.result.type)}
        for (along, form), length in zip(op.forms.items(), array.shape, strict=True):
            if all(sizes.values()) and not op.is_padded and reach(form, sizes) > length:
                raise HostError(f"a read reaches {reach(form, sizes)} elements along '{along}', which has {length}")
        steps = list(zip(op.forms.values(), array.strides, strict=True))
        strides = [sum(step_along(form, axis) * stride for form, stride in steps) for axis in sizes]
        offset = sum(form.constant * stride for form, stride in steps) if all(sizes.values()) else 0
        return self.backend.view(array, offset, tuple(sizes.values()), tuple(strides))

    def _regrouped(self, op: CollapseOp | ExpandOp) -> Any:
        """The same numbers in the same order: the operand's memory, or a copy of it where there are gaps between axes
        that become one (HostError for an axis that kernels could not count)."""
        array = self.values[op.operand]
        operand, result = axes_of(op.operand.type), sizes_of(op.result.type)
        known = {axis: size for axis, (size, _) in self.sizes.items()} | self.fitted
        known |= dict(zip(operand, array.shape, strict=True))
        known |= {axis: size for axis, size in result.items() if size != DYNAMIC}
        self.fitted |= op.fitting(known)
        sizes = known | self.fitted
        if (length := sizes[op.whole]) > LARGEST_SIZE:
            raise HostError(
                f"axes {', '.join(op.parts)} together have {length:,} elements: an axis has at most {LARGEST_SIZE:,}"
            )
        shape = tuple(sizes[axis] for axis in result)
        if prod(shape) != prod(array.shape):
            raise HostError(f"axis '{op.whole}' of {length} elements is not [{', '.join(op.parts)}], of whole rows")
        first = (operand if isinstance(op, CollapseOp) else tuple(result)).index(op.parts[0])
        return regrouped(self.backend, array, first, len(op.parts), shape)

    def _allocate(self, op: memref.AllocOp) -> Any:
        sizes = iter(self.values[size] for size in op.dynamic_sizes)
        shape = [next(sizes) if size < 0 else size for size in shape_of(op.memref.type)]
        return self.backend.allocate(shape, DTYPES[str(format_of(op.memref.type))])

    def _tensor_map(self, op: cuda.TensorMapOp) -> Any:
        type = op.result.type
        assert isinstance(type, cuda.TensorMapType)
        array = self.values[op.buffer]
        if type.multiple is not None:
            array = self.backend.view(array, 0, *type.dimensions(array.shape, array.strides))
        return self.backend.tensor_map(array, type.sides, type.swizzle_bytes)

    def _alignment(self, op: cuda.AlignmentOp) -> int:
        found = [alignment(self.values[buffer]) for buffer in op.buffers]
        for number in op.single:
            found[number] = WHOLE_SECTORS if found[number] else ANY_STRIDES
        return min(found, default=WHOLE_SECTORS)

    def _launch(self, op: cuda.LaunchOp) -> None:
        name = op.kernel.root_reference.data
        kernel = next(
            inner
            for inner in self.module.body.block.ops
            if isinstance(inner, cuda.KernelOp) and inner.sym_name.data == name
        )
        blocks = self.values[op.grid]
        if blocks == 0:
            return
        if blocks > MAX_GRID:
            raise HostError(f"@{name} would take {blocks} blocks; a grid has at most {MAX_GRID}: use smaller sizes")
        aligned = self.values[op.alignment]
        variant = next(each for each in cuda.alignments(kernel) if each <= aligned)
        arguments: list[Any] = []
        for operand in op.arguments:
            arguments += pack(self.values[operand], operand.type, variant == ANY_STRIDES)
        if reason := why_no_cluster(kernel.cluster, blocks):
            raise HostError(f"@{name} cannot be launched: {reason}; use sizes that it divides, or no clusters")
        grid, block = (blocks, 1, 1), (kernel.threads.data, 1, 1)
        # A backend of somebody else's need not know of clusters while no kernel has any.
        clusters = {} if kernel.cluster == 1 else {"cluster": kernel.cluster}
        report = self.backend.launch(
            cuda.variant_name(kernel, variant), grid, block, cuda.shared_bytes(kernel, variant), arguments, **clusters
        )
        self.launches.append(Launched(cuda.variant_name(kernel, variant), grid, report))


def execute(
    module: ModuleOp,
    arguments: Sequence[NDArray[Any] | float | int],
    backend: Backend,
    function: str | None = None,
    foreign: Foreign | None = None,
) -> tuple[NDArray[Any], ...]:
    """Run a module at `cuda` level; see `HostExecution.run`. `foreign` says what operations of other dialects between
    kernels compute, of arrays in the memory of the host."""
    return start(module, backend, function, foreign)(arguments)


def start(
    module: ModuleOp, backend: Backend, function: str | None = None, foreign: Foreign | None = None
) -> Callable[[Sequence[NDArray[Any] | float | int]], tuple[NDArray[Any], ...]]:
    """The module's function as a Python function on a backend."""
    functions = [op for op in module.body.block.ops if isinstance(op, func.FuncOp)]
    chosen = next((op for op in functions if function in (None, op.sym_name.data)), None)
    if chosen is None:
        raise HostError(f"the module has no function '{function}'")
    several = sum(isinstance(op, cuda.LaunchOp) for op in chosen.walk()) > 1

    def run(arguments: Sequence[NDArray[Any] | float | int]) -> tuple[NDArray[Any], ...]:
        # What operations of others compute may decide on what is launched after them.
        if several and not foreign and isinstance(backend, Prepares):
            backend.prepare(lambda rehearsal: HostExecution(module, rehearsal).run(chosen, arguments))
        return HostExecution(module, backend, foreign=foreign or {}).run(chosen, arguments)

    return run
