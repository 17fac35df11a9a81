"""Print accesses to device memory: `cuda.copy`, `cuda.load` and `cuda.store`; those of fragments here."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from xdsl.dialects import scf
from xdsl.ir import Attribute, SSAValue

from treadle.compiler.printer.addresses import AddressPrinter, bounds_of, inside_tile
from treadle.compiler.printer.copies import CopyPrinter
from treadle.compiler.printer.indices import Loop, add, coordinate, place_in_thread, replicas, subscripts, thread_terms
from treadle.compiler.printer.running_copies import RunningPrinter
from treadle.compiler.printer.scalars import bare, term
from treadle.compiler.printer.scattered import Scattered, axes_asked
from treadle.compiler.printer.staged import StagedPrinter
from treadle.compiler.printer.writer import KernelWriter
from treadle.dialects import cuda
from treadle.dialects.cuda.accesses import GlobalAccess
from treadle.dialects.cuda.layout import LayoutAttr
from treadle.dialects.cuda.tiles import layout_of
from treadle.dialects.diagram.array import axes_of, shape_of

FEW = 8
"""Vectors of a thread along an axis, of which the compiler may have each position: two registers."""


class AccessPrinter:
    """Prints the accesses of one kernel."""

    def __init__(self, kernel: KernelWriter):
        self.kernel = kernel
        self.addresses = AddressPrinter(kernel)
        self.copies = CopyPrinter(kernel, self.addresses)
        self.running = RunningPrinter(kernel, self.addresses, self.copies)
        self.staged = StagedPrinter(kernel, self.addresses, self.copies)

    def copy(self, op: cuda.CopyOp) -> None:
        self.copies.copy(op)

    def before_loop(self, loop: scf.ForOp) -> None:
        self.running.before_loop(loop)

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
        value = self.addresses.load_global(f"{kernel.call('vec')}<width>({self.addresses.where(op, indices)})", valid)
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
        found = Scattered(kernel, self.addresses, op, indices)
        statements, pointer = found.find(self.addresses.tests(op, indices, asked)), found.where(together=False)
        tests = [*found.tests, *self.addresses.tests(op, indices, {*axes_of(op.piece_type)} - asked)]
        value = self.addresses.load_global(f"{kernel.call('vec')}<width>({pointer})", " && ".join(tests) or None)
        self._vector_nest(loops, step, [*statements, f"{kernel.call('unpack')}({fragment}, {value});"])

    def store(self, op: cuda.StoreOp) -> None:
        self.staged.store(op, lambda: self._store_directly(op))

    def _store_directly(self, op: cuda.StoreOp) -> None:
        """Each thread what it holds; of copies, the first."""
        kernel, layout = self.kernel, layout_of(op.value.type)
        loops, step, fragment = self._vector_loops(layout, op, kernel.values[op.value])
        indices = self._indices(layout, loops, step, op.value.type)
        if op.place is not None:
            return self._add_fragment(op, loops, step, fragment, indices)
        valid = self._valid_fragment(op, layout, loops, step, indices)
        tests = [test for test in (replicas(layout), valid) if test is not None]
        place = f"{kernel.call('vec')}<width>({self.addresses.where(op, indices)})"
        value = f"{kernel.call('pack')}<width>({fragment})"
        if tests:
            statement = f"{kernel.call('store_global_if')}({place}, {value}, {' && '.join(tests)});"
        else:
            statement = f"{kernel.call('store_global')}({place}, {value});"
        self._vector_nest(loops, step, [statement])

    def _add_fragment(
        self,
        op: cuda.StoreOp,
        loops: list[Loop],
        step: Loop | None,
        fragment: str,
        indices: dict[str, str],
    ) -> None:
        """Each thread adds what it holds where that lies; of copies, the first."""
        kernel, asked, copies = self.kernel, axes_asked(op), replicas(layout_of(op.value.type))
        found = Scattered(kernel, self.addresses, op, indices)
        first = [copies] if copies is not None else []
        statements = found.find([*first, *self.addresses.tests(op, indices, asked)])
        place = f"{kernel.call('vec')}<width>({found.where(together=False)})"
        tests = [*found.tests, *self.addresses.tests(op, indices, {*axes_of(op.piece_type)} - asked)]
        value, valid = f"{kernel.call('pack')}<width>({fragment})", bare(" && ".join(tests) or "true")
        self._vector_nest(loops, step, [*statements, f"{kernel.call('add_global_if')}({place}, {value}, {valid});"])

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
        tests = inside_tile(axes, shape_of(op.piece_type), [layout.extent(axis) for axis in axes], indices)
        for axis, sign, end in bounds_of(op):
            is_known = _are_numbers(kernel.values[end], kernel.values[self.addresses.offset(op, axis)])
            if is_known or prod(loop.mode.size for loop in loops if loop.mode.axis == axis) <= FEW:
                tests.append(self.addresses.is_within(op, axis, sign, end, indices))
                continue
            own = place_in_thread(axis, [*loops, step] if step is not None else loops)
            tests.append(f"{own} {sign} {self._bound_of_thread(op, layout, axis, sign, end)}")
        return " && ".join([*tests, *self.addresses.inside(op, indices)]) or None

    def _bound_of_thread(self, op: GlobalAccess, layout: LayoutAttr, axis: str, sign: str, end: SSAValue) -> str:
        """The name of a bound, counted from a thread's first element of a fragment."""
        kernel, extent = self.kernel, layout.extent(axis)
        start, stop = term(kernel.values[self.addresses.offset(op, axis)]), term(kernel.values[end])
        apart = stop if start == "0" else f"{stop} - {start if start.isidentifier() else f'({start})'}"
        # A piece may begin far behind where wanted elements do, but not where the array ends.
        number = f"{kernel.call('at_most')}({extent}, {apart})"
        if sign == ">=":
            number = f"{kernel.call('within')}({apart}, {extent})"
        name = kernel.names.fresh(f"{axis}_left" if sign == "<" else f"{axis}_first")
        mine = [f"({each})" if " + " in each else each for each in (add(thread_terms(layout, axis)),) if each != "0"]
        kernel.text.line(f"const int {name} = {' - '.join([number, *mine])};")
        return name


def _are_numbers(*texts: str) -> bool:
    """Whether all are numbers, whose comparison the compiler knows."""
    return all(text.isdigit() for text in texts)
