"""What the parts of a kernel are printed with: the text so far, names, and the registers that hold fragments."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace

from xdsl.dialects import scf
from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Block, Operation, SSAValue

from treadle.compiler.primitives import primitive_names
from treadle.compiler.printer.indices import Loop, Piece, coordinate, outermost, subscripts, tile_offset
from treadle.compiler.printer.names import RESERVED, Names
from treadle.compiler.printer.scalars import c_type
from treadle.compiler.printer.text import Text
from treadle.dialects import cuda
from treadle.dialects.cuda.layout import LayoutAttr, Mode
from treadle.dialects.cuda.tiles import is_fragment, layout_of, rows_of
from treadle.dialects.cuda.warpgroups import has_exact_sums, result_axes
from treadle.dialects.diagram.array import axes_of, format_of
from treadle.dialects.diagram.formats import FORMAT_BYTES

CHUNK_BYTES = 16
"""What a swizzle moves together."""


class KernelWriter(ABC):
    """The state of printing one kernel; afterwards `uses` holds the names of the primitives that it calls.

    A fragment is an array in registers with one dimension for each of its layout's register modes; an operation that is
    the last to need its operand writes its result over it."""

    def __init__(self, kernel: cuda.KernelOp):
        self.kernel = kernel
        self.names = Names(RESERVED | frozenset(primitive_names()))
        self.text = Text()
        self.uses: set[str] = set()
        self.values: dict[SSAValue, str] = {}
        self.strides: dict[SSAValue, dict[str, str]] = {}
        self.alternating: dict[SSAValue, str] = {}
        """What a turn makes of a loop's results, where these have two arrays."""
        self.overwritten_by_if: dict[SSAValue, scf.IfOp] = {}
        self.loop: tuple[int, int] | None = None
        """Of the outermost loop that is being printed: its first line, and the scope around it."""
        self.constants: dict[str, str] = {}
        """Names of what was computed before that loop, by its text."""
        self.piece: Piece | None = None
        """What is being printed, if a loop walks it in pieces; arrays are declared before that."""
        self.roles = cuda.roles_of(kernel)
        self.has_exact_sums = has_exact_sums(kernel)
        self.threads = cuda.working_threads(kernel)
        """Threads that copy and compute."""

    @abstractmethod
    def block(self, block: Block) -> None:
        """Print the operations of a block."""

    @abstractmethod
    def before_loop(self, op: scf.ForOp) -> None:
        """Declare what the accesses of a loop keep from turn to turn."""

    @abstractmethod
    def meet(self, op: Operation) -> None:
        """Print that all threads meet that execute an operation: the block, or those of its role."""

    # -- text --------------------------------------------------------------------------------------

    def comment_of(self, op: Operation) -> None:
        comment = op.attributes.get("comment")
        if isinstance(comment, StringAttr):
            self.text.comment(comment.data)

    def call(self, primitive: str) -> str:
        """The name of a primitive, noting that it is used."""
        self.uses.add(primitive)
        return primitive

    def loops(self, layout: LayoutAttr) -> list[Loop]:
        """One loop for each register mode, its variable named by axis and stride."""
        with self.names.scope():
            return self.loops_over(tuple(layout.register))

    def loops_over(self, modes: Sequence[Mode]) -> list[Loop]:
        """The same, whose variables are names of the scope; the slowest along the axis of a piece stays within it."""
        cut = None if self.piece is None else outermost(modes, self.piece.axis)
        return [self._loop(mode, self.piece if mode is cut else None) for mode in modes]

    def _loop(self, mode: Mode, piece: Piece | None) -> Loop:
        loop = Loop(mode, "" if piece is None else piece.variable, piece)
        return loop if loop.is_given else replace(loop, variable=self.names.fresh(f"{mode.axis}{mode.stride}"))

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

    # -- fragments ---------------------------------------------------------------------------------

    def declare(self, value: SSAValue, initial: str = "") -> str:
        """Declare the array of a fragment."""
        if self.piece is not None and value in self.values:
            return self.values[value]
        name = self.names.fresh(value.name_hint, "fragment")
        shape = "".join(f"[{size}]" for size in layout_of(value.type).register_shape)
        self.text.line(f"{self.type_of(value)} {name}{shape}{initial};")
        self.values[value] = name
        return name

    def type_of(self, value: SSAValue) -> str:
        """The type of a fragment's registers. Integers that lie as sums of warpgroups are of a type of their own, which
        the emulator watches: no bits of an integer say that a product has not made it yet, as a NaN does."""
        type = c_type(value.type)
        if self.has_exact_sums and type == "int32_t" and result_axes(layout_of(value.type)) is not None:
            return self.call("ExactSum")
        return type

    def over(self, result: SSAValue, operands: Sequence[SSAValue], op: Operation) -> str:
        """The array of a result: that of an operand which no one needs any more, or a new one. What is made of
        positions is something else, and named so."""
        for operand in operands:
            if (
                not isinstance(operand.owner, cuda.IndexOp)
                and self._same_registers(operand, result)
                and self.is_last_use(operand, op)
            ):
                self.values[result] = self.values[operand]
                return self.values[result]
        return self.declare(result)

    def array_of(self, value: SSAValue) -> str:
        """The array that a value is made in: that of the branch's result which it becomes, if nothing there needs what
        that holds, or a new one."""
        uses = list(value.uses)
        branch = uses[0].operation.parent_op() if len(uses) == 1 else None
        if isinstance(branch, scf.IfOp) and uses[0].operation is branch.true_region.block.last_op:
            result = branch.results[uses[0].index]
            kept = self._kept_by(branch, uses[0].index)
            needed = kept is not None and any(branch.true_region.is_ancestor(use.operation) for use in kept.uses)
            if result in self.values and not needed and self._same_registers(value, result):
                self.values[value] = self.values[result]
                return self.values[value]
        return self.declare(value)

    def _kept_by(self, branch: scf.IfOp, index: int) -> SSAValue | None:
        """What a result of a branch is where its condition does not hold."""
        last = branch.false_region.block.last_op if branch.false_region.blocks else None
        return None if last is None else last.operands[index]

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

    def copy(self, target: str, source: str, layout: LayoutAttr) -> None:
        loops = self.loops(layout)
        place = subscripts(layout, loops)
        self.text.nest(loops, [f"{target}{place} = {source}{place};"])

    def element(self, value: SSAValue, loops: Sequence[Loop]) -> str:
        name = self.values[value]
        if not is_fragment(value.type):
            return name
        return self.number(value, f"{name}{subscripts(layout_of(value.type), loops)}")

    def number(self, value: SSAValue, register: str) -> str:
        """What a register of a fragment holds, as a number of its format."""
        return f"int32_t({register})" if self.type_of(value) == "ExactSum" else register

    # -- tiles in shared memory --------------------------------------------------------------------

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
