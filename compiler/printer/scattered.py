"""Print accesses to arrays whose elements lie where data say: entries first, then addresses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from xdsl.ir import SSAValue

from treadle.compiler.printer.indices import add, scaled, strided
from treadle.compiler.printer.scalars import bare
from treadle.compiler.printer.scalars import term as as_term
from treadle.compiler.printer.writer import KernelWriter
from treadle.dialects import cuda
from treadle.dialects.cuda.accesses import GlobalAccess
from treadle.dialects.cuda.multiples import is_multiple
from treadle.dialects.cuda.placed import PlacedAccess
from treadle.dialects.diagram.array import axes_of
from treadle.dialects.diagram.condition import Entry, Linear, Term, axis_in, divisor_in, modulus_in
from treadle.dialects.diagram.place import entries_in


class Positions(Protocol):
    """What this needs of the printer of accesses."""

    def offset(self, op: PlacedAccess, axis: str) -> SSAValue: ...
    def position(self, op: PlacedAccess, axis: str, indices: Mapping[str, str]) -> str: ...


@dataclass(frozen=True)
class Rows:
    """How a copy goes down: a thread's rows lie `step` apart, from its own, which is less, on."""

    axis: str
    own: str
    down: str
    step: int

    def divided(self, sign: str, number: int) -> list[str] | None:
        """What the quotient, or the remainder, of a row by a number adds up, each known before a loop, or a constant;
        None if neither divides the other."""
        own, down = f"uint32_t({self.own})", f"uint32_t({self.down})"
        if self.step % number == 0:
            parts = [f"{own} % {number}u"] if sign == "%" else [f"{own} / {number}u", f"{down} / {number}u"]
        elif number % self.step == 0:
            parts = [own, f"{down} % {number}u"] if sign == "%" else [f"{down} / {number}u"]
        else:
            return None
        return parts if self.own != "0" else [part for part in parts if own not in part]


@dataclass
class Scattered:
    """Where neighbours of one row of a tile lie. First `find` gives statements that load their entries."""

    kernel: KernelWriter
    positions: Positions
    op: PlacedAccess
    indices: Mapping[str, str]
    rows: Rows | None = None
    mapped: bool = False
    """Whether a tensor map says where the array ends, so that only positions of entries are tested."""
    names: dict[Entry, str] = field(default_factory=dict[Entry, str])
    tests: list[str] = field(default_factory=list[str])
    """What must hold for there to be an element, once entries are found."""

    def find(self, tests: Sequence[str]) -> list[str]:
        """Statements that load the entries, where these tests and those of their positions hold."""
        scatter = self.op.scatter
        assert scatter is not None
        self.tests = [*tests, *self._tests_of_positions(with_entries=False)]
        guard, statements = " && ".join(self.tests), list[str]()
        for entry in entries_of(self.op):
            if entry in self.names:
                continue
            name = self.kernel.names.fresh(entry.name)
            statements.append(f"const int {name} = {self._load(scatter.entries[entry.name], entry, guard)};")
            self.names[entry] = name
        self.tests += self._tests_of_positions(with_entries=True)
        return statements

    def where(self, together: bool) -> str:
        """`behind(&pages[h0 * pages_h + d_i], table_1, pages_p)`: what entries add comes last, so that the rest may be
        computed before loops. `together` says that the elements of a row are neighbours."""
        assert isinstance(self.op, GlobalAccess)
        buffer = cuda.buffer_of(self.op)
        strides = dict(self.kernel.strides[buffer])
        if together:
            strides |= dict.fromkeys(axes_of(buffer.type)[-1:], "1")
        alone = {axis: entry for axis, form in self.op.forms.items() if (entry := _alone(form)) is not None}
        rest = {axis: form for axis, form in self.op.forms.items() if axis not in alone}
        place = f"&{self.kernel.values[buffer]}[{self._offset(rest, strides)}]"
        for axis, entry in alone.items():
            behind = "slot_behind" if isinstance(self.op, cuda.StoreOp) else "behind"
            place = f"{self.kernel.call(behind)}({place}, {self.names[entry]}, {strides[axis]})"
        return place

    def coordinates(self) -> list[str]:
        """Those of the element in the tensor, the outermost first; whatever data say, they fit 32 bits."""
        return [self._coordinate(form) for form in self.op.forms.values()]

    def _coordinate(self, form: Linear) -> str:
        if (entry := _alone(form)) is not None:
            return self.names[entry]
        text = self._form(form) or "0"
        if text.isdigit():
            return text
        return f"{self.kernel.call('coordinate')}({text})" if entries_in([form]) else f"int({text})"

    def _load(self, table: SSAValue, entry: Entry, guard: str) -> str:
        forms = dict(zip(axes_of(table.type), entry.places, strict=True))
        place = f"&{self.kernel.values[table]}[{self._offset(forms, self.kernel.strides[table])}]"
        pointer = f"{self.kernel.call('vec')}<1>({place})"
        if not guard:
            return f"{self.kernel.call('load_global')}({pointer}).at[0]"
        return f"{self.kernel.call('load_global_if')}({pointer}, {bare(guard)}).at[0]"

    def _offset(self, forms: Mapping[str, Linear], strides: Mapping[str, str]) -> str:
        texts = {axis: self._form(form) for axis, form in forms.items()}
        whole = {axis: f"({text})" if " - " in text else text for axis, text in texts.items()}
        return add(strided(text, strides[axis]) for axis, text in whole.items() if text != "0")

    def _tests_of_positions(self, with_entries: bool) -> list[str]:
        """That positions lie inside of their arrays: those that entries are part of, or all others."""
        tests: list[str] = []
        for form, length in self.op.padding:
            if bool(entries_in([form])) is not with_entries:
                continue
            if self.mapped and not any(form in entry.places for entry in entries_of(self.op)):
                continue
            size = as_term(self.kernel.values[length])
            if (entry := _alone(form)) is not None:
                tests.append(f"uint32_t({self.names[entry]}) < uint32_t({size})")  # sizes are below 2^31
                continue
            place = self._form(form)
            is_back = form.constant < 0 or any(factor < 0 for factor in form.terms.values())
            tests += [f"0 <= {place}"] if is_back or with_entries else []
            tests.append(f"{place} < {size}")
        return tests

    def _form(self, form: Linear) -> str:
        """A position, in 64 bits, which factors of entries, and strides, may need."""
        text = add(scaled(self._term(term), factor) for term, factor in form.terms.items() if factor > 0)
        for term, factor in form.terms.items():
            if factor < 0:
                text += f" - {scaled(f'({self._term(term)})', -factor)}"
        return f"{text} {'-' if form.constant < 0 else '+'} {abs(form.constant)}" if form.constant else text

    def _term(self, term: Term) -> str:
        if isinstance(term, Entry):
            return f"int64_t({self.names[term]})"
        axis, number = axis_in(term), modulus_in(term) or divisor_in(term)
        if number == 1:
            return self.positions.position(self.op, axis, self.indices)
        return self._divided(axis, "%" if modulus_in(term) else "/", number)

    def _divided(self, axis: str, sign: str, number: int) -> str:
        """Where pieces begin with blocks, what is divided of the place in the piece is known before the loop."""
        index = self.indices.get(axis, "0")
        if not is_multiple(self.positions.offset(self.op, axis), number):
            return f"int64_t(uint32_t({self.positions.position(self.op, axis, self.indices)}) {sign} {number}u)"
        of_rows = self.rows.divided(sign, number) if self.rows is not None and self.rows.axis == axis else None
        within = of_rows
        if within is None:
            within = [] if index == "0" else [f"uint32_t({index}) {sign} {number}u"]
        if sign == "/":
            within.insert(0, f"uint32_t({self.positions.position(self.op, axis, {})}) / {number}u")
        return add(f"int64_t({part})" for part in within)


def entries_of(op: PlacedAccess) -> list[Entry]:
    """The entries that an access asks for."""
    return entries_in((*op.forms.values(), *(form for form, _ in op.padding)))


def axes_asked(op: PlacedAccess) -> set[str]:
    """The axes along which entries of an access lie."""
    return {axis for entry in entries_of(op) for axis in entry.axes}


def _alone(form: Linear) -> Entry | None:
    """The entry that a position is."""
    term = next(iter(form.terms), None)
    return term if isinstance(term, Entry) and form == Linear({term: 1}) else None
