"""The inputs of a run: made from a seed, or read from a file."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute

from treadle.compiler.cli.program import Program
from treadle.compiler.errors import TreadleError
from treadle.dialects.diagram.array import is_array
from treadle.runtime.formats import held, named_bytes
from treadle.runtime.inputs import Input, argument_name, axis_sizes, check_inputs, make_inputs, numpy_dtype


def inputs_of(program: Program, arguments: Namespace) -> tuple[tuple[Input, ...], dict[str, int]]:
    """The arguments of the program, and the size of every axis (TreadleError)."""
    if arguments.inputs is None:
        sizes = axis_sizes(program.function, program.sizes)
        return make_inputs(program.function, sizes, arguments.seed), sizes
    inputs = _arguments_from(arguments.inputs, program.function)
    sizes = check_inputs(program.function, inputs)
    for axis, size in program.sizes.items():
        if sizes.get(axis, size) != size:
            raise TreadleError(f"--size {axis}={size}, but axis '{axis}' has {sizes[axis]} elements", arguments.inputs)
    return inputs, axis_sizes(program.function, {**program.sizes, **sizes})


def _arguments_from(path: str, function: FuncOp) -> tuple[Input, ...]:
    arrays = read_arrays(path)
    names = [argument_name(function, i).removeprefix("%") for i in range(len(function.function_type.inputs))]
    for name in names:
        if name not in arrays:
            known = ", ".join(arrays) or "nothing"
            raise TreadleError(f"there is no array '{name}', an argument of the program (it holds {known})", path)
    types = function.function_type.inputs
    return tuple(_argument(arrays[name], type) for name, type in zip(names, types, strict=True))


def _argument(array: NDArray[Any], type: Attribute) -> Input:
    """An array as the file has it, whatever its strides."""
    array = named_bytes(array, type)
    if not is_array(type):
        return _scalar(array, type)
    return array


def _scalar(array: NDArray[Any], format: Attribute) -> Input:
    """A number of Python's, which numpy saves in 64 bits, in the format of the program if that can hold it."""
    number = array[()]
    if array.ndim or array.dtype.name not in ("float64", "int64"):
        return number
    whole = numpy_dtype(format).kind in "iu" and float(number).is_integer()
    made = held(int(number) if whole else number.item(), format)
    return number if made is None else made[()]


def read_arrays(path: str) -> Mapping[str, NDArray[Any]]:
    """The arrays of an .npz file, which may be a stranger's: nothing in it is unpickled (TreadleError)."""
    if not Path(path).exists():
        raise TreadleError(f"no such file: {path}")
    if Path(path).is_dir():
        raise TreadleError("this is a directory: name an .npz file", path)
    try:
        found = np.load(path, allow_pickle=False)
        if not hasattr(found, "files"):
            raise TreadleError("this is one array, not an .npz: save it with numpy.savez, by name", path)
        with found as archive:
            return {name: _numbers(archive[name], name) for name in archive.files}
    except TreadleError as error:
        raise TreadleError(error.message, path) from None
    except Exception as error:  # numpy and zipfile raise a dozen kinds for a damaged file
        reason = str(error)
        if reason.startswith("Object arrays"):
            reason = "it holds Python objects"
        elif "pickle" in reason:  # so numpy takes whatever does not begin as a file of its own
            reason = "it is none: make one with numpy.savez, by name"
        if "<f1" in reason:  # what numpy writes for f8E5M2, and cannot read
            reason = "numpy cannot read 8-bit floats back: save their bytes (array.view(numpy.uint8))"
        raise TreadleError(f"cannot be read as an .npz of numbers: {reason}", path) from error


def _numbers(member: object, name: str) -> NDArray[Any]:
    """A member of the file, which numpy gives as it stands where it is no array."""
    if isinstance(member, np.ndarray):
        return cast(NDArray[Any], member)
    raise TreadleError(f"'{name}' in it is no array: save arrays with numpy.savez, by name")
