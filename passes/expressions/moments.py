"""Sums about a value that is known late, rewritten so that they can be streamed with it.

`sum u(x, m)` with `u` a polynomial of `m` becomes a sum about a *pivot* p in the place of m, the sums of the
derivatives of u at p, and what the distance of m from p adds at the end (`expressions.polynomials`). The pivot is what
m would be of the elements so far: a mean by the number of elements so far. It stays as near to the data as m, so
nothing cancels; a part of a sum would not, so where that is all there is, no pivot is taken and the pieces are made
again. What a summand depends on linearly may be left out of it altogether (its pivot is 0), as the logarithm in a
log-softmax."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import f32
from xdsl.ir import Attribute, Operation, SSAValue

from treadle.dialects.diagram import ContractOp, ExtentOp, MapOp, ReduceOp
from treadle.dialects.diagram.absence import absences_of
from treadle.dialects.diagram.array import array_type, axes_of, format_of, level_of, sizes_of
from treadle.passes._functions import fresh_hint, label, replace
from treadle.passes.expressions.infinities import may_be_infinite, sources, troubled_by
from treadle.passes.expressions.inner import inner_expression
from treadle.passes.expressions.logarithms import without_powers
from treadle.passes.expressions.polynomials import (
    ONE,
    Key,
    NoPolynomial,
    Taylor,
    atoms_of,
    keeps_its_size,
    key_of,
    powers_in,
    taylor,
    unfolded,
    value_at_start,
)
from treadle.passes.expressions.reductions import kind_of, neutral_of
from treadle.passes.expressions.scalars import (
    Expression,
    Leaf,
    Node,
    axes_in,
    build_map,
    compare,
    difference,
    is_number,
    leaves,
    number,
    product,
    select,
    total,
    unary,
)


@dataclass
class Moments:
    """One sum over one axis."""

    sum: ReduceOp
    axis: str
    is_late: Callable[[SSAValue], bool]
    """Whether a value is known only when a reduction over the axis is finished."""
    made: list[Operation] = field(default_factory=list[Operation])
    pivots: dict[Key, Expression] = field(default_factory=dict[Key, Expression])
    """What stands in the summand for each late part of it."""
    absent: list[SSAValue] = field(default_factory=list[SSAValue])
    """Arrays some of whose elements are absent: what is made of a summand needs them, read or not."""
    _sums: dict[Key, SSAValue] = field(default_factory=dict[Key, SSAValue])

    def rewrite(self) -> str | None:
        """Rewrite the sum, and say what was done; None where it is no such sum."""
        summand = without_powers(unfolded(Leaf(self.sum.operand), self.axis))
        try:
            atoms = atoms_of(summand, self.axis, self._is_late_part)
        except NoPolynomial:
            return None
        arrays = [leaf.value for leaf in leaves(summand)]
        if not atoms or absences_of(arrays) != absences_of([self.sum.operand]):
            return None
        if absences_of(value for value in arrays if self.axis not in axes_of(value.type)):
            return None  # where a late part is absent the sum is one of nothing, which is there
        self.absent = [value for value in arrays if absences_of([value])]
        try:
            law = taylor(summand, atoms, self._powers(summand))
            atoms = [atom for atom, _ in law.first]
            for atom in atoms:
                self.pivots[key_of(atom)] = self._pivot(atom, law)
            if not atoms or any(self._left_out(atom) and self._may_trouble(atom) for atom in atoms):
                return None
            whole = self._about_pivots_and_back(summand, law)
        except NoPolynomial:
            return None
        last = build_map(whole, self.sum.result.type, self.sum.result.name_hint, self.sum.location)
        names = ", ".join(dict.fromkeys(label(leaf.value) for atom in atoms for leaf in leaves(atom)))
        what = f"{names} in the sum {label(self.sum.result)} over [{self.axis}]"
        replace(self.sum, [*self.made, last], last.result)
        return what

    def _powers(self, summand: Expression) -> list[Expression]:
        """The factors that are powers of a distance from an extremum, which stay (NoPolynomial if there are others)."""
        powers = powers_in(summand, self.axis, self._is_late_part)
        atoms = (atom for power in powers for atom in atoms_of(power, self.axis, self._is_late_part))
        if not all(self._is_of_extrema(atom) for atom in atoms):
            raise NoPolynomial
        return powers

    def _is_late_part(self, part: Expression) -> bool:
        return any(self.is_late(leaf.value) for leaf in leaves(part))

    def _about_pivots_and_back(self, summand: Expression, law: Taylor) -> Expression:
        """The sum about the pivots, with what the distance of the late parts from them adds."""
        sums = {key: self._sum_of(self._about_pivots(term)) for key, term in law.terms.items()}
        about = Leaf(self._reduced(self._about_pivots(summand), "about"))
        change = law.change(
            lambda atom: difference(atom, self.pivots[key_of(atom)]) if self._left_out(atom) else number(0),
            lambda term: Leaf(sums[key_of(term)]),
        )
        for unread in self._made_in_vain(change):
            change = total(change, _nothing_of(Leaf(unread)))  # the stream is repaired by it
        if is_number(change, 0):
            return about
        return total(about, select(self._has_elements(), change, number(0)))

    def _made_in_vain(self, change: Expression) -> list[SSAValue]:
        """The sums that were made and that nothing reads."""
        read = {leaf.value for leaf in leaves(change)} | {value for op in self.made for value in op.operands}
        return [value for value in self._sums.values() if value.owner in self.made and value not in read]

    def _left_out(self, atom: Expression) -> bool:
        return self.pivots[key_of(atom)] is not atom

    def _has_elements(self) -> Expression:
        """Whether there was anything to sum: where there was not, nothing says how far a pivot is."""
        if self.absent:
            return compare(Leaf(self._sum_of(number(1))), ">", number(0))
        extent = ExtentOp(self.axis)
        extent.location = self.sum.location
        self.made.append(extent)
        return compare(Leaf(extent.result), ">", number(0, extent.result.type))

    # -- pivots ------------------------------------------------------------------------------------

    def _pivot(self, atom: Expression, law: Taylor) -> Expression:
        """What stands for a late part of a summand (NoPolynomial if nothing may)."""
        if self._moves_with_the_stream(atom):
            return atom
        running = self._so_far(atom)
        if value_at_start(running, self._start) is not None and keeps_its_size(running, self._is_reduction):
            axes = [axis for axis in axes_of(self.sum.result.type) if axis in axes_in(running)]
            sizes = {axis: sizes_of(self.sum.result.type)[axis] for axis in axes}
            return Leaf(self._map(running, sizes, "pivot"))
        if any(atom in (one, other) for one, other, *_ in law.second):
            raise NoPolynomial  # what is far from it would cancel
        return number(0)

    def _may_trouble(self, atom: Expression) -> bool:
        """Whether a late part may be infinite where the sum is a number, or infinite itself."""
        if not may_be_infinite(atom):
            return False
        late = [leaf.value for leaf in sources(atom) if self._is_reduction(leaf.value)]
        return troubled_by([self.sum.operand], late) is not None

    def _so_far(self, expression: Expression) -> Expression:
        """An expression in reductions over the axis, of the elements so far: the size of the axis is their number."""
        if isinstance(expression, Leaf):
            inner = inner_expression(expression.value) if self.is_late(expression.value) else None
            return expression if inner is None else self._so_far(inner)
        if not isinstance(expression, Node):
            return expression
        first = expression.operands[0]
        if expression.kind is arith.SIToFPOp and isinstance(first, Leaf) and self._is_extent(first.value):
            return Node(arith.MaximumfOp, (Leaf(self._sum_of(number(1))), number(1)), f32)
        operands = tuple(self._so_far(operand) for operand in expression.operands)
        return Node(expression.kind, operands, expression.type, expression.properties, expression.hint)

    def _is_extent(self, value: SSAValue) -> bool:
        return isinstance(value.owner, ExtentOp) and value.owner.axis.data == self.axis

    def _is_reduction(self, value: SSAValue) -> bool:
        return isinstance(value.owner, ContractOp | ReduceOp) and self.axis in value.owner.over_axes

    def _moves_with_the_stream(self, atom: Expression) -> bool:
        return (isinstance(atom, Leaf) and self._is_reduction(atom.value)) or self._is_of_extrema(atom)

    def _is_of_extrema(self, atom: Expression) -> bool:
        """Whether extrema over the axis are all that is late in an expression."""
        late = [leaf.value for leaf in sources(atom) if self.is_late(leaf.value)]
        return all(self._is_reduction(value) and kind_of(value) in ("max", "min") for value in late)

    def _start(self, value: SSAValue) -> float | None:
        return float(neutral_of(value).value.data) if self._is_reduction(value) else None

    def _about_pivots(self, expression: Expression) -> Expression:
        """An expression with the pivots in the place of its late parts."""
        pivot = self.pivots.get(key_of(expression))
        if pivot is not None:
            return pivot
        if not isinstance(expression, Node):
            return expression
        operands = [self._about_pivots(operand) for operand in expression.operands]
        if expression.kind is arith.SubfOp:
            return difference(*operands)
        if expression.kind is arith.AddfOp:
            return total(*operands)
        node = expression
        return Node(node.kind, tuple(operands), node.type, node.properties, node.hint, node.location)

    # -- sums --------------------------------------------------------------------------------------

    def _sum_of(self, term: Expression) -> SSAValue:
        """A sum over the axis of a term, made once."""
        key = key_of(term)
        if key not in self._sums:
            self._sums[key] = self._there_already(key) or self._reduced(term, "count" if key == ONE else "moment")
        return self._sums[key]

    def _there_already(self, key: Key) -> SSAValue | None:
        """The result of a reduction that the program has."""
        block = self.sum.parent_block()
        assert block is not None
        wanted = absences_of([self.sum.operand])
        for op in block.ops:
            if op is self.sum:
                return None
            if not isinstance(op, ReduceOp) or op.kind.data != "add" or op.init is not None or op.over != self.sum.over:
                continue
            same = absences_of([op.operand]) == wanted and format_of(op.result.type) == f32
            if same and key_of(unfolded(Leaf(op.operand), self.axis)) == key:
                return op.result
        return None

    def _reduced(self, term: Expression, name: str) -> SSAValue:
        sizes = sizes_of(self.sum.operand.type)
        read = axes_in(term)
        if key_of(term) != ONE and self.axis not in read:
            raise NoPolynomial
        kept = {axis: size for axis, size in sizes.items() if axis in read or axis == self.axis}
        for value in self.absent:
            kept |= {axis: sizes[axis] for axis in axes_of(value.type)}
        ordered = {axis: size for axis, size in sizes.items() if axis in kept}
        operand = self._map(term, ordered, f"{name}_of")
        rest = {axis: size for axis, size in ordered.items() if axis != self.axis}
        reduce = ReduceOp("add", operand, [self.axis], self._type(rest))
        reduce.location = self.sum.location
        reduce.result.name_hint = self._hint(name)
        self.made.append(reduce)
        return reduce.result

    def _map(self, expression: Expression, sizes: dict[str, int], name: str) -> SSAValue:
        map = build_map(expression, self._type(sizes), self._hint(name), self.sum.location)
        if self.axis in sizes:
            map = self._with_absences(map)
        self.made.append(map)
        return map.result

    def _with_absences(self, map: MapOp) -> MapOp:
        """The same, of which no element exists that the sum has not."""
        more = [value for value in self.absent if value not in map.inputs]
        if not more:
            return map
        for value in more:
            map.body.block.insert_arg(format_of(value.type), len(map.body.block.args))
        new = MapOp([*map.inputs, *more], map.result.type, map.detach_region(map.body))
        new.location, new.result.name_hint = map.location, map.result.name_hint
        map.erase()
        return new

    def _type(self, sizes: dict[str, int]) -> Attribute:
        return array_type(f32, sizes, level_of(self.sum.result.type))

    def _hint(self, name: str) -> str | None:
        """A name that nothing has, of what was made neither."""
        base = self.sum.result.name_hint
        if base is None:
            return None
        taken = {result.name_hint for op in self.made for result in op.results}
        wanted = fresh_hint(self.sum.result, f"{base}_{name}")
        while wanted in taken:
            wanted = f"{wanted}_b"
        return wanted


def _nothing_of(sum: Expression) -> Expression:
    """Zero, of a sum that may be infinite, too."""
    return select(compare(unary(math.AbsFOp, sum), "<", number(float("inf"))), product(number(0), sum), number(0))


def without_late_parts(sum: ReduceOp, is_late: Callable[[SSAValue], bool]) -> str | None:
    """Let a sum over one axis, of polynomials of late values, be streamed with what makes these; what was done, in
    words, or None where it is no such sum."""
    if sum.kind.data != "add" or sum.init is not None or len(sum.over_axes) != 1 or format_of(sum.result.type) != f32:
        return None
    return Moments(sum, sum.over_axes[0], is_late).rewrite()
