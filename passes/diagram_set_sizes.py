"""`diagram-set-sizes`: make symbolic axes static."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from xdsl.context import Context
from xdsl.dialects.builtin import FunctionType, MemRefType, ModuleOp, TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, BlockArgument, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter
from xdsl.utils.exceptions import PassFailedException

from treadle.compiler.errors import Refusal, TreadleError, failing_operation
from treadle.compiler.sizes import check_sizes, default_sizes, parse_sizes
from treadle.dialects.diagram.array import ArrayType, BufferType, SizesAttr, is_array, sizes_of
from treadle.passes._functions import functions, note


@dataclass(frozen=True)
class DiagramSetSizesPass(ModulePass):
    """Make symbolic axes static in every type, so that a kernel is made for these sizes alone. Legal: one size
    for an axis is one program among those that the symbolic one stands for; an axis that has another size
    already is refused, and so are sizes that no operation can have together.

    Before, with `diagram-set-sizes{sizes="n=64"}`:

    ```
    !x = tensor<?x?xf32, #diagram.array<[m, n]>>
    func.func @negate(%x: !x) -> !x attributes {sizes = #diagram.sizes<m = 4, n = 8>} {
      %y = diagram.map (%a = %x : !x) -> !x {
        %b = arith.negf %a : f32
        diagram.yield %b : f32
      }
      func.return %y : !x
    }
    ```

    After:

    ```
    !x = tensor<?x64xf32, #diagram.array<[m, n]>>
    func.func @negate(%x: !x) -> !x attributes {
        derivation = [#hierarchy.step<"diagram-set-sizes", "n", "instance of a symbolic program", "n = 64">],
        sizes = #diagram.sizes<m = 4>} {
      %y = diagram.map (%a = %x : !x) -> !x {
        %b = arith.negf %a : f32
        diagram.yield %b : f32
      }
      func.return %y : !x
    }
    ```
    """

    name = "diagram-set-sizes"

    sizes: tuple[str, ...] = ()

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        given = _parsed(self.sizes)
        if not given:
            return
        for function in functions(op):
            check_sizes(function, given)
            _make_static(function, given)


def _parsed(texts: tuple[str, ...]) -> dict[str, int]:
    try:
        return parse_sizes(texts)
    except TreadleError as error:
        raise PassFailedException(error.message) from None


def _make_static(function: FuncOp, given: Mapping[str, int]) -> None:
    for operation in function.body.walk():
        if operation.name.startswith(("hierarchy.", "cuda.")):
            raise Refusal(operation, "the kernel is scheduled already: set sizes before fusion, or only as defaults")
        for result in operation.results:
            _retype(result, given)
        for region in operation.regions:
            for block in region.blocks:
                for argument in block.args:
                    _retype(argument, given)
    for argument in function.body.block.args if function.body.blocks else ():
        _retype(argument, given)
    function.properties["function_type"] = FunctionType.from_lists(
        [_sized(type, given) for type in function.function_type.inputs],
        [_sized(type, given) for type in function.function_type.outputs],
    )
    _check_fit(function, given)
    for axis, size in given.items():
        note(function, DiagramSetSizesPass.name, axis, "instance of a symbolic program", f"{axis} = {size}")
    _set_defaults(function, {a: size for a, size in default_sizes(function).items() if a not in given})


def _check_fit(function: FuncOp, given: Mapping[str, int]) -> None:
    """Refuse sizes that contradict each other or those of the program, as of an array and of windows behind its end
    (Refusal)."""
    if (failing := failing_operation(function)) is not None:
        operation, problem = failing
        sizes = ", ".join(f"{axis} = {size}" for axis, size in given.items())
        raise Refusal(operation, f"it cannot have {sizes}: {' '.join(problem.split())}; give other sizes")


def _retype(value: SSAValue, given: Mapping[str, int]) -> None:
    type = _sized(value.type, given)
    if type == value.type:
        return
    resized = Rewriter.replace_value_with_new_type(value, type)
    if isinstance(value, BlockArgument) and isinstance(resized, BlockArgument):
        resized.location = value.location


def _sized(type: Attribute, given: Mapping[str, int]) -> Attribute:
    """`type` with the given sizes in place of its own."""
    if not is_array(type):
        return type
    shape = [given.get(axis, size) for axis, size in sizes_of(type).items()]
    if isinstance(type, MemRefType):
        memref = cast(BufferType, type)
        return MemRefType(memref.element_type, shape, memref.layout, memref.memory_space)
    tensor = cast(ArrayType, type)
    return TensorType(tensor.element_type, shape, tensor.encoding)


def _set_defaults(function: FuncOp, sizes: Mapping[str, int]) -> None:
    function.attributes.pop("sizes", None)
    if sizes:
        function.attributes["sizes"] = SizesAttr(sizes)
