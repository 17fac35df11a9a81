"""`diagram.read`: an array at other positions, affine ones or such as data say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Self

from xdsl.dialects.builtin import ArrayAttr, StringAttr, UnitAttr
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.irdl import (
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    result_def,
    traits_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import (
    Pure,
)
from xdsl.utils.exceptions import VerifyException

from treadle.dialects.diagram.array import (
    DYNAMIC,
    axes_of,
    check_array,
    format_of,
    sizes_of,
)
from treadle.dialects.diagram.collapse import Regrouping
from treadle.dialects.diagram.condition import Linear, Term, divisor_in, quotient, remainder
from treadle.dialects.diagram.operation import quote
from treadle.dialects.diagram.place import (
    PlaceAttr,
    axes_of_forms,
    check_quotients,
    check_within,
    composed,
    covering_steps,
    divisors_in,
    entries_in,
    largest_fit,
    reach,
    whole_steps,
)
from treadle.dialects.diagram.placed import PlacedOperation
from treadle.dialects.syntax import parse_attributes, parse_inputs, print_inputs, print_types


@irdl_op_definition
class ReadOp(PlacedOperation):
    """Read an array at other positions: `at` says for each axis of the operand where, over the axes of the result.
    Windows, strides, dilations, diagonals and transposes are affine places. Nothing is copied: the result is the
    operand's memory with other strides.

    A symbolic axis of the result that no argument has takes the largest size at which all reads stay inside the
    operand; one that has a size must fit. Of two such axes in one place (`"256 * part + inner"`) the one with the
    larger factor goes over the operand in whole steps, at least one, and what is left over belongs to the last step:
    1000 elements are 3 parts, and the largest part has 488.

    A `padded` read may leave the operand, before its beginning or past its end, and run backwards: the operand is as if
    zeros lay around it (zero padding). It gives no axis a size, but where an axis goes over all of one of the operand,
    or steps over others of static sizes: then it takes as many steps as reach all (`"128 * chunk + inner"`).
    Only such a read may take quotients: each element counts for a block of positions, the last of which may be short.

    It may be *scattered*, too: at remainders, and at entries of arrays in i32 that `with` names. Pages of a cache,
    rows of an embedding and the weights of an expert are read so. Where an entry lies outside of the operand there are
    zeros, and so there are where a position lies outside of the array of entries; `i[]` is the entry of one without
    axes. An axis that nothing else gives a
    size goes over all entries: `x` below has 64 for each of `table`'s second axis. Nor does it need one where it goes
    over two axes of the operand, the inner one of a static size, as `z` does.
    Along an axis of static size that no position names, as `i` below, it reads the same elements again.

    ```
    %windows = diagram.read %X at "b, t + r, c" : !X -> !windows
    %around = diagram.read %X at "b, l - r, c" padded : !X -> !around
    %blocks = diagram.read %B at "q // 64, x // 128" padded : !B -> !S
    %K = diagram.read %pages at "table[b, x // 64], x % 64, d" padded with (table = %table : !table) : !pages -> !K
    %rows = diagram.read %Y at "z // 16, m, z % 16" padded : !Y -> !rows
    %again = diagram.read %X at "t, n" padded : tensor<?x?xf16, [t, n]> -> tensor<?x8x?xf16, [t, i, n]>
    ```
    """

    name = "diagram.read"

    operand = operand_def()
    padded = opt_prop_def(UnitAttr)
    result = result_def()

    traits = traits_def(Pure())

    def __init__(
        self,
        operand: SSAValue | Operation,
        place: PlaceAttr | str,
        result_type: Attribute,
        padded: bool = False,
        inputs: Mapping[str, SSAValue] | None = None,
    ):
        inputs = inputs or {}
        properties = {
            "place": PlaceAttr(place) if isinstance(place, str) else place,
            "padded": UnitAttr() if padded else None,
            "names": ArrayAttr(StringAttr(name) for name in inputs) if inputs else None,
        }
        super().__init__(operands=[operand, list(inputs.values())], properties=properties, result_types=[result_type])

    @property
    def whole(self) -> SSAValue:
        return self.operand

    @property
    def part(self) -> SSAValue:
        return self.result

    @property
    def is_padded(self) -> bool:
        return self.padded is not None

    @property
    def repeated(self) -> list[str]:
        """The axes of the result along which it reads the same element again."""
        used = axes_of_forms(self.place.forms)
        return [axis for axis in axes_of(self.result.type) if axis not in used]

    @property
    def is_scattered(self) -> bool:
        """Whether its elements have no strides, one for each axis: data say where they are, or remainders do, or they
        are read again."""
        return super().is_scattered or bool(self.repeated)

    @property
    def leaving(self) -> dict[str, Linear]:
        """The positions that may lie outside of the operand, by the axes of which."""
        return self.outside if self.is_padded else {}

    def fitting(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Sizes that `sizes` lacks: static ones, and of the result's axes the largest that fit."""
        types = (self.operand.type, *(value.type for value in self.inputs), self.result.type)
        found = {axis: size for type in types for axis, size in sizes_of(type).items() if size >= 0} | dict(sizes)
        for axis in self.by_factor():
            if axis not in found and (limits := self._limits(axis, found)):
                found[axis] = min(limits)
        return {axis: size for axis, size in found.items() if axis not in sizes}

    def by_factor(self) -> list[str]:
        """The axes of the result, those that step over others before these."""
        forms = self.place.forms
        return sorted(axes_of(self.result.type), key=lambda axis: -max(form.terms.get(axis, 0) for form in forms))

    def is_limit(self, axis: str, form: Linear) -> bool:
        """Whether a place says how large an axis may be; past the end of a padded one there is more to read."""
        if not self.is_padded:
            return axis in form.terms
        return form == Linear({axis: 1}) or self.covers(axis, form)

    def covers(self, axis: str, form: Linear) -> bool:
        """Whether an axis of a padded read steps over others of static sizes, none of which reach its next step."""
        sizes = sizes_of(self.result.type)
        others = {str(term): factor for term, factor in form.terms.items() if term != axis}
        if not self.is_padded or not others or axis not in form.terms or divisors_in([form]):
            return False
        if any(factor < 0 or sizes.get(term, DYNAMIC) <= 0 for term, factor in others.items()):
            return False
        return form.terms[axis] > sum(factor * (sizes[term] - 1) for term, factor in others.items())

    def _limits(self, axis: str, found: Mapping[str, int]) -> Sequence[int]:
        """How large an axis may be, by each place that says so; those first that say it alone."""
        fits: list[int] = []
        steps: list[int] = []
        for along, form in self.forms.items():
            if along not in found or not self.is_limit(axis, form):
                continue
            unknown = set(form.terms) - {axis} - found.keys()
            if self.covers(axis, form):
                fits.append(covering_steps(form, axis, found[along], found))
            elif not unknown:
                fits.append(largest_fit(form, axis, found[along], found))
            elif self._steps_over(form, axis, unknown):
                steps.append(whole_steps(form, axis, found[along], found))
        of_blocks = [found[along] * divisor for along, divisor in self.blocks_along(axis) if along in found]
        return fits or steps or of_blocks

    def limits_of(self, axis: str) -> list[str]:
        """The axes of the operand, or of arrays of entries, that say how large an axis may be."""
        limits = [along for along, form in self.forms.items() if self.is_limit(axis, form)]
        return limits or [along for along, _ in self.blocks_along(axis)]

    def takes_size(self, axis: str) -> bool:
        """Whether blocks alone say how large an axis is."""
        return bool(self.blocks_along(axis)) and not any(self.is_limit(axis, form) for form in self.forms.values())

    def blocks_along(self, axis: str) -> list[tuple[str, int]]:
        """The axes over all of which an axis of the result goes block by block, and how many positions a block has: of
        the operand, whose blocks have these positions along another axis, and of arrays of entries, one for each; if
        there are neither, of the operand, of which each is read at so many positions."""
        return self._whole_along(axis) or self._entries_along(axis) or self._again_along(axis)

    def _whole_along(self, axis: str) -> list[tuple[str, int]]:
        """The axis of the operand that says which blocks there are, where another one holds all positions of each."""
        sizes, forms = sizes_of(self.operand.type), self.forms
        whole = [size for along, size in sizes.items() if size > 1 and forms[along] == remainder(axis, size)]
        return [(along, size) for along in forms for size in whole if forms[along] == Linear({quotient(axis, size): 1})]

    def _again_along(self, axis: str) -> list[tuple[str, int]]:
        """The axis of the operand that is read at quotients of an axis that nothing else of this read speaks of."""
        forms = {along: form for along, form in self.forms.items() if axis in axes_of_forms([form])}
        return [
            (along, divisor_in(term))
            for along, form in forms.items()
            for term in form.terms
            if len(forms) == 1 and form == Linear({term: 1}) and term == quotient(axis, divisor_in(term)) != axis
        ]

    def _entries_along(self, axis: str) -> list[tuple[str, int]]:
        found = [
            (along, divisor_in(term))
            for entry in entries_in(self.place.forms)
            for along, form in self.entry_forms(entry).items()
            for term in form.terms
            if form == Linear({term: 1}) and term in (axis, quotient(axis, divisor_in(term)))
        ]
        return list(dict.fromkeys(found))

    def _steps_over(self, form: Linear, axis: str, others: Set[Term]) -> bool:
        """Whether a place says how axes without a size share what there is: not if a caller will say so."""
        args = self.parent.args if self.parent is not None else ()
        given = {name for arg in args for name in axes_of(arg.type)}
        smaller = all(form.terms[other] < form.terms[axis] for other in others)
        return smaller and given.isdisjoint({axis, *map(str, others)})

    def verify_(self) -> None:
        for what, value in (("operand 0", self.operand), ("result 0", self.result)):
            check_array(value.type, what)
        source, target = axes_of(self.operand.type), axes_of(self.result.type)
        forms = self.place.forms
        if len(forms) != len(source):
            raise VerifyException(f"{len(forms)} positions for the {len(source)} axes of the operand ({quote(source)})")
        used = axes_of_forms(forms)
        if unknown := [term for term in used if term not in target]:
            raise VerifyException(f"'{unknown[0]}' is no axis of the result ({quote(target)})")
        if self.repeated and not self.is_padded:
            raise VerifyException(f"axis '{self.repeated[0]}' of the result reads nothing: a map broadcasts along it")
        if unknown := [axis for axis in self.repeated if sizes_of(self.result.type)[axis] == DYNAMIC]:
            raise VerifyException(f"axis '{unknown[0]}' of the result reads nothing, which says no size of it")
        if format_of(self.operand.type) != format_of(self.result.type):
            raise VerifyException(f"a read keeps the format: {format_of(self.operand.type)}")
        sizes, lengths = sizes_of(self.result.type), sizes_of(self.operand.type)
        check_quotients(self.place)
        self.check_entries(target)
        for name, value in self.named.items():
            if isinstance(value.owner, ReadOp) and value.owner.is_padded:
                raise VerifyException(
                    f"input '{name}' is a padded read, which is in no memory: put a map between, which saves it, or "
                    "read the array itself"
                )
        if (gives := in_no_memory(self.operand, self.is_padded, self.is_scattered)) is not None:
            raise VerifyException(
                f"it reads what {gives} gives, which is in no memory: put a map between, which saves it, or read the "
                "array itself"
            )
        if isinstance(inner := self.operand.owner, ReadOp) and inner.is_scattered:
            for form in inner.place.forms:
                composed(form, self.forms)
        if self.is_padded:
            return
        if self.is_scattered:
            raise VerifyException("a read at entries or remainders may leave the operand: say that it is padded")
        if divisors_in(forms):
            raise VerifyException("a read at quotients may end within a block: say that it is padded")
        check_within(self.place)
        for along, form in self.forms.items():
            whole = lengths[along] >= 0 and all(sizes[str(term)] > 0 for term in form.terms)
            if whole and reach(form, sizes) > lengths[along]:
                raise VerifyException(
                    f"it reads up to {reach(form, sizes) - 1} along '{along}', which has {lengths[along]}"
                )

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        operand = parser.parse_unresolved_operand()
        parser.parse_keyword("at")
        place = parser.parse_str_literal()
        padded = parser.parse_optional_keyword("padded") is not None
        inputs = parse_inputs(parser)
        attributes = parse_attributes(parser)
        type = parser.parse_type()
        parser.parse_punctuation("->")
        op = cls(parser.resolve_operand(operand, type), place, parser.parse_type(), padded, inputs)
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_operand(self.operand)
        printer.print_string(" at ")
        printer.print_string_literal(self.place.text.data)
        if self.is_padded:
            printer.print_string(" padded")
        print_inputs(printer, self.named.items())
        print_types(printer, self, (self.operand.type,), self.result.type)


def in_no_memory(value: SSAValue, padded: bool, scattered: bool) -> str | None:
    """The read that gives a value at positions which cannot be put together with those of a read of it, which is
    `padded` or `scattered`; None where there is none."""
    inner = value.owner
    if not isinstance(inner, ReadOp):
        return None
    if divisors_in(inner.place.forms) and not inner.is_scattered:
        return "a read at quotients"
    apart = padded or scattered if inner.is_scattered else scattered and inner.is_padded
    return "a padded read" if apart else None


def with_fitting(block: Block, sizes: Mapping[str, int]) -> dict[str, int]:
    """Sizes of axes, with those that the reads of a function give to axes of their own, and of axes that stand for
    several."""
    known = dict(sizes)
    for op in block.ops:
        if isinstance(op, ReadOp | Regrouping):
            known |= op.fitting(known)
    return known
