"""`cuda.rename`: a fragment under other names of its axes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from xdsl.dialects.builtin import ArrayAttr, StringAttr, TensorType
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, prop_def, result_def, traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from treadle.dialects.cuda.layout import LayoutAttr, Mode
from treadle.dialects.cuda.tiles import check_fragment, layout_of
from treadle.dialects.diagram.array import array_type, format_of, sizes_of
from treadle.dialects.diagram.rename import check_names, parse_rename, print_rename, renamed


@irdl_op_definition
class RenameOp(IRDLOperation):
    """A fragment whose axes have other names: the same registers of the same threads, and nothing moves. In the
    layout of another fragment with these axes the elements may lie elsewhere: they go there as any do, by shuffles or
    through shared memory.

    ```
    %hi = cuda.rename %h (j as i) : !hj -> !hi
    ```
    """

    name = "cuda.rename"

    value = operand_def(TensorType)
    old = prop_def(ArrayAttr[StringAttr])
    new = prop_def(ArrayAttr[StringAttr])
    result = result_def(TensorType)

    traits = traits_def(Pure())

    def __init__(self, value: SSAValue, names: Mapping[str, str], result_type: Attribute | None = None):
        super().__init__(
            operands=[value],
            properties={
                "old": ArrayAttr(StringAttr(name) for name in names),
                "new": ArrayAttr(StringAttr(name) for name in names.values()),
            },
            result_types=[renamed_type(value.type, names) if result_type is None else result_type],
        )

    @property
    def names(self) -> dict[str, str]:
        """The new name of each axis that has one, by its old one."""
        return {old.data: new.data for old, new in zip(self.old, self.new, strict=True)}

    def verify_(self) -> None:
        check_fragment(self.value.type, "the value")
        check_names([each.data for each in self.old], [each.data for each in self.new], self.value.type)
        wanted = renamed_type(self.value.type, self.names)
        if self.result.type != wanted:
            raise VerifyException(f"{self.value.type} under other names is {wanted}, not {self.result.type}")

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        operand, names, attributes, (type, result) = parse_rename(parser)
        op = cls(parser.resolve_operand(operand, type), {}, result)
        op.old, op.new = names
        op.attributes |= attributes
        return op

    def print(self, printer: Printer) -> None:
        print_rename(printer, self, self.value, (self.old, self.new))


def renamed_type(type: Attribute, names: Mapping[str, str]) -> Attribute:
    """The type of a fragment whose axes have these names instead, which lies as it does."""
    layout = renamed_layout(layout_of(type), names)
    return array_type(format_of(type), renamed(sizes_of(type), names), "register", layout)


def renamed_layout(layout: LayoutAttr, names: Mapping[str, str]) -> LayoutAttr:
    """The layout by which threads hold the same elements under other names."""

    def of(modes: tuple[Mode, ...]) -> tuple[Mode, ...]:
        return tuple(Mode(names.get(mode.axis, mode.axis), mode.size, mode.stride) for mode in modes)

    return LayoutAttr(of(tuple(layout.register)), of(tuple(layout.lane)), of(tuple(layout.warp)))


__all__ = ["RenameOp", "renamed_layout", "renamed_type"]
