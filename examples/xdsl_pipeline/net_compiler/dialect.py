"""The dialect `net`: two operations on plain tensors, as a compiler of networks has them."""

from __future__ import annotations

from xdsl.dialects.builtin import Float32Type, FloatAttr, TensorType
from xdsl.ir import Dialect
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, prop_def, result_def
from xdsl.utils.exceptions import VerifyException


@irdl_op_definition
class EmbedOp(IRDLOperation):
    """A row of `table` for each of `ids`: `%x = net.embed %ids from %table : (...) -> ...`."""

    name = "net.embed"

    ids = operand_def(TensorType)
    table = operand_def(TensorType)
    result = result_def(TensorType)

    assembly_format = "$ids `from` $table attr-dict `:` `(` type($ids) `,` type($table) `)` `->` type($result)"


@irdl_op_definition
class AttendOp(IRDLOperation):
    """Each row of `queries` becomes a mean of the rows of `values`, weighted by how well `keys` fit it:
    `softmax(scale * queries keys^T) values`."""

    name = "net.attend"

    queries = operand_def(TensorType)
    keys = operand_def(TensorType)
    values = operand_def(TensorType)
    scale = prop_def(FloatAttr[Float32Type])
    result = result_def(TensorType)

    assembly_format = (
        "$queries `,` $keys `,` $values `scale` $scale attr-dict `:` "
        "`(` type($queries) `,` type($keys) `,` type($values) `)` `->` type($result)"
    )

    def verify_(self) -> None:
        if any(len(type.get_shape()) != 2 for type in self.operand_types if isinstance(type, TensorType)):
            raise VerifyException("queries, keys and values have two dimensions each")


Net = Dialect("net", [EmbedOp, AttendOp])
