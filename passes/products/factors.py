"""Products whose factors have formats of their own, and what maps multiply in between.

What is multiplied by a sum of products is no number of 16 bits, which may be beyond the largest of these where neither
the products nor the result are. It stays in f32. Where the program rounds to 16 bits (or multiplies as tf32) what the
new order does not make any more, f32 is multiplied as tf32: that has every number of 16 bits, the exponents of f32, and
rounds as finely as f16. Where the program rounds nothing, nothing is rounded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from xdsl.dialects.builtin import LocationAttr, bf16, f32
from xdsl.ir import Attribute, Operation, SSAValue

from treadle.dialects.diagram import CastOp, ContractOp, MapOp, ReduceOp
from treadle.dialects.diagram.array import array_type, axes_of, format_of, sizes_of
from treadle.dialects.diagram.formats import SIXTEEN_BIT
from treadle.passes.expressions.scalars import (
    Expression,
    Leaf,
    axes_in,
    build_map,
    convert,
    difference,
    is_number,
    leaves,
    product,
    total,
)
from treadle.passes.products.chains import Chain
from treadle.passes.products.decayed import Decayed
from treadle.passes.products.prefixes import Prefix

Products: TypeAlias = Chain | Decayed | Prefix


@dataclass
class Writer:
    """Makes operations, in order, that stand for others of one place in a file."""

    location: LocationAttr
    exact: bool = False
    """Whether f32 is multiplied as it is, not as tf32."""
    parts: int = 1
    """As how many numbers of tf32 is multiplied what others may cancel: 1, or 2."""
    made: list[Operation] = field(default_factory=list[Operation])

    def add(self, op: Operation, hint: str | None = None) -> SSAValue:
        op.location = self.location
        (result,) = op.results
        if hint is not None:
            result.name_hint = hint
        self.made.append(op)
        return result

    def cast(self, value: SSAValue, format: Attribute) -> SSAValue:
        if format_of(value.type) == format:
            return value
        return self.add(CastOp(value, array_type(format, sizes_of(value.type))), value.name_hint)

    def array(self, expression: Expression, hint: str) -> SSAValue:
        """What an expression computes of arrays, in f32, along all their axes."""
        axes = weaved([leaf.value for leaf in leaves(expression)], ())
        return self.add(build_map(convert(expression, f32), array_type(f32, axes)), hint)

    def scaled(self, value: SSAValue, factor: Expression) -> SSAValue:
        """An array times a factor, in f32, with the axes of both; the array itself where that is 1."""
        if is_number(factor, 1):
            return value
        axes = weaved([leaf.value for leaf in leaves(factor)], sizes_of(value.type)) | sizes_of(value.type)
        type = array_type(f32, axes)
        return self.add(build_map(product(Leaf(value), factor), type), value.name_hint)

    def weighed(self, values: Sequence[SSAValue], factor: Expression) -> list[SSAValue]:
        """Factors of a product times one more: the first that has its axes, so that none is made for more elements than
        it has, or the first of all."""
        axes = {*axes_in(factor)}
        which = next((i for i, value in enumerate(values) if axes <= {*axes_of(value.type)}), 0)
        return [self.scaled(value, factor) if i == which else value for i, value in enumerate(values)]

    def contract(
        self,
        left: SSAValue,
        right: SSAValue,
        over: Iterable[str],
        axes: Mapping[str, int],
        cancelled: SSAValue | None = None,
    ) -> SSAValue:
        """A product with these axes, accumulated in f32: as the formats are where both are one of 16 bits, else of f32
        (`as tf32` unless it is to be exact). A product by one column multiplies and adds up, for which f32 does.
        `cancelled` is the factor whose products a later sum may cancel, as far as they are rounded alike."""
        type = array_type(f32, axes)
        formats = format_of(left.type), format_of(right.type)
        if formats[0] == formats[1] and str(formats[0]) in SIXTEEN_BIT:
            return self.add(ContractOp(left, right, over, type, f32))
        if {*axes_of(right.type)} <= {*axes_of(left.type)}:
            return self.add(ReduceOp("add", self.scaled(left, Leaf(right)), over, type))
        if cancelled is not None and self.parts > 1 and not self.exact and not isinstance(cancelled.owner, CastOp):
            return self._in_parts(left, right, tuple(over), type, cancelled)
        left, right = self.cast(left, f32), self.cast(right, f32)
        return self.add(ContractOp(left, right, over, type, f32, multiply=None if self.exact else "tf32"))

    def _in_parts(
        self, left: SSAValue, right: SSAValue, over: tuple[str, ...], type: Attribute, cancelled: SSAValue
    ) -> SSAValue:
        """A factor as `high + low`: bf16 has 8 bits of it, with the exponents of f32, and tf32 11 of what is left."""
        high = self.cast(self.cast(cancelled, bf16), f32)
        low = self.add(build_map(difference(Leaf(cancelled), Leaf(high)), cancelled.type), "low")
        left, right = (each if each is cancelled else self.cast(each, f32) for each in (left, right))
        of_high, of_low = (
            self.add(ContractOp(*_with(left, right, cancelled, part), over, type, f32, multiply="tf32"), hint)
            for part, hint in ((high, "of_high"), (low, "of_low"))
        )
        return self.add(build_map(total(Leaf(of_high), Leaf(of_low)), type))

    def sum(self, values: Sequence[SSAValue], over: Iterable[str], axes: Mapping[str, int]) -> SSAValue:
        """What the outer sum is, of something else than the inner product, perhaps times another factor. The products
        of the first may cancel later."""
        value, *others = values
        if others:
            weighed = value if isinstance(value.owner, MapOp) and format_of(value.type) == f32 else None
            return self.contract(value, others[0], over, axes, weighed)
        return self.add(ReduceOp("add", self.cast(value, f32), over, array_type(f32, axes)))


def writer_of(chain: Products, parts: int) -> Writer:
    return Writer(chain.outer.location, is_exact(chain), parts)


def _with(left: SSAValue, right: SSAValue, old: SSAValue, new: SSAValue) -> tuple[SSAValue, SSAValue]:
    """Two factors, one of them replaced."""
    return (new, right) if left is old else (left, new)


def is_exact(chain: Products) -> bool:
    """Whether the program rounds nothing that it multiplies or adds up to less than f32. Factors of 16 bits that only
    add up are not rounded: each counts as it is."""
    if isinstance(chain, Prefix):
        return isinstance(chain.outer, ReduceOp) or not chain.outer.is_tf32
    if isinstance(chain.inner, ContractOp) and _is_f32(chain.inner):
        return True
    if isinstance(chain.outer, ContractOp):
        return _is_f32(chain.outer)
    return all(str(format_of(op.results[0].type)) not in SIXTEEN_BIT for op in (chain.inner, *chain.between))


def _is_f32(op: ContractOp) -> bool:
    return str(format_of(op.lhs.type)) == "f32" and not op.is_tf32


def weaved(values: Iterable[SSAValue], without: Iterable[str]) -> dict[str, int]:
    """The axes of a product of some arrays, with their sizes."""
    sizes: dict[str, int] = {}
    for value in values:
        sizes |= {axis: size for axis, size in sizes_of(value.type).items() if axis not in sizes}
    return {axis: size for axis, size in sizes.items() if axis not in {*without}}


__all__ = ["Products", "Writer", "is_exact", "weaved", "writer_of"]
