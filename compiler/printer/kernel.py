"""Print one `cuda.kernel` as a CUDA C function."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager, nullcontext
from functools import singledispatchmethod

from xdsl.dialects import arith, scf, tensor
from xdsl.dialects.builtin import IntegerAttr, StringAttr
from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from treadle.compiler.errors import Refusal
from treadle.compiler.lowering.plan import FORMAT_BYTES
from treadle.compiler.primitives import primitive_names
from treadle.compiler.printer.accesses import AccessPrinter
from treadle.compiler.printer.indices import (
    Loop,
    add,
    coordinate,
    scaled,
    subscripts,
    tile_offset,
)
from treadle.compiler.printer.launches import launch_lines
from treadle.compiler.printer.names import RESERVED, Names
from treadle.compiler.printer.products import ProductPrinter
from treadle.compiler.printer.scalars import SIXTEEN_BIT, ScalarPrinter, bare, c_type, literal
from treadle.compiler.printer.text import Text
from treadle.compiler.printer.tiles import TilePrinter
from treadle.compiler.printer.warpgroups import WarpgroupPrinter
from treadle.dialects import cuda
from treadle.dialects.cuda.fragments import PARTIAL, lane_masks
from treadle.dialects.cuda.layout import LANES, LayoutAttr, Mode
from treadle.dialects.cuda.tiles import boxes_of, is_boxed, is_fragment, layout_of, rows_of
from treadle.dialects.diagram import CastOp, FillOp, MapOp, ReduceOp
from treadle.dialects.diagram.array import axes_of, format_of, is_array

CHUNK_BYTES = 16
"""What a swizzle moves together."""

TENSOR_MAP = "const TensorMap&"

INDEX_OPERATORS = {
    "arith.addi": "+",
    "arith.subi": "-",
    "arith.muli": "*",
    "arith.divui": "/",
    "arith.divsi": "/",
    "arith.remui": "%",
}
PREDICATES = ("==", "!=", "<", "<=", ">", ">=", "<", "<=", ">", ">=")

COMBINE = {"add": "{0} + {1}", "mul": "{0} * {1}", "max": "maximum({0}, {1})", "min": "minimum({0}, {1})"}
COMBINE_INTEGERS = {"max": "max({0}, {1})", "min": "min({0}, {1})"}
NEUTRAL = {"add": "0.0f", "mul": "1.0f", "max": "-INFINITY", "min": "INFINITY"}
NEUTRAL_INTEGERS = {"add": "0", "mul": "1", "max": "(-2147483647 - 1)", "min": "2147483647"}


class KernelPrinter:
    """Prints one kernel; afterwards `uses` holds the names of the primitives it calls.

    A fragment is an array in registers with one dimension for each of its layout's register modes; an operation that is
    the last to need its operand writes its result over it."""

    def __init__(self, kernel: cuda.KernelOp, launch: cuda.LaunchOp | None = None):
        self.kernel = kernel
        self.launch = launch
        self.names = Names(RESERVED | frozenset(primitive_names()))
        self.text = Text()
        self.uses: set[str] = set()
        self.values: dict[SSAValue, str] = {}
        self.strides: dict[SSAValue, dict[str, str]] = {}
        self.overwritten_by_if: dict[SSAValue, scf.IfOp] = {}
        self.accesses = AccessPrinter(self)
        self.loop: tuple[int, int] | None = None
        """Of the outermost loop that is being printed: its first line, and the scope around it."""
        self.constants: dict[str, str] = {}
        """Names of what was computed before that loop, by its text."""
        self.warpgroups = WarpgroupPrinter(self)
        self.roles = cuda.roles_of(kernel)
        self.threads = cuda.working_threads(kernel)
        """Threads that copy and compute."""

    # -- the function ------------------------------------------------------------------------------

    def print(self) -> str:
        """The kernel: its body, once, and a function for each alignment of rows that it has a variant for."""
        variants = cuda.alignments(self.kernel)
        name = f"{self.kernel.sym_name.data}_body"
        self.names.scopes[0].add(name)
        parameters = [self._parameter(arg) for arg in self.kernel.body.block.args]
        for line in launch_lines(self.kernel, self.launch, self.values):
            self.text.comment(line)
        self.text.comment("The rows of all arrays are aligned to so many bytes.")
        self.text.line("template <int ALIGNED>")
        self.text.line(f"__device__ __forceinline__ void {name}(")
        self._signature(parameters)
        self.text.depth = 1
        if self.roles is None:
            self._threads()
        else:
            self.warpgroups.threads()
        self.block(self.kernel.body.block)
        self.text.depth = 0
        self.text.line("}")
        for alignment in variants:
            self._entry(alignment, name, parameters)
        return "\n".join(self.text.lines) + "\n"

    def _signature(self, parameters: Sequence[Sequence[tuple[str, str]]]) -> None:
        for i, group in enumerate(parameters):
            end = "," if i < len(parameters) - 1 else ") {"
            self.text.line(f"    {', '.join(f'{type} {name}' for type, name in group)}{end}")
        if not parameters:
            self.text.line("    ) {")

    def _entry(self, alignment: int, body: str, parameters: Sequence[Sequence[tuple[str, str]]]) -> None:
        name = cuda.variant_name(self.kernel, alignment)
        self.text.line()
        # Registers move between roles only where the least number of blocks on a multiprocessor is stated.
        bounds = f"{self.kernel.threads.data}{'' if self.roles is None else ', 1'}"
        self.text.line(f'extern "C" __global__ void __launch_bounds__({bounds}) {name}(')
        self._signature([[(_of_entry(type), name) for type, name in group] for group in parameters])
        arguments = ", ".join(name for group in parameters for _, name in group)
        self.text.line(f"  {body}<{alignment}>({arguments});")
        self.text.line("}")

    def _threads(self) -> None:
        self.text.line(f"const int thread = threadIdx.x, lane = thread % {LANES}, warp = thread / {LANES};")
        self.text.line("(void)lane, (void)warp;")

    def _parameter(self, arg: BlockArgument) -> list[tuple[str, str]]:
        """The C parameters of one argument, with their types: of a buffer its address, then its strides in elements
        but for the last axis."""
        name = self.names.fresh(arg.name_hint, "array" if is_array(arg.type) else "size")
        self.values[arg] = name
        if isinstance(arg.type, cuda.TensorMapType):
            return [(TENSOR_MAP, name)]
        if not is_array(arg.type):
            return [(c_type(arg.type), name)]
        axes = axes_of(arg.type)
        strides = {axis: self.names.fresh(f"{name}_{axis}") for axis in axes[:-1]}
        self.strides[arg] = {**strides, **dict.fromkeys(axes[-1:], "1")}
        stored = any(_stores_to(use.operation, arg) for use in arg.uses)
        pointer = f"{'' if stored else 'const '}{c_type(arg.type)}* __restrict__"
        return [(pointer, name), *(("int64_t", stride) for stride in strides.values())]

    def block(self, block: Block) -> None:
        for op in block.ops:
            self._operation(op)

    # -- operations --------------------------------------------------------------------------------

    @singledispatchmethod
    def _operation(self, op: Operation) -> None:
        if op.name in INDEX_OPERATORS:
            left, right = (self.values[operand] for operand in op.operands)
            self._define_index(op, f"({left} {INDEX_OPERATORS[op.name]} {right})")
            return
        raise Refusal(op, f"'{op.name}' has no CUDA C: lower it before printing")

    def _define_index(self, op: Operation, text: str) -> None:
        """Named or shared index arithmetic gets a constant of its own."""
        result = op.results[0]
        if result.name_hint is None and len(list(result.uses)) <= 1:
            self.values[result] = text
            return
        name = self.names.fresh(result.name_hint, "index")
        self.text.line(f"const {c_type(result.type)} {name} = {bare(text)};")
        self.values[result] = name

    @_operation.register
    def _(self, op: arith.ConstantOp) -> None:
        assert isinstance(op.value, IntegerAttr)
        self.values[op.result] = literal(op.value)

    @_operation.register
    def _(self, op: arith.CeilDivUIOp) -> None:
        left, right = (self.values[operand] for operand in op.operands)
        above = str(int(right) - 1) if right.isdigit() else f"{right} - 1"
        self._define_index(op, f"(({left} + {above}) / {right})")

    @_operation.register
    def _(self, op: arith.FloorDivSIOp | arith.CeilDivSIOp) -> None:
        """C rounds a quotient towards zero; divisors are positive here."""
        left, right = self._short(op.lhs), self._short(op.rhs)
        if isinstance(op, arith.FloorDivSIOp):
            text = f"{left} >= 0 ? {left} / {right} : -(({right} - 1 - {left}) / {right})"
        else:
            text = f"{left} > 0 ? ({left} + {right} - 1) / {right} : -(-{left} / {right})"
        self._define_index(op, f"({text})")

    @_operation.register
    def _(self, op: arith.MaxSIOp | arith.MinSIOp) -> None:
        left, right = self._short(op.lhs), self._short(op.rhs)
        sign = ">" if isinstance(op, arith.MaxSIOp) else "<"
        self._define_index(op, f"({left} {sign} {right} ? {left} : {right})")

    @_operation.register
    def _(self, op: arith.SelectOp) -> None:
        condition, yes, no = (self.values[operand] for operand in op.operands)
        self._define_index(op, f"({condition} ? {yes} : {no})")

    @_operation.register
    def _(self, op: tensor.ExtractOp) -> None:
        self._define_index(op, self.values[op.tensor])

    def _short(self, value: SSAValue) -> str:
        """A name or a number for a value that is written more than once."""
        text = self.values[value]
        if text.isidentifier() or text.isdigit():
            return text
        name = self.names.fresh(value.name_hint, "index")
        self.text.line(f"const {c_type(value.type)} {name} = {bare(text)};")
        self.values[value] = name
        return name

    @_operation.register
    def _(self, op: arith.CmpiOp) -> None:
        left, right = (self.values[operand] for operand in op.operands)
        self._define_index(op, f"({bare(left)} {PREDICATES[op.predicate.value.data]} {bare(right)})")

    @_operation.register
    def _(self, op: arith.IndexCastOp) -> None:
        self._define_index(op, f"{c_type(op.result.type)}({bare(self.values[op.input])})")

    @_operation.register
    def _(self, op: cuda.BlockIndexOp) -> None:
        self._comment_of(op)
        self._define_index(op, "int64_t(blockIdx.x)")

    @_operation.register
    def _(self, op: cuda.BarrierOp) -> None:
        if self.roles is not None and self.roles.is_ancestor(op):
            return self.warpgroups.barrier(op)
        self.text.line(f"{self.call('barrier_block')}();")

    @_operation.register
    def _(self, op: cuda.SharedOp) -> None:
        type = c_type(op.result.type)
        name = self.names.fresh(op.result.name_hint, "tile")
        if is_boxed(op.result.type):
            return self._boxed(op)
        rows = rows_of(op.result.type)
        shape = " x ".join(str(extent) for extent in rows.shape if extent != 1) or "1"
        stages = f"{op.stages.data} stages of " if op.stages.data != 1 else ""
        order = (
            f", swizzled by {1 << rows.swizzle_bits} rows" if rows.swizzle_bits else f", rows {rows.pitch.data} apart"
        )
        base = f"{self.call('shared_memory')}() + {op.offset.data}"
        self.text.line(
            f"{type}* const {name} = reinterpret_cast<{type}*>({base});"
            f"  // [{', '.join(axes_of(op.result.type))}]: {stages}{shape}{order}"
        )
        self.values[op.result] = name

    def _boxed(self, op: cuda.SharedOp) -> None:
        type, boxes = c_type(op.result.type), boxes_of(op.result.type)
        name = self.names.fresh(op.result.name_hint, "tile")
        shape = " x ".join(str(extent) for extent in boxes.shape if extent != 1)
        count = f"{op.stages.data} stage{'s' * (op.stages.data > 1)}"
        self.text.line(
            f"{type}* const {name} = reinterpret_cast<{type}*>({self.call('shared_memory')}() + {op.offset.data});"
            f"  // [{', '.join(axes_of(op.result.type))}]: {count} of {shape} in "
            f"boxes of {boxes.span.data}, swizzled"
        )
        self.values[op.result] = name

    @_operation.register
    def _(self, op: cuda.StageOp) -> None:
        type = c_type(op.result.type)
        source = op.tile.owner
        assert isinstance(source, cuda.SharedOp)
        name = self.names.fresh(op.result.name_hint, "stage")
        index = bare(self.values[op.index])
        place = self.values[op.tile]
        if index != "0":
            place = f"{self.call('stage_at')}({place}, {scaled(index, source.stage_bytes)})"
        self.text.line(f"{type}* const {name} = {place};")
        self.values[op.result] = name

    @_operation.register
    def _(self, op: cuda.CommitOp) -> None:
        self.text.line(f"{self.call('copy_async_commit')}();")

    @_operation.register
    def _(self, op: cuda.WaitOp) -> None:
        self.text.line(f"{self.call('copy_async_wait')}<{op.pending.data}>();")

    # -- device memory -----------------------------------------------------------------------------

    @_operation.register
    def _(self, op: cuda.CopyOp) -> None:
        self.accesses.copy(op)

    @_operation.register
    def _(self, op: cuda.LoadOp) -> None:
        self.accesses.load(op)

    @_operation.register
    def _(self, op: cuda.StoreOp) -> None:
        self.accesses.store(op)

    # -- shared memory -----------------------------------------------------------------------------

    @_operation.register
    def _(self, op: cuda.ReadOp) -> None:
        name = self.declare(op.result)
        if not ProductPrinter(self).read_left_operand(op, name):
            TilePrinter(self).read(op, name)

    @_operation.register
    def _(self, op: cuda.WriteOp) -> None:
        TilePrinter(self).write(op)

    def tile_place(self, tile: SSAValue, layout: LayoutAttr, loops: Sequence[Loop]) -> tuple[str, str | None]:
        """Where the element that the loops have reached lies in a tile, and the test that it does."""
        rows = rows_of(tile.type)
        axes = axes_of(tile.type)
        positions = [coordinate(layout, axis, loops) for axis in axes]
        tests = [
            f"{position} < {extent}"
            for axis, position, extent in zip(axes, positions, rows.shape, strict=True)
            if layout.extent(axis) > extent
        ]
        return f"{self.values[tile]}[{self.tile_offset(tile, positions)}]", " && ".join(tests) or None

    def tile_offset(self, tile: SSAValue, coordinates: Sequence[str]) -> str:
        """Where an element of a tile lies, in elements from its beginning."""
        rows = rows_of(tile.type)
        if rows.swizzle_bits:
            self.call("swizzled")
        return tile_offset(rows, CHUNK_BYTES // FORMAT_BYTES[str(format_of(tile.type))], coordinates)

    # -- fragments ---------------------------------------------------------------------------------

    def call(self, primitive: str) -> str:
        """The name of a primitive, noting that it is used."""
        self.uses.add(primitive)
        return primitive

    def loops(self, layout: LayoutAttr) -> list[Loop]:
        """One loop for each register mode, its variable named by axis and stride."""
        with self.names.scope():
            return [Loop(mode, self.names.fresh(f"{mode.axis}{mode.stride}")) for mode in layout.register]

    def constant(self, hint: str, text: str) -> str:
        """The name of an `int` that depends on the thread alone: computed here, or once before all loops around. It
        is asked for in the scope of an operation's own loops, and stands beside the operations that follow."""
        if self.loop is None:
            name = self.names.fresh(hint, scope=-2)
            self.text.line(f"const int {name} = {text};")
            return name
        if text not in self.constants:
            line, scope = self.loop
            self.constants[text] = self.names.fresh(hint, scope=scope)
            self.text.insert(line, f"const int {self.constants[text]} = {self.call('kept')}({text});")
        return self.constants[text]

    def declare(self, value: SSAValue, initial: str = "") -> str:
        """Declare the array of a fragment."""
        name = self.names.fresh(value.name_hint, "fragment")
        shape = "".join(f"[{size}]" for size in layout_of(value.type).register_shape)
        self.text.line(f"{c_type(value.type)} {name}{shape}{initial};")
        self.values[value] = name
        return name

    def over(self, result: SSAValue, operands: Sequence[SSAValue], op: Operation) -> str:
        """The array of a result: that of an operand which no one needs any more, or a new one."""
        for operand in operands:
            if self._same_registers(operand, result) and self.is_last_use(operand, op):
                self.values[result] = self.values[operand]
                return self.values[result]
        return self.declare(result)

    def _same_registers(self, left: SSAValue, right: SSAValue) -> bool:
        if not is_fragment(left.type) or format_of(left.type) != format_of(right.type):
            return False
        return layout_of(left.type) == layout_of(right.type)

    def is_last_use(self, value: SSAValue, op: Operation) -> bool:
        """Whether `op` is the only one to use a value, and runs once for each time the value is made."""
        for use in value.uses:
            if use.operation is op:
                continue
            branch = self.overwritten_by_if.get(value)
            if branch is None or use.operation.parent is not branch.false_region.block:
                return False
        home = value.owner if isinstance(value.owner, Block) else value.owner.parent
        place = op.parent
        while place is not None and place is not home:
            parent = place.parent_op()
            if not isinstance(parent, scf.IfOp):
                return False
            place = parent.parent
        return place is home

    @_operation.register
    def _(self, op: FillOp) -> None:
        number = literal(op.value)
        layout = layout_of(op.result.type)
        if not layout.register_shape:
            self.declare(op.result, f" = {number}")
            return
        if op.number == 0:
            self.declare(op.result, " = {}")
            return
        name = self.declare(op.result)
        loops = self.loops(layout)
        self.text.nest(loops, [f"{name}{subscripts(layout, loops)} = {number};"])

    @_operation.register
    def _(self, op: cuda.IndexOp) -> None:
        layout = layout_of(op.result.type)
        name = self.declare(op.result)
        loops = self.loops(layout)
        start = f"int32_t({bare(self.values[op.offset])})"
        place = add([start, coordinate(layout, op.axis, loops)])
        self.text.nest(loops, [f"{name}{subscripts(layout, loops)} = {place};"])

    @_operation.register
    def _(self, op: MapOp) -> None:
        layout = layout_of(op.result.type)
        name = self.over(op.result, op.inputs, op)
        with self.names.scope() if layout.register_shape else nullcontext():
            loops = [Loop(mode, self.names.fresh(f"{mode.axis}{mode.stride}")) for mode in layout.register]
            statements: list[str] = []

            def declare(type: str, hint: str | None, text: str) -> str:
                constant = self.names.fresh(hint)
                statements.append(f"const {type} {constant} = {bare(text)};")
                return constant

            arguments: dict[SSAValue, str] = {
                arg: self._element(operand, loops) for arg, operand in zip(op.body.block.args, op.inputs, strict=True)
            }
            text = ScalarPrinter(self.uses, declare).body(op.body.block, arguments)
            statements.append(f"{name}{subscripts(layout, loops)} = {bare(text)};")
            self.text.nest(loops, statements)

    def _element(self, value: SSAValue, loops: Sequence[Loop]) -> str:
        name = self.values[value]
        if not is_fragment(value.type):
            return name
        return f"{name}{subscripts(layout_of(value.type), loops)}"

    @_operation.register
    def _(self, op: CastOp) -> None:
        layout = layout_of(op.result.type)
        source, target = str(format_of(op.operand.type)), str(format_of(op.result.type))
        name = self.declare(op.result)
        loops = self.loops(layout)
        if source == "f32" and target in SIXTEEN_BIT and _is_pair(layout.register):
            outer, pair = loops[:-1], loops[-1]
            low, high = (self._element(op.operand, [*outer, Loop(pair.mode, digit)]) for digit in "01")
            statement = f"{self.call('store_pair')}({name}{subscripts(layout, outer, len(outer))}, {low}, {high});"
            self.text.nest(outer, [statement])
            return
        element = self._element(op.operand, loops)
        if source in SIXTEEN_BIT:
            element = f"{self.call('to_float')}({element})"
        if target in SIXTEEN_BIT:
            element = f"{self.call('from_float')}<{c_type(op.result.type)}>({element})"
        self.text.nest(loops, [f"{name}{subscripts(layout, loops)} = {element};"])

    @_operation.register
    def _(self, op: ReduceOp) -> None:
        kind, integer = op.kind.data, str(format_of(op.result.type)) == "i32"
        combine = self._combination(kind, op.result)
        neutral = (NEUTRAL_INTEGERS if integer else NEUTRAL)[kind]
        if str(format_of(op.result.type)) in SIXTEEN_BIT:
            raise Refusal(op, f"'{kind}' reduces in {format_of(op.result.type)}: reduce in f32 and cast the result")
        layout, source = layout_of(op.result.type), layout_of(op.operand.type)
        name = self.declare(op.result)
        partial = PARTIAL in op.attributes
        masks = [] if partial else lane_masks(source, op.over_axes)
        # Every lane would combine what it starts from: right if that changes nothing, or if lanes keep apart.
        early = kind in ("max", "min") or partial
        loops = self.loops(layout)
        here = f"{name}{subscripts(layout, loops)}"
        start = self._element(op.init, loops) if op.init is not None and early else neutral
        self.text.nest(loops, [f"{here} = {start};"])
        every = self.loops(source)
        element = self._element(op.operand, every)
        if str(format_of(op.operand.type)) in SIXTEEN_BIT:
            element = f"{self.call('to_float')}({element})"
        target = f"{name}{subscripts(layout, every)}"
        self.text.nest(every, [f"{target} = {combine.format(target, element)};"])
        shuffle = self.call("shuffle_xor")
        statements = [f"{here} = {combine.format(here, f'{shuffle}({here}, {mask})')};" for mask in masks]
        if op.init is not None and not early:
            statements.append(f"{here} = {combine.format(self._element(op.init, loops), here)};")
        if statements:
            self.text.nest(loops, statements)

    @_operation.register
    def _(self, op: cuda.CombineOp) -> None:
        layout = layout_of(op.result.type)
        name = self.over(op.result, [op.value], op)
        loops = self.loops(layout)
        combine = self._combination(op.kind.data, op.result)
        here, there = f"{name}{subscripts(layout, loops)}", self._element(op.value, loops)
        statements: list[str] = []
        for mask in op.masks:
            other = f"{self.call('shuffle_xor')}({there}, {mask})"
            statements.append(f"{here} = {combine.format(there, other)};")
            there = here
        self.text.nest(loops, statements)

    def _combination(self, kind: str, value: SSAValue) -> str:
        if str(format_of(value.type)) == "i32":
            return COMBINE_INTEGERS.get(kind, COMBINE[kind])
        if kind in ("max", "min"):
            self.call({"max": "maximum", "min": "minimum"}[kind])
        return COMBINE[kind]

    @_operation.register
    def _(self, op: cuda.MaskOp) -> None:
        layout = layout_of(op.result.type)
        name = self.over(op.result, [op.value], op)
        loops = self.loops(layout)
        place = add([self.values[op.offset], coordinate(layout, op.axis.data, loops)])
        element = self._element(op.value, loops)
        text = f"{place} < {bare(self.values[op.limit])} ? {element} : {literal(op.other)}"
        if str(format_of(op.value.type)) in SIXTEEN_BIT:
            self.call("from_float")
        self.text.nest(loops, [f"{name}{subscripts(layout, loops)} = {text};"])

    @_operation.register
    def _(self, op: cuda.ProductOp) -> None:
        ProductPrinter(self).print(op)

    # -- roles ---------------------------------------------------------------------------------------

    @_operation.register
    def _(self, op: cuda.RolesOp) -> None:
        self.warpgroups.roles(op)

    @_operation.register
    def _(self, op: cuda.RingOp) -> None:
        self.warpgroups.ring(op)

    @_operation.register
    def _(self, op: cuda.ReadyOp) -> None:
        self.warpgroups.ready(op)

    @_operation.register
    def _(self, op: cuda.AcquireOp) -> None:
        self.warpgroups.acquire(op)

    @_operation.register
    def _(self, op: cuda.ExpectOp) -> None:
        self.warpgroups.expect(op)

    @_operation.register
    def _(self, op: cuda.AwaitOp) -> None:
        self.warpgroups.wait(op)

    @_operation.register
    def _(self, op: cuda.ReleaseOp) -> None:
        self.warpgroups.release(op)

    @_operation.register
    def _(self, op: cuda.TensorLoadOp) -> None:
        self.warpgroups.tensor_load(op)

    @_operation.register
    def _(self, op: cuda.WarpgroupProductOp) -> None:
        self.warpgroups.product(op)

    @_operation.register
    def _(self, op: cuda.WarpgroupWaitOp) -> None:
        self.warpgroups.product_wait(op)

    # -- loops and branches ------------------------------------------------------------------------

    @_operation.register
    def _(self, op: scf.ForOp) -> None:
        self._comment_of(op)
        for arg, init, result in zip(op.body.block.args[1:], op.iter_args, op.results, strict=True):
            self.values[arg] = self.values[result] = self._owned(init, arg, op)
        self.accesses.before_loop(op)
        with self._outermost(), self.names.scope():
            index = self.names.fresh(op.body.block.args[0].name_hint, "index")
            self.values[op.body.block.args[0]] = index
            low, high, step = (bare(self.values[value]) for value in (op.lb, op.ub, op.step))
            with self.text.block(f"for (int64_t {index} = {low}; {index} < {high}; {index} += {step})"):
                self.block(op.body.block)

    @contextmanager
    def _outermost(self) -> Generator[None]:
        """The scope of a loop; if no other is around it, constants go before the next line."""
        if self.loop is not None:
            yield
            return
        self.loop = len(self.text.lines), len(self.names.scopes) - 1
        yield
        self.loop = None
        self.constants.clear()

    def _owned(self, value: SSAValue, into: SSAValue, op: Operation) -> str:
        """The array that a loop may change, which starts as a value: its own, or a copy if others still need it."""
        if self.is_last_use(value, op):
            return self.values[value]
        into.name_hint = into.name_hint or value.name_hint
        name = self.declare(into)
        self.copy(name, self.values[value], layout_of(into.type))
        return name

    def copy(self, target: str, source: str, layout: LayoutAttr) -> None:
        loops = self.loops(layout)
        place = subscripts(layout, loops)
        self.text.nest(loops, [f"{target}{place} = {source}{place};"])

    @_operation.register
    def _(self, op: scf.YieldOp) -> None:
        parent = op.parent_op()
        assert isinstance(parent, scf.ForOp | scf.IfOp)
        moves = [
            (self.values[result], self.values[value], layout_of(value.type))
            for result, value in zip(parent.results, op.operands, strict=True)
            if self.values[result] != self.values[value]
        ]
        targets = {target for target, _, _ in moves}
        for i, (target, source, layout) in enumerate(moves):
            if source in targets:  # it would be overwritten before it is read
                shape = "".join(f"[{size}]" for size in layout.register_shape)
                name = self.names.fresh(f"{source}_old")
                self.text.line(f"{c_type(op.operands[0].type)} {name}{shape};")
                self.copy(name, source, layout)
                moves[i] = (target, name, layout)
        for target, source, layout in moves:
            self.copy(target, source, layout)

    @_operation.register
    def _(self, op: scf.IfOp) -> None:
        self._comment_of(op)
        otherwise = op.false_region.block if op.false_region.blocks else None
        kept = list(otherwise.last_op.operands) if otherwise is not None and otherwise.last_op is not None else []
        for result, value in zip(op.results, kept, strict=True):
            if self._dies_in(value, op):
                self.overwritten_by_if[value] = op
                self.values[result] = self.values[value]
            else:
                self.declare(result)
        with self.names.scope(), self.text.block(f"if ({bare(self.values[op.cond])})"):
            self.block(op.true_region.block)
        if otherwise is not None and not self._does_nothing(op, otherwise):
            with self.names.scope(), self.text.block("else"):
                self.block(otherwise)

    def _dies_in(self, value: SSAValue, op: scf.IfOp) -> bool:
        """Whether nothing after the branch needs the value, and the branch runs once for each time it is made."""
        home = value.owner if isinstance(value.owner, Block) else value.owner.parent
        return home is op.parent and all(op.is_ancestor(use.operation) for use in value.uses)

    def _does_nothing(self, op: scf.IfOp, block: Block) -> bool:
        terminator = block.last_op
        return block.first_op is terminator and all(
            self.values[result] == self.values.get(value)
            for result, value in zip(op.results, terminator.operands if terminator else (), strict=True)
        )

    def _comment_of(self, op: Operation) -> None:
        comment = op.attributes.get("comment")
        if isinstance(comment, StringAttr):
            self.text.comment(comment.data)


def _of_entry(type: str) -> str:
    """The type of a parameter where the launch gives it: a tensor map must lie in the kernel's own parameters."""
    return "const __grid_constant__ TensorMap" if type == TENSOR_MAP else type


def _stores_to(op: Operation, buffer: SSAValue) -> bool:
    return isinstance(op, cuda.StoreOp | cuda.CopyOp) and op.destination is buffer


def _is_pair(modes: cuda.ModesAttr) -> bool:
    """Whether the registers of a fragment come in pairs of neighbours."""
    last = next(reversed(tuple(modes)), Mode("", 1, 0))
    return last.size == 2 and last.stride == 1
