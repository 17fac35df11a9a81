# pyright: standard
"""Values of a PyTorch graph while a program is made of them, and what programs do to them.

The same functions run twice: first only axes are known and are unified as they meet (`Body.graph` is None), then, when
all is known of them, operations are written down."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from xdsl.dialects.builtin import i32
from xdsl.ir import Attribute, SSAValue

from treadle.dialects.diagram.array import format_of
from treadle.dialects.diagram.formats import INTEGERS
from treadle.language.array import Array
from treadle.language.conditions import Condition
from treadle.language.functions import chosen, contract
from treadle.language.graph import Graph
from treadle.torch.axes import Axis, Dims, Mismatch, leaves, unify
from treadle.torch.symbols import Size


class Unsupported(Exception):
    """Why an operation stays with PyTorch."""


class Failed(Unsupported):
    """That treadle made a mistake there."""


class Indivisible(Unsupported):
    """Why some do, that no part of them would get over."""


@dataclass(frozen=True)
class Tensor:
    """A value: the axes of its dimensions, and what it is in the program (None while only axes are known).

    The array may lack axes of the dimensions: it is broadcast along them. A number stands for itself. Integers and
    truth values, which are 1 and 0, are computed in i32 (or are Python's integers), whatever PyTorch has them in."""

    dims: Dims
    array: Array | float | None = None
    dtype: torch.dtype | None = None
    """PyTorch's, of what a node of its graph gives."""
    limit: float = 0
    """No number of it is larger than that, nor smaller than its negative: of what a node gives, as `integers.limit_of`
    has it."""
    text: str | None = None
    """Positions, integers of an argument, and truth values about them, as conditions of the language say them."""
    named: Mapping[str, Array] = field(default_factory=dict[str, Array])
    """The arguments that the text names."""
    parts: tuple[Array, ...] = ()
    """Of what was found one by one, and lies side by side along a dimension."""

    @property
    def shape(self) -> tuple[Any, ...]:
        return tuple(_product(axes) for axes in self.dims)

    @property
    def axes(self) -> tuple[Axis, ...]:
        return leaves(axis for axes in self.dims for axis in axes)

    def place(self, dim: int) -> int | None:
        """A dimension counted from the start; None for that of a tensor without any, which PyTorch allows to name
        (Unsupported for one that it has not)."""
        rank = max(len(self.dims), 1)
        if not -rank <= dim < rank:
            raise Unsupported(f"dimension {dim} of a tensor that has {len(self.dims)}, which PyTorch refuses")
        return dim % rank if self.dims else None

    def along(self, dim: int) -> tuple[Axis, ...]:
        """The axes of a dimension; one of size 1 has none."""
        place = self.place(dim)
        return () if place is None else leaves(self.dims[place])


def told(tensor: Tensor, array: Array, name: str, dtype: torch.dtype | None) -> Tensor:
    """An array of integers or truth values as conditions speak of it, by that name."""
    text = f"{name}[{', '.join(array.axes)}]" if array.axes else name
    return replace(tensor, text=f"({text} == 1)" if dtype == torch.bool else text, named={name: array})


def _rounds_products() -> bool:
    """Whether PyTorch was told that products of f32 may round their operands, by `torch.set_float32_matmul_precision`
    or, from 2.9 on, by `fp32_precision`: the former cannot tell of all that the latter may say."""
    told = getattr(torch.backends.cuda.matmul, "fp32_precision", None)
    return torch.get_float32_matmul_precision() != "highest" if told is None else told == "tf32"


class Body:
    """A program under construction."""

    def __init__(self, graph: Graph | None = None, names: Mapping[Axis, str] | None = None, axes: Sequence[Axis] = ()):
        self.graph = graph
        self.names = names or {}
        self.tensors: list[Tensor] = []
        self.axes: list[Axis] = []
        """Every axis that was made, in order; the second run takes those of the first."""
        self.undivided: list[Axis] = []
        """Axes at which elements are read at affine positions: no view may split them."""
        self.numbers: dict[Size, Array] = {}
        """Sizes that are computed with: arguments of the program."""
        self._known = iter(axes)

    def new_dims(self, shape: Sequence[Any]) -> Dims:
        """An axis for every dimension that is not of size 1."""
        return tuple(() if size == 1 else (self._new_axis(size),) for size in shape)

    def _new_axis(self, size: Any) -> Axis:
        axis = Axis(size) if self.graph is None else next(self._known)
        self.axes.append(axis)
        return axis

    def tensor(self, dims: Dims, array: Array | float | None = None) -> Tensor:
        made = Tensor(dims, array)
        self.tensors.append(made)
        return made

    # -- one element at a time -------------------------------------------------------------------

    def map(self, function: Callable[..., Any], *operands: Any) -> Tensor:
        """`function` of tensors and numbers, which broadcast as PyTorch's do."""
        dims = self.broadcast([each for each in operands if isinstance(each, Tensor)])
        if self.graph is None:
            return self.tensor(dims)
        arrays = [self._operand(each) for each in operands]
        if not any(isinstance(each, Array) for each in arrays):
            arrays[0] = self.fill(arrays[0], ())
        made = function(*arrays)
        return self.tensor(dims, self._truth(made) if isinstance(made, Condition) else made)

    def broadcast(self, tensors: Sequence[Tensor]) -> Dims:
        """The dimensions of the result (Unsupported)."""
        rank = max((len(each.dims) for each in tensors), default=0)
        dims: list[tuple[Axis, ...]] = [()] * rank
        for each in tensors:
            for i, axes in enumerate(each.dims, rank - len(each.dims)):
                if not leaves(axes):
                    continue
                if leaves(dims[i]):
                    self.unify(dims[i], axes)
                else:
                    dims[i] = axes
        return tuple(dims)

    def _operand(self, operand: Any) -> Any:
        number = operand.array if isinstance(operand, Tensor) else operand
        if isinstance(number, Size):
            return self.number(number)
        return int(number) if isinstance(number, bool) else number

    def number(self, size: Size) -> Array:
        """A size as an argument that is a number: no kernel is made for its value."""
        if size not in self.numbers:
            self.numbers[size] = Array(self._graph, self._graph.number(f"n{len(self.numbers)}", i32))
        return self.numbers[size]

    def _truth(self, condition: Condition) -> Array:
        """A tensor of truth values is 1 where they hold, else 0."""
        return chosen(condition, 1, 0, i32)

    def said(self, tensor: Tensor, symbol: str, *operands: Any) -> Tensor:
        """The tensor, with what it says of positions if all operands say something."""
        if self.graph is None or any(isinstance(each, Tensor) and each.text is None for each in operands):
            return tensor
        if any(isinstance(each, float) for each in operands):
            return tensor
        texts = [self._text(each) for each in operands]
        text = f"({symbol} {texts[0]})" if len(texts) == 1 else f"({texts[0]} {symbol} {texts[1]})"
        named = {name: array for each in operands if isinstance(each, Tensor) for name, array in each.named.items()}
        numbers = [self.number(each) for each in operands if isinstance(each, Size)]
        return replace(tensor, text=text, named=named | {each.value.name_hint or "": each for each in numbers})

    def _text(self, operand: Any) -> str:
        if isinstance(operand, Size):
            return self.number(operand).value.name_hint or ""
        return operand.text or "" if isinstance(operand, Tensor) else str(int(operand))

    # -- over axes -------------------------------------------------------------------------------

    def reduce(self, tensor: Tensor, dims: Sequence[int] | None, keep: bool, function: Callable[..., Any]) -> Tensor:
        """`function(array, names of axes)` over some dimensions."""
        places = map(tensor.place, dims) if dims else range(len(tensor.dims))
        over = {place for place in places if place is not None}
        left = tuple(() if i in over else axes for i, axes in enumerate(tensor.dims) if keep or i not in over)
        if self.graph is None:
            return self.tensor(left)
        gone = [self.names[leaf] for i in sorted(over) for leaf in leaves(tensor.dims[i])]
        return self.tensor(left, function(self.whole(tensor), gone))

    def along(self, tensor: Tensor, dim: int, function: Callable[..., Any]) -> Tensor:
        """`function(array, names of axes)` along a dimension, which stays."""
        axes = tensor.along(dim)
        if self.graph is None:
            return self.tensor(tensor.dims)
        return self.tensor(tensor.dims, function(self.whole(tensor), [self.names[axis] for axis in axes]))

    def contract(self, left: Tensor, right: Tensor, dims: Dims, over: tuple[Axis, ...], format: str | None) -> Tensor:
        """Products, summed over `over` (no axes are a dimension of size 1); operands are rounded to `format` first.
        Those of f32 multiply as tf32 where PyTorch was told that they may (`_rounds_products`)."""
        if self.graph is None:
            return self.tensor(dims)
        arrays = [self.whole(each, within=over) for each in (left, right)]
        if format is not None:
            arrays = [each.to(format) for each in arrays]
        multiply = "tf32" if _rounds_products() else None
        return self.tensor(dims, contract(arrays[0], arrays[1], [self.names[leaf] for leaf in leaves(over)], multiply))

    def whole(self, tensor: Tensor, within: Sequence[Axis] | None = None) -> Array:
        """The array with all axes of the tensor (or those `within`), also the ones it is broadcast along."""
        wanted = [self.names[axis] for axis in (tensor.axes if within is None else leaves(within))]
        array = tensor.array
        if not isinstance(array, Array):
            return self.fill(0 if array is None else array, wanted)
        missing = [name for name in wanted if name not in array.axes]
        if missing:
            array = array + self.fill(0 if array.format in INTEGERS else 0.0, missing)
        return array

    def repeated(self, array: Array, axes: Sequence[Axis]) -> Array:
        """The array once for each position along axes that it lacks, in its own format."""
        along = self.fill(0, [self.names[axis] for axis in leaves(axes)])
        inputs = [array.value, along.value]
        return Array(self._graph, self._graph.map(inputs, lambda scalars: scalars[0], format_of(array.value.type)))

    def finished(self, array: Array, format: Attribute, axes: Sequence[str]) -> SSAValue:
        """What the program returns: in that format, its axes in that order."""
        return self._graph.cast(array.value, format, axes)

    def fill(self, number: float, axes: Sequence[str]) -> Array:
        return Array(self._graph, self._graph.fill(number, axes))

    # -- the same elements -----------------------------------------------------------------------

    def view(self, tensor: Tensor, shape: Sequence[Any]) -> Tensor:
        """Other dimensions for the same elements in the same order (Unsupported where axes do not nest)."""
        dims = self.new_dims(shape)
        self.unify(tensor.axes, (axis for axes in dims for axis in axes))
        return self.rearranged(tensor, dims)

    def rearranged(self, tensor: Tensor, dims: Sequence[Sequence[Axis]]) -> Tensor:
        return replace(tensor, dims=self.tensor(tuple(map(tuple, dims))).dims)

    def positions(self, size: Any) -> Tensor:
        """0, 1, 2, ... along a new axis."""
        dims = self.new_dims((size,))
        if self.graph is None:
            return self.tensor(dims)
        position, text = self.place_along(leaves(dims[0]))
        return replace(self.tensor(dims, position), text=text)

    def place_along(self, axes: Sequence[Axis]) -> tuple[Array | int, str]:
        """The position along a dimension that is these axes, and how conditions say it; 0 where there are none."""
        position: Array | int = 0
        text = "0"
        for axis in axes:
            name, index = self.names[axis], Array(self._graph, self._graph.index(self.names[axis]))
            if isinstance(position, int):
                position, text = index, name
                continue
            size = int(axis.size)  # a condition multiplies by constants
            position = index + position * size
            text = f"({text} * {size} + {name})"
        return position, text

    def keep_whole(self, axes: Sequence[Axis]) -> None:
        """Let nothing split a dimension, which must have an axis (Unsupported)."""
        if len(leaves(axes)) != 1:
            raise Unsupported("reads at other positions along a dimension that has one element, or that is split")
        self.undivided.extend(leaves(axes))

    # -- help ------------------------------------------------------------------------------------

    def unify(self, left: Any, right: Any) -> None:
        try:
            unify(left, right)
        except Mismatch as error:
            raise Unsupported(f"its dimensions do not nest: {error}") from error

    @property
    def _graph(self) -> Graph:
        assert self.graph is not None
        return self.graph


def _product(axes: Sequence[Axis]) -> Any:
    product: Any = 1
    for axis in axes:
        product *= axis.size
    return product
