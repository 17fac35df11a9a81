"""Arrays with named axes, as a traced function sees them: what is done to them is written down."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import Any, NoReturn

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import f32, i32
from xdsl.ir import Attribute, Operation, SSAValue

from treadle.compiler.errors import TreadleError
from treadle.dialects.diagram.absence import absences_of, absent_along
from treadle.dialects.diagram.array import DYNAMIC, axes_of, format_of
from treadle.dialects.diagram.formats import INTEGERS
from treadle.dialects.diagram.law import ApplyOp
from treadle.language import integers
from treadle.language.conditions import Comparison, Condition
from treadle.language.graph import FORMATS, Graph, check_format, computing_format, constant, is_number, plain

Binary = Callable[[SSAValue, SSAValue], Operation]


class Array:
    """A value of a traced function. Arithmetic aligns axes by name: an operand without an axis is broadcast along
    it. The result has the axes of the operand with the most, of two with as many the first, in its order, and then
    those that only the other has. Arithmetic on narrower formats is done in f32; what the function returns is rounded
    once, at the end."""

    __slots__ = ("graph", "value")

    def __init__(self, graph: Graph, value: SSAValue):
        self.graph = graph
        self.value = value

    @property
    def axes(self) -> tuple[str, ...]:
        """Their names, in the order in which the array has them."""
        return axes_of(self.value.type)

    @property
    def format(self) -> str:
        """Of its elements: `f16`, `f32`, `i32` .."""
        return str(format_of(self.value.type))

    def size(self, axis: str) -> int:
        """The number of elements along an axis whose size is fixed (TreadleError for a symbolic one)."""
        size = self.graph.sizes[_known(self, axis)]
        if size == DYNAMIC:
            raise TreadleError(
                f"the size of axis '{axis}' is not known when the function is traced: name it in `static`"
            )
        return size

    def to(self, format: str) -> Array:
        """Rounded to another number format: `f8E4M3FN` and `f8E5M2` (saturating), `f16`, `bf16`, `f32`, `i32` (toward
        zero), `i8` and `ui8` (toward zero, saturating)."""
        check_format(format)
        return Array(self.graph, self.graph.cast(self.value, FORMATS[format]))

    # -- arithmetic ------------------------------------------------------------------------------

    def __add__(self, other: Any) -> Array:
        return combine("+", arith.AddfOp, arith.AddiOp, self, other)

    def __radd__(self, other: Any) -> Array:
        return combine("+", arith.AddfOp, arith.AddiOp, other, self)

    def __sub__(self, other: Any) -> Array:
        return combine("-", arith.SubfOp, arith.SubiOp, self, other)

    def __rsub__(self, other: Any) -> Array:
        return combine("-", arith.SubfOp, arith.SubiOp, other, self)

    def __mul__(self, other: Any) -> Array:
        return combine("*", arith.MulfOp, arith.MuliOp, self, other)

    def __rmul__(self, other: Any) -> Array:
        return combine("*", arith.MulfOp, arith.MuliOp, other, self)

    def __truediv__(self, other: Any) -> Array:
        return combine("/", arith.DivfOp, None, self, other)

    def __rtruediv__(self, other: Any) -> Array:
        return combine("/", arith.DivfOp, None, other, self)

    def __pow__(self, other: Any) -> Array:
        other = plain(other)
        if isinstance(other, int) and 1 <= other <= 8:  # exact, and cheaper than a power
            result = self
            for _ in range(other - 1):
                result = result * self
            return result
        return combine("**", math.PowFOp, None, self, other)

    def __rpow__(self, other: Any) -> Array:
        return combine("**", math.PowFOp, None, other, self)

    # -- of integers -----------------------------------------------------------------------------

    def __floordiv__(self, other: Any) -> Array:
        return whole("//", integers.floored, self, other)

    def __rfloordiv__(self, other: Any) -> Array:
        return whole("//", integers.floored, other, self)

    def __mod__(self, other: Any) -> Array:
        return whole("%", integers.modulo, self, other)

    def __rmod__(self, other: Any) -> Array:
        return whole("%", integers.modulo, other, self)

    def __and__(self, other: Any) -> Array:
        return whole("&", arith.AndIOp, self, other)

    def __or__(self, other: Any) -> Array:
        return whole("|", arith.OrIOp, self, other)

    def __xor__(self, other: Any) -> Array:
        return whole("^", arith.XOrIOp, self, other)

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __invert__(self) -> Array:
        return self ^ -1

    def __lshift__(self, other: Any) -> Array:
        return whole("<<", arith.ShLIOp, self, other)

    def __rlshift__(self, other: Any) -> Array:
        return whole("<<", arith.ShLIOp, other, self)

    def __rshift__(self, other: Any) -> Array:
        return whole(">>", arith.ShRSIOp, self, other)

    def __rrshift__(self, other: Any) -> Array:
        return whole(">>", arith.ShRSIOp, other, self)

    # -- of one number ---------------------------------------------------------------------------

    def __neg__(self) -> Array:
        return 0 - self if self.format in INTEGERS else elementwise(arith.NegfOp, self)

    def __pos__(self) -> Array:
        return self

    def __abs__(self) -> Array:
        if self.format in INTEGERS:  # f32 does not hold every integer
            return combine("abs", arith.MaximumfOp, arith.MaxSIOp, self, -self)
        return elementwise(math.AbsFOp, self)

    # -- comparisons -----------------------------------------------------------------------------

    def __lt__(self, other: Any) -> Condition:
        return Comparison("olt", "slt", self, other)

    def __le__(self, other: Any) -> Condition:
        return Comparison("ole", "sle", self, other)

    def __gt__(self, other: Any) -> Condition:
        return Comparison("ogt", "sgt", self, other)

    def __ge__(self, other: Any) -> Condition:
        return Comparison("oge", "sge", self, other)

    def equals(self, other: Any) -> Condition:
        """Element for element; `==` asks whether two arrays are one."""
        return Comparison("oeq", "eq", self, other)

    # -- reductions ------------------------------------------------------------------------------

    def sum(self, over: str | Iterable[str]) -> Array:
        """As `treadle.language.sum`."""
        return self._reduced("add", over)

    def max(self, over: str | Iterable[str]) -> Array:
        """As `treadle.language.max`."""
        return self._reduced("max", over)

    def min(self, over: str | Iterable[str]) -> Array:
        """As `treadle.language.min`."""
        return self._reduced("min", over)

    def prod(self, over: str | Iterable[str]) -> Array:
        """As `treadle.language.prod`."""
        return self._reduced("mul", over)

    def mean(self, over: str | Iterable[str]) -> Array:
        """The sum over the axes by the number of elements that are there: those that `keep` left, if it left some out,
        else all. NaN where there is none, as 0 / 0."""
        return average(self, over)

    def softmax(self, over: str | Iterable[str]) -> Array:
        """exp(a - max a) / sum exp(a - max a) along an axis, or along several together."""
        axes = [_known(self, axis) for axis in names_of(over)]
        if len(axes) == 1:
            return Array(self.graph, self.graph.apply("softmax", [self.value], axes, self.axes))
        given = self.to("f32")

        def body(scalars: Sequence[SSAValue]) -> SSAValue:
            return math.ExpOp(arith.SubfOp(scalars[0], scalars[1]).result).result

        powers = Array(self.graph, self.graph.map([given.value, given.max(axes).value], body, f32))
        return powers / powers.sum(axes)

    def cumsum(self, over: str, reverse: bool = False, exclusive: bool = False) -> Array:
        """The sums of all elements up to each along an axis, itself included: `sum over y <= x of a[y]`. In `reverse`
        those of all elements from each on; `exclusive` leaves the element itself out."""
        axis, *others = (_known(self, each) for each in names_of(over))
        if others:
            raise TreadleError(f"a cumulative sum is along one axis, not '{' '.join((axis, *others))}'")
        kept, graph = "i32" if self.format == "i32" else "f32", self.graph
        summed = graph.fresh_axis(axis)
        axes = [summed if each == axis else each for each in self.axes]
        elements = Array(graph, graph.read(self.value, axes, axes, padded=False)).to(kept).value
        one = graph.fill(1 if self.format == "i32" else 1.0, [axis, summed])
        counts = (">" if reverse else "<") + ("" if exclusive else "=")
        until = graph.keep(one, f"{summed} {counts} {axis}", {})
        return Array(graph, graph.contract(until, elements, [summed], axes=self.axes))

    def scanned(self, over: str, reverse: bool = False, exclusive: bool = False) -> Array:
        """A cumulative sum that is made where its elements are, and in no chunks: an infinity reaches no sum that it is
        not in."""
        return Array(self.graph, self.graph.scan(self.value, _known(self, over), exclusive, reverse))

    def _reduced(self, kind: str, over: str | Iterable[str]) -> Array:
        axes = [_known(self, axis) for axis in names_of(over)]
        return Array(self.graph, self.graph.reduce(kind, self.value, axes)) if axes else self

    # -- what cannot be traced -------------------------------------------------------------------

    def __bool__(self) -> NoReturn:
        raise TreadleError(
            "a traced function cannot ask for the value of an array: use treadle.language.where, not 'if'"
        )

    def __iter__(self) -> NoReturn:
        raise TreadleError("an array of a traced function cannot be iterated: reduce it over an axis by name")

    def __getitem__(self, key: Any) -> NoReturn:
        raise TreadleError("an array of a traced function cannot be indexed: its axes have names, not places")

    def __len__(self) -> NoReturn:
        raise TreadleError("an array of a traced function has no length: ask .size('x') of an axis in `static`")

    def __getattr__(self, name: str) -> NoReturn:
        """(AttributeError, as `hasattr` wants it)"""
        said = _SPELLED.get(name, "it has .axes and .format, and functions are in treadle.language")
        raise AttributeError(f"an array of a traced function has no '{name}': {said}", name=name, obj=self)

    @classmethod
    def __torch_function__(cls, function: Any, *_: Any, **__: Any) -> NoReturn:
        raise TreadleError(f"{_said(function)} does not trace: use the functions of treadle.language")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **_: Any) -> Any:
        """`number * array`, which numpy would compute for its own numbers."""
        names = _OPERATORS.get(ufunc.__name__)
        if method != "__call__" or names is None:
            raise TreadleError(f"numpy.{ufunc.__name__} does not trace: use the functions of treadle.language")
        # Some operators of numbers come as arrays without axes.
        left, right = (plain(each[()]) if getattr(each, "shape", None) == () else each for each in inputs)
        name, turned = names
        return getattr(left, name)(right) if isinstance(left, Array) else getattr(right, turned)(left)

    def __float__(self) -> NoReturn:
        raise TreadleError("an array of a traced function is no number: use the functions of treadle.language")

    def __array_function__(self, function: Any, *_: Any, **__: Any) -> NoReturn:
        raise TreadleError(f"{_said(function)} does not trace: use the functions of treadle.language")

    def __matmul__(self, other: Any) -> NoReturn:
        raise TreadleError("'@' does not say which axes it sums over: use treadle.language.contract(a, b, over='d')")

    def __repr__(self) -> str:
        return f"<{self.format}[{', '.join(self.axes)}]>"


_SPELLED = {
    "T": "the signature says in which order the axes of a result lie",
    "astype": "write .to('f16')",
    "dtype": "it is .format",
    "shape": "it has .axes, and .size('x') of an axis in `static`",
}
"""What numpy and torch call otherwise."""

_OPERATORS = {
    "add": ("__add__", "__radd__"),
    "subtract": ("__sub__", "__rsub__"),
    "multiply": ("__mul__", "__rmul__"),
    "divide": ("__truediv__", "__rtruediv__"),
    "power": ("__pow__", "__rpow__"),
    "floor_divide": ("__floordiv__", "__rfloordiv__"),
    "remainder": ("__mod__", "__rmod__"),
    "bitwise_and": ("__and__", "__rand__"),
    "bitwise_or": ("__or__", "__ror__"),
    "bitwise_xor": ("__xor__", "__rxor__"),
    "left_shift": ("__lshift__", "__rlshift__"),
    "right_shift": ("__rshift__", "__rrshift__"),
    "less": ("__lt__", "__gt__"),
    "less_equal": ("__le__", "__ge__"),
    "greater": ("__gt__", "__lt__"),
    "greater_equal": ("__ge__", "__le__"),
}
"""What operators of numpy's numbers are here, with the array on the left and on the right."""


def elementwise(operation: Callable[[SSAValue], Operation], value: Any) -> Array:
    """A function of one number, in f32."""
    if not isinstance(value, Array):
        raise TreadleError(f"expected an array of the traced function, not {type(value).__name__}")
    wide = value.to("f32")
    return Array(wide.graph, wide.graph.map([wide.value], lambda s: operation(s[0]).results[0], FORMATS["f32"]))


def average(array: Array, over: str | Iterable[str], less: int = 0) -> Array:
    """The sum over the axes by the number of elements that are there, or by so many `less` (at least 0)."""
    if not absences_of([array.value], _absent_with):
        return average_of_all(array, over, less)
    wide, graph = array.to("f32"), array.graph
    axes = names_of(over)
    if not axes and not less:
        return wide
    # Made of the same elements, ones are absent where these are.
    ones = Array(graph, graph.map([wide.value], lambda _: constant(1.0, f32), f32))
    count = ones.sum(axes)
    if less:
        count = combine("maximum", arith.MaximumfOp, arith.MaxSIOp, count - float(less), 0.0)
    return wide.sum(axes) / count


def average_of_all(array: Array, over: str | Iterable[str], less: int = 0) -> Array:
    """The sum over the axes by the number of their elements, absent ones included; NaN if there is none."""
    graph = array.graph
    sizes = {axis: graph.sizes[_known(array, axis)] for axis in names_of(over)}
    count = prod(size for size in sizes.values() if size != DYNAMIC)
    symbolic = [axis for axis, size in sizes.items() if size == DYNAMIC]
    total = array.to("f32").sum(over)
    if not symbolic:
        left = max(count - less, 0)
        return total * (1.0 / left) if left else total / 0.0

    def body(scalars: Sequence[SSAValue]) -> SSAValue:
        summed, *extents = scalars
        number = constant(count, f32)
        for extent in extents:
            number = arith.MulfOp(number, arith.SIToFPOp(extent, f32).result).result
        if less:
            number = arith.SubfOp(number, constant(less, f32)).result
            number = arith.MaximumfOp(number, constant(0.0, f32)).result
        return arith.DivfOp(summed, number).result

    extents = [graph.extent(axis) for axis in symbolic]
    return Array(graph, graph.map([total.value, *extents], body, f32))


def _absent_with(value: SSAValue, op: Operation) -> Sequence[SSAValue]:
    """Also what a law gives for each element (`softmax`) is absent where the element is."""
    if not isinstance(op, ApplyOp):
        return absent_along(value, op)
    return [each for each in op.operands if set(axes_of(each.type)) <= set(axes_of(value.type))]


def combine(symbol: str, of_floats: Binary, of_integers: Binary | None, left: Any, right: Any) -> Array:
    """A function of two numbers; in i32 if both are integers and it has such a form."""
    left, right = plain(left), plain(right)
    arrays = [each for each in (left, right) if isinstance(each, Array)]
    for each in (left, right):
        if isinstance(each, Condition):
            traced(symbol, each)
        if not isinstance(each, Array) and not is_number(each):
            raise TreadleError(
                f"'{symbol}' with a {type(each).__name__}: arrays of a traced function combine with each other and "
                "with numbers; pass other data as an argument"
            )
    graph = graph_of(symbol, arrays)
    format = _format(arrays, of_integers, left, right)
    operation = of_integers if format == i32 else of_floats
    assert operation is not None
    inputs = [graph.wide(each.value, format) for each in arrays]

    def body(scalars: Sequence[SSAValue]) -> SSAValue:
        rest = iter(scalars)
        operands = [next(rest) if isinstance(each, Array) else constant(each, format) for each in (left, right)]
        return operation(*operands).results[0]

    return Array(graph, graph.map(inputs, body, format))


def whole(symbol: str, of_integers: Binary, left: Any, right: Any) -> Array:
    """A function of two integers, in i32 (TreadleError for other numbers)."""
    left, right = plain(left), plain(right)
    for each in (left, right):
        if isinstance(each, float) or (isinstance(each, Array) and each.format not in INTEGERS):
            instead = {
                "//": ": take treadle.language.floor of the quotient",
                "%": ": subtract what is whole in it, as a - b * treadle.language.floor(a / b) does",
            }
            instead |= dict.fromkeys("&|^", ": put comparisons that it joins in parentheses, as in (A > 0) & (A < 1)")
            said = each.format if isinstance(each, Array) else each
            raise TreadleError(f"'{symbol}' is of integers, not of {said}{instead.get(symbol, '')}")
    return combine(symbol, of_integers, of_integers, left, right)


def first_of(symbol: str, operands: Sequence[Any]) -> Array:
    """The first that is an array (TreadleError if none is)."""
    for each in operands:
        if isinstance(each, Array):
            return each
    raise TreadleError(f"'{symbol}' of numbers alone: one operand must be an array of the traced function")


def graph_of(symbol: str, operands: Sequence[Any]) -> Graph:
    """What the arrays among these are written down in (TreadleError if there is none, or it is not one)."""
    graph = first_of(symbol, operands).graph
    if any(isinstance(each, Array) and each.graph is not graph for each in operands):
        raise TreadleError(
            f"'{symbol}' with an array that another call traced: use the arguments of the function alone, and let a "
            "recurrence give its step what that uses, in `inputs`"
        )
    return graph


def traced(name: str, value: Any) -> Array:
    """What a function of one array is given (TreadleError for anything else)."""
    if isinstance(value, Array):
        return value
    if isinstance(value, Condition):
        raise TreadleError(f"'{name}' of a comparison, which is no array: make one by treadle.language.where(.., 1, 0)")
    raise TreadleError(
        f"'{name}' of {type(value).__name__}: it takes an array of the traced function, not a number or data"
    )


def names_of(over: str | Iterable[str]) -> tuple[str, ...]:
    """`"x"`, `"x y"` or a sequence of names (TreadleError for anything else)."""
    given: Any = over
    if not isinstance(given, Iterable):
        raise TreadleError(f"over={given!r}: axes of a traced function have names, not numbers, as in over='x'")
    names = tuple(over.split()) if isinstance(over, str) else tuple(over)
    if twice := [name for i, name in enumerate(names) if name in names[:i]]:
        raise TreadleError(f"over={given!r} names the axis '{twice[0]}' twice: name each axis once")
    return names


def _format(arrays: Sequence[Array], of_integers: Binary | None, *operands: Any) -> Attribute:
    whole = all(isinstance(each, Array | int) for each in operands)
    if of_integers is None or not whole:
        return FORMATS["f32"]
    return computing_format([each.value for each in arrays])


def _known(array: Array, axis: str) -> str:
    if axis not in array.axes:
        raise TreadleError(f"there is no axis '{axis}' in an array of axes [{', '.join(array.axes)}]")
    return axis


def _said(function: Any) -> str:
    return f"{getattr(function, '__module__', None) or 'torch'}.{getattr(function, '__name__', function)}"
