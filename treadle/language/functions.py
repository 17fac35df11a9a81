"""Functions of a traced program. Each gives an `Array`; those of one number work element by element, in f32."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import inf, pi
from math import sqrt as root
from typing import Any

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import i32
from xdsl.ir import Attribute, SSAValue

from treadle.compiler.errors import TreadleError
from treadle.dialects.diagram.formats import INTEGERS
from treadle.language.array import Array, average, combine, elementwise, graph_of, names_of, traced
from treadle.language.conditions import Comparison, Condition, Joined, always
from treadle.language.graph import computing_format, constant, is_number, plain
from treadle.language.places import at_axes, axes_at, check_entries


def contract(left: Array, right: Array, over: str | Iterable[str], multiply: str | None = None) -> Array:
    """The sum of products over the axes `over`; every other axis stays. f16 and bf16 multiply on tensor cores and add
    up in f32; of two formats, the wider is rounded to the narrower, but 8 bits widen to 16 beside 16, and integers
    beside f32 to f32; the two formats of 8-bit floats multiply as they are. Two arrays of f32 (as what is computed is)
    multiply exactly, without tensor cores: let them be `.to("f16")`, or rounded to 10 bits of mantissa as they
    multiply, by `multiply="tf32"`. Axes in several arrays are the same axis:

    `contract(Q, K, over="d")` of axes (b, q, d) and (b, x, d) has axes (b, q, x): those of the left array, then those
    of the right one, whose order stays where it has them all.

    TreadleError for an axis that neither array has."""
    operands: tuple[Any, Any] = (left, right)
    for each in operands:
        if not isinstance(each, Array):
            raise TreadleError(f"contract takes two arrays of the traced function, not a {type(each).__name__}")
    graph = graph_of("contract", operands)
    if multiply not in (None, "tf32"):
        raise TreadleError(f"contract multiplies as {multiply!r}: it may be 'tf32', for arrays of f32, or None")
    axes = names_of(over)
    for axis in axes:
        if axis not in left.axes and axis not in right.axes:
            raise TreadleError(
                f"axis '{axis}' is summed over, but neither array has it (axes [{', '.join(left.axes)}] and "
                f"[{', '.join(right.axes)}])"
            )
    if not axes:
        return left * right
    return Array(graph, graph.contract(left.value, right.value, axes, multiply))


def softmax(array: Array, over: str | Iterable[str]) -> Array:
    """exp(a - max a) / sum exp(a - max a) along an axis, or along several together."""
    return traced("softmax", array).softmax(over)


def sum(array: Array, over: str | Iterable[str]) -> Array:
    """The sum over the axes, in f32; of integers, what 32 bits hold of it. 0 of nothing."""
    return traced("sum", array).sum(over)


def cumsum(array: Array, over: str, reverse: bool = False, exclusive: bool = False) -> Array:
    """The sums of all elements up to each along an axis, itself included; in `reverse` those of all from each on, and
    `exclusive` leaves the element itself out. Scanned where they are made, or in chunks, whichever the model finds
    faster."""
    return traced("cumsum", array).cumsum(over, reverse, exclusive)


def max(array: Array, over: str | Iterable[str]) -> Array:
    """The largest along the axes; NaN if there is one, and -inf (of integers the smallest) of nothing."""
    return traced("max", array).max(over)


def min(array: Array, over: str | Iterable[str]) -> Array:
    """The smallest along the axes; NaN if there is one, and inf (of integers the largest) of nothing."""
    return traced("min", array).min(over)


def mean(array: Array, over: str | Iterable[str]) -> Array:
    """The sum over the axes by the number of elements that are there: those that `keep` left, if it left some out,
    else all. NaN where there is none."""
    return traced("mean", array).mean(over)


def prod(array: Array, over: str | Iterable[str]) -> Array:
    """The product of the elements; of integers, what 32 bits hold of it."""
    return traced("prod", array).prod(over)


def var(array: Array, over: str | Iterable[str], correction: int = 0) -> Array:
    """The mean of the squared distances from the mean, over the elements that are there. `correction=1` divides by one
    less than their number (as `torch.var` does if it is not asked); NaN where nothing is left to divide by."""
    array = traced("var", array)
    given: Any = correction
    if not isinstance(given, int) or given < 0:
        raise TreadleError(f"var of correction={given!r}: a number of elements is 0 or more, 0 or 1 most often")
    return average((array - array.mean(over)) ** 2, over, correction)


def logsumexp(array: Array, over: str | Iterable[str]) -> Array:
    """log(sum exp a), relative to the maximum; -inf of nothing, and of nothing but -inf."""
    array = traced("logsumexp", array)
    largest = array.to("f32").max(over)
    total = exp(array - largest).sum(over)
    return where(abs(largest).equals(inf), largest, largest + log(total))


def log_softmax(array: Array, over: str | Iterable[str]) -> Array:
    """The logarithm of `softmax`, which is finite where that is too small for f32."""
    array = traced("log_softmax", array)
    shifted = array - array.to("f32").max(over)
    return shifted - log(exp(shifted).sum(over))


def index(axis: str, of: Array) -> Array:
    """Positions along an axis of a traced array, in i32: `S - slope * (index("q", S) - index("x", S))` has a bias that
    grows with the distance. (A mask of positions is better said by `keep`: what that leaves out is not computed.)

    TreadleError for an axis that the traced function does not have."""
    given: Any = (axis, of)
    if not isinstance(given[0], str) or not isinstance(given[1], Array):
        raise TreadleError("index takes the name of an axis, and an array of the function: index('q', S)")
    if axis not in of.graph.sizes:
        raise TreadleError(f"there is no axis '{axis}' (axes are {', '.join(of.graph.sizes)})")
    return Array(of.graph, of.graph.index(axis))


def keep(array: Array, condition: str, **inputs: Array) -> Array:
    """The elements at which a condition on positions holds, `keep(S, "x <= q")`; the others are absent: a reduction
    passes over them (a mean does not count them), and what they touch is not computed. Arguments in i32 may be named:
    `keep(S, "x < n[b]", n=n)`, and read at other positions than along their axes:
    `keep(S, "table[q // 64, x // 64] == 1", table=table)`, also in two ways: `keep(S, "of[q] == of[x]", of=of)`.
    Outside of them are zeros. Sums may be
    divided by numbers above zero, as Python's `//` and `%` do: `keep(S, "x // 16 <= q // 16")`,
    `keep(S, "(q - x) % 128 == 0")`.

    TreadleError for what is no condition, and for axes that the array does not have."""
    given: dict[str, Any] = dict(inputs)
    text: Any = condition
    if not isinstance(text, str):
        raise TreadleError("the condition of keep is a text about positions, as in keep(S, 'x <= q')")
    check_inputs(f"condition '{condition}'", given)
    graph = graph_of("keep", [array, *given.values()])
    for name, each in inputs.items():
        if each.format not in INTEGERS:
            raise TreadleError(f"condition '{condition}': '{name}' has elements {each.format}: write {name}.to('i32')")
    named = {name: each.value for name, each in inputs.items()}
    placed = at_axes(condition, {name: each.axes for name, each in inputs.items()}, array.axes)
    reads = {new: graph.read(named[at.name], at.places, at.axes, padded=True) for new, at in placed.reads.items()}
    left = {name: value for name, value in named.items() if name in placed.left}
    return Array(array.graph, graph.keep(array.value, placed.text, left | reads))


def read(array: Array, at: str, **inputs: Array) -> Array:
    """An array at other positions, of which `at` says one for each of its axes, in the order of `array.axes`: affine
    ones, `"b, 2 * t + r, c"`, quotients and remainders of an axis by a number, and entries of arrays in i32, which are
    named. Keys in pages, rows of a table, and what is computed, as for a rotation by halves:
    `read(pages, "table[b, x // 64], x % 64, d", table=table)`, `read(W, "token[t], d", token=token)`,
    `read(X, "t, other[d]", other=(index("d", X) + 32) % 64)`; of an array without axes the entry is `i[]`, as in
    `read(X, "i[], d", i=argmax(S, over="x"))`. Outside of the array, and where there is no entry, are zeros. What is
    read may be a read: where the two places cannot be one, it is saved. The result has the axes of the positions, in
    their order; one that no argument has goes over all entries that there are.

    TreadleError for what is no place, and for arrays that are not named."""
    given: dict[str, Any] = dict(inputs)
    text: Any = at
    if not isinstance(text, str):
        raise TreadleError('the place of read is a text, as in read(W, "token[t], d", token=token)')
    check_inputs(f"place '{at}'", given)
    graph, named = graph_of("read", [array, *given.values()]), {name: each.value for name, each in inputs.items()}
    axes = axes_at(at)
    check_entries(at, {name: each.axes for name, each in inputs.items()})
    return Array(graph, graph.read(array.value, [at], axes, padded=True, inputs=named))


def check_inputs(where: str, given: dict[str, Any]) -> None:
    """(TreadleError)"""
    for name, each in given.items():
        if not isinstance(each, Array):
            raise TreadleError(f"{where}: '{name}' is no array: write numbers in the text")


def maximum(left: Any, right: Any) -> Array:
    """The larger of two, element by element; NaN if one is."""
    return combine("maximum", arith.MaximumfOp, arith.MaxSIOp, left, right)


def minimum(left: Any, right: Any) -> Array:
    """The smaller of two, element by element; NaN if one is."""
    return combine("minimum", arith.MinimumfOp, arith.MinSIOp, left, right)


def where(condition: Any, left: Any, right: Any) -> Array:
    """`left` where the comparison holds, else `right`: `where(S > 0, S, 0.0)`. Several are joined by `&`, `|`, `^` and
    `~`, each in parentheses: `where((S > 0) & ~(S >= 1), S, 0.0)`.

    The axes are those of the array that has the most, in its order, and then those that others add, as in arithmetic;
    of several that have as many it is the first, and what is compared comes before `left` and `right`."""
    if not isinstance(condition, Condition):
        raise TreadleError(
            "the first argument of where is a comparison of arrays, as in where(S > 0, S, 0.0) or, for equal ones, "
            "where(A.equals(B), A, 0.0)"
        )
    left, right = plain(left), plain(right)
    for each in (*_compared(condition), left, right):
        if not isinstance(each, Array) and not is_number(each):
            raise TreadleError(f"where takes arrays of the traced function and numbers, not a {type(each).__name__}")
    return chosen(condition, left, right, _format((left, right)))


def chosen(condition: Condition, left: Any, right: Any, format: Attribute) -> Array:
    """`where` in a format that is given: two numbers alone do not say whether they are integers."""
    pairs = [*_operands(condition), (left, format), (right, format)]
    graph = graph_of("where", [each for each, _ in pairs])
    inputs = [graph.wide(each.value, format) for each, format in pairs if isinstance(each, Array)]

    def body(scalars: Sequence[SSAValue]) -> SSAValue:
        rest = iter(scalars)
        values = [next(rest) if isinstance(each, Array) else constant(each, format) for each, format in pairs]
        operands = iter(values)
        test = _tested(condition, operands)
        return arith.SelectOp(test, *operands).result

    return Array(graph, graph.map(inputs, body, format))


def _compared(condition: Condition) -> tuple[Any, ...]:
    """What is compared, from left to right."""
    if isinstance(condition, Comparison):
        return plain(condition.left), plain(condition.right)
    assert isinstance(condition, Joined)
    return _compared(condition.left) + (() if condition.right is None else _compared(condition.right))


def _operands(condition: Condition) -> Iterator[tuple[Any, Attribute]]:
    """The same, with the format that each is compared in."""
    operands = _compared(condition)
    for pair in zip(operands[::2], operands[1::2], strict=True):
        yield from ((each, _format(pair)) for each in pair)


def _tested(condition: Condition, operands: Iterator[SSAValue]) -> SSAValue:
    """Whether it holds, of the next of these."""
    if isinstance(condition, Comparison):
        left, right = next(operands), next(operands)
        if left.type == i32:
            return arith.CmpiOp(left, right, condition.of_integers).result
        return arith.CmpfOp(left, right, condition.of_floats).result
    assert isinstance(condition, Joined)
    left = _tested(condition.left, operands)
    right = always() if condition.right is None else _tested(condition.right, operands)
    return condition.join(left, right).results[0]


def abs(array: Array) -> Array:
    """Its size without a sign; of integers, an integer. Python's own `abs` does the same."""
    given: Any = array
    return array.__abs__() if isinstance(given, Array) else elementwise(math.AbsFOp, given)


def exp(array: Array) -> Array:
    """e to the power of each element."""
    return elementwise(math.ExpOp, array)


def exp2(array: Array) -> Array:
    """2 to the power of each element."""
    return elementwise(math.Exp2Op, array)


def log(array: Array) -> Array:
    """The natural logarithm: -inf of 0, NaN of what is below."""
    return elementwise(math.LogOp, array)


def log2(array: Array) -> Array:
    """The logarithm to the base 2, as `log`."""
    return elementwise(math.Log2Op, array)


def log10(array: Array) -> Array:
    """The logarithm to the base 10, as `log`."""
    return elementwise(math.Log10Op, array)


def log1p(array: Array) -> Array:
    """log(1 + a), as accurate where `a` is small."""
    return elementwise(math.Log1pOp, array)


def expm1(array: Array) -> Array:
    """exp(a) - 1, as accurate where `a` is small."""
    return elementwise(math.ExpM1Op, array)


def sqrt(array: Array) -> Array:
    """The square root, NaN of what is below 0."""
    return elementwise(math.SqrtOp, array)


def rsqrt(array: Array) -> Array:
    """1 / sqrt(a): inf of 0, NaN of what is below."""
    return elementwise(math.RsqrtOp, array)


def tanh(array: Array) -> Array:
    """The hyperbolic tangent. Where it is a soft cap on scores it takes fewer instructions."""
    return elementwise(math.TanhOp, array)


def sin(array: Array) -> Array:
    """The sine of an angle in radians."""
    return elementwise(math.SinOp, array)


def cos(array: Array) -> Array:
    """The cosine of an angle in radians."""
    return elementwise(math.CosOp, array)


def tan(array: Array) -> Array:
    """The tangent of an angle in radians."""
    return elementwise(math.TanOp, array)


def asin(array: Array) -> Array:
    """The angle in radians, from -pi/2 to pi/2, of which it is the sine; NaN outside of -1 to 1."""
    return elementwise(math.AsinOp, array)


def acos(array: Array) -> Array:
    """The angle in radians, from 0 to pi, of which it is the cosine; NaN outside of -1 to 1."""
    return elementwise(math.AcosOp, array)


def atan(array: Array) -> Array:
    """The angle in radians, from -pi/2 to pi/2, of which it is the tangent."""
    return elementwise(math.AtanOp, array)


def atan2(left: Any, right: Any) -> Array:
    """The angle of the point (right, left)."""
    return combine("atan2", math.Atan2Op, None, left, right)


def sinh(array: Array) -> Array:
    """The hyperbolic sine."""
    return elementwise(math.SinhOp, array)


def cosh(array: Array) -> Array:
    """The hyperbolic cosine."""
    return elementwise(math.CoshOp, array)


def asinh(array: Array) -> Array:
    """The inverse of `sinh`."""
    return elementwise(math.AsinhOp, array)


def acosh(array: Array) -> Array:
    """The inverse of `cosh`; NaN below 1."""
    return elementwise(math.AcoshOp, array)


def atanh(array: Array) -> Array:
    """The inverse of `tanh`; NaN outside of -1 to 1."""
    return elementwise(math.AtanhOp, array)


def floor(array: Array) -> Array:
    """The largest whole number that is not above."""
    return elementwise(math.FloorOp, array)


def ceil(array: Array) -> Array:
    """The smallest whole number that is not below."""
    return elementwise(math.CeilOp, array)


def trunc(array: Array) -> Array:
    """Toward zero."""
    return elementwise(math.TruncOp, array)


def round(array: Array) -> Array:
    """To the nearest whole number, of two the even one."""
    return elementwise(math.RoundEvenOp, array)


def copysign(left: Any, right: Any) -> Array:
    """The size of one, the sign of the other."""
    return combine("copysign", math.CopySignOp, None, left, right)


def erf(array: Array) -> Array:
    """The error function, 2 / sqrt(pi) times the integral of exp(-t^2) from 0."""
    return elementwise(math.ErfOp, array)


def relu(array: Array) -> Array:
    """The larger of a and 0; NaN of NaN."""
    return maximum(array, 0)


def sigmoid(array: Array) -> Array:
    """1 / (1 + exp(-a))."""
    return 1.0 / (1.0 + exp(-_as_floats(array)))


def silu(array: Array) -> Array:
    """a / (1 + exp(-a)), also called swish."""
    return array * sigmoid(array)


def softplus(array: Array) -> Array:
    """log(1 + exp(a)), without overflow."""
    return log1p(exp(array))


def logsigmoid(array: Array) -> Array:
    """log(1 / (1 + exp(-a))), the logarithm of a sigmoid."""
    return -softplus(-array)


def gelu(array: Array, approximate: str = "none") -> Array:
    """a * Phi(a), by the error function, or with `approximate="tanh"` by the usual polynomial under a tanh."""
    array = _as_floats(array)
    if approximate == "tanh":
        return 0.5 * array * (1.0 + tanh(root(2 / pi) * (array + 0.044715 * array**3)))
    if approximate != "none":
        raise TreadleError(f"gelu knows 'none' and 'tanh', not approximate='{approximate}'")
    return 0.5 * array * (1.0 + erf(array * root(0.5)))


def _as_floats(array: Array) -> Array:
    """Integers as numbers of f32: in 32 bits, the cube of 1291 and the negative of -2^31 would wrap around."""
    given: Any = array
    return given.to("f32") if isinstance(given, Array) and given.format in INTEGERS else given


def _format(operands: Sequence[Any]) -> Any:
    from xdsl.dialects.builtin import f32

    if not all(isinstance(each, Array | int) for each in operands):
        return f32
    arrays = [each.value for each in operands if isinstance(each, Array)]
    return computing_format(arrays) if arrays else f32
