"""Print `cuda.product`: loops of tensor-core instructions, or of fused multiply-adds."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from xdsl.ir import Operation, SSAValue

from treadle.compiler.printer import multiply_add
from treadle.compiler.printer.indices import Loop, add, subscripts, times, warp_terms
from treadle.compiler.printer.scalars import c_type
from treadle.dialects import cuda
from treadle.dialects.cuda.layout import LayoutAttr, Mode, is_interleaved, left_operand_axes
from treadle.dialects.cuda.products import DEPTHS, HALVED, has_half_step
from treadle.dialects.cuda.tiles import WORD, format_bytes, is_boxed, is_fragment, layout_of, lies_along, rows_of
from treadle.dialects.diagram.array import axes_of, format_of, sizes_of
from treadle.dialects.diagram.formats import PACKED


class Writer(multiply_add.Writer, Protocol):
    """What printing a product needs of the printer of its kernel."""

    def declare(self, value: SSAValue, initial: str = "") -> str: ...
    def copy(self, target: str, source: str, layout: LayoutAttr) -> None: ...
    def is_last_use(self, value: SSAValue, op: Operation) -> bool: ...
    def constant(self, hint: str, text: str) -> str: ...


CHUNK_BYTES = 16
"""What a swizzle moves together, and a lane points to for `ldmatrix`."""

PRIMITIVES = {name: f"mma_{name}" for name in (*DEPTHS, *HALVED.values())}


@dataclass(frozen=True)
class Turns:
    """What a loop adds to a coordinate: its variable times a stride, or nothing if the variable is "0"."""

    variable: str
    stride: int
    size: int

    @property
    def span(self) -> int:
        return self.stride * self.size

    @property
    def text(self) -> str:
        return "0" if self.variable == "0" else times(self.variable, self.stride)

    def split(self, reach: int) -> tuple[str, str]:
        """The part below `reach`, and the multiple of it that remains."""
        if self.stride % reach == 0:
            return "0", self.text
        if self.span <= reach:
            return self.text, "0"
        turns = reach // self.stride
        return times(f"{self.variable} % {turns}", self.stride), times(f"{self.variable} / {turns}", reach)


def _turns(loop: Loop, stride: int) -> Turns:
    return Turns(loop.variable if loop.mode.size > 1 else "0", stride, loop.mode.size)


def _whole_and_half(step: Loop, whole: int) -> Iterator[tuple[Loop, str]]:
    """The steps with the head of their loop; where half a step is left, the whole ones, and that one by its number,
    which has no head."""
    if whole == step.mode.size:
        yield step, str(step)
        return
    variable = step.variable
    if whole:
        yield step, f"UNROLL for (int {variable} = 0; {variable} < {whole}; ++{variable})"
    yield Loop(step.mode, str(whole)), ""


class ProductPrinter:
    """Prints the products of one kernel."""

    def __init__(self, kernel: Writer):
        self.kernel = kernel

    def print(self, op: cuda.ProductOp) -> None:
        kernel = self.kernel
        name = kernel.values[op.accumulator]
        if not kernel.is_last_use(op.accumulator, op):
            name = kernel.declare(op.result)
            kernel.copy(name, kernel.values[op.accumulator], layout_of(op.result.type))
        kernel.values[op.result] = name
        self._comment(op, name)
        match op.instruction.data:
            case "fma":
                multiply_add.print_multiply_add(self.kernel, op, name, self._walk)
            case instruction:
                self._tensor_core(op, name, DEPTHS[instruction])

    def read_left_operand(self, op: cuda.ReadOp, name: str) -> bool:
        """Read a tile in rows into the fragments of a left operand by `ldmatrix`; False where the layout is another.
        Those of tiles in boxes are read by `matrices.read_fragments`."""
        layout = layout_of(op.result.type)
        if str(format_of(op.result.type)) not in PACKED or is_boxed(op.source.type):
            return False
        pack = WORD // format_bytes(op.result.type)
        axes = left_operand_axes(layout, pack)
        if axes is None:
            return False
        rows, axis = axes
        if pack == 4 and not lies_along(op.source.type, axis):
            return False
        loops = self.kernel.loops(layout)[:-3]
        row = next((loop for loop in loops if loop.mode.axis == rows), Loop(Mode(rows, 1, 16), "0"))
        step = next((loop for loop in loops if loop.mode.axis == axis), Loop(Mode(axis, 1, 8 * pack), "0"))
        whole = step.mode.size - (pack == 2 and has_half_step("m16n8k16", sizes_of(op.source.type)[axis]))
        for each, head in _whole_and_half(step, whole):
            now = [each if loop is step else loop for loop in loops]
            index, is_half = subscripts(layout, now, len(now)), not head
            heads = [head if loop is step and whole < step.mode.size else loop for loop in loops]
            with self.kernel.names.scope():
                load, place = self.matrices(op.source, layout, row, each, is_half)
            target = f"{name}{index}{'[0]' if is_half else ''}"
            self.kernel.text.nest([each for each in heads if each], [f"{load}({target}, &{place});"])
        return True

    def matrices(
        self, tile: SSAValue, layout: LayoutAttr, row: Loop, step: Loop, is_half: bool = False
    ) -> tuple[str, str]:
        """The primitive that loads 16 rows of 32 bytes, a left fragment of narrow elements, say, or its first half, and
        the place that a lane gives it."""
        rows, axis = row.mode.axis, step.mode.axis
        warp, chunk = warp_terms(layout, rows), CHUNK_BYTES // format_bytes(tile.type)
        across = warp_terms(layout, axis)  # of accumulators whose columns several warps share
        loops = {rows: _turns(row, 16), axis: _turns(step, 2 * chunk)}
        load = f"load_matrix_x{2 if is_half else 4}"
        if lies_along(tile.type, axis):
            lanes = {rows: add([*warp, "lane % 16"]), axis: add([*across, f"lane / 16 * {chunk}"])}
            return self.kernel.call(load), self._lane_place(tile, lanes, loops)
        lanes = {rows: add([*warp, "lane / 8 % 2 * 8"]), axis: add([*across, "lane / 16 * 8", "lane % 8"])}
        return self.kernel.call(f"{load}_trans"), self._lane_place(tile, lanes, loops)

    def _lane_place(self, tile: SSAValue, lanes: dict[str, str], loops: dict[str, Turns]) -> str:
        """The place in a tile that a lane gives to `ldmatrix`. What the lane adds is computed once; the loops add to it
        whole rows, of which a multiple of eight leaves the swizzle as it is, and steps along the row, whose part within
        the swizzle's reach is an XOR if the lane's own part leaves those bits alone."""
        rows = rows_of(tile.type)
        axes = axes_of(tile.type)
        assert rows.row_axis is not None
        column = axes[rows.row_axis]
        along = loops.get(column, Turns("0", 0, 1))
        if rows.swizzle_bits and "warp" in lanes.get(column, "") and along.span & (along.span - 1):
            return self._place(tile, {axis: add([lanes.get(axis, "0"), loops[axis].text]) for axis in loops})
        own = self.kernel.tile_offset(tile, [lanes.get(axis, "0") for axis in axes])
        base = self.kernel.constant(f"{self.kernel.values[tile]}_lane", own)
        terms: list[str] = []
        if along.variable != "0":
            reach = (CHUNK_BYTES // format_bytes(tile.type)) << rows.swizzle_bits
            within, beyond = along.split(reach) if rows.swizzle_bits else ("0", along.text)
            base = f"({base} ^ {within})" if within != "0" else base
            terms.append(beyond)
        for axis, rows_apart in zip(axes, rows.row_strides, strict=True):
            turns = loops.get(axis, Turns("0", 0, 1))
            if axis != column and turns.variable != "0":
                terms.append(times(turns.variable, turns.stride * rows_apart * rows.pitch.data))
        return f"{self.kernel.values[tile]}[{add([base, *terms])}]"

    def _comment(self, op: cuda.ProductOp, name: str) -> None:
        def array(value: SSAValue) -> str:
            return f"{self.kernel.values[value]}[{', '.join(axes_of(value.type))}]"

        axes = ", ".join(axes_of(op.result.type))
        self.kernel.text.comment(
            f"{name}[{axes}] += {array(op.lhs)} {array(op.rhs)}, summed over {op.axis}, on {op.instruction.data}"
        )

    # -- tensor cores ------------------------------------------------------------------------------

    def _tensor_core(self, op: cuda.ProductOp, name: str, depth: int) -> None:
        """For each step of the depth, and half a step that is left: the left fragments of every row tile, then each
        column tile's right fragment, which all row tiles share."""
        kernel = self.kernel
        layout = layout_of(op.result.type)
        rows, columns = _row_axis(layout), _column_axis(layout)
        row_tiles, column_tiles = _tiles(layout, rows, 16), _tiles(layout, columns, 8)
        if is_interleaved(layout):
            column_tiles = 2 * _tiles(layout, columns, 16)
        size = sizes_of(op.rhs.type)[op.axis]
        steps = -(-size // depth)
        whole = steps - has_half_step(op.instruction.data, size)
        with kernel.names.scope():
            step = Loop(Mode(op.axis, steps, depth), kernel.names.fresh(f"{op.axis}{depth}"))
            row = Loop(Mode(rows, row_tiles, 16), kernel.names.fresh(f"{rows}16"))
            column = Loop(Mode(columns, column_tiles, 8), kernel.names.fresh(f"{columns}8"))
            for each, head in _whole_and_half(step, whole):
                self._steps(op, name, row, column, each, head, depth)

    def _steps(
        self,
        op: cuda.ProductOp,
        name: str,
        row: Loop,
        column: Loop,
        step: Loop,
        head: str,
        depth: int,
    ) -> None:
        """Those of a loop, or half a step, which has none."""
        kernel, text, layout, is_half = self.kernel, self.kernel.text, layout_of(op.result.type), not head
        rows, columns, column_tiles = row.mode.axis, column.mode.axis, column.mode.size
        wide = depth >= 16 and column_tiles % 2 == 0
        left_place = self._left_place(op, layout, rows, row, step, depth, is_half)
        right_place = self._right_place(op, layout, columns, column, step, depth, wide, is_half)
        mma = kernel.call(PRIMITIVES[HALVED[op.instruction.data] if is_half else op.instruction.data])
        with text.block("") if is_half else self._walk(op, head, step.variable, depth):
            left = self._left(op, row, step, depth, left_place, is_half)
            if wide:
                head = f"UNROLL for (int {column.variable} = 0; {column.variable} < {column_tiles}; "
                head += f"{column.variable} += 2)"
            else:
                head = str(column)
            with text.block(head):
                self._right(op, depth, wide, right_place, is_half)
                for half in (0, 1) if wide else (None,):
                    right = "rhs" if half is None else f"rhs[{half}]"
                    accumulator = _accumulator(name, layout, rows, row, columns, column.variable, half or 0)
                    statement = f"{mma}({accumulator}, {left}, {right});"
                    text.nest([row] if row.mode.size > 1 else [], [statement])

    @contextmanager
    def _walk(self, op: cuda.ProductOp, whole: str, variable: str, depth: int, together: int = 1) -> Generator[None]:
        """The steps of an instruction along the summed axis, counted by `variable`, some of them together: in the loop
        that has the head `whole`, or in the turns of a subloop, which are not unrolled, so that no turn loads for the
        next."""
        if op.subloop is None:
            with self.kernel.text.block(whole):
                yield
            return
        first = self.kernel.names.fresh(f"{op.axis}_first")
        count, piece = sizes_of(op.rhs.type)[op.axis] // depth, op.subloop.data // depth
        turns = f"UNROLL_1 for (int {first} = 0; {first} < {count}; {first} += {piece})"
        forth = f"++{variable}" if together == 1 else f"{variable} += {together}"
        steps = f"UNROLL for (int {variable} = {first}; {variable} < {first} + {piece}; {forth})"
        with self.kernel.text.block(turns), self.kernel.text.block(steps):
            yield

    def _left_place(
        self, op: cuda.ProductOp, layout: LayoutAttr, rows: str, row: Loop, step: Loop, depth: int, is_half: bool
    ) -> tuple[str, str]:
        """The primitive that loads the left fragments, and from where; of fragments that are in registers, nothing."""
        if is_fragment(op.lhs.type):
            return "", ""
        if depth >= 16:
            return self.matrices(op.lhs, layout, row, step, is_half)
        first = add([times(row.variable, 16) if row.mode.size > 1 else "", *warp_terms(layout, rows)])
        at_depth = times(step.variable, depth)
        place = self._place(op.lhs, {rows: f"{first} + m8 * 8 + lane / 4", op.axis: f"{at_depth} + k4 * 4 + lane % 4"})
        return self.kernel.call("load_shared"), place

    def _left(
        self, op: cuda.ProductOp, row: Loop, step: Loop, depth: int, source: tuple[str, str], is_half: bool
    ) -> str:
        """Load the left fragments of this step; gives the expression for those of the current row tile."""
        text = self.kernel.text
        row_index = f"[{row.variable}]" if row.mode.size > 1 else ""
        if is_fragment(op.lhs.type):
            step_index = f"[{step.variable}]" if step.mode.size > 1 else ""
            return f"{self.kernel.values[op.lhs]}{row_index}{step_index}{'[0]' if is_half else ''}"
        load, place = source
        dimension = f"[{row.mode.size}]" if row.mode.size > 1 else ""
        loops = [row] if row.mode.size > 1 else []
        pack = 4 // format_bytes(op.lhs.type)
        halves = "[2]" if depth >= 16 and not is_half else ""
        text.line(f"{c_type(op.lhs.type)} lhs{dimension}{halves}[2][{max(pack, 2)}];")
        if depth >= 16:
            text.nest(loops, [f"{load}(lhs{row_index}, &{place});"])
        else:
            inner = [Loop(Mode("", 2, 4), "k4"), Loop(Mode("", 2, 8), "m8")]
            text.nest([*loops, *inner], [f"lhs{row_index}[k4][m8] = {load}(&{place});"])
        return f"lhs{row_index}"

    def _right_place(
        self,
        op: cuda.ProductOp,
        layout: LayoutAttr,
        columns: str,
        column: Loop,
        step: Loop,
        depth: int,
        wide: bool,
        is_half: bool,
    ) -> tuple[str, str]:
        """The primitive that loads the right fragment of one column tile, or of two at once, and from where."""
        warp = warp_terms(layout, columns)
        if depth == 8:
            variable = times(column.variable, 8) if column.mode.size > 1 else ""
            first = add([variable, *warp, "lane / 4"])
            at_depth = times(step.variable, depth)
            place = self._place(op.rhs, {columns: first, op.axis: f"{at_depth} + k4 * 4 + lane % 4"})
            return self.kernel.call("load_shared"), place
        chunk = CHUNK_BYTES // format_bytes(op.rhs.type)
        loops = {columns: _turns(column, 8), op.axis: _turns(step, 2 * chunk)}
        if lies_along(op.rhs.type, op.axis):
            own = [*warp, "lane / 16 * 8" if wide else "", "lane % 8"]
            if is_interleaved(layout):
                own = [*warp, "lane / 16 * 2", "lane % 8 / 2 * 4", "lane % 2"]
            lanes = {columns: add(own), op.axis: f"lane / 8 % 2 * {chunk}"}
            load = "load_matrix_x4" if wide else "load_matrix_x2"
        else:
            lanes = {columns: add([*warp, "lane / 16 * 8" if wide else ""]), op.axis: "lane % 16"}
            load = "load_matrix_x4_trans" if wide else "load_matrix_x2_trans"
        if is_half:  # a matrix of each column tile
            is_along = lies_along(op.rhs.type, op.axis)
            lanes = {columns: add([*warp, "lane % 16" if wide else "lane % 8"]), op.axis: "0"}
            if not is_along:
                lanes = {columns: add([*warp, "lane / 8 % 2 * 8" if wide else ""]), op.axis: "lane % 8"}
            load = f"load_matrix_x{2 if wide else 1}{'' if is_along else '_trans'}"
        return self.kernel.call(load), self._lane_place(op.rhs, lanes, loops)

    def _right(self, op: cuda.ProductOp, depth: int, wide: bool, source: tuple[str, str], is_half: bool) -> None:
        """Load the right fragment of one column tile, or of two at once."""
        text = self.kernel.text
        load, place = source
        type = c_type(op.rhs.type)
        if depth == 8:
            text.line(f"{type} rhs[2];")
            text.nest([Loop(Mode("", 2, 4), "k4")], [f"rhs[k4] = {load}(&{place});"])
            return
        text.line(f"{type} rhs{'[2]' if wide else ''}{'' if is_half else '[2]'}[{4 // format_bytes(op.rhs.type)}];")
        text.line(f"{load}(rhs, &{place});")

    def _place(self, tile: SSAValue, coordinates: dict[str, str]) -> str:
        texts = [coordinates.get(axis, "0").removeprefix("0 + ") for axis in axes_of(tile.type)]
        return f"{self.kernel.values[tile]}[{self.kernel.tile_offset(tile, texts)}]"


def _row_axis(layout: LayoutAttr) -> str:
    """The axis of the rows of an accumulator: eight lanes lie along it."""
    return next(mode.axis for mode in layout.lane if mode.size == 8)


def _column_axis(layout: LayoutAttr) -> str:
    return next(mode.axis for mode in layout.lane if mode.size == 4)


def _tiles(layout: LayoutAttr, axis: str, stride: int) -> int:
    return next((mode.size for mode in tuple(layout.register)[:-2] if (mode.axis, mode.stride) == (axis, stride)), 1)


def _accumulator(name: str, layout: LayoutAttr, rows: str, row: Loop, columns: str, column: str, half: int) -> str:
    """The accumulator's fragment of one row tile and one column tile, `half` further than `column`."""
    index = ""
    if row.mode.size > 1:
        index += f"[{row.variable}]"
    if is_interleaved(layout):
        return f"{name}{index}[{half}][{column} / 2]"
    if _tiles(layout, columns, 8) > 1:
        index += f"[{column} + {half}]" if half else f"[{column}]"
    return name + index
