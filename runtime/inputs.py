"""Sizes and inputs of a program: chosen, made, and checked before anything runs on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects import func
from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute, SSAValue

from treadle.compiler.errors import TreadleError, at
from treadle.compiler.sizes import default_sizes, sizes_of_whole_arrays
from treadle.compiler.told_sizes import check_told, told_sizes
from treadle.dialects.diagram.array import DYNAMIC, axes_of, format_of, is_array, sizes_of
from treadle.dialects.diagram.read import with_fitting
from treadle.runtime.formats import DTYPES, held, numpy_dtype, rounded

Input: TypeAlias = "NDArray[Any] | np.generic"
"""An array, or a scalar, in its format."""

SMALL_INTEGERS = (-8, 9)
"""From which integers are drawn: products of a few of them stay exact."""


def axis_sizes(function: func.FuncOp, given: Mapping[str, int]) -> dict[str, int]:
    """The size of every axis of a function: static, else as given, else its default in the file.

    TreadleError for an axis that the function does not have, a static axis given another size, one to which a read
    gives another, and an axis without a size."""
    declared = sizes_of_whole_arrays(function)
    for axis, size in given.items():
        _check_given(function, declared, axis, size)
    static = {axis: size for axis, size in declared.items() if size != DYNAMIC}
    known = {**_defaults(function, declared), **given, **static}
    check_told(function, given, known)
    known |= {axis: told.size for axis, told in told_sizes(function, known).items()}
    known = with_fitting(function.body.block, known) if function.body.blocks else known
    if missing := [axis for axis in declared if axis not in known]:
        raise at(function, _without_sizes(missing))
    return {axis: known[axis] for axis in declared}


def _without_sizes(axes: Sequence[str]) -> str:
    said, them, defaults = f"axes {', '.join(axes)} have no sizes", "them", "defaults"
    if len(axes) == 1:
        said, them, defaults = f"axis '{axes[0]}' has no size", "one", "a default"
    options = " ".join(f"--size {axis}=N" for axis in axes)
    attribute = f"attributes {{sizes = #diagram.sizes<{', '.join(f'{axis} = N' for axis in axes)}>}}"
    return f"{said}: give {them} ({options}), or {defaults} ({attribute})"


def _defaults(function: func.FuncOp, declared: Mapping[str, int]) -> dict[str, int]:
    defaults = default_sizes(function)
    for axis, size in defaults.items():
        if declared.get(axis, DYNAMIC) not in (DYNAMIC, size):
            raise at(function, f"the default of axis '{axis}' is {size}, but its types say {declared[axis]}")
    return defaults


def _check_given(function: func.FuncOp, declared: Mapping[str, int], axis: str, size: int) -> None:
    if axis not in declared:
        names = ", ".join(declared) or "none"
        raise at(function, f"there is no axis '{axis}' to give a size to (axes: {names})")
    if size < 0:
        raise at(function, f"axis '{axis}' cannot have the negative size {size}")
    if declared[axis] not in (DYNAMIC, size):
        raise at(function, f"axis '{axis}' has the static size {declared[axis]}: it cannot become {size}")


def make_inputs(function: func.FuncOp, sizes: Mapping[str, int], seed: int | np.random.Generator) -> tuple[Input, ...]:
    """Arguments to try a function on: standard normal numbers, or small integers, in the format of each. An argument
    with the attribute `diagram.up_to = "x"` counts positions: from 0 to the size of x, which is one past the last; with
    `diagram.ascending` as well they never fall along its last axis. In place of a seed, what draws the numbers."""
    random = np.random.default_rng(seed)
    inputs: list[Input] = []
    for i, type in enumerate(function.function_type.inputs):
        if str(format_of(type)) not in DTYPES:
            raise at(function, f"argument {argument_name(function, i)} is {type}: no input can be made for that")
        shape = tuple(_size_of(function, sizes, axis, size) for axis, size in sizes_of(type).items())
        dtype = numpy_dtype(type)
        limits = _limits_of(function, i, sizes)
        limits = (max(limits[0], 0), limits[1]) if dtype.kind == "u" else limits
        drawn = random.integers(*limits, shape) if dtype.kind in "iu" else random.standard_normal(shape)
        if shape and "diagram.ascending" in _attributes_of(function, i):
            drawn = np.sort(drawn)
        array = rounded(np.asarray(drawn), format_of(type))
        inputs.append(array if is_array(type) else array[()])
    return tuple(inputs)


def _attributes_of(function: func.FuncOp, index: int) -> Mapping[str, Attribute]:
    return {} if function.arg_attrs is None else function.arg_attrs.data[index].data


def _limits_of(function: func.FuncOp, index: int, sizes: Mapping[str, int]) -> tuple[int, int]:
    """From which integers an argument is drawn."""
    axis = _attributes_of(function, index).get("diagram.up_to")
    if axis is None:
        return SMALL_INTEGERS
    name = axis.data if isinstance(axis, StringAttr) else None
    whole = axis_sizes(function, {a: size for a, size in sizes.items() if a in sizes_of_whole_arrays(function)})
    if name not in whole:
        raise at(
            function, f"argument {argument_name(function, index)} is up to {axis}, which is no axis of the function"
        )
    return 0, whole[name] + 1


def _size_of(function: func.FuncOp, sizes: Mapping[str, int], axis: str, static: int) -> int:
    if static != DYNAMIC:
        return static
    if axis not in sizes:
        raise at(function, f"axis '{axis}' has no size")
    return sizes[axis]


def check_inputs(function: func.FuncOp, arrays: Sequence[Input | float | int]) -> dict[str, int]:
    """The sizes that inputs of a program give to the axes of its function.

    TreadleError at its place in the file, naming argument and axis, where number, format, dimensions or sizes do not
    fit."""
    names = [argument_name(function, i) for i in range(len(function.function_type.inputs))]
    try:
        return _sizes_given(function, names, arrays)
    except _Unfit as error:
        raise at(function, str(error)) from None


def check_arguments(function: func.FuncOp, arrays: Sequence[Input | float | int], given: Sequence[Any]) -> None:
    """The same of the arguments of a call in Python, `given` before they were numpy's arrays: told of the kernel, for
    whoever calls it may never have seen the program."""
    plain = [argument_name(function, i).removeprefix("%") for i in range(len(function.function_type.inputs))]
    kernel = function.sym_name.data
    if len(arrays) != len(plain):
        raise TreadleError(f"{kernel} takes {len(plain)} arguments ({', '.join(plain)}), {len(arrays)} are given")
    try:
        _sizes_given(function, [f"'{name}'" for name in plain], arrays, given)
    except _Unfit as error:
        raise TreadleError(f"{kernel}: {error}") from None


class _Unfit(Exception):
    """What does not fit, and why."""


def _sizes_given(
    function: func.FuncOp, names: Sequence[str], arrays: Sequence[Input | float | int], given: Sequence[Any] = ()
) -> dict[str, int]:
    types = function.function_type.inputs.data
    if len(arrays) != len(types):
        raise _Unfit(f"takes {len(types)} arguments ({', '.join(names)}), {len(arrays)} are given")
    sizes: dict[str, int] = {}
    owner: dict[str, str] = {}
    for name, type, array, whole in zip(names, types, arrays, given or arrays, strict=True):
        shape = _in_format(name, type, array, whole).shape
        for axis, static, size in zip(axes_of(type), sizes_of(type).values(), shape, strict=True):
            if static not in (DYNAMIC, size):
                raise _Unfit(f"axis '{axis}' of argument {name} has {size} elements: it is {static} in the program")
            if sizes.setdefault(axis, size) != size:
                raise _Unfit(
                    f"axis '{axis}' has {sizes[axis]} elements in argument {owner[axis]}, but {size} in {name}"
                )
            owner.setdefault(axis, name)
    return sizes


def _in_format(name: str, type: Attribute, given: Input | float | int, whole: Any) -> NDArray[Any]:
    """An argument as an array, once its format and number of dimensions are right. A plain Python number
    may stand for any scalar."""
    if str(format_of(type)) not in DTYPES:
        raise _Unfit(f"argument {name} is {type}: a call takes {', '.join(DTYPES)}")
    axes, dtype = axes_of(type), numpy_dtype(type)
    array = np.asarray(given)
    if array.ndim != len(axes):
        raise _Unfit(f"argument {name} has {array.ndim} dimensions: expected {len(axes)}, axes [{', '.join(axes)}]")
    if not axes and isinstance(given, int | float):
        if held(given, format_of(type)) is None:
            wanted = "a whole number" if dtype.kind in "iu" else "a number"
            raise _Unfit(f"argument {name} is {given}: expected {wanted} that {format_of(type)} holds")
        return array
    if array.dtype != dtype:
        is_numpy = isinstance(whole, np.ndarray | np.generic | int | float)
        how = f"array.astype({_spelled(dtype)})" if is_numpy else f"tensor.to(torch.{dtype.name})"
        raise _Unfit(
            f"argument {name} has elements of {array.dtype}: the program says {format_of(type)}; convert it ({how})"
        )
    return array


def _spelled(dtype: np.dtype[Any]) -> str:
    return f"numpy.{dtype.name}" if hasattr(np, dtype.name) else f"ml_dtypes.{dtype.name}"


def argument_name(function: func.FuncOp, index: int) -> str:
    """`%Q`, or `%0` where the file gives no name."""
    if not function.body.blocks:
        return f"%{index}"
    return f"%{function.body.block.args[index].name_hint or index}"


def output_names(function: func.FuncOp) -> tuple[str, ...]:
    """What the results of a function are called: the names of the values that it returns, where they have names; the
    place behind it tells apart what is returned more than once."""
    count = len(function.function_type.outputs)
    returned: Sequence[SSAValue] = ()
    if function.body.blocks and function.body.block.last_op is not None:
        returned = tuple(function.body.block.last_op.operands)
    hints = [value.name_hint for value in returned] or [None] * count
    names = [_output_name(hints, i) for i in range(len(hints))]
    return tuple(name if names.count(name) == 1 else f"result{i}" for i, name in enumerate(names))


def _output_name(hints: Sequence[str | None], place: int) -> str:
    if (hint := hints[place]) is None:
        return f"result{place}"
    return hint if hints.count(hint) == 1 else f"{hint}_{place}"
