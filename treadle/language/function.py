"""`treadle.kernel`: a Python function over named axes becomes kernels, called on numpy arrays and torch tensors."""

from __future__ import annotations

import functools
import inspect
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from treadle.compiler.errors import TreadleError
from treadle.dialects.diagram.array import DYNAMIC
from treadle.dialects.diagram.formats import INTEGERS, NUMBER_FORMATS
from treadle.language.array import Array, names_of
from treadle.language.graph import FORMATS, Graph, check_format
from treadle.language.names import variables_of
from treadle.language.signature import Signature, parse_signature
from treadle.untraced import untraced

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp
    from xdsl.ir import Attribute, SSAValue

    from treadle.compiled import Kernel
    from treadle.runtime.torch_replay import Replays

_DTYPES = {
    **{prefix + each.dtype: name for prefix in ("", "torch.") for name, each in NUMBER_FORMATS.items()},
    **{"bool": "i8", "torch.bool": "i8"},
}


RECENT = 256
"""For how many formats and sizes of its arguments a function keeps which kernel they lead to."""
MOST_SIZES = 8
"""Of an axis that kernels hold whole: each is compiled for. Heads come in few widths."""


class NamedKernel:
    """A function over named axes, and the kernels that were derived from it, one for each combination of formats.

    The size of an axis is fixed in the kernel until a second size of it is seen: then it is symbolic, and the one
    kernel takes any. An axis that kernels hold whole, as they do the width of a head, stays fixed, a kernel for each
    size, until `MOST_SIZES` of them were seen: with a symbolic one there would be more kernels, and slower ones.
    `static` keeps axes fixed for good."""

    def __init__(
        self,
        function: Callable[..., Any],
        signature: Signature,
        static: Sequence[str],
        machine: str | None,
        arch: str | None,
        results: Sequence[str | None],
        replay: str | os.PathLike[str] | None = None,
    ):
        functools.update_wrapper(self, function)
        self.function = function
        self.signature = signature
        self.static = tuple(static)
        self.machine = machine
        self.arch = arch
        self.results = tuple(results)
        """The format of each result, None where the arguments tell it."""
        self.replay = replay
        self.names = _argument_names(function, len(signature.inputs))
        self._lock = threading.RLock()
        self._kernels: dict[tuple[Any, ...], Kernel] = {}
        self._seen: dict[str, set[int]] = {}
        self._symbolic: set[str] = set()
        self._recent: dict[tuple[Any, ...], Kernel] = {}
        """What the arguments' formats and sizes lead to, until one more axis turns out to be symbolic."""
        self._last: Kernel | None = None
        """What was run last, until then: more likely than not, it is run again."""

    @untraced
    def __call__(self, *arrays: Any, backend: str = "auto", **named: Any) -> Any:
        """The result, or a tuple of them, as torch tensors if an argument is one. Arguments stand in the function's
        order or carry its names (TreadleError)."""
        if named:
            from treadle.compiled import in_order

            arrays = in_order(self._name, self.names, arrays, named)
        # As `Kernel.at_once`, without another call: this is all that most calls do.
        if (
            (last := self._last) is not None
            and (replays := last.replays) is not None
            and backend in ("auto", "gpu")
            and (known := replays.at_once(arrays)) is not None
        ):
            return known
        kernel = self._compiled(arrays)
        self._last = kernel
        return kernel.run(*arrays, backend=backend)

    @untraced
    def at_once(self, arrays: Sequence[Any]) -> Any:
        """What it gives for tensors on a GPU that are as those of a call before, but for their addresses; None where
        more is to be asked (TreadleError)."""
        return None if (last := self._last) is None else last.at_once(arrays)

    @property
    def replays(self) -> Replays | None:
        """What the kernel that was run last did, by the geometry of its arguments; None where it keeps nothing."""
        return None if (last := self._last) is None else last.replays

    @untraced
    def compiled(self, *arrays: Any) -> Kernel:
        """The kernel for arguments of these formats and sizes (TreadleError)."""
        return self._compiled(arrays)

    def _compiled(self, arrays: Sequence[Any]) -> Kernel:
        try:
            asked = tuple([(each.dtype, each.shape) for each in arrays])
            if (recent := self._recent.get(asked)) is not None:
                return recent
        except (AttributeError, TypeError, RuntimeError):  # a number, or what is refused below
            asked = None
        if len(arrays) != len(self.signature.inputs):
            raise TreadleError(
                f"{self._name} takes {len(self.signature.inputs)} arguments ({', '.join(self.names)}), "
                f"{len(arrays)} are given"
            )
        formats = self.formats(arrays)
        sizes = self.signature.sizes(self.names, [_shape_of(*each) for each in zip(self.names, arrays, strict=True)])
        with self._lock:
            fixed = self._fixed(sizes)
            key = (*formats, *sorted(fixed.items()))
            if key not in self._kernels:
                self._kernels[key] = self._compile(formats, sizes, fixed)
            if asked is not None:
                self._remember(asked, self._kernels[key])
            return self._kernels[key]

    def _remember(self, asked: tuple[Any, ...], kernel: Kernel) -> None:
        if len(self._recent) >= RECENT:
            self._recent.clear()
        self._recent[asked] = kernel

    def trace(self, formats: Sequence[str], sizes: dict[str, int], fixed: Iterable[str] = ()) -> ModuleOp:
        """The program, as a module of the `diagram` dialect: arguments in these formats, axes in `fixed` of these
        sizes and the others symbolic, with these sizes as defaults (TreadleError)."""
        fixed = set(fixed)
        graph = Graph({axis: sizes[axis] if axis in fixed else DYNAMIC for axis in self.signature.axes})
        arguments = [
            Array(graph, graph.argument(name, axes, format))
            for name, axes, format in zip(self.names, self.signature.inputs, formats, strict=True)
        ]
        look = variables_of(self.function)
        graph.before_each = lambda: look(lambda each: _value_of(each, graph))
        returned = self.function(*arguments)
        graph.before_each = None
        results = cast("Sequence[Any]", returned if isinstance(returned, tuple | list) else (returned,))
        if len(results) != len(self.signature.outputs):
            raise TreadleError(
                f"{self._name} returns {len(results)} arrays, its signature has {len(self.signature.outputs)} results"
            )
        floats = next((format for format in formats if format not in INTEGERS), "f32")
        each = enumerate(zip(results, self.signature.outputs, self.results, strict=True))
        made = [self._result(graph, i, array, axes, wanted, floats) for i, (array, axes, wanted) in each]
        return graph.module(self._name, made, sizes)

    def formats(self, arrays: Sequence[Any]) -> list[str]:
        """What programs call the number formats of the arguments (TreadleError)."""
        return [_format_of(name, array) for name, array in zip(self.names, arrays, strict=True)]

    def result_types(self, formats: Sequence[str], sizes: dict[str, int]) -> tuple[Attribute, ...]:
        """The types of the results for arguments in these formats and of these sizes (TreadleError)."""
        from treadle.runtime.interpreter import entry_function

        return tuple(entry_function(self.trace(formats, sizes, sizes)).function_type.outputs)

    @property
    def _name(self) -> str:
        name = getattr(self.function, "__name__", "kernel")
        return name if name.isidentifier() and name.isascii() else "kernel"

    def _fixed(self, sizes: dict[str, int]) -> dict[str, int]:
        for axis, size in sizes.items():
            seen = self._seen.setdefault(axis, {size})
            if size in seen or axis in self._symbolic or axis in self.static:
                continue
            if len(seen) < MOST_SIZES and axis in self._held_whole():
                seen.add(size)
                continue
            self._symbolic.add(axis)
            self._recent.clear()
            self._last = None
        return {axis: size for axis, size in sizes.items() if axis not in self._symbolic}

    def _held_whole(self) -> set[str]:
        return {axis for kernel in self._kernels.values() for axis in kernel.held_whole}

    def _compile(self, formats: Sequence[str], sizes: dict[str, int], fixed: dict[str, int]) -> Kernel:
        from treadle.compiled import compile

        module = self.trace(formats, sizes, fixed)
        return compile(module, machine=self.machine, arch=self.arch, replay=self.replay)

    def _result(
        self, graph: Graph, index: int, array: Any, axes: Sequence[str], wanted: str | None, floats: str
    ) -> Any:
        """The value of a result, in the format `wanted`; without one integers stay, and others become `floats`."""
        if not isinstance(array, Array):
            raise TreadleError(f"{self._name} returns a {type(array).__name__}: return arrays that it computed")
        if set(array.axes) - set(axes):
            extra = ", ".join(sorted(set(array.axes) - set(axes)))
            raise TreadleError(
                f"result {index} of {self._name} still has the axes {extra}: the signature says [{', '.join(axes)}]"
            )
        if unknown := [axis for axis in axes if axis not in graph.sizes]:
            raise TreadleError(
                f"axis '{unknown[0]}' of result {index} of {self._name} is in no argument, and nothing in the function "
                "makes it (as tl.stack does), so its size is not known: let an argument have it, or no result"
            )
        if missing := [axis for axis in axes if axis not in array.axes]:
            nothing = Array(graph, graph.fill(0 if array.format in INTEGERS else 0.0, missing))
            array = (array if array.format in INTEGERS else array.to("f32")) + nothing
        format = wanted or (array.format if array.format in INTEGERS else floats)
        return graph.cast(array.value, FORMATS[format], axes)


def kernel(
    signature: str,
    *,
    static: str | Iterable[str] = (),
    machine: str | None = None,
    arch: str | None = None,
    result: str | Sequence[str | None] | None = None,
    replay: str | os.PathLike[str] | None = None,
) -> Callable[[Callable[..., Any]], NamedKernel]:
    """Make kernels of a Python function over named axes.

    The signature names the axes of each argument and result, `"q d, x d, x e -> q e"`; the same name is the same axis.
    The function is called once with arrays that write down what is done to them (`treadle.language`): arithmetic aligns
    axes by name; further parameters keep their defaults. Results have the format of the first argument that is no
    integer (f32 if all are); integers stay integers. `result` says another format, one for all results or one for
    each, as `"f8E4M3FN, f32"` or in a tuple, in which None leaves a result as it would be. A result that does not vary
    along one of its axes is repeated along it. Axes become symbolic once they have had several sizes (`NamedKernel`),
    but for those that `static` names. `machine` and `arch` are those of `treadle.compile`.

    ```
    @treadle.kernel("q d, x d, x e -> q e")
    def attention(Q, K, V):
        S = tl.contract(Q, K, over="d") * 0.125
        return tl.contract(tl.softmax(S, over="x"), V, over="x")
    ```

    TreadleError for what is no signature, and, at a call, for arguments that do not fit."""
    parsed = parse_signature(signature)
    axes = names_of(static)
    for axis in axes:
        if axis not in parsed.axes:
            raise TreadleError(f"`static` names axis '{axis}', which the signature does not have")
    results = _formats_of_results(result, len(parsed.outputs))

    def decorate(function: Callable[..., Any]) -> NamedKernel:
        return NamedKernel(function, parsed, axes, machine, arch, results, replay)

    return decorate


def _formats_of_results(result: str | Sequence[str | None] | None, count: int) -> tuple[str | None, ...]:
    """What `result` says of each of `count` results (TreadleError)."""
    if result is None:
        return (None,) * count
    given: Any = result.split(",") if isinstance(result, str) else result
    if not isinstance(given, list | tuple):
        raise TreadleError(f"`result` is a format, as 'f32', or one for each result, not a {type(result).__name__}")
    formats = [each.strip() if isinstance(each, str) else each for each in cast("Sequence[Any]", given)]
    for each in formats:
        if each is not None:
            check_format(each)
    if isinstance(result, str) and len(formats) == 1:
        return tuple(formats * count)
    if len(formats) != count:
        raise TreadleError(
            f"`result` has {len(formats)} formats ({', '.join(map(str, formats))}), the signature {count} results: "
            "give one format for each, or a single one, as 'f32', for all"
        )
    return tuple(formats)


def _value_of(each: Any, graph: Graph) -> SSAValue | None:
    is_array = issubclass(type(each), Array)  # `isinstance` asks the object, and what stands for another may refuse
    return each.value if is_array and each.graph is graph else None


def _argument_names(function: Callable[..., Any], count: int) -> tuple[str, ...]:
    """Those of its parameters that are arrays: further ones that have a default keep it."""
    parameters = list(inspect.signature(function).parameters.values())
    if any(each.kind is inspect.Parameter.VAR_POSITIONAL for each in parameters):
        return tuple(f"a{i}" for i in range(count))
    further = [each for each in parameters[count:] if each.default is not inspect.Parameter.empty]
    names = tuple(each.name for each in parameters if each not in further)
    if len(names) != count:
        raise TreadleError(
            f"{getattr(function, '__name__', 'the function')} takes {len(names)} arguments, its signature has {count} "
            "(axes are separated by spaces, arguments by commas: 'm k, k n -> m n')"
        )
    return names


def _format_of(name: str, array: Any) -> str:
    dtype = str(getattr(array, "dtype", np.asarray(array).dtype if isinstance(array, int | float) else None))
    if dtype in _DTYPES:
        return _DTYPES[dtype]
    if isinstance(array, float):
        return "f32"
    if isinstance(array, int):
        return "i32"
    known = ", ".join(each.dtype for each in NUMBER_FORMATS.values())
    said = f"elements of {dtype}" if hasattr(array, "dtype") else f"the type {type(array).__name__}"
    raise TreadleError(f"argument '{name}' has {said}: kernels take arrays of {known}{_converted(dtype)}")


def _converted(dtype: str) -> str:
    """What to do about an array of another format."""
    kind = dtype.removeprefix("torch.")
    wanted = "float32" if kind.startswith("float") else "int32" if kind.startswith(("int", "uint", "bool")) else ""
    return f"; convert it, by .astype('{wanted}') of numpy or .to(torch.{wanted}) of torch" if wanted else ""


def _shape_of(name: str, array: Any) -> tuple[int, ...]:
    if getattr(array, "is_nested", False):
        raise TreadleError(f"argument '{name}' is a nested tensor, whose rows differ in size: pass them padded")
    return tuple(getattr(array, "shape", ()))


__all__ = ["NamedKernel", "kernel"]
