"""Operations of the `diagram` dialect."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Self

from xdsl.dialects.builtin import (
    ArrayAttr,
    FloatAttr,
    FunctionType,
    IntegerAttr,
    ShapedType,
    StringAttr,
    SymbolNameConstraint,
    SymbolRefAttr,
    i32,
)
from xdsl.dialects.utils import AbstractYieldOperation
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    lazy_traits_def,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
    var_region_def,
    var_result_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import (
    HasParent,
    IsolatedFromAbove,
    IsTerminator,
    NoTerminator,
    Pure,
    SingleBlockImplicitTerminator,
    SymbolOpInterface,
)
from xdsl.utils.exceptions import VerifyException

from treadle.dialects.diagram.array import (
    FORMATS,
    Format,
    Number,
    axes_of,
    check_array,
    check_axis_name,
    format_of,
    is_array,
    merge_sizes,
    parse_axis_list,
    print_axis_list,
    sizes_of,
)
from treadle.dialects.diagram.condition import Condition, ConditionAttr, Linear, Read, Term, resolved, terms_of
from treadle.dialects.diagram.place import PlaceAttr, largest_fit, reach

REDUCTIONS = ("add", "mul", "max", "min")
"""Associative and commutative operations of `diagram.reduce`, each with a neutral element."""


def _quote(axes: Iterable[str]) -> str:
    return ", ".join(f"'{axis}'" for axis in axes)


def _check_over(over: Sequence[str], inputs: Sequence[str], result: Sequence[str]) -> None:
    if not over:
        raise VerifyException("'over' names no axis: nothing would be reduced")
    for axis in over:
        if over.count(axis) > 1:
            raise VerifyException(f"axis '{axis}' is reduced twice")
        if axis not in inputs:
            raise VerifyException(f"axis '{axis}' is reduced, but no operand has it (operands have {_quote(inputs)})")
        if axis in result:
            raise VerifyException(f"axis '{axis}' is reduced, yet the result still has it")
    for axis in inputs:
        if axis not in over and axis not in result:
            raise VerifyException(
                f"axis '{axis}' is neither reduced nor in the result: name it in 'over' or keep it in the result"
            )
    for axis in result:
        if axis not in inputs:
            raise VerifyException(f"axis '{axis}' of the result comes from no operand")


def _union(*axis_lists: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(axis for axes in axis_lists for axis in axes))


class DiagramOperation(IRDLOperation):
    """What all array operations share: checked array types and one size for each axis."""

    def check_arrays(self) -> None:
        """Each operand and result is an array of a supported format, and sizes agree by axis."""
        named = [
            *((f"operand {i}", operand.type) for i, operand in enumerate(self.operands)),
            *((f"result {i}", result.type) for i, result in enumerate(self.results)),
        ]
        for what, type in named:
            check_array(type, what)
        merge_sizes(named)


@irdl_op_definition
class ContractOp(DiagramOperation):
    """Sum of products over the axes in `over`; every other axis is weaved: mapped over, and broadcast
    to where an operand lacks it.

    Products are summed in the format `accumulate`; the result is rounded to its own format once, at
    the end. With `into`, the sum is added to that array. f32 operands multiply in f32 unless `as
    tf32` says that they may be rounded to 10 bits of mantissa first. An axis of size zero gives zero.

    ```
    %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
    ```
    """

    name = "diagram.contract"

    lhs = operand_def()
    rhs = operand_def()
    init = opt_operand_def()
    over = prop_def(ArrayAttr[StringAttr])
    accumulate = prop_def(Attribute)
    multiply = opt_prop_def(StringAttr)
    result = result_def()

    traits = traits_def(Pure())

    def __init__(
        self,
        lhs: SSAValue | Operation,
        rhs: SSAValue | Operation,
        over: Iterable[str],
        result_type: Attribute,
        accumulate: Attribute | None = None,
        init: SSAValue | Operation | None = None,
        multiply: str | None = None,
    ):
        super().__init__(
            operands=[lhs, rhs, [] if init is None else [init]],
            properties={
                "over": ArrayAttr(StringAttr(axis) for axis in over),
                "accumulate": accumulate or format_of(result_type),
                "multiply": None if multiply is None else StringAttr(multiply),
            },
            result_types=[result_type],
        )

    @property
    def over_axes(self) -> tuple[str, ...]:
        return tuple(axis.data for axis in self.over)

    @property
    def is_tf32(self) -> bool:
        return self.multiply is not None

    def verify_(self) -> None:
        self.check_arrays()
        _check_over(
            self.over_axes,
            _union(axes_of(self.lhs.type), axes_of(self.rhs.type)),
            axes_of(self.result.type),
        )
        left, right = format_of(self.lhs.type), format_of(self.rhs.type)
        if left != right:
            raise VerifyException(f"operands of a contraction have formats {left} and {right}: cast one of them")
        if self.accumulate not in FORMATS:
            raise VerifyException(f"cannot accumulate in {self.accumulate}")
        if (str(left) == "i32") != (str(self.accumulate) == "i32"):
            raise VerifyException(f"products of {left} cannot be accumulated in {self.accumulate}")
        if (str(self.accumulate) == "i32") != (str(format_of(self.result.type)) == "i32"):
            raise VerifyException(f"what accumulates in {self.accumulate} cannot become {format_of(self.result.type)}")
        if self.multiply is not None and (self.multiply.data, str(left)) != ("tf32", "f32"):
            raise VerifyException(f"'as {self.multiply.data}' on {left} operands: only f32 may multiply as tf32")
        if self.init is not None and self.init.type != self.result.type:
            raise VerifyException(f"'into' has type {self.init.type}, the result has {self.result.type}")

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        lhs = parser.parse_unresolved_operand()
        parser.parse_punctuation(",")
        rhs = parser.parse_unresolved_operand()
        parser.parse_keyword("over")
        over = parse_axis_list(parser)
        parser.parse_keyword("accumulate")
        accumulate = parser.parse_type()
        multiply = parser.parse_identifier() if parser.parse_optional_keyword("as") else None
        init = parser.parse_unresolved_operand() if parser.parse_optional_keyword("into") else None
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        lhs_type = parser.parse_type()
        parser.parse_punctuation(",")
        rhs_type = parser.parse_type()
        parser.parse_punctuation("->")
        type = parser.parse_type()
        op = cls(
            parser.resolve_operand(lhs, lhs_type),
            parser.resolve_operand(rhs, rhs_type),
            over,
            type,
            accumulate,
            None if init is None else parser.resolve_operand(init, type),
            multiply,
        )
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_list((self.lhs, self.rhs), printer.print_operand)
        printer.print_string(" over ")
        print_axis_list(printer, self.over_axes)
        printer.print_string(" accumulate ")
        printer.print_attribute(self.accumulate)
        if self.multiply is not None:
            printer.print_string(f" as {self.multiply.data}")
        if self.init is not None:
            printer.print_string(" into ")
            printer.print_operand(self.init)
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_list((self.lhs.type, self.rhs.type), printer.print_attribute)
        printer.print_string(" -> ")
        printer.print_attribute(self.result.type)


@irdl_op_definition
class ReduceOp(DiagramOperation):
    """Combine the elements along the axes in `over` with `add`, `mul`, `max` or `min`, in the format
    of the result. With `into`, that array is combined in as well. An axis of size zero gives the
    neutral element.

    ```
    %m = diagram.reduce max %S over [x] : !S -> !m
    ```
    """

    name = "diagram.reduce"

    operand = operand_def()
    init = opt_operand_def()
    kind = prop_def(StringAttr)
    over = prop_def(ArrayAttr[StringAttr])
    result = result_def()

    traits = traits_def(Pure())

    def __init__(
        self,
        kind: str,
        operand: SSAValue | Operation,
        over: Iterable[str],
        result_type: Attribute,
        init: SSAValue | Operation | None = None,
    ):
        super().__init__(
            operands=[operand, [] if init is None else [init]],
            properties={
                "kind": StringAttr(kind),
                "over": ArrayAttr(StringAttr(axis) for axis in over),
            },
            result_types=[result_type],
        )

    @property
    def over_axes(self) -> tuple[str, ...]:
        return tuple(axis.data for axis in self.over)

    def verify_(self) -> None:
        if self.kind.data not in REDUCTIONS:
            raise VerifyException(f"unknown reduction '{self.kind.data}' (known: {', '.join(REDUCTIONS)})")
        self.check_arrays()
        _check_over(self.over_axes, axes_of(self.operand.type), axes_of(self.result.type))
        formats = str(format_of(self.operand.type)), str(format_of(self.result.type))
        if formats.count("i32") == 1:
            raise VerifyException(f"cannot reduce {formats[0]} in {formats[1]}")
        if self.init is not None and self.init.type != self.result.type:
            raise VerifyException(f"'into' has type {self.init.type}, the result has {self.result.type}")

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        kind = parser.parse_identifier(" for the reduction")
        operand = parser.parse_unresolved_operand()
        parser.parse_keyword("over")
        over = parse_axis_list(parser)
        init = parser.parse_unresolved_operand() if parser.parse_optional_keyword("into") else None
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        operand_type = parser.parse_type()
        parser.parse_punctuation("->")
        type = parser.parse_type()
        op = cls(
            kind,
            parser.resolve_operand(operand, operand_type),
            over,
            type,
            None if init is None else parser.resolve_operand(init, type),
        )
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(f" {self.kind.data} ")
        printer.print_operand(self.operand)
        printer.print_string(" over ")
        print_axis_list(printer, self.over_axes)
        if self.init is not None:
            printer.print_string(" into ")
            printer.print_operand(self.init)
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.operand.type)
        printer.print_string(" -> ")
        printer.print_attribute(self.result.type)


@irdl_op_definition
class YieldOp(AbstractYieldOperation[Attribute]):
    """The values that a region of a `diagram` operation gives back."""

    name = "diagram.yield"

    traits = lazy_traits_def(lambda: (IsTerminator(), HasParent(MapOp, LawOp)))


@irdl_op_definition
class MapOp(DiagramOperation):
    """Apply a scalar function to every element; an operand without an axis of the result is broadcast
    along it. The body is straight-line `arith` and `math` over scalars of the operands' formats.

    ```
    %P = diagram.map (%s = %S : !S, %r = %m : !m) -> !S {
      %shifted = arith.subf %s, %r : f32
      %p = math.exp %shifted : f32
      diagram.yield %p : f32
    }
    ```
    """

    name = "diagram.map"

    inputs = var_operand_def()
    result = result_def()
    body = region_def("single_block")

    traits = lazy_traits_def(lambda: (Pure(), SingleBlockImplicitTerminator(YieldOp)))

    BODY_DIALECTS: ClassVar = ("arith", "math")

    def __init__(
        self,
        inputs: Sequence[SSAValue | Operation],
        result_type: Attribute,
        body: Region,
    ):
        super().__init__(operands=[inputs], result_types=[result_type], regions=[body])

    @property
    def yielded(self) -> SSAValue:
        """The scalar that becomes an element of the result."""
        terminator = self.body.block.last_op
        assert isinstance(terminator, YieldOp)
        return terminator.operands[0]

    def verify_(self) -> None:
        self.check_arrays()
        if not is_array(self.result.type):
            raise VerifyException("the result of a map must be an array")
        axes = axes_of(self.result.type)
        for i, operand in enumerate(self.inputs):
            for axis in axes_of(operand.type):
                if axis not in axes:
                    raise VerifyException(
                        f"axis '{axis}' of operand {i} is not in the result: a map keeps every "
                        "axis (reduce it first, or add it to the result)"
                    )
        self._verify_body()

    def _verify_body(self) -> None:
        args = self.body.block.args
        if len(args) != len(self.inputs):
            raise VerifyException(f"the body takes {len(args)} scalars, the map has {len(self.inputs)} operands")
        for i, (arg, operand) in enumerate(zip(args, self.inputs, strict=True)):
            if arg.type != format_of(operand.type):
                raise VerifyException(
                    f"scalar {i} of the body is {arg.type}, elements of operand {i} are {format_of(operand.type)}"
                )
        *ops, terminator = self.body.block.ops
        for op in ops:
            if op.dialect_name() not in self.BODY_DIALECTS:
                raise VerifyException(
                    f"'{op.name}' in the body of a map: only arith and math operations may stand there"
                )
            for result in op.results:
                if isinstance(result.type, ShapedType):
                    raise VerifyException(
                        f"'{op.name}' in the body of a map gives {result.type}: the body computes one element, so "
                        "everything in it is a scalar"
                    )
            for operand in op.operands:
                if operand.owner is not self.body.block and (
                    not isinstance(operand.owner, Operation) or operand.owner.parent is not self.body.block
                ):
                    raise VerifyException("the body uses a value from outside: make it an operand of the map")
        if len(terminator.operands) != 1 or terminator.operands[0].type != format_of(self.result.type):
            given = ", ".join(str(operand.type) for operand in terminator.operands)
            raise VerifyException(
                f"the body yields ({given}), elements of the result are {format_of(self.result.type)}"
            )

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        inputs: list[SSAValue] = []

        def entry() -> Parser.Argument:
            argument = parser.parse_argument(expect_type=False)
            parser.parse_punctuation("=")
            operand = parser.parse_unresolved_operand()
            parser.parse_punctuation(":")
            type = parser.parse_type()
            inputs.append(parser.resolve_operand(operand, type))
            return argument.resolve(format_of(type))

        arguments = parser.parse_comma_separated_list(parser.Delimiter.PAREN, entry)
        parser.parse_punctuation("->")
        type = parser.parse_type()
        attributes = parser.parse_optional_attr_dict_with_keyword()
        body = parser.parse_region(arguments)
        op = cls(inputs, type, body)
        if attributes is not None:
            op.attributes |= attributes.data
        return op

    def print(self, printer: Printer) -> None:
        printer.enter_scope()

        def entry(pair: tuple[SSAValue, SSAValue]) -> None:
            printer.print_ssa_value(pair[0])
            printer.print_string(" = ")
            printer.print_operand(pair[1])
            printer.print_string(" : ")
            printer.print_attribute(pair[1].type)

        printer.print_string(" (")
        printer.print_list(zip(self.body.block.args, self.inputs, strict=True), entry)
        printer.print_string(") -> ")
        printer.print_attribute(self.result.type)
        if self.attributes:
            printer.print_op_attributes(self.attributes, print_keyword=True)
        printer.print_string(" ")
        printer.print_region(self.body, print_entry_block_args=False, print_empty_block=False)
        printer.exit_scope()


@irdl_op_definition
class CastOp(DiagramOperation):
    """Round to another number format, to nearest even. Over the real numbers it is the identity.

    ```
    %P16 = diagram.cast %P : !P -> !P16
    ```
    """

    name = "diagram.cast"

    operand = operand_def()
    result = result_def()

    traits = traits_def(Pure())
    assembly_format = "$operand attr-dict `:` type($operand) `->` type($result)"

    def __init__(self, operand: SSAValue | Operation, result_type: Attribute):
        super().__init__(operands=[operand], result_types=[result_type])

    def verify_(self) -> None:
        self.check_arrays()
        source, target = axes_of(self.operand.type), axes_of(self.result.type)
        if set(source) != set(target):
            raise VerifyException(f"a cast keeps the axes: operand has {_quote(source)}, result {_quote(target)}")
        if str(format_of(self.result.type)) == "i32" != str(format_of(self.operand.type)):
            raise VerifyException("a cast from a float format to i32 is not defined: it would not be the identity")


@irdl_op_definition
class FillOp(DiagramOperation):
    """An array whose every element is one constant, for example the neutral element of a reduction.

    ```
    %zero = diagram.fill 0.000000e+00 : f32 -> !O
    ```
    """

    name = "diagram.fill"

    value = prop_def(FloatAttr | IntegerAttr)
    result = result_def()

    traits = traits_def(Pure())
    assembly_format = "$value attr-dict `->` type($result)"

    def __init__(self, value: Number, result_type: Attribute):
        super().__init__(properties={"value": value}, result_types=[result_type])

    @property
    def number(self) -> float | int:
        return self.value.value.data

    def verify_(self) -> None:
        self.check_arrays()
        if self.value.type != format_of(self.result.type):
            raise VerifyException(f"the constant is {self.value.type}, elements are {format_of(self.result.type)}")


@irdl_op_definition
class ExtentOp(DiagramOperation):
    """The whole size of an axis, as a scalar (at most 2^31 - 1): a mean divides by it, and a law that divides
    by something that an empty axis leaves at its neutral element asks whether there was any element. At every
    level it is the size of the whole axis, never that of a piece.

    ```
    %n = diagram.extent "x" : i32
    ```
    """

    name = "diagram.extent"

    axis = prop_def(StringAttr)
    result = result_def()

    traits = traits_def(Pure())
    assembly_format = "$axis attr-dict `:` type($result)"

    def __init__(self, axis: str):
        super().__init__(properties={"axis": StringAttr(axis)}, result_types=[i32])

    def verify_(self) -> None:
        try:
            check_axis_name(self.axis.data)
        except VerifyException as error:
            raise VerifyException(f"the extent of no axis: {error}") from error


@irdl_op_definition
class IndexOp(DiagramOperation):
    """The positions along an axis: element i of the array is i. With it a map can say where it stands: in a condition
    (`x <= q`), or in a bias that depends on a distance. Integer arithmetic on positions must not overflow i32.

    ```
    %at_x = diagram.index -> tensor<?xi32, #diagram.array<[x]>>
    ```
    """

    name = "diagram.index"

    result = result_def()

    traits = traits_def(Pure())
    assembly_format = "attr-dict `->` type($result)"

    def __init__(self, result_type: Attribute):
        super().__init__(result_types=[result_type])

    @property
    def axis(self) -> str:
        return axes_of(self.result.type)[0]

    def verify_(self) -> None:
        self.check_arrays()
        axes = axes_of(self.result.type)
        if len(axes) != 1:
            raise VerifyException(f"positions lie along one axis, the result has [{', '.join(axes)}]")
        if str(format_of(self.result.type)) != "i32":
            raise VerifyException(f"positions are i32, not {format_of(self.result.type)}: convert them in a map")


@irdl_op_definition
class ReadOp(DiagramOperation):
    """Read an array at an affine function of the result's positions: `at` says for each axis of the operand where,
    over the axes of the result. Windows, strides, dilations, diagonals and transposes are of this kind. Nothing is
    copied: the result is the operand's memory with other strides.

    A symbolic axis of the result that no argument has takes the largest size at which all reads stay inside the
    operand; one that has a size must fit.

    ```
    %windows = diagram.read %X at "b, t + r, c" : !X -> !windows
    ```
    """

    name = "diagram.read"

    operand = operand_def()
    place = prop_def(PlaceAttr)
    result = result_def()

    traits = traits_def(Pure())

    def __init__(self, operand: SSAValue | Operation, place: PlaceAttr | str, result_type: Attribute):
        place = PlaceAttr(place) if isinstance(place, str) else place
        super().__init__(operands=[operand], properties={"place": place}, result_types=[result_type])

    @property
    def forms(self) -> dict[str, Linear]:
        """The position along each axis of the operand."""
        return dict(zip(axes_of(self.operand.type), self.place.forms, strict=True))

    def fitting(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Sizes that `sizes` lacks: static ones, and of the result's axes the largest that fit."""
        types = (self.operand.type, self.result.type)
        found = {axis: size for type in types for axis, size in sizes_of(type).items() if size >= 0} | dict(sizes)
        for axis in axes_of(self.result.type):
            limits = [
                largest_fit(form, axis, found[along], found)
                for along, form in self.forms.items()
                if axis in form.terms and along in found and set(form.terms) - {axis} <= found.keys()
            ]
            if axis not in found and limits:
                found[axis] = min(limits)
        return {axis: size for axis, size in found.items() if axis not in sizes}

    def verify_(self) -> None:
        for what, value in (("operand 0", self.operand), ("result 0", self.result)):
            check_array(value.type, what)
        source, target = axes_of(self.operand.type), axes_of(self.result.type)
        forms = self.place.forms
        if len(forms) != len(source):
            raise VerifyException(
                f"{len(forms)} positions for the {len(source)} axes of the operand ({_quote(source)})"
            )
        used = {term for form in forms for term in form.terms}
        if unknown := [term for term in used if term not in target]:
            raise VerifyException(f"'{unknown[0]}' is no axis of the result ({_quote(target)})")
        if unused := [axis for axis in target if axis not in used]:
            raise VerifyException(f"axis '{unused[0]}' of the result reads nothing: a map broadcasts along it")
        if format_of(self.operand.type) != format_of(self.result.type):
            raise VerifyException(f"a read keeps the format: {format_of(self.operand.type)}")
        sizes, lengths = sizes_of(self.result.type), sizes_of(self.operand.type)
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
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        type = parser.parse_type()
        parser.parse_punctuation("->")
        op = cls(parser.resolve_operand(operand, type), place, parser.parse_type())
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_operand(self.operand)
        printer.print_string(" at ")
        printer.print_string_literal(self.place.text.data)
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.operand.type)
        printer.print_string(" -> ")
        printer.print_attribute(self.result.type)


def with_fitting(block: Block, sizes: Mapping[str, int]) -> dict[str, int]:
    """Sizes of axes, with those that the reads of a function give to axes of their own."""
    known = dict(sizes)
    for op in block.ops:
        if isinstance(op, ReadOp):
            known |= op.fitting(known)
    return known


@irdl_op_definition
class WhereOp(DiagramOperation):
    """The elements of an array at which a condition holds; the others are absent.

    An absent element does not exist: what a map makes of it is absent, too; a reduction passes over it, so a reduction
    of nothing is its neutral element; where one leaves the program it is saved as zero. The condition is over positions
    along the array's axes (their names), integer scalars and integer arrays, which `with` names. A result at another
    level than the operand has its type after `->`.

    ```
    %W = diagram.where %S if "x <= q" : !S
    %W = diagram.where %S if "x < len[b]" with (len = %len : !len) : !S
    ```
    """

    name = "diagram.where"

    operand = operand_def()
    inputs = var_operand_def()
    condition = prop_def(ConditionAttr)
    names = prop_def(ArrayAttr[StringAttr])
    result = result_def()

    traits = traits_def(Pure())

    def __init__(
        self,
        operand: SSAValue | Operation,
        condition: ConditionAttr | str,
        inputs: Mapping[str, SSAValue] | None = None,
        result_type: Attribute | None = None,
    ):
        if isinstance(condition, str):
            condition = ConditionAttr(condition)
        inputs = inputs or {}
        super().__init__(
            operands=[operand, list(inputs.values())],
            properties={"condition": condition, "names": ArrayAttr(StringAttr(name) for name in inputs)},
            result_types=[SSAValue.get(operand).type if result_type is None else result_type],
        )

    @property
    def holds(self) -> Condition:
        """The condition over positions and the values of its inputs."""
        named = {name.data: value for name, value in zip(self.names, self.inputs, strict=True)}

        def value(term: Term) -> SSAValue | None:
            return None if isinstance(term, SSAValue) else named.get(term if isinstance(term, str) else term.name)

        return resolved(self.condition.condition, value)

    def verify_(self) -> None:
        self.check_arrays()
        axes = axes_of(self.operand.type)
        if axes != axes_of(self.result.type) or format_of(self.operand.type) != format_of(self.result.type):
            raise VerifyException(
                f"elements that are kept stay as they are: {self.operand.type} is not {self.result.type}"
            )
        names = [name.data for name in self.names]
        if len(names) != len(self.inputs):
            raise VerifyException(f"{len(names)} names for {len(self.inputs)} inputs")
        for name, value in zip(names, self.inputs, strict=True):
            if names.count(name) > 1 or name in axes:
                raise VerifyException(f"input '{name}' has the name of another input, or of an axis")
            if str(format_of(value.type)) != "i32":
                raise VerifyException(f"input '{name}' of a condition has elements {format_of(value.type)}, not i32")
            if missing := [axis for axis in axes_of(value.type) if axis not in axes]:
                raise VerifyException(f"input '{name}' has axis '{missing[0]}', which the array has not")
        read = dict.fromkeys(terms_of(self.condition.condition))
        for term in read:
            self._check_term(term, names, axes)
        used = {term.name if isinstance(term, Read) else term for term in read}
        if unused := [name for name in names if name not in used]:
            raise VerifyException(f"input '{unused[0]}' does not appear in the condition")

    def _check_term(self, term: Term, names: Sequence[str], axes: Sequence[str]) -> None:
        assert not isinstance(term, SSAValue)
        name = term if isinstance(term, str) else term.name
        if name in names:
            value = self.inputs[names.index(name)]
            given = () if isinstance(term, str) else term.axes
            if given != axes_of(value.type):
                wanted = f"{name}[{', '.join(axes_of(value.type))}]" if axes_of(value.type) else name
                raise VerifyException(f"input '{name}' is read as '{term}': write '{wanted}'")
        elif isinstance(term, Read):
            raise VerifyException(f"'{term}' reads no input: name it after 'with'")
        elif term not in axes:
            raise VerifyException(f"'{term}' is neither an axis of the array ({_quote(axes)}) nor an input")

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        operand = parser.parse_unresolved_operand()
        parser.parse_keyword("if")
        condition = parser.parse_str_literal()
        inputs: dict[str, SSAValue] = {}

        def entry() -> None:
            name = parser.parse_identifier(" for an input")
            if name in inputs:
                parser.raise_error(f"input '{name}' is named twice")
            parser.parse_punctuation("=")
            value = parser.parse_unresolved_operand()
            parser.parse_punctuation(":")
            inputs[name] = parser.resolve_operand(value, parser.parse_type())

        if parser.parse_optional_keyword("with") is not None:
            parser.parse_comma_separated_list(parser.Delimiter.PAREN, entry)
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        type = parser.parse_type()
        result_type = parser.parse_type() if parser.parse_optional_punctuation("->") is not None else type
        op = cls(parser.resolve_operand(operand, type), condition, inputs, result_type)
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_operand(self.operand)
        printer.print_string(" if ")
        printer.print_string_literal(self.condition.text.data)

        def entry(pair: tuple[StringAttr, SSAValue]) -> None:
            printer.print_string(f"{pair[0].data} = ")
            printer.print_operand(pair[1])
            printer.print_string(" : ")
            printer.print_attribute(pair[1].type)

        if self.inputs:
            printer.print_string(" with (")
            printer.print_list(zip(self.names, self.inputs, strict=True), entry)
            printer.print_string(")")
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.operand.type)
        if self.operand.type != self.result.type:
            printer.print_string(" -> ")
            printer.print_attribute(self.result.type)


@irdl_op_definition
class ApplyOp(DiagramOperation):
    """Apply a law along an axis; every other axis of the operands is weaved. The law computes in the
    formats it states: operands are converted to them and the result to its own format.

    ```
    %P = diagram.apply @softmax(%S) over [x] : (!S) -> !S
    ```
    """

    name = "diagram.apply"

    inputs = var_operand_def()
    law = prop_def(SymbolRefAttr)
    over = prop_def(ArrayAttr[StringAttr])
    outputs = var_result_def()

    traits = traits_def(Pure())

    def __init__(
        self,
        law: str | SymbolRefAttr,
        inputs: Sequence[SSAValue | Operation],
        over: Iterable[str],
        result_types: Sequence[Attribute],
    ):
        super().__init__(
            operands=[inputs],
            properties={
                "law": SymbolRefAttr(law) if isinstance(law, str) else law,
                "over": ArrayAttr(StringAttr(axis) for axis in over),
            },
            result_types=[result_types],
        )

    @property
    def over_axes(self) -> tuple[str, ...]:
        return tuple(axis.data for axis in self.over)

    @property
    def result(self) -> SSAValue:
        """The first result: what an application is called by."""
        return self.outputs[0]

    def verify_(self) -> None:
        self.check_arrays()
        if not self.outputs:
            raise VerifyException("a law gives one array at least")
        for axis in self.over_axes:
            if all(axis not in axes_of(operand.type) for operand in self.inputs):
                raise VerifyException(f"axis '{axis}' is in no operand of the law")

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        law = parser.parse_symbol_name()
        operands = parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_unresolved_operand)
        parser.parse_keyword("over")
        over = parse_axis_list(parser)
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        position = parser.pos
        function = parser.parse_function_type()
        inputs = parser.resolve_operands(operands, function.inputs.data, position)
        op = cls(SymbolRefAttr(law), inputs, over, function.outputs.data)
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_attribute(self.law)
        printer.print_string("(")
        printer.print_list(self.inputs, printer.print_operand)
        printer.print_string(") over ")
        print_axis_list(printer, self.over_axes)
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_function_type([value.type for value in self.inputs], [value.type for value in self.outputs])


@irdl_op_definition
class LawOp(IRDLOperation):
    """A named function along axes, generic in the other axes: its plain meaning and, for a law over one
    axis, how it is fed that axis in pieces. Without the second part the stream is derived from the meaning.
    The standard laws ship in `dialects/diagram/laws.mlir`; a program that defines a law of the same name
    uses its own.

    ```
    diagram.law @softmax over [x] (%v : !v) -> !v { ... diagram.yield %y : !v }
    ```

    ```
    diagram.law @mean over [x] (%v : !v) -> !r { ...
    } initialise { ... diagram.yield %zero : !r
    } step (%sum : !r, %piece : !v) { ... diagram.yield %next : !r
    } finish (%sum : !r) { ... diagram.yield %mean : !r
    } merge (%one : !r, %other : !r) { ... diagram.yield %both : !r }
    ```

    `initialise` gives the state before the first piece. `step` takes the state and the arguments, those that
    have the axis piece by piece, and yields the next state, then the pieces of the results that have the
    axis. `finish` takes the state and the arguments that lack the axis, and yields the results that lack it.
    `merge`, which may be left out, takes the states of two neighbouring parts of the axis, the first part
    first, and the arguments that lack the axis, and yields the state of both parts together. `treadle check`
    tries whether all that is what the meaning says.
    """

    name = "diagram.law"

    sym_name = prop_def(SymbolNameConstraint())
    over = prop_def(ArrayAttr[StringAttr])
    function_type = prop_def(FunctionType)
    body = region_def("single_block")
    stream = var_region_def("single_block")

    traits = traits_def(SymbolOpInterface(), IsolatedFromAbove(), NoTerminator())

    def __init__(
        self, name: str, over: Iterable[str], result_types: Sequence[Attribute], body: Region, stream: Sequence[Region]
    ):
        inputs = [arg.type for arg in body.block.args]
        super().__init__(
            properties={
                "sym_name": StringAttr(name),
                "over": ArrayAttr(StringAttr(axis) for axis in over),
                "function_type": FunctionType.from_lists(inputs, result_types),
            },
            regions=[body, stream],
        )

    @property
    def over_axes(self) -> tuple[str, ...]:
        return tuple(axis.data for axis in self.over)

    @property
    def own_axes(self) -> tuple[str, ...]:
        """Axes that only the meaning has: no argument brings them."""
        given = {axis for type in self.inputs for axis in axes_of(type)}
        inside = (axis for op in self.body.walk() for result in op.results for axis in axes_of(result.type))
        return tuple(axis for axis in dict.fromkeys(inside) if axis not in given)

    def why_not(self, apply: ApplyOp) -> str | None:
        """Why the law cannot be applied in this way; None if it can."""
        name = self.sym_name.data
        if len(apply.over_axes) != len(self.over_axes):
            return f"law @{name} is over {len(self.over_axes)} axes, it is applied over {len(apply.over_axes)}"
        if len(apply.inputs) != len(self.inputs):
            return f"law @{name} takes {len(self.inputs)} arrays, it is given {len(apply.inputs)}"
        if len(apply.outputs) != len(self.outputs):
            return f"law @{name} gives {len(self.outputs)} arrays, {len(apply.outputs)} are taken"
        given = {axis for operand in apply.inputs for axis in axes_of(operand.type)}
        if confused := [axis for axis in self.own_axes if axis in given]:
            return (
                f"law @{name} has an axis '{confused[0]}' of its own, and so has an array that it is applied to: "
                "give that of the law another name"
            )
        return None

    @property
    def parts(self) -> dict[str, Region]:
        """The regions of the stream by name, `STREAM_PARTS`; none if it is to be derived."""
        return dict(zip(STREAM_PARTS, self.stream, strict=False))

    @property
    def inputs(self) -> tuple[Attribute, ...]:
        return self.function_type.inputs.data

    @property
    def outputs(self) -> tuple[Attribute, ...]:
        return self.function_type.outputs.data

    def verify_(self) -> None:
        _check_yield(self.body, list(self.outputs), "the meaning")
        for axis in self.over_axes:
            if all(axis not in axes_of(type) for type in self.inputs):
                raise VerifyException(f"axis '{axis}' is in no argument of the law")
        if not self.stream:
            return
        if len(self.stream) not in (3, 4):
            raise VerifyException("a stream has 'initialise', 'step', 'finish' and, if it can be split, 'merge'")
        if len(self.over_axes) != 1:
            raise VerifyException(f"a stream is fed along one axis, the law is over {len(self.over_axes)}")
        self._verify_stream(self.over_axes[0])

    def _verify_stream(self, axis: str) -> None:
        parts = self.parts
        state = _yielded(parts["initialise"], "'initialise'")
        still = [type for type in self.inputs if axis not in axes_of(type)]
        pieces = [type for type in self.outputs if axis in axes_of(type)]
        results = [type for type in self.outputs if axis not in axes_of(type)]
        if moving := [type for type in state if axis in axes_of(type)]:
            raise VerifyException(f"the state {moving[0]} has axis '{axis}', which the stream is fed along")
        takes = {
            "initialise": [],
            "step": [*state, *self.inputs],
            "finish": [*state, *still],
            "merge": [*state, *state, *still],
        }
        gives = {"step": [*state, *pieces], "finish": results, "merge": state}
        for name, region in parts.items():
            given = [arg.type for arg in region.block.args]
            if given != takes[name]:
                raise VerifyException(f"'{name}' takes {_types(given)}, it is given {_types(takes[name])}")
            if name in gives:
                _check_yield(region, gives[name], f"'{name}'")

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        name = parser.parse_symbol_name().data
        parser.parse_keyword("over")
        over = parse_axis_list(parser)
        arguments = parser.parse_comma_separated_list(
            parser.Delimiter.PAREN, lambda: parser.parse_argument(expect_type=True)
        )
        parser.parse_punctuation("->")
        types = parser.parse_optional_comma_separated_list(parser.Delimiter.PAREN, parser.parse_type)
        types = [parser.parse_type()] if types is None else types
        body = parser.parse_region(arguments)
        stream: list[Region] = []
        for part in STREAM_PARTS:
            if parser.parse_optional_keyword(part) is None:
                break
            given = parser.parse_optional_comma_separated_list(
                parser.Delimiter.PAREN, lambda: parser.parse_argument(expect_type=True)
            )
            stream.append(parser.parse_region(given or ()))
        return cls(name, over, types, body, stream)

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_symbol_name(self.sym_name.data)
        printer.print_string(" over ")
        print_axis_list(printer, self.over_axes)
        printer.print_string(" (")
        printer.print_list(self.body.block.args, printer.print_block_argument)
        printer.print_string(") -> ")
        if len(self.outputs) == 1:
            printer.print_attribute(self.outputs[0])
        else:
            with printer.in_parens():
                printer.print_list(self.outputs, printer.print_attribute)
        printer.print_string(" ")
        printer.print_region(self.body, print_entry_block_args=False)
        for part, region in self.parts.items():
            printer.enter_scope()
            printer.print_string(f" {part} ")
            if region.block.args:
                with printer.in_parens():
                    printer.print_list(region.block.args, printer.print_block_argument)
                printer.print_string(" ")
            printer.print_region(region, print_entry_block_args=False)
            printer.exit_scope()


STREAM_PARTS = ("initialise", "step", "finish", "merge")
"""The regions of the stream of a law, in order; the last may be left out."""


def _yielded(region: Region, what: str) -> list[Attribute]:
    terminator = region.block.last_op
    if not isinstance(terminator, YieldOp):
        raise VerifyException(f"{what} of a law ends with diagram.yield")
    return [operand.type for operand in terminator.operands]


def _check_yield(region: Region, wanted: Sequence[Attribute], what: str) -> None:
    if (types := _yielded(region, what)) != list(wanted):
        raise VerifyException(f"{what} of a law yields {_types(types)} where {_types(wanted)} is declared")


def _types(types: Sequence[Attribute]) -> str:
    return f"({', '.join(str(type) for type in types)})"


def same_axes(left: Attribute, right: Attribute) -> bool:
    """Whether two arrays have the same axes with the same sizes, in any order."""
    return sizes_of(left).items() == sizes_of(right).items()


__all__ = [
    "REDUCTIONS",
    "STREAM_PARTS",
    "ApplyOp",
    "Block",
    "CastOp",
    "ContractOp",
    "DiagramOperation",
    "ExtentOp",
    "FillOp",
    "Format",
    "IndexOp",
    "LawOp",
    "MapOp",
    "ReadOp",
    "ReduceOp",
    "WhereOp",
    "YieldOp",
    "same_axes",
    "with_fitting",
]
