"""Random programs of products: of two factors or three, over one to three axes in any order, with batches and several
rows and columns; of what is read elsewhere, scaled, converted, masked or a view; and what is made of products behind.
Some state long sizes, so that what is decided by time is decided."""

from __future__ import annotations

import random
from collections.abc import Sequence

import random_bodies as bodies

from random_diagrams import Program, Value

PIECES = (16, 32, 48, 64, 64, 96, 128)
"""Lengths of sums, of which some are several pieces of 32, 64 or 128 bytes."""
FEW = (1, 2, 3, 4, 8)
ROWS = (1, 3, 7, 8, 16, 24, 40)
LONG = (1, 512, 1000, 4096, 4096, 16384)
"""What a program says of sizes that it does not know."""
FORMATS = ("f16", "f16", "f16", "bf16", "f32", "i8", "ui8", "f8E4M3FN", "f8E5M2")
OPERANDS = {
    "plain": 4,
    "again": 1.5,
    "scaled": 1.5,
    "cast_before": 1.5,
    "kept": 1,
    "masked": 1,
    "view": 3,
    "elsewhere": 3,
    "constant": 0.2,
}
BEHIND = {
    "bias": 3,
    "another": 2,
    "shares": 1.5,
    "third": 2,
    "several": 1,
    "mask": 1.5,
    "where": 1,
    "reduce": 1.5,
    "moved": 1,
    "cast": 1.5,
    "average": 1.2,
}
PLACES = ("order", "moved", "window", "stride", "quotient", "remainder", "page", "entry", "own")
MOST_AXES = 5


class Products(Program):
    """Writes one product after another; `sums` are the axes that most are summed over."""

    def __init__(self, seed: int):
        dice, aside = random.Random(f"products {seed}"), random.Random(f"aside of products {seed}")
        super().__init__(aside, dice, {}, dice.choice(FORMATS))
        self.sums = self.named("klj", dice.choice([1, 2, 2, 2, 3]), FEW)
        self.axes[self.sums[0]] = dice.choice(PIECES) if dice.random() < 0.75 else None
        self.batch = self.named("bh", dice.choice([0, 0, 1, 1, 2]), FEW)
        self.rows = self.named("mi", dice.choice([1, 1, 2]), ROWS)
        self.columns = self.named("no", dice.choice([1, 1, 1, 2]), ROWS)
        self.returned: set[str] = set()

    def named(self, names: str, count: int, sizes: Sequence[int]) -> list[str]:
        """Axes, of sizes that are known or not."""
        self.axes |= {name: self.random.choice(sizes) if self.random.random() < 0.4 else None for name in names[:count]}
        return [*names[:count]]

    # -- factors -----------------------------------------------------------------------------------

    def factor(self, own: Sequence[str], sums: Sequence[str], format: str = "") -> Value:
        """A factor with its own axes, those of sums, and most of the batch."""
        batch = [axis for axis in self.batch if self.random.random() < 0.85]
        axes = [*batch, *self.maybe_shuffled([*own, *sums], 0.5)]
        axes = list(self.maybe_shuffled(axes, 0.3))
        (kind,) = self.random.choices(list(OPERANDS), list(OPERANDS.values()))
        return getattr(self, kind)(axes, format or self.format)

    def plain(self, axes: Sequence[str], format: str) -> Value:
        return self.argument(axes, format)

    def again(self, axes: Sequence[str], format: str) -> Value:
        """A factor that another product has, too."""
        found = [value for value in self.arguments if {*value.axes} == {*axes} and value.format == format]
        return self.random.choice(found) if found else self.plain(axes, format)

    def wide(self, axes: Sequence[str], format: str) -> Value:
        """An argument, in the format in which maps take it."""
        if format in ("i8", "ui8"):
            return self.argument(axes, "i32")
        return self.argument(axes, self.random.choice([format, "f32"]) if "8" not in format else "f32")

    def narrow(self, value: Value, format: str) -> Value:
        return value if value.format == format else self.converted(value, format)

    def scaled(self, axes: Sequence[str], format: str) -> Value:
        """Elements times something of some of the axes, perhaps more."""
        if format in ("i8", "ui8"):
            return self.plain(axes, format)
        stored = self.argument(axes, self.random.choice(["i8", "f8E4M3FN", format, "f32"]))
        x = self.converted(stored, "f32") if "8" in stored.format else stored
        some = self.random.sample(list(axes), self.random.randint(0, min(2, len(axes))))
        scale = self.argument(some, "f32")
        body = bodies.of_arguments(self.random, [x.format, scale.format], "f32")
        made = self.mapped(axes, "f32", {"%a0": x, "%a1": scale}, body)
        return self.narrow(made, format)

    def cast_before(self, axes: Sequence[str], format: str) -> Value:
        x = self.argument(axes, "i32" if format in ("i8", "ui8") else self.random.choice(["f32", "f16"]))
        if x.format == format:
            return x
        fixed = " fixed" if self.random.random() < 0.3 else ""
        types = f"{self.type_of(x)} -> {self.type(axes, format)}"
        return self.add(axes, format, f"diagram.cast {x.name}{fixed} : {types}", x)

    def kept(self, axes: Sequence[str], format: str) -> Value:
        """The elements at which a condition holds."""
        return self.narrow(self.conditioned(self.wide(axes, format)), format)

    def conditioned(self, x: Value) -> Value:
        inputs: dict[str, Value] = {}
        text = self.condition(x, inputs)
        given = ", ".join(f"{name} = {value.name} : {self.type_of(value)}" for name, value in inputs.items())
        taken = f" with ({given})" if given else ""
        line = f'diagram.where {x.name} if "{text}"{taken} : {self.type_of(x)}'
        return self.add(x.axes, x.format, line, x, *inputs.values())

    def masked(self, axes: Sequence[str], format: str) -> Value:
        """Zeros in the place of the others, by a choice that is written out."""
        return self.narrow(self.chosen_by_positions(self.wide(axes, format), "0.0"), format)

    def chosen_by_positions(self, x: Value, fill: str) -> Value:
        one, other = self.random.sample([*x.axes, *x.axes[:1]], 2)
        taken, format = {"%a": x}, "i32" if x.format == "i32" else "f32"
        lines = [] if x.format == format else [f"%w = arith.extf %a : {x.format} to f32"]
        for name, axis in (("%p", one), ("%q", other)):
            taken[name] = self.add([axis], "i32", f"diagram.index -> {self.type([axis], 'i32')}")
        shift, order = self.random.choice([0, 1, 3]), self.random.choice(["sle", "slt", "sge", "eq", "ne"])
        last = ["%q2 = arith.addi %q, %shift : i32", f"%is = arith.cmpi {order}, %p, %q2 : i32"]
        if one == other or self.random.random() < 0.2:
            last = [f"%is = arith.cmpi {order}, %p, %shift : i32"]
        value, fill = "%a" if not lines else "%w", "0" if format == "i32" else fill
        lines += [f"%shift = arith.constant {shift} : i32", *last, f"%fill = arith.constant {fill} : {format}"]
        lines += [f"%y = arith.select %is, {value}, %fill : {format}", f"diagram.yield %y : {format}"]
        return self.mapped(x.axes, format, taken, lines)

    def constant(self, axes: Sequence[str], format: str) -> Value:
        number = "2" if format in ("i8", "ui8") else "0.5"
        if any(self.axes[axis] is None for axis in axes) or "8" in format:
            return self.plain(axes, format)
        return self.add(axes, format, f"diagram.fill {number} : {format} -> {self.type(axes, format)}")

    def view(self, axes: Sequence[str], format: str) -> Value:
        """Two axes of an array as one, or one as two."""
        at = self.random.randrange(len(axes))
        size = self.axes[axes[at]]
        if self.random.random() < 0.5 and at + 1 < len(axes):
            first, second = axes[at : at + 2]
            if None in (self.axes[first], self.axes[second]):
                return self.plain(axes, format)
            flat = self.new_axis("f", (self.axes[first] or 0) * (self.axes[second] or 0))
            x = self.argument([*axes[:at], flat, *axes[at + 2 :]], format)
            line = f"diagram.expand {x.name} {flat} as [{first}, {second}]"
        else:
            outer = next((each for each in (4, 3, 2) if size is not None and size % each == 0), None)
            if outer is None or size is None:
                return self.plain(axes, format)
            parts = [self.new_axis("g", outer), self.new_axis("w", size // outer)]
            x = self.argument([*axes[:at], *parts, *axes[at + 1 :]], format)
            line = f"diagram.collapse {x.name} [{', '.join(parts)}] as {axes[at]}"
        return self.add(axes, format, f"{line} : {self.type_of(x)} -> {self.type(axes, format)}", x)

    def elsewhere(self, axes: Sequence[str], format: str) -> Value:
        """An array at other positions: in another order, moved, at strides, quotients, remainders, or entries."""
        at = self.random.randrange(len(axes))
        axis, block = axes[at], self.random.choice([2, 3, 4, 16])
        size, source, places = self.axes[axis], list(axes), list(axes)
        tables: dict[str, Value] = {}
        padded = " padded"
        few = [each for each in axes if each != axis and (self.axes[each] or 99) <= 8]
        match self.random.choice(PLACES):
            case "order":
                source, padded = self.random.sample(list(axes), len(axes)), ""
                places = source
            case "window" if few:
                source.remove(few[0])
                places.remove(few[0])
                shift = self.random.choice([0, 1])
                places[source.index(axis)] = f"{axis} {self.random.choice('+-')} {few[0]} + {shift}"
            case "stride" if size is not None:
                source[at] = self.new_axis("s", 2 * size)
                places[at], padded = f"2 * {axis}", self.random.choice(["", " padded"])
            case "quotient" if size is not None or self.is_known(axis):
                source[at] = self.new_axis("s", None if size is None else -(-size // block))
                places[at] = f"{axis} // {block}"
            case "remainder" if size is not None or self.is_known(axis):
                source[at] = self.new_axis("s", block)
                places[at] = f"{axis} % {block}"
            case "page" if size is not None or self.is_known(axis):
                source[at : at + 1] = [self.new_axis("s", None), self.new_axis("u", block)]
                places[at : at + 1] = [f"{axis} // {block}", f"{axis} % {block}"]
            case "entry":
                source[at] = self.new_axis("s", self.random.choice([None, 5, 40]))
                tables["N"] = self.argument([axis], "i32", f' {{diagram.up_to = "{source[at]}"}}')
                places[at] = f"N[{axis}]"
            case "own":
                tables["N"] = self.argument([axis], "i32")
                places[at] = f"{axis} + N[{axis}]"
            case _:
                places[at] = f"{axis} {self.random.choice('+-')} {self.random.choice([1, 2, 5])}"
        return self.read_at(source, places, axes, format, padded, tables)

    def is_known(self, axis: str) -> bool:
        return any(axis in value.axes for value in self.arguments)

    def read_at(
        self,
        source: Sequence[str],
        places: Sequence[str],
        axes: Sequence[str],
        format: str,
        padded: str,
        tables: dict[str, Value],
    ) -> Value:
        x = self.argument(source, format)
        given = ", ".join(f"{name} = {table.name} : {self.type_of(table)}" for name, table in tables.items())
        taken = f" with ({given})" if given else ""
        types = f"{self.type_of(x)} -> {self.type(axes, format)}"
        line = f'diagram.read {x.name} at "{", ".join(places)}"{padded}{taken} : {types}'
        return self.add(axes, format, line, x, *tables.values())

    # -- products ----------------------------------------------------------------------------------

    def times(self, x: Value, y: Value, over: Sequence[str]) -> Value:
        """The product of two factors over some axes, of which a sum behind may take a few."""
        both = [axis for axis in over if axis in x.axes and axis in y.axes]
        later = [axis for axis in both[1:] if self.random.random() < 0.25]
        now = self.random.sample([axis for axis in over if axis not in later], len(over) - len(later))
        rest = [axis for axis in dict.fromkeys((*x.axes, *y.axes)) if axis not in now]
        axes = self.maybe_shuffled(rest, 0.35)
        format = "i32" if x.format in ("i8", "ui8") else "f32"
        narrow = format
        if format == "f32" and not later and self.random.random() < 0.3:
            narrow = self.random.choice(["f16", "bf16"])
        tf32 = " as tf32" if x.format == "f32" and self.random.random() < 0.5 else ""
        given = (x, y) if self.random.random() < 0.8 else (y, x)
        line = f"diagram.contract {given[0].name}, {given[1].name} over [{', '.join(now)}] accumulate {format}{tf32}"
        types = ", ".join(map(self.type_of, given))
        made = self.add(axes, narrow, f"{line} : {types} -> {self.type(axes, narrow)}", x, y)
        if later and format == "f32" and self.random.random() < 0.3:
            made = self.mapped(axes, "f32", {"%a0": made}, bodies.of_arguments(self.random, ["f32"], "f32"))
        return self.reduced(made, later, "add") if later else made

    def first(self) -> Value:
        other = {"i8": "ui8", "f8E4M3FN": "f8E5M2"}.get(self.format, self.format)
        x = self.factor(self.rows, self.sums)
        y = self.factor(self.columns, self.sums, self.random.choice([self.format, self.format, other]))
        batch = [axis for axis in self.batch if axis in x.axes and axis in y.axes and self.random.random() < 0.25]
        return self.times(x, y, [*self.sums, *batch])

    # -- behind products ---------------------------------------------------------------------------

    def floats(self, value: Value) -> Value:
        return self.narrow(value, "f32")

    def bias(self, value: Value) -> Value:
        """With something of some of its axes."""
        if not value.axes:
            return value
        some = self.random.sample(list(value.axes), self.random.randint(1, len(value.axes)))
        other = self.argument(some, self.random.choice(["f32", "f16"]) if value.format != "i32" else "i32")
        format = "i32" if value.format == "i32" else "f32"
        body = bodies.of_arguments(self.random, [value.format, other.format], format)
        return self.mapped(self.maybe_shuffled(list(value.axes), 0.2), format, {"%a0": value, "%a1": other}, body)

    def another(self, value: Value) -> Value:
        """With another product that has a factor of the same shape."""
        second = self.first()
        axes = list(dict.fromkeys((*value.axes, *second.axes)))
        if len(axes) > MOST_AXES or not axes:
            return value
        one, two = self.floats(value), self.floats(second)
        return self.mapped(axes, "f32", {"%a0": one, "%a1": two}, bodies.of_arguments(self.random, ["f32"] * 2, "f32"))

    def shares(self, value: Value) -> Value:
        if not value.axes:
            return value
        x, over = self.floats(value), self.random.choice(value.axes)
        types = f"({self.type_of(x)}) -> {self.type(x.axes, 'f32')}"
        return self.add(x.axes, "f32", f"diagram.apply @softmax({x.name}) over [{over}] : {types}", x)

    def third(self, value: Value) -> Value:
        """A product with a third factor."""
        free = [axis for axis in value.axes if axis not in self.batch]
        if not free:
            return value
        over = self.random.sample(free, self.random.choice([1, 1, min(2, len(free))]))
        format = "f16" if value.format == "i32" else self.random.choice(["f16", "bf16", "f32", "f8E4M3FN"])
        left = self.narrow(self.floats(value) if "8" in format else value, format)
        if "p" not in self.axes:
            self.named("p", 1, ROWS)
        own = ["p"] if "p" not in value.axes else []
        return self.times(left, self.factor(own, over, format), over)

    def several(self, value: Value) -> Value:
        """It is a result, too."""
        self.returned.add(value.name)
        return value

    def mask(self, value: Value) -> Value:
        """A choice that is written out, and a maximum, shares or a sum of that."""
        if not value.axes:
            return value
        kind = self.random.choice(["add", "max", "shares"])
        fill = "0.0" if kind == "add" else "0xFF800000"
        made = self.chosen_by_positions(self.floats(value), fill)
        return self.shares(made) if kind == "shares" else self.reduced(made, [self.random.choice(made.axes)], kind)

    def where_(self, value: Value) -> Value:
        if not value.axes:
            return value
        kept = self.conditioned(self.floats(value))
        return self.reduced(kept, [self.random.choice(kept.axes)], self.random.choice(["add", "max"]))

    def reduce_(self, value: Value) -> Value:
        if not value.axes or value.format not in ("f32", "i32"):
            return value
        over = self.random.sample(list(value.axes), self.random.choice([1, 1, min(2, len(value.axes))]))
        return self.reduced(value, over, self.random.choice(["add", "add", "max", "min"]))

    def moved(self, value: Value) -> Value:
        """In another order, or a few positions away."""
        if not value.axes:
            return value
        axes, padded = self.random.sample(list(value.axes), len(value.axes)), ""
        places = list(value.axes)
        if self.random.random() < 0.5:
            at = self.random.randrange(len(places))
            places[at], padded = f"{places[at]} - {self.random.choice([1, 3])}", " padded"
        types = f"{self.type_of(value)} -> {self.type(axes, value.format)}"
        line = f'diagram.read {value.name} at "{", ".join(places)}"{padded} : {types}'
        return self.add(axes, value.format, line, value)

    def cast_(self, value: Value) -> Value:
        if value.format == "i32":
            return self.floats(value)
        return self.converted(value, self.random.choice(["f16", "bf16"]) if value.format == "f32" else "f32")

    def average(self, value: Value) -> Value:
        """Divided by how long an axis was."""
        axis = self.random.choice([axis for argument in self.arguments for axis in argument.axes])
        size = Value(f"%n{len(self.lines)}", (), "i32", is_array=False)
        self.lines.append(f'  {size.name} = diagram.extent "{axis}" : i32')
        x = self.floats(value)
        body = ["%f = arith.sitofp %n : i32 to f32", "%y = arith.divf %a, %f : f32", "diagram.yield %y : f32"]
        return self.mapped(x.axes, "f32", {"%a": x, "%n": size}, body)

    # -- the whole ---------------------------------------------------------------------------------

    def write(self) -> str:
        value = self.first()
        for _ in range(self.random.choice([0, 0, 1, 1, 2, 3])):
            (kind,) = self.random.choices(list(BEHIND), list(BEHIND.values()))
            name = f"{kind}_" if kind in ("where", "reduce", "cast") else kind
            value = getattr(self, name)(value)
        self.used -= self.returned
        text = self.text()
        known = {axis for argument in self.arguments for axis in argument.axes if self.axes[axis] is None}
        stated = [axis for axis in (*self.sums, *self.batch, *self.rows, *self.columns, "p") if axis in known]
        if not stated or self.random.random() < 0.4:
            return text
        sizes = ", ".join(f"{axis} = {self.random.choice(LONG)}" for axis in stated)
        return text.replace(") {\n", f") attributes {{sizes = #diagram.sizes<{sizes}>}} {{\n", 1)


def random_products(seed: int) -> str:
    """A program of products."""
    return Products(seed).write()
