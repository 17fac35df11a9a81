"""Print accesses to device memory: `cuda.copy`, `cuda.load` and `cuda.store`."""

from __future__ import annotations

from collections.abc import Container, Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from math import prod

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Attribute, Block, SSAValue

from treadle.compiler.layouts.copies import line_span
from treadle.compiler.layouts.operations import is_dealt_by_sectors, is_one_request, span_of_rows
from treadle.compiler.printer.boxed_copies import BoxedCopyPrinter
from treadle.compiler.printer.dealt import DealtPrinter
from treadle.compiler.printer.indices import (
    Loop,
    add,
    coordinate,
    divided,
    place_in_thread,
    replicas,
    scaled,
    strided,
    subscripts,
    sum_of,
    thread_terms,
)
from treadle.compiler.printer.scalars import bare, c_type, term
from treadle.compiler.printer.scattered import Rows, Scattered, axes_asked
from treadle.compiler.printer.staged import StagedPrinter
from treadle.compiler.printer.writer import KernelWriter
from treadle.dialects import cuda
from treadle.dialects.cuda.accesses import GlobalAccess
from treadle.dialects.cuda.layout import LayoutAttr
from treadle.dialects.cuda.staging import EVERYWHERE
from treadle.dialects.cuda.tiles import extents_of, is_boxed, layout_of, rows_of
from treadle.dialects.diagram.array import axes_of, format_of, shape_of
from treadle.dialects.diagram.condition import Entry
from treadle.dialects.diagram.formats import FORMAT_BYTES

FEW = 8
"""Vectors of a thread along an axis, of which the compiler may have each position: two registers."""
WHOLE = f"ALIGNED >= {cuda.WHOLE_SECTORS}"
"""In C: rows begin with a sector."""


@dataclass(frozen=True)
class Running:
    """The names of what a loop carries for one of its copies."""

    pointer: str
    """Where this thread copies from next."""
    down: str
    """Bytes to the thread's next row."""
    turn: str
    """Bytes from its last row in one turn to its first in the next; `down` if the pieces follow on each other."""


class AccessPrinter:
    """Prints the accesses of one kernel. Copies of a pipelined loop run along by a pointer that the loop carries."""

    def __init__(self, kernel: KernelWriter):
        self.kernel = kernel
        self.dealt = DealtPrinter(kernel, self)
        self.boxed = BoxedCopyPrinter(kernel, self)
        self.staged = StagedPrinter(kernel, self)
        self.fixed: dict[Entry, str] = {}
        """The names of the entries of what is copied, where it has one of each."""
        self.running: dict[cuda.CopyOp, Running] = {}
        """Copies whose loop carries their pointer."""
        self.has_whole_sectors = cuda.WHOLE_SECTORS in cuda.alignments(kernel.kernel)

    # -- copies between device and shared memory -----------------------------------------------------

    def copy(self, op: cuda.CopyOp) -> None:
        way = "from" if op.is_outward else "to"
        name = f"{self.kernel.values[op.buffer]}[{', '.join(axes_of(op.tile.type))}]"
        with self.width(op, f"{name} {way} shared memory"):
            self.move(op)

    def move(self, op: cuda.CopyOp, below: int = EVERYWHERE) -> None:
        """A copy whose width is in scope, in variants for rows aligned to fewer than so many bytes."""
        if is_boxed(op.tile.type):
            return self.boxed.copy(op, self._fixed)
        if op.place is not None:
            return self._gather(op)
        if is_one_request(op.tile.type) or op.divisors:
            return self._copy_linear(op, _wide(op), together=False)
        if self._is_dealt(op) or below <= cuda.WHOLE_SECTORS:
            return self.dealt.copy(op)
        with self.kernel.names.scope(), self.kernel.text.block(f"if constexpr ({WHOLE})", "} else {"):
            self._copy_whole(op, _wide(op))
        self.kernel.text.depth += 1
        self.dealt.copy(op)
        self.kernel.text.depth -= 1
        self.kernel.text.line("}")

    def _gather(self, op: cuda.CopyOp) -> None:
        """A copy of what is scattered: where rows are whole sectors row by row, so that each asks for its entries once;
        else vector by vector."""
        wide = _wide(op)
        self.fixed = self._fixed(op)
        span = span_of_rows(op, self.kernel.threads) if self.has_whole_sectors else None
        if span is None:
            return self._copy_linear(op, wide)
        with self.kernel.names.scope(), self.kernel.text.block(f"if constexpr ({WHOLE})", "} else {"):
            self._gather_rows(op, wide, span)
        self.kernel.text.depth += 1
        self._copy_linear(op, wide)
        self.kernel.text.depth -= 1
        self.kernel.text.line("}")

    def _fixed(self, op: cuda.CopyOp) -> dict[Entry, str]:
        """The names of the entries of a tile that has one, loaded before its loops."""
        asked = axes_asked(op)
        if asked & {axis for axis, _ in _wide(op)}:
            return {}
        found = Scattered(self.kernel, self, op, {})
        for statement in found.find(self.tests(op, {}, asked)):
            self.kernel.text.line(statement)
        return found.names

    def _gather_rows(self, op: cuda.CopyOp, wide: Sequence[tuple[str, int]], span: int) -> None:
        """As `_copy_rows`, with a pointer that is found for each row."""
        kernel, text = self.kernel, self.kernel.text
        (row, count), (column, length) = wide
        step, down, along = (kernel.names.fresh(name) for name in (f"{row}_step", f"{row}_down", f"{column}_along"))
        text.line(f"constexpr int {step} = {kernel.threads} * width / {span};  // rows that the block copies at once")
        indices, axes = self._own_place(wide, span), {*axes_of(op.tile.type)}
        asked = axes_asked(op) - {column}
        near = self._row_offset(op, indices, step, down)
        with text.block(f"UNROLL_8 for (int {down} = 0; {down} < {count}; {down} += {step})"):
            here = {row: f"{indices[row]} + {down}", column: indices[column]}
            known = Rows(row, indices[row], down, kernel.threads * max(op.width_list) // span)
            found = Scattered(kernel, self, op, dict(here), known, names=dict(self.fixed))
            for statement in found.find(self.tests(op, here, asked)):
                text.line(statement)
            tests = [*found.tests, *self.tests(op, here, axes - asked - {column})]
            pointer, there = kernel.names.fresh("there"), kernel.names.fresh("is_there")
            text.line(f"{_pointer(op)} const {pointer} = {found.where(together=True)};")
            text.line(f"const bool {there} = {' && '.join(tests) or 'true'};")
            far = pointer
            if span < length:
                here[column] = f"{indices[column]} + {along}"
                near, far = f"{near} + {along}", f"{pointer} + {along}"
                text.line(f"UNROLL for (int {along} = 0; {along} < {length}; {along} += {span})")
                text.depth += 1
            valid = " && ".join([there, *self.tests(op, here, {column})])
            self._move_vector(op, f"{kernel.call('vec')}<width>({far})", near, valid)
            text.depth -= 1 if span < length else 0

    def tests(self, op: GlobalAccess, indices: Mapping[str, str], axes: Container[str]) -> list[str]:
        """The tests that an element is in the tile and within bounds, along some axes."""
        type = op.piece_type
        names = axes_of(type)
        is_tile = isinstance(op, cuda.CopyOp)
        extents = extents_of(type) if is_tile else [layout_of(type).extent(axis) for axis in names]
        kept = [number for number, axis in enumerate(names) if axis in axes]
        shape, reached = ([each[number] for number in kept] for each in (shape_of(type), extents))
        tests = _inside([names[number] for number in kept], shape, reached, indices)
        bounds = [bound for bound in _bounds(op) if bound[0] in axes]
        return tests + [self._is_within(op, axis, sign, end, indices) for axis, sign, end in bounds]

    def _is_dealt(self, op: cuda.CopyOp) -> bool:
        """Whether a copy looks where in its sector each row begins in all variants of the kernel."""
        return not self.has_whole_sectors or is_dealt_by_sectors(op, cuda.WHOLE_SECTORS)

    def _copy_whole(self, op: cuda.CopyOp, wide: Sequence[tuple[str, int]]) -> None:
        """A copy of rows that are whole sectors, at the widest vector."""
        span = self._span(op)
        if span is None:
            self._copy_linear(op, wide)
        else:
            self._copy_rows(op, wide, span)

    def _span(self, op: cuda.CopyOp) -> int | None:
        """Neighbours that neighbouring threads take before they go down, of a copy of whole sectors; None if it goes
        in the order of the tile."""
        if self._is_dealt(op) or is_one_request(op.tile.type) or op.divisors or is_boxed(op.tile.type):
            return None
        bytes = FORMAT_BYTES[str(format_of(op.tile.type))]
        return line_span(dict(_wide(op)), max(op.width_list, default=1), self.kernel.threads, bytes)

    def _copy_rows(self, op: cuda.CopyOp, wide: Sequence[tuple[str, int]], span: int) -> None:
        """Some rows at a time: a thread keeps its place in the line, goes along the row line by line, and then down
        by as many rows as the block copies at once."""
        kernel, text = self.kernel, self.kernel.text
        (row, count), (column, length) = wide
        threads = kernel.threads
        step, down, along = (kernel.names.fresh(name) for name in (f"{row}_step", f"{row}_down", f"{column}_along"))
        text.line(f"constexpr int {step} = {threads} * width / {span};  // rows that the block copies at once")
        indices = self._own_place(wide, span)
        running = self.running.get(op)
        pointer = kernel.names.fresh("there") if running is None else running.pointer
        if running is None:
            text.line(f"{_pointer(op)} {pointer} = {self.where(op, indices, together=True)};")
        here = {row: f"{indices[row]} + {down}", column: indices[column]}
        near, far = self._row_offset(op, indices, step, down), pointer
        with text.block(f"UNROLL_8 for (int {down} = 0; {down} < {count}; {down} += {step})"):
            if span < length:
                here[column] = f"{indices[column]} + {along}"
                near += f" + {along}"
                far = f"{pointer} + {along}"
                text.line(f"UNROLL for (int {along} = 0; {along} < {length}; {along} += {span})")
                text.depth += 1
            self._copy_vector(op, here, f"{kernel.call('vec')}<width>({far})", near)
            text.depth -= 1 if span < length else 0
            if running is None:
                text.line(f"{pointer} += {strided(step, kernel.strides[op.buffer][row])};")
            else:
                last = f"{down} + {step} < {count} ? {running.down} : {running.turn}"
                bytes = running.down if running.turn == running.down else last
                text.line(f"{kernel.call('advance')}({pointer}, {bytes});")

    def _own_place(self, wide: Sequence[tuple[str, int]], span: int) -> dict[str, str]:
        """This thread's first row, and its place in the line."""
        (row, _), (column, _) = wide
        indices = {axis: self.kernel.names.fresh(f"{axis}_i") for axis in (row, column)}
        self.kernel.text.line(
            f"const int {indices[row]} = thread * width / {span}, {indices[column]} = thread * width % {span};"
        )
        return indices

    def _row_offset(self, op: cuda.CopyOp, indices: dict[str, str], step: str, down: str) -> str:
        """Where the vector so many rows further down lies in the tile."""
        rows = rows_of(op.tile.type)
        near = self.kernel.tile_offset(op.tile, [indices.get(axis, "0") for axis in axes_of(op.tile.type)])
        if not rows.swizzle_bits:
            return f"{near} + {scaled(down, rows.pitch.data)}"
        head, _, tail = near.partition(">(")
        head = head.replace("swizzled<", f"{self.kernel.call('swizzled_down')}<")
        return f"{head}, {step}>({tail[:-1]}, {down})"

    def _copy_linear(self, op: cuda.CopyOp, wide: Sequence[tuple[str, int]], together: bool = True) -> None:
        """Vector by vector, in the order of the tile."""
        kernel = self.kernel
        total, threads = prod(extent for _, extent in wide), kernel.threads
        first = kernel.names.fresh("first")
        # The loop counts what all threads copy, so the compiler knows its turns, and unrolls them without tests.
        with kernel.text.block(f"UNROLL_4 for (int {first} = 0; {first} < {total}; {first} += {threads} * width)"):
            kernel.text.line(f"const int i = {first} + thread * width;")
            is_even = total % (threads * max(op.width_list)) == 0
            with nullcontext() if is_even else kernel.text.block(f"if (i < {total})"):
                indices = self._split_index(wide)
                if op.place is not None:
                    self._gather_vector(op, indices)
                else:
                    far = f"{kernel.call('vec')}<width>({self.where(op, indices, together=together)})"
                    offset = kernel.tile_offset(op.tile, [indices.get(axis, "0") for axis in axes_of(op.tile.type)])
                    self._copy_vector(op, indices, far, offset)

    def _copy_vector(self, op: cuda.CopyOp, indices: dict[str, str], far: str, offset: str) -> None:
        """Move one vector of a tile between `far` in device memory and its place, `offset` elements into the tile."""
        type = op.tile.type
        valid = self.valid(op, axes_of(type), shape_of(type), rows_of(type).shape, indices)
        self._move_vector(op, far, offset, valid)

    def _gather_vector(self, op: cuda.CopyOp, indices: dict[str, str]) -> None:
        """Move one vector of a scattered tile, whose entries it asks for itself."""
        kernel, axes = self.kernel, axes_of(op.tile.type)
        asked = axes_asked(op)
        found = Scattered(kernel, self, op, indices, names=dict(self.fixed))
        for statement in found.find(self.tests(op, indices, asked)):
            kernel.text.line(statement)
        tests = [*found.tests, *self.tests(op, indices, {*axes} - asked)]
        far = f"{kernel.call('vec')}<width>({found.where(together=False)})"
        offset = kernel.tile_offset(op.tile, [indices.get(axis, "0") for axis in axes])
        self._move_vector(op, far, offset, " && ".join(tests) or None)

    def _move_vector(self, op: cuda.CopyOp, far: str, offset: str, valid: str | None) -> None:
        kernel, text = self.kernel, self.kernel.text
        near = f"{kernel.call('vec')}<width>(&{kernel.values[op.tile]}[{offset}])"
        if op.is_outward:
            value = f"{kernel.call('load_shared')}({near})"
            if valid is None:
                text.line(f"{kernel.call('store_global')}({far}, {value});")
            else:
                text.line(f"{kernel.call('store_global_if')}({far}, {value}, {valid});")
        elif op.asynchronous is not None:
            text.line(f"{kernel.call('copy_async_or_now')}({near}, {far}, {valid or 'true'});")
        else:
            text.line(f"{kernel.call('store_shared')}({near}, {self._load_global(far, valid)});")

    def _split_index(self, wide: Sequence[tuple[str, int]]) -> dict[str, str]:
        """Coordinates within the tile from the linear index `i`, the last axis fastest."""
        indices: dict[str, str] = {}
        below = 1
        parts: list[str] = []
        for position, (axis, extent) in enumerate(reversed(wide)):
            text = "i" if below == 1 else f"i / {below}"
            if position < len(wide) - 1:
                text += f" % {extent}"
            indices[axis] = self.kernel.names.fresh(f"{axis}_i")
            parts.insert(0, f"{indices[axis]} = {text}")
            below *= extent
        if parts:
            self.kernel.text.line(f"const int {', '.join(parts)};")
        return indices

    # -- pointers that a loop carries ----------------------------------------------------------------

    def before_loop(self, loop: scf.ForOp) -> None:
        """Declare the pointers that a loop carries for its copies, and their steps. The compiler would make each
        address anew in every turn."""
        for op in loop.body.walk():
            if not isinstance(op, cuda.CopyOp) or op.is_outward or op.place is not None or self._span(op) is None:
                continue
            moving = _moving_axis(op, loop)
            if moving is not None:
                self._start(op, loop, *moving)

    def _start(self, op: cuda.CopyOp, loop: scf.ForOp, axis: str, ahead: int) -> None:
        """Declare what the loop carries for one copy, which moves along `axis`, so far ahead of the loop."""
        kernel, span = self.kernel, self._span(op)
        assert span is not None
        array, strides = kernel.values[op.buffer], kernel.strides[op.buffer]
        (row, count), _ = wide = _wide(op)
        follows = axis == row and _constant(loop.step) == count
        pointer, down = kernel.names.fresh(f"{array}_next"), kernel.names.fresh(f"{array}_down")
        turn = down if follows else kernel.names.fresh(f"{array}_turn")
        self.running[op] = Running(pointer, down, turn)
        position = add([term(kernel.values[loop.lb]), str(ahead)])
        kernel.text.line(f"{_pointer(op)} {pointer};")
        kernel.text.line(f"int64_t {', '.join(dict.fromkeys([down, turn]))};  // bytes")
        what = f"where this thread copies from in the first turn: {axis} = {position}"
        with self.width(op, what, f"if constexpr ({WHOLE})"):
            step = kernel.names.fresh(f"{row}_step")
            kernel.text.line(f"constexpr int {step} = {kernel.kernel.threads.data} * width / {span};")
            indices = self._own_place(wide, span)
            kernel.text.line(f"{pointer} = {self.where(op, indices, {axis: position}, together=True)};")
            bytes, kept = FORMAT_BYTES[str(format_of(op.buffer.type))], kernel.call("kept")
            kernel.text.line(f"{down} = {kept}({strided(step, strides[row])} * int64_t({bytes}));")
            if not follows:
                forth = strided(term(kernel.values[loop.step]), strides[axis])
                back = strided(f"({count} - {step})", strides[row])
                kernel.text.line(f"{turn} = {kept}(({forth} - {back}) * int64_t({bytes}));")

    # -- fragments -----------------------------------------------------------------------------------

    def load(self, op: cuda.LoadOp) -> None:
        name = self.kernel.array_of(op.result)
        self.staged.load(op, lambda: self._load_directly(op, name))

    def bring(self, op: cuda.LoadOp) -> None:
        """What a load that is printed later needs of shared memory."""
        self.staged.bring(op)

    def _load_directly(self, op: cuda.LoadOp, name: str) -> None:
        """Each thread what it holds."""
        kernel, layout = self.kernel, layout_of(op.result.type)
        loops, step, fragment = self._vector_loops(layout, op, name)
        indices = self._indices(layout, loops, step, op.result.type)
        if op.place is not None:
            return self._gather_fragment(op, loops, step, fragment, indices)
        valid = self._valid_fragment(op, layout, loops, step, indices)
        value = self._load_global(f"{kernel.call('vec')}<width>({self.where(op, indices)})", valid)
        self._vector_nest(loops, step, [f"{kernel.call('unpack')}({fragment}, {value});"])

    def _gather_fragment(
        self,
        op: cuda.LoadOp,
        loops: list[Loop],
        step: Loop | None,
        fragment: str,
        indices: dict[str, str],
    ) -> None:
        """Each thread what it holds of what is scattered; of entries that it asks for twice the compiler makes one."""
        kernel, asked = self.kernel, axes_asked(op)
        found = Scattered(kernel, self, op, indices)
        statements, pointer = found.find(self.tests(op, indices, asked)), found.where(together=False)
        tests = [*found.tests, *self.tests(op, indices, {*axes_of(op.piece_type)} - asked)]
        value = self._load_global(f"{kernel.call('vec')}<width>({pointer})", " && ".join(tests) or None)
        self._vector_nest(loops, step, [*statements, f"{kernel.call('unpack')}({fragment}, {value});"])

    def store(self, op: cuda.StoreOp) -> None:
        self.staged.store(op, lambda: self._store_directly(op))

    def _store_directly(self, op: cuda.StoreOp) -> None:
        """Each thread what it holds; of copies, the first."""
        kernel, layout = self.kernel, layout_of(op.value.type)
        loops, step, fragment = self._vector_loops(layout, op, kernel.values[op.value])
        indices = self._indices(layout, loops, step, op.value.type)
        valid = self._valid_fragment(op, layout, loops, step, indices)
        tests = [test for test in (replicas(layout), valid) if test is not None]
        place = f"{kernel.call('vec')}<width>({self.where(op, indices)})"
        value = f"{kernel.call('pack')}<width>({fragment})"
        if tests:
            statement = f"{kernel.call('store_global_if')}({place}, {value}, {' && '.join(tests)});"
        else:
            statement = f"{kernel.call('store_global')}({place}, {value});"
        self._vector_nest(loops, step, [statement])

    def _vector_loops(self, layout: LayoutAttr, op: GlobalAccess, name: str) -> tuple[list[Loop], Loop | None, str]:
        """Loops over a fragment for vector access: the innermost mode goes in steps of `width`. Gives the loops, that
        of the innermost mode, and a pointer to the elements that move together."""
        loops = self.kernel.loops(layout)
        place = f"&{name}{subscripts(layout, loops)}"
        return (loops, None, place) if max(op.width_list) == 1 else (loops[:-1], loops[-1], place)

    def _vector_nest(self, loops: list[Loop], step: Loop | None, statements: Sequence[str]) -> None:
        if step is None:
            self.kernel.text.nest(loops, statements)
            return
        variable, size = step.variable, step.mode.size
        inner = f"UNROLL for (int {variable} = 0; {variable} < {size}; {variable} += width)"
        self.kernel.text.nest([*loops, inner], statements)

    def _indices(self, layout: LayoutAttr, loops: Sequence[Loop], step: Loop | None, type: Attribute) -> dict[str, str]:
        every = [*loops, step] if step is not None else list(loops)
        return {
            axis: coordinate(layout, axis, every)
            for axis, size in zip(axes_of(type), shape_of(type), strict=True)
            if size != 1 or layout.extent(axis) > 1
        }

    def _valid_fragment(
        self,
        op: GlobalAccess,
        layout: LayoutAttr,
        loops: Sequence[Loop],
        step: Loop | None,
        indices: dict[str, str],
    ) -> str | None:
        """The test of a vector of a fragment. Along an axis on which a thread has many, what its lane and warp add is
        taken off the bound, once: as positions in the array, in 64 bits, the columns of a wide result would be alive
        from the loads of its finish to its store."""
        kernel, axes = self.kernel, axes_of(op.piece_type)
        tests = _inside(axes, shape_of(op.piece_type), [layout.extent(axis) for axis in axes], indices)
        for axis, sign, end in _bounds(op):
            is_known = _are_numbers(kernel.values[end], kernel.values[self.offset(op, axis)])
            if is_known or prod(loop.mode.size for loop in loops if loop.mode.axis == axis) <= FEW:
                tests.append(self._is_within(op, axis, sign, end, indices))
                continue
            own = place_in_thread(axis, [*loops, step] if step is not None else loops)
            tests.append(f"{own} {sign} {self._bound_of_thread(op, layout, axis, sign, end)}")
        return " && ".join([*tests, *self.inside(op, indices)]) or None

    def _bound_of_thread(self, op: GlobalAccess, layout: LayoutAttr, axis: str, sign: str, end: SSAValue) -> str:
        """The name of a bound, counted from a thread's first element of a fragment."""
        kernel, extent = self.kernel, layout.extent(axis)
        start, stop = term(kernel.values[self.offset(op, axis)]), term(kernel.values[end])
        apart = stop if start == "0" else f"{stop} - {start if start.isidentifier() else f'({start})'}"
        # A piece may begin far behind where wanted elements do, but not where the array ends.
        number = f"{kernel.call('at_most')}({extent}, {apart})"
        if sign == ">=":
            number = f"{kernel.call('within')}({apart}, {extent})"
        name = kernel.names.fresh(f"{axis}_left" if sign == "<" else f"{axis}_first")
        mine = [f"({each})" if " + " in each else each for each in (add(thread_terms(layout, axis)),) if each != "0"]
        kernel.text.line(f"const int {name} = {' - '.join([number, *mine])};")
        return name

    # -- what all accesses share -----------------------------------------------------------------------

    @contextmanager
    def width(self, op: GlobalAccess, what: str, head: str = "") -> Generator[None]:
        """The scope of an access, in which `width` is how many elements move at once."""
        with self.kernel.names.scope(), self.kernel.text.block(head, f"}}  // {what}"):
            type = c_type(op.buffer_type)
            width = f"{self.kernel.call('width_of')}<{type}, {max(op.width_list)}>(ALIGNED)"
            self.kernel.text.line(f"constexpr int width = {width};")
            yield

    def _load_global(self, pointer: str, valid: str | None) -> str:
        if valid is None:
            return f"{self.kernel.call('load_global')}({pointer})"
        return f"{self.kernel.call('load_global_if')}({pointer}, {bare(valid)})"

    def valid(
        self,
        op: GlobalAccess,
        axes: Sequence[str],
        sizes: Sequence[int],
        extents: Sequence[int],
        indices: dict[str, str],
    ) -> str | None:
        """The test that an element is in the tile and in the array; None if it must be."""
        tests = _inside(axes, sizes, extents, indices)
        tests += [self._is_within(op, axis, sign, end, indices) for axis, sign, end in _bounds(op)]
        return " && ".join([*tests, *self.inside(op, indices)]) or None

    def inside(self, op: GlobalAccess, indices: Mapping[str, str]) -> list[str]:
        """The tests that an element of a view lies in its array, which the view may leave."""
        values = self.kernel.values
        tests: list[str] = []
        for form, length in op.padding:
            place = sum_of(form, lambda axis: self.position(op, axis, indices))
            if form.constant < 0 or any(factor < 0 for factor in form.terms.values()):
                tests.append(f"0 <= {place}")
            tests.append(f"{place} < {term(values[length])}")
        return tests

    def _is_within(self, op: GlobalAccess, axis: str, sign: str, end: SSAValue, indices: Mapping[str, str]) -> str:
        """The test of a position in the array against a bound."""
        values = self.kernel.values
        return f"{add([values[self.offset(op, axis)], indices.get(axis, '0')])} {sign} {term(values[end])}"

    def offset(self, op: cuda.PlacedAccess, axis: str) -> SSAValue:
        """Where an access begins along an axis."""
        return dict(zip(axes_of(op.piece_type), op.offsets, strict=True))[axis]

    def position(self, op: cuda.PlacedAccess, axis: str, indices: Mapping[str, str]) -> str:
        """The position of an element of a tile along an axis of it."""
        offset = self.offset(op, axis)
        return add([self._text_of(offset), indices.get(axis, "0")])

    def _text_of(self, offset: SSAValue) -> str:
        """An offset; a constant may stand in a loop that is not printed yet."""
        number = _constant(offset)
        return self.kernel.values[offset] if number is None else str(number)

    def where(
        self,
        op: GlobalAccess,
        indices: dict[str, str],
        offsets: dict[str, str] | None = None,
        together: bool = False,
        strides: Mapping[str, str] | None = None,
    ) -> str:
        """`&Q[b0 * Q_b + row * Q_q + d + q0 * Q_q]`: what a loop changes comes last, so that the rest is computed
        before the loop. `offsets` replaces offsets of the operation, `strides` the names of the array's; `together`
        says that elements of the last axis are known to be neighbours."""
        buffer = cuda.buffer_of(op)
        strides = dict(strides or self.kernel.strides[buffer])
        if together:
            strides = strides | dict.fromkeys(axes_of(buffer.type)[-1:], "1")
        fixed: list[str] = []
        moving: list[str] = []
        for axis, offset in zip(axes_of(buffer.type), op.offsets, strict=True):
            given = (offsets or {}).get(axis)
            start = self._text_of(offset) if given is None else given
            parts = indices.get(axis, "0"), start
            late = moving if given is None and _block_of(offset) is not self.kernel.kernel.body.block else fixed
            if axis in op.divisors:
                parts = "0", divided(add(parts), op.divisors[axis])
            for text, terms in zip(parts, (fixed, late), strict=True):
                if text != "0":
                    terms.append(strided(text, strides[axis]))
        return f"&{self.kernel.values[buffer]}[{add([*fixed, *moving])}]"


def _constant(value: SSAValue) -> int | None:
    owner = value.owner
    if isinstance(owner, arith.ConstantOp) and isinstance(owner.value, IntegerAttr):
        return owner.value.value.data
    return None


def _bounds(op: GlobalAccess) -> list[tuple[str, str, SSAValue]]:
    """The axes along which an access has ends, the sign of the test against each, and the ends."""
    begins = [(axis, ">=", end) for axis, end in zip(op.begun_axes, op.begins, strict=True)]
    return begins + [(axis, "<", end) for axis, end in zip(op.bound_axes, op.limits, strict=True)]


def _are_numbers(*texts: str) -> bool:
    """Whether all are numbers, whose comparison the compiler knows."""
    return all(text.isdigit() for text in texts)


def _inside(axes: Sequence[str], sizes: Sequence[int], extents: Sequence[int], indices: Mapping[str, str]) -> list[str]:
    """The tests that an element that a layout reaches is one of the tile's."""
    return [
        f"{indices[axis]} < {size}"
        for axis, size, extent in zip(axes, sizes, extents, strict=True)
        if extent > size and axis in indices
    ]


def _wide(op: cuda.CopyOp) -> list[tuple[str, int]]:
    """Axes along which the tile has more than one element, with its extents."""
    extents = extents_of(op.tile.type)
    return [(axis, extent) for axis, extent in zip(axes_of(op.tile.type), extents, strict=True) if extent != 1]


def _pointer(op: cuda.CopyOp) -> str:
    return f"{'' if op.is_outward else 'const '}{c_type(op.buffer.type)}*"


def _block_of(value: SSAValue) -> Block | None:
    return value.owner if isinstance(value.owner, Block) else value.owner.parent


def _moving_axis(op: cuda.CopyOp, loop: scf.ForOp) -> tuple[str, int] | None:
    """The one axis along which a copy moves with its loop, and how far ahead of it; None if it moves otherwise."""
    found: list[tuple[str, int]] = []
    for axis, offset in zip(axes_of(op.buffer.type), op.offsets, strict=True):
        if _constant(offset) is not None or not _is_made_in(offset, loop):
            continue
        ahead = _distance(offset, loop.body.block.args[0])
        if ahead is None:
            return None
        found.append((axis, ahead))
    return found[0] if len(found) == 1 else None


def _is_made_in(value: SSAValue, loop: scf.ForOp) -> bool:
    maker = value.owner.parent_op() if isinstance(value.owner, Block) else value.owner
    return maker is not None and loop.is_ancestor(maker)


def _distance(value: SSAValue, position: SSAValue) -> int | None:
    """The constant by which a value is ahead of the position of a loop."""
    if value is position:
        return 0
    owner = value.owner
    if not isinstance(owner, arith.AddiOp) or owner.lhs is not position:
        return None
    return _constant(owner.rhs)
