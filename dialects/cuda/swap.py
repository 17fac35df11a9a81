"""`cuda.swap`: neighbouring blocks along an axis change places, which each thread does with its own registers."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Self

from xdsl.dialects.builtin import IntAttr, StringAttr, TensorType
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, prop_def, result_def, traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from treadle.dialects.cuda.layout import LANES, LayoutAttr, Mode, digits_of
from treadle.dialects.cuda.tiles import check_fragment, layout_of
from treadle.dialects.diagram.swap import check_swap, parse_swap, print_swap, swapped


@irdl_op_definition
class SwapOp(IRDLOperation):
    """What `diagram.swap` is of a fragment whose threads have both blocks of each pair: an element is in another
    register of the same thread, and nothing moves. Refused where a thread would need what another one has.

    ```
    %R = cuda.swap %P along d by 64 : !P -> !P
    ```
    """

    name = "cuda.swap"

    value = operand_def(TensorType)
    axis = prop_def(StringAttr)
    block_length = prop_def(IntAttr)
    result = result_def(TensorType)

    traits = traits_def(Pure())

    def __init__(self, value: SSAValue, axis: str, block: int):
        super().__init__(
            operands=[value],
            properties={"axis": StringAttr(axis), "block_length": IntAttr(block)},
            result_types=[value.type],
        )

    @property
    def length(self) -> int:
        """Elements of a block."""
        return self.block_length.data

    @property
    def moves(self) -> Mapping[tuple[int, ...], tuple[int, ...]]:
        """The register that each one is filled from, by the digits along the axis."""
        found = swapped_registers(layout_of(self.value.type), self.axis.data, self.length)
        assert found is not None
        return found

    def verify_(self) -> None:
        check_fragment(self.value.type, "the value")
        check_swap(self.value.type, self.result.type, self.axis.data, self.length)
        if self.result.type != self.value.type:
            raise VerifyException("a swap leaves everything else where it is: the result has the type of the value")
        if swapped_registers(layout_of(self.value.type), self.axis.data, self.length) is None:
            raise VerifyException(
                f"blocks of {self.length} along '{self.axis.data}' lie in different threads: a swap moves nothing "
                "between them"
            )

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        operand, axis, block, attributes, types = parse_swap(parser)
        op = cls(parser.resolve_operand(operand, types[0]), axis, block)
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        print_swap(printer, self, self.value, self.axis.data, self.length)


def swapped_registers(layout: LayoutAttr, axis: str, block: int) -> dict[tuple[int, ...], tuple[int, ...]] | None:
    """For each register of a thread the one that has the element which a swap of blocks puts there, by the digits of
    the modes along the axis; None unless every thread has both, and all in the same registers."""
    modes = [mode for mode in layout.register if mode.axis == axis]
    digits = list(product(*(range(mode.size) for mode in modes)))
    places = {digit: _place(modes, digit) for digit in digits}
    found: dict[tuple[int, ...], tuple[int, ...]] | None = None
    for first in _firsts(layout, axis):
        here = {first + place: digit for digit, place in places.items()}
        try:
            moves = {digit: here[swapped(first + place, block)] for digit, place in places.items()}
        except KeyError:
            return None
        if found is not None and moves != found:
            return None
        found = moves
    return found


def _firsts(layout: LayoutAttr, axis: str) -> set[int]:
    """Where the elements of a thread begin along an axis, of all threads."""
    lanes, warps = (
        {_place(modes, digits_of(number, modes), axis) for number in range(count)}
        for modes, count in ((tuple(layout.lane), LANES), (tuple(layout.warp), layout.warps))
    )
    return {lane + warp for lane, warp in product(lanes, warps)}


def _place(modes: list[Mode] | tuple[Mode, ...], digits: tuple[int, ...] | list[int], axis: str | None = None) -> int:
    pairs = zip(modes, digits, strict=True)
    return sum(mode.stride * digit for mode, digit in pairs if axis is None or mode.axis == axis)


def may_swap(type: Attribute, axis: str, block: int) -> bool:
    """Whether threads have all that they need to swap blocks of a fragment of this type."""
    return swapped_registers(layout_of(type), axis, block) is not None


__all__ = ["SwapOp", "may_swap", "swapped_registers"]
