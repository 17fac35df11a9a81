"""Calling a compiled kernel on the arrays that people have: numpy's, and torch's where they lie."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cached_property
from importlib import import_module
from typing import Any, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute

from treadle.compiler.errors import InternalError, TreadleError, is_lack_of_memory
from treadle.dialects.diagram.array import format_of, is_array, sizes_of
from treadle.dialects.diagram.formats import EIGHT_BIT
from treadle.runtime.backend import BackendUnavailable, choose_backend
from treadle.runtime.coarse import EMULATED, coarse_sums
from treadle.runtime.failures import refused_kernel, unable, wrong_kernel
from treadle.runtime.formats import DTYPES, held, rounded
from treadle.runtime.inputs import argument_name, check_arguments
from treadle.runtime.interpreter import entry_function, run_function
from treadle.runtime.torch_arguments import are_plain, check_tensors
from treadle.runtime.verify import Verdict, verify

R = TypeVar("R")

ON_GPU = ("auto", "gpu")
"""Backends that leave tensors on a GPU where they are."""


class Compiled(Protocol):
    """What a call needs to know of a kernel (`treadle.Kernel`)."""

    @property
    def lock(self) -> Any: ...
    @property
    def replays(self) -> Any: ...
    @property
    def host_replays(self) -> dict[Any, Any]: ...
    @cached_property
    def program(self) -> ModuleOp: ...
    @cached_property
    def module(self) -> ModuleOp: ...
    def backend(self, name: str, checks: bool) -> Any: ...


def call(kernel: Compiled, arguments: Sequence[Any], backend: str, checks: bool) -> Any:
    """Run; the results are torch tensors if an argument is one, else numpy arrays (TreadleError)."""
    if (replays := kernel.replays) is not None and backend in ON_GPU and are_plain(arguments):
        known: Any = replays.again(arguments)
        if known is not None:
            return known
    if kernel.host_replays and backend in ON_GPU and (results := _again(kernel, arguments)) is not None:
        return _one(results)
    if (torch := sys.modules.get("torch")) is not None:
        check_tensors([each for each in arguments if isinstance(each, torch.Tensor)])
    if any(_is_on_gpu(argument) for argument in arguments):
        from treadle.runtime.torch_gpu import call_on_gpu

        given = [each.resolve_neg() if _is_tensor(each) else each for each in arguments]  # its memory has another sign
        return _told(lambda: call_on_gpu(kernel, given, backend), "gpu")
    results = _run(kernel, _arrays(kernel, arguments), _place(backend), checks)
    if any(_is_tensor(argument) for argument in arguments):
        return _one(tuple(_tensor(result) for result in results))
    return _one(results)


def judge(
    kernel: Compiled,
    arguments: Sequence[Any],
    backend: str,
    checks: bool,
    with_conditions: Callable[[ModuleOp], ModuleOp | None],
) -> tuple[Verdict, ...]:
    """Run, and compare with the reference (TreadleError); `with_conditions` as `verify` takes it."""
    place, arrays = _place(backend), _arrays(kernel, arguments)
    results = _run(kernel, arrays, place, checks)
    coarse = _coarse(kernel, place, checks)
    return verify(kernel.program, arrays, results, place, coarse=coarse, with_conditions=with_conditions)


def _coarse(kernel: Compiled, place: str, checks: bool) -> float | None:
    """As `verify` takes it, of what the emulator has launched."""
    if place != "emulator":
        return None
    runner = kernel.backend(place, checks)
    return coarse_sums(runner.source, runner.variants, EMULATED)


def _run(kernel: Compiled, arrays: Sequence[Any], backend: str, checks: bool) -> tuple[Any, ...]:
    if backend == "interpreter":
        return _told(lambda: _interpret(kernel, arrays), backend)
    return _told(lambda: _launched(kernel, arrays, backend, checks), backend)


def _launched(kernel: Compiled, arrays: Sequence[Any], backend: str, checks: bool) -> tuple[Any, ...]:
    runner, given = kernel.backend(backend, checks), [_plain(array) for array in arrays]
    with kernel.lock:
        if backend == "gpu":
            from treadle.runtime.numpy_gpu import geometry, run_and_keep

            results = run_and_keep(kernel, geometry(given), given, runner)
        else:
            from treadle.runtime.host import execute

            results = execute(kernel.module, given, runner)
        if backend == "emulator":
            runner.reports.clear()
    return _apart(results, arrays)


def _again(kernel: Compiled, arguments: Sequence[Any]) -> tuple[Any, ...] | None:
    """The results of numpy's arrays with a GPU, where a call before had such ones; else None."""
    from treadle.runtime.numpy_gpu import geometry

    key = geometry(arguments)
    if key is None or (replay := kernel.host_replays.get(key)) is None:
        return None
    return _told(lambda: replay(arguments), "gpu")


def _apart(results: Sequence[Any], arguments: Sequence[Any]) -> tuple[Any, ...]:
    """Each result in memory of its own: a program may return an argument, or one value twice, and who writes into one
    result does not mean the other."""
    others: list[Any] = [each for each in arguments if isinstance(each, np.ndarray)]
    made: list[Any] = []
    for result in results:
        shared = any(np.may_share_memory(result, other) for other in (*others, *made))
        made.append(result.copy() if shared else result)
    return tuple(made)


def _told(run: Callable[[], R], backend: str) -> R:
    """What it gives; whatever goes wrong at the place where it runs is told as our own errors are (TreadleError)."""
    try:
        return run()
    except Exception as error:
        tell(error, backend)
        raise


def tell(error: Exception, backend: str) -> None:
    """As our own errors are told, where it is to be told so (TreadleError)."""
    if isinstance(error, wrong_kernel()):
        raise InternalError(f"the kernel did what no correct kernel does: {error}") from error
    if isinstance(error, refused_kernel()):
        raise InternalError(f"the compiler refuses what treadle printed: {error}") from error
    if is_lack_of_memory(error):
        raise TreadleError(f"{backend}: there is not enough memory: {str(error) or 'use smaller sizes'}") from error
    if isinstance(error, unable()):
        raise TreadleError(f"{backend}: {error}") from error


def _interpret(kernel: Compiled, arrays: Sequence[Any]) -> tuple[Any, ...]:
    function = entry_function(kernel.program)
    results = run_function(kernel.program, arrays).results
    types = function.function_type.outputs
    return tuple(rounded(result, format_of(type)) for result, type in zip(results, types, strict=True))


def _place(backend: str) -> str:
    try:
        return choose_backend(backend).backend
    except BackendUnavailable as error:
        instead = f'; backend="{error.instead}" needs none' if error.instead else ""
        raise TreadleError(f"{error}{instead}") from error


def _one(results: tuple[Any, ...]) -> Any:
    return results[0] if len(results) == 1 else results


def _plain(array: Any) -> Any:
    """Scalars as Python's own numbers."""
    return cast(Any, array) if isinstance(array, np.ndarray) else np.asarray(array).item()


# -- arrays of others --------------------------------------------------------------------------


def _is_tensor(argument: object) -> bool:
    """Whether it is a torch tensor, asked without importing torch: who has a tensor has imported it."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(argument, torch.Tensor)


def _is_on_gpu(argument: Any) -> bool:
    return _is_tensor(argument) and argument.is_cuda


def _arrays(kernel: Compiled, arguments: Sequence[Any]) -> list[Any]:
    """As numpy knows them and the program takes them (TreadleError). A plain number for a scalar or an array without
    axes becomes one in the format of the program, so that the kernel and the reference see the same."""
    function = entry_function(kernel.program)
    types = list(function.function_type.inputs)
    arrays = [_array(argument, _named(function, i, len(types))) for i, argument in enumerate(arguments)]
    if len(arrays) == len(types):
        arrays = [_with_format(array, type) for array, type in zip(arrays, types, strict=True)]
    check_arguments(function, arrays, arguments)
    return arrays


def _named(function: FuncOp, index: int, count: int) -> str:
    """What a message calls an argument."""
    name = f"argument '{argument_name(function, index).removeprefix('%')}'" if index < count else "an argument"
    return f"{function.sym_name.data}: {name}"


def _with_format(array: Any, type: Attribute) -> Any:
    if not isinstance(array, bool | int | float) or sizes_of(type) or str(format_of(type)) not in DTYPES:
        return array
    if (number := held(array, format_of(type))) is None:
        return array  # refused by `check_arguments`, which says what is expected
    return number if is_array(type) else number[()]


def _array(argument: Any, named: str) -> Any:
    """As numpy knows it, with any strides that are whole elements (TreadleError for what is no array). `named` is what
    a message calls it."""
    if _is_tensor(argument):
        argument = _numpy_of(argument, named)
    if isinstance(argument, bool | int | float | np.generic):
        return cast(Any, argument)
    if not isinstance(argument, np.ndarray):
        raise TreadleError(f"{named} is a {type(argument).__name__}: pass a numpy array, a torch tensor or a number")
    if isinstance(argument, np.ma.MaskedArray):
        raise TreadleError(
            f"{named} is a masked array, whose mask kernels do not see: pass array.filled(...), and the mask as a "
            "condition or an argument of its own"
        )
    array = cast("NDArray[Any]", argument)
    array = array.view(np.int8) if array.dtype == np.bool_ else array  # bytes that are 1 or 0
    return array if _is_aligned(array) else array.copy()


def _is_aligned(array: NDArray[Any]) -> bool:
    strides = [stride for stride, size in zip(array.strides, array.shape, strict=True) if size > 1]
    return not array.size or not any(number % array.itemsize for number in (array.ctypes.data, *strides))


_BITS = {"bf16": "int16", **dict.fromkeys(EIGHT_BIT, "uint8")}
"""Formats that only one of numpy and torch knows, or each by another name, and integers of their size."""


def _numpy_of(tensor: Any, named: str) -> NDArray[Any]:
    """The memory of a tensor on the CPU, its formats that numpy does not know too."""
    import torch

    if tensor.device.type != "cpu":
        raise TreadleError(f"{named} lies on the device '{tensor.device}': use a CPU or a CUDA tensor")
    if tensor.layout != torch.strided:
        raise TreadleError(f"{named} has the layout '{tensor.layout}': kernels take dense tensors (to_dense())")
    plain = tensor.detach().resolve_conj().resolve_neg()
    for name, bits in _BITS.items():
        dtype = DTYPES[name]
        if plain.dtype == getattr(torch, dtype.name, None):
            return plain.view(getattr(torch, bits)).numpy().view(dtype)
    return plain.numpy()


def _tensor(array: Any) -> Any:
    torch: Any = import_module("torch")
    plain = np.asarray(array)
    for name, bits in _BITS.items():
        if plain.dtype == DTYPES[name]:
            return torch.from_numpy(plain.view(bits)).view(getattr(torch, plain.dtype.name))
    return torch.from_numpy(plain)
