# pyright: standard
"""Some nodes of a PyTorch graph, as a program of the `diagram` dialect, and how tensors go in and come out."""

from __future__ import annotations

import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import count
from math import prod
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node

from treadle.compiler.errors import TreadleError
from treadle.dialects.diagram.array import DYNAMIC
from treadle.language.array import Array
from treadle.language.graph import FORMATS, Graph
from treadle.torch.axes import Axis, Dims, leaves
from treadle.torch.bits import EIGHT, IN_EIGHT_BITS, check_numbers, wrapped
from treadle.torch.entries import How, entries
from treadle.torch.integers import check_fits, limit_of, wraps
from treadle.torch.lookups import INDEXED, LOOKUPS
from treadle.torch.mistakes import Mistakes
from treadle.torch.operations import PRODUCTS
from treadle.torch.overlaps import is_part_of, read_in_part
from treadle.torch.registry import COMPUTED, FREE, SOURCES, STORED, TYPED, Handler, aten, handler_of
from treadle.torch.registry import FORMATS as FLOATS
from treadle.torch.roles import alike
from treadle.torch.symbols import (
    Computed,
    Condition,
    Size,
    Values,
    all_at,
    likely,
    most,
    recording,
    spelled,
    symbols_of,
)
from treadle.torch.tensors import Body, Failed, Tensor, Unsupported, told
from treadle.torch.views import place

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

ARGUMENTS = {**FLOATS, **STORED, torch.int32: "i32", torch.int8: "i8", torch.uint8: "ui8", torch.bool: "i8"}
"""What a tensor is to a program; truth values are the bytes 1 and 0."""

COMPUTES = frozenset(ARGUMENTS) - {torch.int8, torch.uint8, *STORED} | {torch.int64}
"""Formats of results that a program computes as PyTorch does: of 8 bits, what `IN_EIGHT_BITS` says, and fractions that
are converted."""

RESULTS = {**ARGUMENTS, torch.int64: "i32"}
"""What a program gives as a tensor: of 64 bits only what is known to need 32."""


@dataclass(frozen=True)
class View:
    """The same memory under other dimensions, whose sizes may be symbols (`Size`) until they are known (`at`)."""

    shape: tuple[Any, ...]
    strides: tuple[Any, ...]

    @staticmethod
    def of(tensor: Any) -> View:
        return View(tuple(tensor.shape), tuple(tensor.stride()))

    def at(self, values: Values) -> View:
        return View(all_at(self.shape, values), all_at(self.strides, values))

    def on(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.stride() == self.strides and tensor.shape == self.shape:
            return tensor
        return tensor.as_strided(self.shape, self.strides)


@dataclass(frozen=True)
class Input:
    """A tensor that a program takes, which lies in memory as `given` says: seen as `shape`, its axes in the order of
    memory. What PyTorch's own operations give may have other strides, or another format, than it says of them
    (statistics of norms in 16 bits)."""

    node: Node
    given: View
    dtype: torch.dtype
    shape: tuple[Any, ...]
    order: tuple[int, ...]
    seen: View

    def at(self, values: Values) -> Input:
        shape = all_at(self.shape, values)
        return replace(self, given=self.given.at(values), shape=shape, seen=self.seen.at(values))

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.dtype != self.dtype:
            tensor = tensor.to(self.dtype)
        if tensor.dtype == torch.bool:
            tensor = tensor.view(torch.int8)
        if tensor.stride() != self.given.strides:
            return tensor.detach().reshape(self.shape).permute(self.order)
        return self.seen.on(tensor)


@dataclass(frozen=True)
class Length(Input):
    """One element of a tensor, again and again along an axis."""

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        one = tensor.detach().as_strided((1,), (1,))
        return (one.view(torch.int8) if one.dtype == torch.bool else one).expand(self.shape)


@dataclass(frozen=True)
class Entries(Input):
    """An index, whose positions are checked before they are read: those along a dimension of that size."""

    size: Any
    how: How

    def at(self, values: Values) -> Entries:
        (size,) = all_at((self.size,), values)
        return replace(self, shape=all_at(self.shape, values), seen=self.seen.at(values), size=size)

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        return self.seen.on(entries(tensor, self.size, self.how))


@dataclass(frozen=True)
class Output:
    """A tensor that a program gives. It has the strides that PyTorch's own would have: what comes after it in the
    graph was traced with them, and may look at the memory."""

    node: Node
    view: View
    dtype: torch.dtype

    def at(self, values: Values) -> Output:
        return replace(self, view=self.view.at(values))

    def of(self, result: torch.Tensor) -> torch.Tensor:
        if result.dtype != self.dtype:
            is_truth = self.dtype == torch.bool and result.dtype == torch.int8
            result = result.view(torch.bool) if is_truth else result.to(self.dtype)
        return self.view.on(result if result.is_contiguous() else result.contiguous())


@dataclass(frozen=True)
class Program:
    """A module with its arguments and results."""

    module: ModuleOp
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    numbers: tuple[Any, ...] = ()
    """Sizes that it takes as numbers, behind the tensors."""
    conditions: tuple[Condition, ...] = ()
    """What sizes have to meet, of the classes that it was made for."""
    fixed: str = ""
    """Why it is for the sizes that were there alone, if it is."""

    def at(self, values: Values) -> Program:
        """What of it is read and written by a call with these sizes."""
        inputs, outputs = (tuple(each.at(values) for each in several) for several in (self.inputs, self.outputs))
        return replace(self, inputs=inputs, outputs=outputs, numbers=all_at(self.numbers, values))


@dataclass(frozen=True)
class Reading:
    """A tensor that a program reads, and along which axes."""

    node: Node
    tensor: Tensor
    size: Any = None
    """Of an index, that of the dimension along which it gives positions."""
    how: How | None = None
    """And how they are looked up; None of what is no index."""

    @property
    def format(self) -> str:
        return "i32" if self.how is not None else ARGUMENTS[meta(self.node).dtype]

    @property
    def what(self) -> tuple[Any, ...]:
        """What is the same of readings that are one argument, if they are along the same axes: the elements, in the
        order in which they lie. Of an index that is a copy, which is checked, and nobody else's."""
        _, seen = self.seen
        shape, strides = (tuple(map(spelled, numbers)) for numbers in (seen.shape, seen.strides))
        where = place(self.node) if self.how is None else (self.node, None)
        return *where, self.format, shape, strides, self.size, self.how

    @cached_property
    def given(self) -> View:
        """How the tensor lies in memory."""
        given = View.of(meta(self.node))
        # positions that are checked lie one after another
        return given if self.how is None else View(given.shape, _contiguous(given.shape))

    @cached_property
    def seen(self) -> tuple[tuple[int, ...], View]:
        """Its axes in the order of memory, the one with the smallest stride last, and it under these."""
        shape, strides = _split(self.tensor.dims, self.given.strides)
        order = _in_memory(strides)
        return order, View(tuple(shape[i] for i in order), tuple(strides[i] for i in order))

    def axes(self, names: Mapping[Axis, str]) -> list[str]:
        """The names of its axes, in the order of memory."""
        order, _ = self.seen
        return [names[self.tensor.axes[i]] for i in order]


@dataclass
class Translation:
    """The values of some nodes while they are translated.

    Free operations on members, and sources, belong to nobody: they are done again for each user. Each reading of an
    input has axes of its own, too: that is how one tensor can be the queries and the keys of an attention."""

    members: frozenset[Node]
    body: Body
    outputs: Sequence[Node] = ()
    results: list[Tensor] = field(default_factory=list[Tensor])
    values: dict[Node, Tensor] = field(default_factory=dict[Node, Tensor])
    reads: list[Reading] = field(default_factory=list[Reading])
    known: Iterator[Array] | None = None

    @cached_property
    def in_part(self) -> frozenset[Node]:
        """The tensors that one product reads whole, and another one in part."""
        return read_in_part(self.members)

    def run(self) -> None:
        """All members in order (Unsupported)."""
        for node in sorted(self.members):
            self.values[node] = self.computed(node)
        self.results = [self.argument(node) for node in self.outputs]

    def computed(self, node: Node) -> Tensor:
        handler = handler_of(node.target)
        if handler is None:
            raise Unsupported(f"{node.target} is not known")
        index = INDEXED.get(node.target)
        arguments = [self.index(each) if i == index else self.argument(each) for i, each in enumerate(node.args)]
        options = {name: self.argument(each) for name, each in node.kwargs.items()}
        try:
            return self.made(node, handler, arguments, options)
        except (Unsupported, TreadleError):
            raise
        except Exception as error:  # what we got wrong of one operation is no reason to leave the user without any
            raise Failed(f"treadle failed at it ({type(error).__name__}: {error}): please report it") from error

    def made(self, node: Node, handler: Handler, arguments: list[Any], options: dict[str, Any]) -> Tensor:
        """What the node's handler makes of these (Unsupported)."""
        dtype = meta(node).dtype
        computes = node.target in COMPUTED
        moves = node.target in LOOKUPS or node.target is aten.cat.default
        in_eight = computes and dtype in EIGHT and (moves or node.target in IN_EIGHT_BITS)
        is_stored = dtype in STORED and (moves or node.target is aten._to_copy.default)
        if computes and dtype not in COMPUTES and not in_eight and not is_stored:
            raise Unsupported(f"it computes in {dtype}")
        if in_eight and not moves:  # numbers of these are dimensions
            check_numbers(dtype, arguments)
        limit = limit_of(node.target, dtype, arguments, options)
        check_fits(dtype, limit)
        wraps_around = in_eight and wraps(node.target, dtype, arguments, options)
        if node.target in PRODUCTS:
            options["format"] = FLOATS.get(meta(node.args[-1]).dtype)
        if node.target in TYPED:
            options["made"] = dtype
        tensor = handler(self.body, *arguments, **options)
        if wraps_around:
            tensor = wrapped(self.body, tensor, dtype)
        return replace(tensor, dtype=dtype, limit=limit)

    def argument(self, argument: Any) -> Any:
        if isinstance(argument, list | tuple):
            return [self.argument(each) for each in argument]
        if not isinstance(argument, Node):
            return argument
        if argument in self.members:
            return self.values[argument]
        if is_number(argument):
            number = argument.meta["val"]
            return number.fix() if isinstance(number, Computed) else number
        return self.computed(argument) if self.is_done_again(argument) else self.read(argument)

    def is_done_again(self, node: Node) -> bool:
        """Whether a free operation is done inside: on a member, on what is made of nothing, and where the tensor
        outside would be a larger one, as keys that are repeated for each head, or has another part that is read, too.
        Others are views, which cost nothing."""
        repeats = is_part = False
        while node not in self.members and is_free(node):
            repeats = repeats or node.target is aten.expand.default
            is_part = is_part or is_part_of(node)
            if not (given := read_by(node)):
                return True
            (node,) = given
        return repeats or (is_part and node in self.in_part) or node in self.members

    def read(self, node: Node) -> Tensor:
        value = meta(node)
        if value.dtype not in ARGUMENTS:
            raise Unsupported(f"it reads elements of {value.dtype}, which programs do not have{_instead(value.dtype)}")
        dims = self.body.new_dims(value.shape)
        array = None if self.known is None else next(self.known)
        limit = limit_of(None, value.dtype, (), {})
        tensor = replace(self.body.tensor(dims, array), dtype=value.dtype, limit=limit)
        if array is not None and value.dtype in (torch.bool, torch.int8, torch.uint8, torch.int32):
            tensor = told(tensor, array, array.value.name_hint or "", value.dtype)
        self.reads.append(Reading(node, tensor))
        return tensor

    def index(self, argument: Any) -> Any:
        """What a lookup takes for an index, or for several."""
        if isinstance(argument, list | tuple):
            return [self.index(each) for each in argument]
        return argument if argument is None else partial(self.looked_up, argument)

    def looked_up(self, node: Node, size: Any, how: How) -> Tensor:
        """The positions along a dimension that an index gives. Where it is repeated, it is read once (Unsupported)."""
        if meta(node).dtype not in (torch.int32, torch.int64):
            raise Unsupported(f"an index of {meta(node).dtype}")
        if not self.is_done_again(node) or not read_by(node):
            return self.read_index(node, size, how)
        if not is_free(node):
            raise Unsupported("an index that the program computes, which would be checked too late")
        handler = FREE[node.target]
        tensors = {each: self.looked_up(each, size, how) for each in read_by(node)}
        arguments = [tensors[each] if each in tensors else self.argument(each) for each in node.args]
        options = {name: self.argument(each) for name, each in node.kwargs.items()}
        return self.made(node, handler, arguments, options)

    def read_index(self, node: Node, size: Any, how: How) -> Tensor:
        dims = self.body.new_dims(meta(node).shape)
        array = None if self.known is None else next(self.known)
        tensor = replace(self.body.tensor(dims, array), dtype=torch.int32, limit=most(size))
        if array is not None:
            tensor = told(tensor, array, array.value.name_hint or "", torch.int32)
        self.reads.append(Reading(node, tensor, size, how))
        return tensor


def _instead(dtype: torch.dtype) -> str:
    """What a user may convert these to."""
    if dtype.is_complex:
        return ""
    return f" (where {torch.float32 if dtype.is_floating_point else torch.int32} holds them, convert them to it)"


def translatable(members: Sequence[Node], mistakes: Mistakes, of_one: bool = False) -> str | None:
    """Why these nodes are no program (`of_one`: for the sizes that are there alone); None if they are."""
    try:
        with recording(members) as symbols:
            if symbols is not None and of_one:
                symbols.fix_all()
            _axes_known(members)
    except Exception as reason:
        return mistakes.note(members, reason)
    return None


def sums_over_several(members: Sequence[Node]) -> bool:
    """Whether the last of these, a product of matrices, would sum over a dimension that is several axes of what the
    others make, as rotated halves are. A kernel sums over one axis at a time; saved first, a dimension is one."""
    *_, product = members
    try:
        with recording(members):
            translation = _axes_known(members)
            left = translation.argument(product.args[-2])
    except Unsupported:
        return False
    return len(left.along(-1)) > 1


def translate(members: Sequence[Node], outputs: Sequence[Node], name: str) -> Program:
    """The program of these nodes; results are these of them, or free operations on them (Unsupported)."""
    first = _axes_known(members, outputs)
    names = _names(first)
    program = _translated(first, names, outputs, name)
    readings = [(each.what, each.axes(names)) for each in first.reads]
    renamed = alike(program.module, readings, {name: axis.size for axis, name in names.items()})
    if not renamed:
        return program
    return _translated(first, {axis: renamed.get(name, name) for axis, name in names.items()}, outputs, name)


def _translated(first: Translation, names: dict[Axis, str], outputs: Sequence[Node], name: str) -> Program:
    """The program, whose axes have these names."""
    sizes = _sizes(first, names)
    symbolic = {name: likely(size) for name, size in sizes.items() if isinstance(size, Size)}
    graph = Graph(sizes | dict.fromkeys(symbolic, DYNAMIC))
    arguments, of_reads = _arguments(first, graph, names)
    arguments += _told(first, graph, names, len(arguments))
    second = Translation(first.members, Body(graph, names, first.body.axes), outputs, known=iter(of_reads))
    second.run()
    results = [_result(second.body, *pair, names) for pair in zip(outputs, second.results, strict=True)]
    module = graph.module(name, results, symbolic)
    return Program(module, tuple(arguments), tuple(map(_output, outputs)), tuple(second.body.numbers))


def meta(node: Any) -> Any:
    """The fake tensor that a node stands for."""
    return node.meta["val"]


def is_free(node: Node) -> bool:
    """Whether it is the same elements under other dimensions, or made of nothing."""
    return node.op == "call_function" and (node.target in FREE or node.target in SOURCES)


def is_number(node: Node) -> bool:
    return isinstance(node.meta.get("val"), int | float | bool | Size | Computed)


def read_by(node: Node) -> list[Node]:
    """The tensors that it reads."""
    return [each for each in node.all_input_nodes if not is_number(each)]


def _axes_known(members: Sequence[Node], outputs: Sequence[Node] = ()) -> Translation:
    """A first run, after which it is known which axes are the same (Unsupported)."""
    translation = Translation(frozenset(members), Body(), outputs)
    translation.run()
    if any(len(axis.leaves()) > 1 for axis in translation.body.undivided):
        raise Unsupported("reads at other positions along a dimension that is split")
    for tensor in translation.body.tensors:
        axes = tensor.axes
        if len(set(axes)) != len(axes):
            raise Unsupported("an axis would stand in one array twice")
        if any(not axis.size for axis in axes):
            raise Unsupported("it has no elements")
    return translation


def _names(translation: Translation) -> dict[Axis, str]:
    names: dict[Axis, str] = {}
    letters = (f"{letter}{i or ''}" for i in count() for letter in string.ascii_lowercase[8:])
    for axis in leaves(translation.body.axes):
        if axis not in names:
            names[axis] = next(letters)
    return names


def _sizes(first: Translation, names: dict[Axis, str]) -> dict[str, Any]:
    """Of each axis."""
    known = {name: axis.size for axis, name in names.items()}
    symbols = symbols_of(first.members)
    return known if symbols is None else {name: symbols.settled(size) for name, size in known.items()}


def _told(first: Translation, graph: Graph, names: dict[Axis, str], number: int) -> list[Input]:
    """Arguments that only tell a launch how long an axis is, where no other has it: nothing reads them."""
    given = {axis for reading in first.reads for axis in reading.tensor.axes}
    nodes = [reading.node for reading in first.reads if reading.how is None]
    told: list[Input] = []
    for axis, name in names.items():
        if axis in given or graph.sizes[name] != DYNAMIC or not nodes:
            continue
        node = nodes[0]
        graph.argument(f"a{number + len(told)}", [name], ARGUMENTS[meta(node).dtype])
        told.append(Length(node, View.of(meta(node)), meta(node).dtype, (axis.size,), (0,), View((axis.size,), (0,))))
    return told


def _arguments(first: Translation, graph: Graph, names: dict[Axis, str]) -> tuple[list[Input], list[Array]]:
    """The arguments of the program, and the one of each read: tensors that are read along the same axes are one."""
    inputs: list[Input] = []
    known: dict[tuple[Any, ...], Array] = {}
    of_reads: list[Array] = []
    for reading in first.reads:
        axes = reading.axes(names)
        key = (*reading.what, *axes)
        if key not in known:
            known[key] = Array(graph, graph.argument(f"a{len(inputs)}", axes, reading.format))
            inputs.append(_input(reading))
        of_reads.append(known[key])
    return inputs, of_reads


def _input(reading: Reading) -> Input:
    """How to look at the tensor: dimensions split into axes, the axis with the smallest stride last."""
    node, given, (order, seen) = reading.node, reading.given, reading.seen
    shape, _ = _split(reading.tensor.dims, given.strides)
    if reading.how is not None:
        return Entries(node, given, meta(node).dtype, shape, order, seen, reading.size, reading.how)
    return Input(node, given, meta(node).dtype, shape, order, seen)


def _contiguous(shape: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(prod(shape[i + 1 :]) for i in range(len(shape)))


def _output(node: Node) -> Output:
    return Output(node, View.of(meta(node)), meta(node).dtype)


def _in_memory(strides: Sequence[Any]) -> tuple[int, ...]:
    """Axes, the one with the smallest stride last."""
    return tuple(sorted(range(len(strides)), key=lambda i: -strides[i]))


def _split(dims: Dims, of_dims: Sequence[Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The sizes and strides of the axes that these dimensions, with these strides, are split into."""
    shape: list[Any] = []
    strides: list[Any] = []
    for axes, stride in zip(dims, of_dims, strict=True):
        inner: Any = 1
        split: list[tuple[Any, Any]] = []
        for axis in reversed(leaves(axes)):
            split.append((axis.size, stride * inner))
            inner *= axis.size
        shape.extend(size for size, _ in reversed(split))
        strides.extend(stride for _, stride in reversed(split))
    return tuple(shape), tuple(strides)


def _result(body: Body, node: Node, tensor: Tensor, names: dict[Axis, str]) -> Any:
    format = RESULTS.get(meta(node).dtype)
    if format is None:
        raise Unsupported(f"its result has elements of {meta(node).dtype}")
    shape, strides = _split(tensor.dims, meta(node).stride())
    order = _in_memory(strides)
    inner: Any = 1
    for i in reversed(order):
        if strides[i] != inner:
            raise Unsupported("its result has gaps in memory, or elements that lie in the same place")
        inner *= shape[i]
    return body.finished(body.whole(tensor), FORMATS[format], [names[tensor.axes[i]] for i in order])
