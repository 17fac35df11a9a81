"""Sizes of axes as a user gives them (`--size q=200`), checked against a program."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation

from treadle.compiler.errors import Refusal, TreadleError
from treadle.compiler.numerals import whole_number
from treadle.compiler.told_sizes import check_told, told_sizes
from treadle.dialects.diagram.array import DYNAMIC, LARGEST_SIZE, SizesAttr, size_text, sizes_of
from treadle.dialects.diagram.collapse import Regrouping


def parse_sizes(texts: Iterable[str]) -> dict[str, int]:
    """`["q=200", "x=333"]` as a dictionary (TreadleError)."""
    sizes: dict[str, int] = {}
    for text in texts:
        axis, equals, number = text.partition("=")
        axis, number = axis.strip(), number.strip()
        if not equals or not axis:
            raise TreadleError(f"--size {text}: write it as axis=number, for example --size q=200")
        size = whole_number(number)
        if size is None or size > LARGEST_SIZE:
            raise TreadleError(f"--size {text}: '{number}' is not a size: use a whole number from 0 to {LARGEST_SIZE}")
        if sizes.get(axis, size) != size:
            raise TreadleError(f"--size {axis} is given twice, as {sizes[axis]} and as {size}: keep one")
        sizes[axis] = size
    return sizes


def axes_of_function(function: FuncOp) -> dict[str, int]:
    """Every axis of a program with its size (DYNAMIC where symbolic)."""
    return _first_sizes(_types_of(function))


def sizes_of_whole_arrays(function: FuncOp) -> dict[str, int]:
    """The size of each axis of the arrays of a program, those first that a caller sees. Inside of an expanded kernel
    there are pieces, with sizes of their own."""
    types = [*function.function_type.inputs, *function.function_type.outputs]
    if function.body.blocks:
        types += [result.type for op in function.body.block.ops for result in op.results]
    return _first_sizes(types)


def _first_sizes(types: Iterable[Attribute]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for type in types:
        for axis, size in sizes_of(type).items():
            sizes.setdefault(axis, size)
    return sizes


REDUCES = "reduces constants along"
"""What a kernel does with an axis that no array of it has."""


def why_unknown(kernel: str, axis: str, what: str) -> str:
    """What is wrong with an axis that a kernel has and no array of the program."""
    return f"@{kernel} {what} '{axis}', and no array of the program has that axis: write down the result in its place"


def check_axes(function: FuncOp) -> None:
    """Refuse a program in which one axis has two sizes in arrays that no operation brings together (Refusal)."""
    sizes: dict[str, tuple[int, str]] = {}
    for operation, what, type in _arrays_of(function):
        for axis, size in sizes_of(type).items():
            known, owner = sizes.setdefault(axis, (size, what))
            if known != size:
                raise Refusal(
                    operation,
                    f"axis '{axis}' has size {size_text(known)} in {owner} but {size_text(size)} in {what}: an axis "
                    "belongs to the whole program, so give one of them another name",
                )


def _arrays_of(function: FuncOp) -> Iterable[tuple[Operation, str, Attribute]]:
    """Whole arrays: those inside a kernel may be pieces, with sizes of their own."""
    for argument in function.body.block.args:
        yield function, f"%{argument.name_hint or argument.index}", argument.type
    for operation in function.body.block.ops:
        for result in operation.results:
            yield operation, f"%{result.name_hint}" if result.name_hint else "another array", result.type


UNKNOWN_SIZE = 1024
"""Taken for an axis whose size is known only at launch and has no default."""


def default_sizes(function: FuncOp) -> dict[str, int]:
    """The attribute `sizes` of a program: defaults of its symbolic axes, and what they say of axes that stand for
    several. Where reads tell the size of an axis from others, these say what its default is."""
    known = _stated(function)
    if known:
        known |= {axis: told.size for axis, told in told_sizes(function, known).items() if axis in known}
    for op in function.body.block.ops if function.body.blocks else ():
        if isinstance(op, Regrouping) and sizes_of(op.together.type)[op.whole] == DYNAMIC:
            known |= op.fitting(known)
    return known


def _stated(function: FuncOp) -> dict[str, int]:
    defaults = function.attributes.get("sizes")
    return defaults.as_dict() if isinstance(defaults, SizesAttr) else {}


def set_default_sizes(function: FuncOp, given: Mapping[str, int]) -> None:
    """Optimise for these sizes; the types stay symbolic, so that a kernel still takes any (TreadleError for a size
    that a read tells otherwise)."""
    check_told(function, given, default_sizes(function))
    axes = axes_of_function(function)
    symbolic = {axis: size for axis, size in given.items() if axes[axis] == DYNAMIC}
    if symbolic:
        function.attributes["sizes"] = SizesAttr({**default_sizes(function), **symbolic})
        function.attributes["sizes"] = SizesAttr(default_sizes(function))


def check_sizes(function: FuncOp, given: Mapping[str, int]) -> None:
    """Refuse a size for an axis that the program lacks or whose size it states (Refusal)."""
    axes = axes_of_function(function)
    for axis, size in given.items():
        if axis not in axes:
            close = get_close_matches(axis, axes, n=1, cutoff=0.6)
            hint = f"; did you mean '{close[0]}'?" if close else ""
            listed = ", ".join(f"{name} = {size_text(size)}" for name, size in axes.items())
            raise Refusal(function, f"there is no axis '{axis}' (the axes are {listed}){hint}")
        if axes[axis] not in (DYNAMIC, size):
            raise Refusal(
                function,
                f"axis '{axis}' has size {axes[axis]} in the program and cannot be {size}: "
                "write '?' for it in the types to make it symbolic, or give it no size",
            )


def check_defaults(function: FuncOp) -> None:
    """Refuse an attribute `sizes` that names an unknown axis, or contradicts the types or a read (Refusal,
    TreadleError)."""
    axes = axes_of_function(function)
    for axis, size in _stated(function).items():
        if axis not in axes:
            raise Refusal(function, f"'sizes' names axis '{axis}', which no array of the program has")
        if axes[axis] not in (DYNAMIC, size):
            raise Refusal(
                function,
                f"'sizes' gives axis '{axis}' the size {size}, but its size is {axes[axis]} in the types",
            )
    check_told(function, _stated(function), {})


def _types_of(function: FuncOp) -> Iterable[Attribute]:
    yield from function.function_type.inputs
    yield from function.function_type.outputs
    for operation in function.body.walk():
        yield from (result.type for result in operation.results)
