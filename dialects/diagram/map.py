"""`diagram.map`: a scalar function of every element."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self

from xdsl.dialects import arith
from xdsl.dialects.builtin import (
    ShapedType,
    f32,
)
from xdsl.ir import Attribute, Operation, Region, SSAValue
from xdsl.irdl import (
    irdl_op_definition,
    lazy_traits_def,
    region_def,
    result_def,
    var_operand_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import (
    Pure,
    SingleBlockImplicitTerminator,
)
from xdsl.utils.exceptions import VerifyException

from treadle.dialects.diagram.array import (
    axes_of,
    format_of,
    is_array,
)
from treadle.dialects.diagram.formats import EIGHT_BIT, NUMBER_FORMATS, STORED, ui8
from treadle.dialects.diagram.lagging import check_skipping
from treadle.dialects.diagram.operation import DiagramOperation
from treadle.dialects.diagram.random import RandomOp
from treadle.dialects.diagram.sharing import check_sharing
from treadle.dialects.diagram.yields import YieldOp
from treadle.dialects.syntax import parse_binding, parse_region_attributes, print_binding, print_region_attributes

SCALARS = (*NUMBER_FORMATS, "i1", "index")
"""What the values in the body of a map may be."""
MOVES = (
    arith.ConstantOp,
    arith.ExtFOp,
    arith.TruncFOp,
    arith.ExtSIOp,
    arith.ExtUIOp,
    arith.TruncIOp,
    arith.SIToFPOp,
    arith.UIToFPOp,
    arith.SelectOp,
)
"""What may be done with a number of 8 bits; `arith.truncf` to 8 bits saturates, as `diagram.cast` does."""


def axes_in_body(map: MapOp) -> dict[SSAValue, tuple[str, ...]]:
    """Along which axes each value in the body of a map varies."""
    inputs = zip(map.body.block.args, map.inputs, strict=True)
    axes: dict[SSAValue, tuple[str, ...]] = {}
    for arg, given in inputs:
        axes[arg] = axes_of(given.type) if is_array(given.type) else ()
    for op in map.body.block.ops:
        found = tuple(dict.fromkeys(axis for operand in op.operands for axis in axes[operand]))
        axes |= dict.fromkeys(op.results, found)
    return axes


def is_square(map: MapOp) -> bool:
    """Whether each element is the square of a number of 32 bits."""
    last = map.yielded.owner
    if not isinstance(last, arith.MulfOp) or last.result.type != f32:
        return False
    return last.lhs is last.rhs and len(list(last.result.uses)) == 1


def computed_in_8_bits(op: Operation) -> Attribute | None:
    """The format of 8 bits that an operation computes in, if it does more there than move numbers. No integer becomes a
    float of 8 bits at once, and what reads it, reads its sign, if it has one."""
    of_sign, of_none = (arith.ExtSIOp, arith.SIToFPOp, arith.TruncIOp), (arith.ExtUIOp, arith.UIToFPOp)
    types = (*op.operand_types, *op.result_types)
    if (isinstance(op, of_sign) and ui8 in types) or (isinstance(op, of_none) and ui8 not in types):
        return next((type for type in types if str(type) in STORED), None)
    made = op.results[0].type if isinstance(op, arith.SIToFPOp | arith.UIToFPOp) else None
    if isinstance(op, MOVES):
        return made if str(made) in EIGHT_BIT else None
    return next((type for type in (*op.operand_types, *op.result_types) if str(type) in STORED), None)


@irdl_op_definition
class MapOp(DiagramOperation):
    """Apply a scalar function to every element; an operand without an axis of the result is broadcast
    along it. The body is straight-line `arith` and `math` over scalars of the operands' formats, and `diagram.random`.

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
        check_sharing(self.body.block, axes)
        check_skipping(self, self.body.block)

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
            if op.dialect_name() in self.BODY_DIALECTS and (type := computed_in_8_bits(op)) is not None:
                wide = "f32" if str(type) in EIGHT_BIT else "i32"
                raise VerifyException(f"'{op.name}' computes in {type}: widen to {wide}, compute, and cast")
            if op.dialect_name() not in self.BODY_DIALECTS and not isinstance(op, RandomOp):
                raise VerifyException(
                    f"'{op.name}' in the body of a map: only operations of arith and math, and diagram.random, may "
                    "stand there"
                )
            for result in op.results:
                if isinstance(result.type, ShapedType):
                    raise VerifyException(
                        f"'{op.name}' in the body of a map gives {result.type}: the body computes one element, so "
                        "everything in it is a scalar"
                    )
            for type in (*op.operand_types, *op.result_types):
                if str(type) not in SCALARS:
                    raise VerifyException(
                        f"'{op.name}' in the body of a map computes in {type} (supported: {', '.join(SCALARS)})"
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
            argument, value = parse_binding(parser)
            inputs.append(value)
            return argument.resolve(format_of(value.type))

        arguments = parser.parse_comma_separated_list(parser.Delimiter.PAREN, entry)
        parser.parse_punctuation("->")
        type = parser.parse_type()
        attributes = parse_region_attributes(parser)
        body = parser.parse_region(arguments)
        op = cls(inputs, type, body)
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        printer.enter_scope()

        def entry(pair: tuple[SSAValue, SSAValue]) -> None:
            print_binding(printer, *pair)

        printer.print_string(" (")
        printer.print_list(zip(self.body.block.args, self.inputs, strict=True), entry)
        printer.print_string(") -> ")
        printer.print_attribute(self.result.type)
        print_region_attributes(printer, self)
        printer.print_region(self.body, print_entry_block_args=False, print_empty_block=False)
        printer.exit_scope()
