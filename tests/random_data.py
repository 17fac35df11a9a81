"""What data decide in random programs: reads at entries of tables and at remainders, conditions on tables of blocks;
numbers of 8 bits, which are stored, converted and multiplied; and products of products."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random_diagrams import Program, Value

CHANCE = 0.35
"""Of a program that has any of this."""
BLOCKS = (2, 3, 4, 8, 16)
NARROW = ("i8", "i8", "ui8", "f8E4M3FN", "f8E5M2")


@dataclass
class Data:
    """Adds to a program."""

    program: Program
    dice: random.Random
    kept: int = field(default=0)

    def add(self) -> None:
        """Now and then one operation, with the arguments that it takes."""
        if self.dice.random() < 0.6:
            kinds = [self.scattered, self.scattered, self.blocks, self.product, self.product, self.cast, self.chain]
            self.dice.choice(kinds)()

    # -- numbers of 8 bits -------------------------------------------------------------------------

    def product(self) -> None:
        """Of two arguments of 8 bits, integers with a sign or without, or floats."""
        names = [axis for axis in self.program.axes if axis in "abcde"]
        left, right = self.dice.choice(NARROW), self.dice.choice(NARROW)
        if ("f8" in left) != ("f8" in right) or "f8" in left:
            right = left
        shared, *rest = self.dice.sample(names, min(len(names), 4))
        outer = rest[:1] if self.dice.random() < 0.3 and len(rest) == 3 else []
        rest = rest[len(outer) :]
        sides = [self._shuffled([*outer, shared, *rest[i : i + 1]]) for i in range(2)]
        x, y = (self.program.argument(axes, format) for axes, format in zip(sides, (left, right), strict=True))
        self.program.values += [x, y]
        made = self.program.product(x, y, [shared])
        if made is not None and self.dice.random() < 0.5:
            self.program.converted(made, self.dice.choice(["f32", "f16"] if made.format == "i32" else ["f16", "bf16"]))

    def cast(self) -> None:
        """To 8 bits and back."""
        if (x := self.program.chosen("f32", "i32", "f16", "i8", axes=0)) is None:
            return
        narrow = self.dice.choice(["i8", "ui8"] if "i" in x.format else ["f8E4M3FN", "f8E5M2"])
        y = self.program.converted(x, narrow)
        if self.dice.random() < 0.6:
            self.program.converted(y, self.dice.choice(["f32", "i32"] if "i8" in y.format else ["f32"]))

    def chain(self) -> None:
        """A product of a product, which may be multiplied in another order, and in chunks under a condition."""
        names = self.dice.sample("abcde", 5)
        q, x, d, e, h = (name for name in names)
        for name in names:
            self.program.axes.setdefault(name, None)
        heads = [h] if self.dice.random() < 0.4 else []
        format = self.dice.choice(["f16", "f16", "bf16", "f32", "i8", "f8E4M3FN"])
        sides = [
            self._shuffled([*(heads if self.dice.random() < 0.8 else []), *pair]) for pair in ((q, d), (x, d), (x, e))
        ]
        Q, K, V = (self.program.argument(axes, format) for axes in sides)
        S = self.program.product(Q, K, [d])
        if S is None or not {q, x} <= set(S.axes):
            return
        if self.dice.random() < 0.6:
            order = self.dice.choice(["<=", "<", ">=", ">"])
            self.program.values.remove(S)
            line = f'diagram.where {S.name} if "{x} {order} {q}" : {self.program.type_of(S)}'
            S = self.program.add(S.axes, S.format, line, S)
        if format != "f32":
            self.program.values.remove(S)
            S = self.program.converted(S, format)
        self.program.product(S, V, [x])

    # -- tables ------------------------------------------------------------------------------------

    def table(self, axes: Sequence[str], up_to: str) -> Value:
        """An argument of entries: positions along an axis, or small numbers of which some are outside of any array."""
        known = {axis for value in self.program.arguments for axis in value.axes}
        attribute = f' {{diagram.up_to = "{up_to}"}}' if up_to in known and self.dice.random() < 0.6 else ""
        if self.dice.random() < 0.15:
            return self.program.converted(self.program.argument(axes, "i8"), "i32")
        return self.program.argument(axes, "i32", attribute)

    def scattered(self) -> None:
        """An array at entries of one or two tables, whole pages of it, or at remainders."""
        padded = {line.split()[0] for line in self.program.lines if " padded" in line}
        found = [value for value in self.program.values if value.axes and value.name not in padded]
        if not found:
            return
        x = self.dice.choice(found)
        at = self.dice.randrange(len(x.axes))
        t, block = self._over(x), self.dice.choice(BLOCKS)
        places = list(x.axes)
        tables: dict[str, Value] = {}
        match self.dice.choice(["entry", "entry", "block", "page", "remainder", "rows", "two"]):
            case "entry":
                places[at] = self._entry(tables, (t,), t, x.axes[at])
            case "block":
                places[at] = self._entry(tables, (self._new(None),), f"{t} // {block}", x.axes[at])
            case "page" if len(x.axes) > 1:
                other = (at + 1) % len(x.axes)
                places[at] = self._entry(tables, (self._new(None),), f"{t} // {block}", x.axes[at])
                places[other] = f"{t} % {block}"
            case "rows" if len(x.axes) > 1:
                row = next(axis for axis in x.axes if axis != x.axes[at])
                places[at] = self._entry(tables, (row, self._new(None)), f"{row}, {t} // {block}", x.axes[at])
            case "two":
                one = self._entry(tables, (t,), t, x.axes[at])
                places[at] = f"{one} + {self._entry(tables, (t,), t, x.axes[at])}"
            case _:
                if t[0] == "z" and self.program.axes[t] is None:  # nothing else gives it a size
                    t = self._new(self.dice.choice([5, 20]))
                places[at] = self.dice.choice([f"{t} % {block}", f"{block} - {t} % {block}", f"5 - {t} // {block}"])
        axes = [axis for axis in x.axes if any(axis == place for place in places)]
        held = [axis for axis in x.axes if axis not in axes and any(axis in place for place in places)]
        axes = list(dict.fromkeys([*axes, *held, t]))
        if len(axes) > 3:
            return
        self._shuffle(axes)
        given = ", ".join(f"{name} = {table.name} : {self.program.type_of(table)}" for name, table in tables.items())
        taken = f" with ({given})" if given else ""
        types = f"{self.program.type_of(x)} -> {self.program.type(axes, x.format)}"
        line = f'diagram.read {x.name} at "{", ".join(places)}" padded{taken} : {types}'
        self.program.add(axes, x.format, line, x, *tables.values())

    def _entry(self, tables: dict[str, Value], axes: Sequence[str], at: str, along: str) -> str:
        name = f"N{self.kept}"
        self.kept += 1
        tables[name] = self.table(axes, along)
        factor, shift = self.dice.choice(["", "", "", "2 * ", "-"]), self.dice.choice(["", "", "", " - 1", " + 2"])
        return f"{factor}{name}[{at}]{shift}"

    def blocks(self) -> None:
        """Some elements, by a table with a cell for each block of them."""
        if (x := self.program.chosen("f32", "i32")) is None:
            return
        places = [f"{axis} // {self.dice.choice(BLOCKS)}" for axis in x.axes]
        keeps = self.dice.sample(range(len(places)), self.dice.choice([1, min(2, len(places))]))
        axes = [x.axes[i] for i in sorted(keeps)]
        table = self.table([self._new(None) for _ in axes], "")
        types = f"{self.program.type_of(table)} -> {self.program.type(axes, 'i32')}"
        at = ", ".join(places[i] for i in sorted(keeps))
        cells = self.program.add(axes, "i32", f'diagram.read {table.name} at "{at}" padded : {types}', table)
        text = f"m[{', '.join(axes)}] {self.dice.choice(['> 0', '!= 1', '<= 2'])}"
        if self.dice.random() < 0.4:
            text += f" {self.dice.choice(['and', 'or'])} {axes[0]} >= {self.dice.choice([1, 3])}"
        given = f"m = {cells.name} : {self.program.type_of(cells)}"
        self.program.add(
            x.axes, x.format, f'diagram.where {x.name} if "{text}" with ({given}) : {self.program.type_of(x)}', x, cells
        )

    # -- axes --------------------------------------------------------------------------------------

    def _over(self, x: Value) -> str:
        """An axis to read along: one that another argument has, or one of its own."""
        known = {axis for value in self.program.arguments for axis in value.axes} - set(x.axes)
        return self.dice.choice(sorted(known)) if known and self.dice.random() < 0.6 else self._new(None)

    def _new(self, size: int | None) -> str:
        self.kept += 1
        name = f"z{self.kept}"
        self.program.axes[name] = size
        return name

    def _shuffled(self, axes: Sequence[str]) -> list[str]:
        given = list(axes)
        self.dice.shuffle(given)
        return given

    def _shuffle(self, axes: list[str]) -> None:
        if self.dice.random() < 0.3:
            self.dice.shuffle(axes)
