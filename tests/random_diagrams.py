"""Small random programs: products, maps, reductions, cascades of reductions, laws, casts, affine reads, conditions and
positions, over axes of size one and odd sizes in any order, values used more than once, several results; and what data
decide (`random_data.py`). They compute nothing useful, and everything that they compute is checked."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import random_bodies as bodies
from random_data import CHANCE, Data

from roads import array

STATIC = (1, 3, 7, 8, 16, 24, 40, 64)
SYMBOLIC = (1, 2, 5, 7, 17, 33, 65, 100, 130)
KEEPING = ("softmax", "log_softmax")
REDUCING = ("log_sum_exp", "mean", "mean_square", "variance")
MOST_AXES = 3


@dataclass(frozen=True)
class Value:
    """An array of a program; no axes and no array is a scalar argument."""

    name: str
    axes: tuple[str, ...]
    format: str
    is_array: bool = True


@dataclass
class Program:
    """A program being written."""

    aside: random.Random
    """For what is added to a program that is otherwise the same without it."""
    random: random.Random
    axes: dict[str, int | None]
    format: str
    """The format of most inputs."""
    arguments: list[Value] = field(default_factory=list[Value])
    counts: dict[str, str] = field(default_factory=dict[str, str])
    """Attributes of arguments: those that count positions along an axis."""
    values: list[Value] = field(default_factory=list[Value])
    lines: list[str] = field(default_factory=list[str])
    used: set[str] = field(default_factory=set[str])

    def type(self, axes: Sequence[str], format: str) -> str:
        return array(format, **{axis: self.axes[axis] for axis in axes})

    def type_of(self, value: Value) -> str:
        return self.type(value.axes, value.format) if value.is_array else value.format

    def add(self, axes: Sequence[str], format: str, line: str, *operands: Value) -> Value:
        value = Value(f"%v{len(self.lines)}", tuple(axes), format)
        self.lines.append(f"  {value.name} = {line}")
        self.values.append(value)
        self.used |= {operand.name for operand in operands}
        return value

    def maybe_shuffled(self, axes: list[str], chance: float) -> tuple[str, ...]:
        if self.random.random() < chance:
            self.random.shuffle(axes)
        return tuple(axes)

    def chosen(self, *formats: str, axes: int = 1) -> Value | None:
        """A value of one of some formats, with at least so many axes."""
        found = [value for value in self.values if value.format in formats and len(value.axes) >= axes]
        return self.random.choice(found) if found else None

    def argument(self, axes: Sequence[str], format: str, attributes: str = "", is_array: bool = True) -> Value:
        value = Value(f"%in{len(self.arguments)}", tuple(axes), format, is_array)
        self.arguments.append(value)
        self.counts[value.name] = attributes
        return value

    # -- operations --------------------------------------------------------------------------------

    def contract(self) -> None:
        pairs = [(x, y) for x in self.values for y in self.values if x.format == y.format and set(x.axes) & set(y.axes)]
        if pairs:
            self.product(*self.random.choice(pairs))

    def product(self, x: Value, y: Value, over: Sequence[str] = ()) -> Value | None:
        shared = [axis for axis in x.axes if axis in y.axes]
        over = over or self.random.sample(shared, self.random.choice([1, 1, 1, len(shared)]))
        if self.random.random() < 0.1:
            over = [*over, *(axis for axis in (*x.axes, *y.axes) if axis not in shared)][:2]
        rest = [axis for axis in dict.fromkeys((*x.axes, *y.axes)) if axis not in over]
        if len(rest) > MOST_AXES:
            return None
        axes, format = self.maybe_shuffled(rest, 0.4), "i32" if x.format in ("i32", "i8", "ui8") else "f32"
        tf32 = " as tf32" if x.format == "f32" and self.random.random() < 0.4 else ""
        line = f"diagram.contract {x.name}, {y.name} over [{', '.join(over)}] accumulate {format}{tf32}"
        return self.add(
            axes, format, f"{line} : {self.type_of(x)}, {self.type_of(y)} -> {self.type(axes, format)}", x, y
        )

    def reduce(self) -> None:
        if (x := self.chosen("f32", "i32")) is not None:
            over = self.random.sample(x.axes, self.random.choice([1, 1, len(x.axes)]))
            self.reduced(x, over, self.random.choice(["add", "add", "max", "min"]))

    def reduced(self, x: Value, over: Sequence[str], kind: str) -> Value:
        axes = self.maybe_shuffled([axis for axis in x.axes if axis not in over], 0.2)
        types = f"{self.type_of(x)} -> {self.type(axes, x.format)}"
        return self.add(axes, x.format, f"diagram.reduce {kind} {x.name} over [{', '.join(over)}] : {types}", x)

    def cast(self) -> None:
        if (x := self.chosen("f16", "bf16", "f32", axes=0)) is not None:
            narrow = self.format if self.format in ("f16", "bf16") else self.random.choice(["f16", "bf16"])
            self.converted(x, narrow if x.format == "f32" else "f32")

    def converted(self, x: Value, format: str) -> Value:
        types = f"{self.type_of(x)} -> {self.type(x.axes, format)}"
        return self.add(x.axes, format, f"diagram.cast {x.name} : {types}", x)

    def law(self) -> None:
        if (x := self.chosen("f32")) is None:
            return
        over, name = self.random.choice(x.axes), self.random.choice([*KEEPING, *KEEPING, *REDUCING])
        axes = x.axes if name in KEEPING else [axis for axis in x.axes if axis != over]
        types = f"({self.type_of(x)}) -> {self.type(axes, 'f32')}"
        self.add(axes, "f32", f"diagram.apply @{name}({x.name}) over [{over}] : {types}", x)

    def map(self) -> None:
        taken = [self.random.choice(self.values) for _ in range(self.random.choice([1, 1, 2, 2, 3]))]
        taken = [self.converted(each, "f32") if "8" in each.format else each for each in taken]
        integers = [value for value in taken if value.format == "i32"]
        taken = integers if integers and self.random.random() < 0.7 else taken
        axes = self.maybe_shuffled(list(dict.fromkeys(axis for value in taken for axis in value.axes)), 0.3)
        if len(axes) > MOST_AXES:
            return
        format = "i32" if taken == integers else "f32"
        scalars = [value for value in self.arguments if not value.is_array and value.format == "f32"]
        if scalars and format == "f32" and self.random.random() < 0.5:
            taken.append(scalars[0])
        body = bodies.of_arguments(self.random, [value.format for value in taken], format)
        self.mapped(axes, format, {f"%a{i}": value for i, value in enumerate(taken)}, body)

    def mapped(self, axes: Sequence[str], format: str, taken: dict[str, Value], body: list[str]) -> Value:
        if (unread := self.unread(axes)) is not None:
            taken = {**taken, "%unread": unread}
        axes = (*axes, *self.added(axes))
        inputs = ", ".join(f"{name} = {value.name} : {self.type_of(value)}" for name, value in taken.items())
        text = "".join(f"    {line}\n" for line in body)
        result = f"{self.type(axes, format)} {{\n{text}  }}"
        return self.add(axes, format, f"diagram.map ({inputs}) -> {result}", *taken.values())

    def unread(self, axes: Sequence[str]) -> Value | None:
        """Now and then an operand that a map does not read, but whose absent elements it lacks."""
        found = [value for value in self.values if value.is_array and set(value.axes) <= set(axes)]
        return self.aside.choice(found) if found and self.aside.random() < 0.1 else None

    def added(self, axes: Sequence[str]) -> list[str]:
        """Now and then an axis that no operand of a map has."""
        known = {axis for value in self.arguments for axis in value.axes}
        found = [axis for axis, size in self.axes.items() if axis not in axes and (size is not None or axis in known)]
        wanted = found and len(axes) < MOST_AXES and self.aside.random() < 0.08
        return [self.aside.choice(found)] if wanted else []

    def cascade(self) -> None:
        """Reductions along one axis, each of what was made of the one before."""
        x = self.chosen("f32", "f16", "bf16", axes=self.random.choice([1, 2, 2]))
        if x is None:
            return
        x = x if x.format == "f32" else self.converted(x, "f32")
        over, piece = self.random.choice(x.axes), x
        for _ in range(self.random.choice([1, 1, 2, 2, 3])):
            kind = self.random.choice(["add", "add", "max", "max", "min"])
            reduction = self.reduced(piece, [over], kind)
            if kind != "add" and self.random.random() < 0.7:
                body = bodies.exponential(self.random, kind)
            else:
                body, piece = bodies.of_reduction(self.random), self.random.choice([x, piece])
            axes = tuple(dict.fromkeys((*piece.axes, *reduction.axes)))
            piece = self.mapped(axes, "f32", {"%a": piece, "%r": reduction}, body)
        if self.random.random() < 0.3:
            return
        fitting = [value for value in self.values if over in value.axes and value.format == self.format != "i32"]
        if not fitting or self.random.random() < 0.4:
            self.reduced(piece, [over], self.random.choice(["add", "add", "max", "min"]))
            return
        other = self.random.choice(fitting)
        self.product(piece if other.format == "f32" else self.converted(piece, other.format), other, [over])

    def where(self) -> None:
        """Some elements of an array, by a condition on positions, counts or segments."""
        if (x := self.chosen("f32", "i32")) is None:
            return
        inputs: dict[str, Value] = {}
        text = self.condition(x, inputs)
        for _ in range(self.random.choice([0, 0, 0, 1])):
            text = f"({text}) {self.random.choice(['and', 'or'])} {self.condition(x, inputs)}"
        given = ", ".join(f"{name} = {value.name} : {self.type_of(value)}" for name, value in inputs.items())
        taken = f" with ({given})" if given else ""
        self.add(
            x.axes, x.format, f'diagram.where {x.name} if "{text}"{taken} : {self.type_of(x)}', x, *inputs.values()
        )

    def condition(self, x: Value, inputs: dict[str, Value]) -> str:
        one, *rest = self.random.sample(x.axes, len(x.axes))
        other, shift = (rest or [""])[0], self.random.choice([0, 1, 3])
        kinds = ["fixed", "count", "each"] if not rest else ["causal", "window", "length", "segments", "count"]
        match self.random.choice(kinds):
            case "causal":
                return f"{one} {self.random.choice(['<=', '<', '>='])} {other} + {shift}"
            case "window":
                return f"{other} - 4 <= {one} <= {other} + {shift}"
            case "length":
                return f"{one} < {self.counted(inputs, (other,), one)}"
            case "segments":
                left = self.counted(inputs, (one,), one, ascending=self.random.random() < 0.5)
                return f"{left} == {self.counted(inputs, (other,), one, ascending=True)}"
            case "count":
                scalar = self.counted(inputs, (), one)
                return f"{one} {self.random.choice(['<', '>=', '!='])} {scalar}"
            case "each":
                return f"{self.counted(inputs, (one,), one)} > {shift}"
            case _:
                return f"{one} >= {shift}"

    def counted(self, inputs: dict[str, Value], axes: tuple[str, ...], up_to: str, ascending: bool = False) -> str:
        """A new argument that counts positions along an axis, as a condition names it."""
        order = ", diagram.ascending" if ascending and axes else ""
        value = self.argument(axes, "i32", f' {{diagram.up_to = "{up_to}"{order}}}', is_array=bool(axes))
        name = f"n{len(self.arguments)}"
        inputs[name] = value
        return f"{name}[{', '.join(axes)}]" if axes else name

    def read(self) -> None:
        """An argument read through a window, a stride, a diagonal or in another order."""
        found = [value for value in self.arguments if value.is_array and value.axes and not self.counts.get(value.name)]
        if not found:
            return
        x = self.random.choice(found)
        if self.aside.random() < 0.25:
            return self.padded(x)
        *outer, last = x.axes
        kinds = ["window"] + ["transpose", "diagonal"] * (len(outer) > 1) + ["stride"] * (len(outer) > 0)
        match self.random.choice(kinds):
            case "transpose":
                places, axes = x.axes, [*reversed(outer), last]
            case "diagonal" if self.axes[outer[0]] == self.axes[outer[1]]:
                t = self.new_axis("t", self.axes[outer[0]])
                places, axes = [t, t, *outer[2:], last], [t, *outer[2:], last]
            case "stride":
                t = self.new_axis("t", None if self.axes[outer[0]] is None else -(-(self.axes[outer[0]] or 0) // 2))
                places, axes = [f"2 * {t}", *outer[1:], last], [t, *outer[1:], last]
            case _:
                at = self.random.randrange(len(x.axes))
                size, step = self.axes[x.axes[at]], self.random.choice([1, 2])
                if at == len(x.axes) - 1:
                    step = 1
                w = self.new_axis("w", min(self.random.choice([2, 3, 5]), size or 2))
                width = step * ((self.axes[w] or 1) - 1) + 1
                if size is not None and size < width:
                    return
                t = self.new_axis("t", None if size is None else size - width + 1)
                places = [f"{t} + {step} * {w}" if i == at else axis for i, axis in enumerate(x.axes)]
                axes = [each for i, axis in enumerate(x.axes) for each in ([w, t] if i == at else [axis])]
        line = f'diagram.read {x.name} at "{", ".join(places)}" : {self.type_of(x)} -> {self.type(axes, x.format)}'
        self.add(axes, x.format, line, x)

    def padded(self, x: Value) -> None:
        """A window, forwards or backwards, with zeros around."""
        at = self.aside.randrange(len(x.axes))
        axis, sign = x.axes[at], self.aside.choice("+-")
        w = self.new_axis("w", self.aside.choice([2, 3, 5]))
        place = f"{axis} {sign} {self.aside.choice([1, 2])} * {w} {self.aside.choice('+-')} {self.aside.randrange(4)}"
        places = [place if each == axis else each for each in x.axes]
        axes = [each for axis_ in x.axes for each in ([w, axis_] if axis_ == axis else [axis_])]
        types = f"{self.type_of(x)} -> {self.type(axes, x.format)}"
        self.add(axes, x.format, f'diagram.read {x.name} at "{", ".join(places)}" padded : {types}', x)

    def new_axis(self, letter: str, size: int | None) -> str:
        name = f"{letter}{len(self.lines)}"
        self.axes[name] = size
        return name

    def index(self) -> None:
        axes = [axis for value in self.arguments if value.is_array for axis in value.axes]
        if axes:
            axis = self.random.choice(axes)
            self.add([axis], "i32", f"diagram.index -> {self.type([axis], 'i32')}")

    # -- the whole ---------------------------------------------------------------------------------

    def text(self) -> str:
        made = [value for value in self.values if value.name.startswith("%v")]
        results = [value for value in made if value.name not in self.used or self.random.random() < 0.15][-4:]
        self.random.shuffle(results)
        arguments = ", ".join(f"{v.name}: {self.type_of(v)}{self.counts.get(v.name, '')}" for v in self.arguments)
        types = ", ".join(self.type_of(value) for value in results)
        names = ", ".join(value.name for value in results)
        lines = "\n".join(self.lines)
        return f"func.func @f({arguments}) -> ({types}) {{\n{lines}\n  func.return {names} : {types}\n}}\n"


WEIGHTS = {
    "contract": 4,
    "map": 4,
    "reduce": 2,
    "cast": 2,
    "law": 2,
    "cascade": 3,
    "where": 2,
    "read": 1.5,
    "index": 0.5,
}


def random_program(seed: int) -> str | None:
    """A program; None where the dice made none."""
    dice = random.Random(seed)
    names = dice.sample("abcde", dice.choice([2, 3, 3, 4, 4, 5]))
    axes = {name: dice.choice(STATIC) if dice.random() < 0.4 else None for name in names}
    aside = random.Random(f"aside of {seed}")
    program = Program(aside, dice, axes, dice.choice(["f16", "f16", "f16", "bf16", "f32", "f32", "i32"]))
    for _ in range(dice.choice([1, 2, 2, 3])):
        rank = min(len(names), dice.choice([0, 1, 2, 2, 2, 3, 3]))
        program.argument(
            dice.sample(names, rank), program.format if dice.random() < 0.8 else dice.choice(["f16", "f32"])
        )
    program.values = list(program.arguments)
    if dice.random() < 0.15:
        program.arguments.append(Value("%scalar", (), "f32", is_array=False))
    data = random.Random(f"data of {seed}")
    added = Data(program, data) if data.random() < CHANCE else None
    for operation in dice.choices(list(WEIGHTS), list(WEIGHTS.values()), k=dice.randint(1, 7)):
        if added is not None:
            added.add()
        getattr(program, operation)()
    return program.text() if program.lines else None
