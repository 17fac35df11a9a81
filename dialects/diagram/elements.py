"""Arrays made element by element without a body: converted, constant, and positions; and sizes of axes."""

from __future__ import annotations

from xdsl.dialects.builtin import (
    FloatAttr,
    IntegerAttr,
    StringAttr,
    UnitAttr,
    i32,
)
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import (
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.traits import (
    Pure,
)
from xdsl.utils.exceptions import VerifyException

from treadle.dialects.diagram.array import (
    Number,
    axes_of,
    check_axis_name,
    format_of,
)
from treadle.dialects.diagram.formats import BYTES, EIGHT_BIT, INTEGERS
from treadle.dialects.diagram.operation import DiagramOperation, quote


@irdl_op_definition
class CastOp(DiagramOperation):
    """Round to another number format, to nearest even. Over the real numbers it is the identity, as long as the format
    reaches that far: to an 8-bit format a cast saturates (`treadle.dialects.diagram.formats`). Integers widen exactly,
    to i32 and to floats of 16 bits and more; to i8 goes only what is i32. A rewrite may move it:
    round before a scaling instead of after it, say. With `fixed` it may not, for the rounding is part of what is
    computed, as in a quantisation.

    ```
    %P16 = diagram.cast %P : !P -> !P16
    %X8 = diagram.cast %X fixed : !X -> !X8
    ```
    """

    name = "diagram.cast"

    operand = operand_def()
    fixed = opt_prop_def(UnitAttr)
    result = result_def()

    traits = traits_def(Pure())
    assembly_format = "$operand (`fixed` $fixed^)? attr-dict `:` type($operand) `->` type($result)"

    def __init__(self, operand: SSAValue | Operation, result_type: Attribute, fixed: bool = False):
        super().__init__(
            operands=[operand], properties={"fixed": UnitAttr() if fixed else None}, result_types=[result_type]
        )

    def verify_(self) -> None:
        self.check_arrays()
        source, target = axes_of(self.operand.type), axes_of(self.result.type)
        if set(source) != set(target):
            raise VerifyException(f"a cast keeps the axes: operand has {quote(source)}, result {quote(target)}")
        self._check_integers(str(format_of(self.operand.type)), str(format_of(self.result.type)))

    def _check_integers(self, source: str, target: str) -> None:
        if target in INTEGERS and source not in INTEGERS:
            raise VerifyException(
                f"a cast from a float format to {target} is not defined: it would not be the identity"
            )
        if source in BYTES and target in EIGHT_BIT:
            raise VerifyException(
                f"a cast from {source} to {target} is not defined: cast to f16 first, which holds all of them"
            )


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
