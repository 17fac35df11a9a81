"""`linalg.softmax`, which xDSL 0.74 has not."""

from __future__ import annotations

from xdsl.dialects.builtin import IntegerAttr, TensorType, i64
from xdsl.ir import SSAValue
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, prop_def, result_def
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException


@irdl_op_definition
class SoftmaxOp(IRDLOperation):
    """Softmax along one dimension.

    Upstream says what it is made of: the maximum, the powers of the difference, their sum, the quotient.

    ```
    %P = linalg.softmax dimension(1) ins(%S : tensor<4x8xf32>) outs(%E : tensor<4x8xf32>) -> tensor<4x8xf32>
    ```
    """

    name = "linalg.softmax"

    input = operand_def(TensorType)
    output = operand_def(TensorType)
    dimension = prop_def(IntegerAttr)
    result = result_def(TensorType)

    def __init__(self, input: SSAValue, output: SSAValue, dimension: int):
        super().__init__(
            operands=[input, output],
            result_types=[output.type],
            properties={"dimension": IntegerAttr(dimension, i64)},
        )

    def verify_(self) -> None:
        rank = len(self.input.type.get_shape())  # pyright: ignore
        if self.input.type != self.output.type:
            raise VerifyException(
                f"its input is {self.input.type}, its output {self.output.type}: they must be one type"
            )
        if not 0 <= self.dimension.value.data < rank:
            raise VerifyException(f"dimension {self.dimension.value.data} of a tensor of {rank} dimensions")

    def print(self, printer: Printer) -> None:
        printer.print_string(f" dimension({self.dimension.value.data}) ins(")
        printer.print_ssa_value(self.input)
        printer.print_string(f" : {self.input.type}) outs(")
        printer.print_ssa_value(self.output)
        printer.print_string(f" : {self.output.type}) -> {self.result.type}")
