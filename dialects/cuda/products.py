"""`cuda.product`: a tile's contraction by every warp."""

from __future__ import annotations

from typing import Self

from xdsl.dialects.builtin import (
    IntAttr,
    MemRefType,
    StringAttr,
    TensorType,
)
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from treadle.dialects.cuda.tiles import check_fragment, check_tile, is_shared, lies_along
from treadle.dialects.diagram.array import (
    axes_of,
    format_of,
    parse_axis_list,
    print_axis_list,
    sizes_of,
)
from treadle.dialects.diagram.formats import BYTES, EIGHT_BIT
from treadle.dialects.syntax import parse_attributes, parse_pair, parse_pair_types, print_types

PRODUCTS = {
    "m16n8k32": EIGHT_BIT,
    "m16n8k32_s32": BYTES,
    "m16n8k16": ("f16", "bf16"),
    "m16n8k8_tf32": ("f32",),
    "fma": (*EIGHT_BIT, "f16", "bf16", "f32", *BYTES, "i32"),
}
"""Instructions of `cuda.product`, with the operand formats they take."""

DEPTHS = {"m16n8k32": 32, "m16n8k32_s32": 32, "m16n8k16": 16, "m16n8k8_tf32": 8}
"""How many elements of the summed axis each instruction of a tensor core takes."""

HALVED = {"m16n8k16": "m16n8k8"}
"""Instructions of which there is one for half as many elements: what is left of an axis that is summed takes that, if
it is no more (heads of 24, 40, 56)."""


def least_depth(instruction: str) -> int:
    """Elements of the summed axis that the last step of an instruction takes at least: as far as operands reach."""
    return DEPTHS[instruction] // 2 if instruction in HALVED else DEPTHS[instruction]


def has_half_step(instruction: str, size: int) -> bool:
    """Whether the last step over so many elements takes half of what the others take."""
    return instruction in HALVED and 0 < size % DEPTHS[instruction] <= DEPTHS[instruction] // 2


@irdl_op_definition
class ProductOp(IRDLOperation):
    """Sum of products over one axis, added to the accumulator's fragments by every warp: `using m16n8k16`,
    `m16n8k8_tf32`, `m16n8k32_s32` of integers or, from sm_89 on, `m16n8k32` of 8-bit floats on tensor cores (PTX ISA
    9.7.14.5), `fma` on the others. An operand is a tile in shared memory or the fragments of the left operand in
    registers; the left operand has the rows. Operands of 8 bits lie along rows of their tiles, and may be of two
    formats, both floats or both integers. Where half a step of `m16n8k16`, or less, is left of the axis, it is one of
    `m16n8k8`.

    ```
    %S = cuda.product %Qs, %Ks into %zero over [d] using m16n8k16 : !Qs, !Ks -> !S
    %T = cuda.product %Qs, %Ks into %zero over [d] subloop 32 using m16n8k16 : !Qs, !Ks -> !S
    %U = cuda.product %As, %Bs into %zero over [k] promote 128 using m16n8k32 : !As, !Bs -> !C
    ```

    With `subloop`, the axis is walked by a loop over pieces of that size, which is not unrolled: registers hold
    operands of one piece at a time. Both operands are tiles then, as registers have no addresses.

    With `promote`, a unit that keeps fewer digits of a sum than its format has may add up so many products at most
    (`cuda.promoted_product`). Single warps of sm_90, whose products of 8 bits are those of f16, have no such unit.
    """

    name = "cuda.product"

    lhs = operand_def()
    rhs = operand_def(MemRefType)
    accumulator = operand_def(TensorType)
    over = prop_def(StringAttr)
    instruction = prop_def(StringAttr)
    subloop = opt_prop_def(IntAttr)
    promote = opt_prop_def(IntAttr)
    result = result_def(TensorType)

    traits = traits_def(Pure())

    def __init__(
        self,
        lhs: SSAValue,
        rhs: SSAValue,
        accumulator: SSAValue,
        over: str,
        instruction: str,
        subloop: int | None = None,
        promote: int | None = None,
    ):
        super().__init__(
            operands=[lhs, rhs, accumulator],
            properties={
                "over": StringAttr(over),
                "instruction": StringAttr(instruction),
                "subloop": None if subloop is None else IntAttr(subloop),
                "promote": None if promote is None else IntAttr(promote),
            },
            result_types=[accumulator.type],
        )

    @property
    def axis(self) -> str:
        return self.over.data

    def verify_(self) -> None:
        formats = PRODUCTS.get(self.instruction.data)
        if formats is None:
            raise VerifyException(f"unknown instruction '{self.instruction.data}' (known: {', '.join(PRODUCTS)})")
        if str(format_of(self.rhs.type)) not in formats:
            raise VerifyException(f"'{self.instruction.data}' does not take {format_of(self.rhs.type)}")
        if str(format_of(self.lhs.type)) not in formats:
            raise VerifyException(f"'{self.instruction.data}' does not take {format_of(self.lhs.type)}")
        mixed = format_of(self.lhs.type) != format_of(self.rhs.type)
        both = {str(format_of(type)) for type in (self.lhs.type, self.rhs.type)}
        if mixed and not any(both <= set(each) for each in (EIGHT_BIT, BYTES)):
            raise VerifyException(f"operands are {format_of(self.lhs.type)} and {format_of(self.rhs.type)}")
        check_tile(self.rhs.type, "the right operand")
        if not is_shared(self.lhs.type):
            check_fragment(self.lhs.type, "the left operand")
        check_fragment(self.accumulator.type, "the accumulator")
        if self.result.type != self.accumulator.type:
            raise VerifyException("the result has the type of the accumulator")
        for type, what in ((self.lhs.type, "left"), (self.rhs.type, "right")):
            if self.axis not in axes_of(type):
                raise VerifyException(f"axis '{self.axis}' is not in the {what} operand")
            if self.instruction.data.startswith("m16n8k32") and is_shared(type) and not lies_along(type, self.axis):
                raise VerifyException(f"the {what} operand does not lie along '{self.axis}', as 8-bit operands must")

        self._verify_subloop()
        if self.promote is not None and (problem := why_not_promoted(self.rhs.type, self.promote.data)) is not None:
            raise VerifyException(problem)

    def _verify_subloop(self) -> None:
        if self.subloop is None:
            return
        size, depth, whole = self.subloop.data, DEPTHS.get(self.instruction.data, 1), sizes_of(self.rhs.type)[self.axis]
        if not is_shared(self.lhs.type):
            raise VerifyException("the left operand is in registers, which a subloop cannot point at")
        if size < 1 or size % depth:
            raise VerifyException(f"a subloop of {size}: '{self.instruction.data}' takes multiples of {depth}")
        if size >= whole or whole % size:
            raise VerifyException(f"a subloop of {size} does not cut the {whole} of axis '{self.axis}' evenly")

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        lhs, rhs = parse_pair(parser)
        parser.parse_keyword("into")
        accumulator = parser.parse_unresolved_operand()
        parser.parse_keyword("over")
        over = parse_axis_list(parser)
        subloop = None
        if parser.parse_optional_keyword("subloop") is not None:
            subloop = parser.parse_integer(allow_boolean=False)
        promote = parse_promote(parser)
        parser.parse_keyword("using")
        instruction = parser.parse_identifier()
        attributes = parse_attributes(parser)
        lhs_type, rhs_type, type = parse_pair_types(parser)
        if len(over) != 1:
            parser.raise_error("a product sums over one axis")
        op = cls(
            parser.resolve_operand(lhs, lhs_type),
            parser.resolve_operand(rhs, rhs_type),
            parser.resolve_operand(accumulator, type),
            over[0],
            instruction,
            subloop,
            promote,
        )
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_list((self.lhs, self.rhs), printer.print_operand)
        printer.print_string(" into ")
        printer.print_operand(self.accumulator)
        printer.print_string(" over ")
        print_axis_list(printer, (self.axis,))
        if self.subloop is not None:
            printer.print_string(f" subloop {self.subloop.data}")
        if self.promote is not None:
            printer.print_string(f" promote {self.promote.data}")
        printer.print_string(f" using {self.instruction.data}")
        print_types(printer, self, (self.lhs.type, self.rhs.type), self.result.type)


def parse_promote(parser: Parser) -> int | None:
    """`promote 128`, if it stands there."""
    if parser.parse_optional_keyword("promote") is None:
        return None
    return parser.parse_integer(allow_boolean=False)


def why_not_promoted(operand: Attribute, every: int) -> str | None:
    """Why sums of so many products of an operand's format are not promoted; None if they may be."""
    if str(format_of(operand)) not in EIGHT_BIT:
        return f"sums of products of {format_of(operand)} are not promoted: only those of 8 bits lose digits"
    if every < 1 or every % DEPTHS["m16n8k32"]:
        return (
            f"sums of {every} products are promoted: expected a multiple of {DEPTHS['m16n8k32']}, which one step takes"
        )
    return None
