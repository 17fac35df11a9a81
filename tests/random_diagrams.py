"""Small random programs: products, maps, reductions, casts and softmax over odd sizes, axes in any order, values used
more than once, several results. They compute nothing useful, and everything that they compute is checked."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from roads import array

STATIC = (1, 3, 7, 8, 16, 24, 40, 64)
SYMBOLIC = (1, 2, 5, 7, 17, 33, 65, 100, 130)
BINARY = {
    "f32": ("arith.addf", "arith.mulf", "arith.subf", "arith.maximumf", "arith.minnumf"),
    "i32": ("arith.addi", "arith.muli", "arith.subi", "arith.maxsi"),
}
UNARY = ("math.tanh", "math.sin", "math.absf", "arith.negf", "scale", "exp of tanh", "square of tanh")
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

    random: random.Random
    axes: dict[str, int | None]
    format: str
    """The format of most inputs."""
    arguments: list[Value] = field(default_factory=list[Value])
    values: list[Value] = field(default_factory=list[Value])
    lines: list[str] = field(default_factory=list[str])
    used: set[str] = field(default_factory=set[str])

    def type(self, axes: tuple[str, ...], format: str) -> str:
        return array(format, **{axis: self.axes[axis] for axis in axes})

    def type_of(self, value: Value) -> str:
        return self.type(value.axes, value.format) if value.is_array else value.format

    def add(self, axes: tuple[str, ...], format: str, line: str, *operands: Value) -> None:
        value = Value(f"%v{len(self.lines)}", axes, format)
        self.lines.append(f"  {value.name} = {line}")
        self.values.append(value)
        self.used |= {operand.name for operand in operands}

    def maybe_shuffled(self, axes: list[str], chance: float) -> tuple[str, ...]:
        if self.random.random() < chance:
            self.random.shuffle(axes)
        return tuple(axes)

    # -- operations --------------------------------------------------------------------------------

    def contract(self) -> None:
        pairs = [(x, y) for x in self.values for y in self.values if x.format == y.format and set(x.axes) & set(y.axes)]
        if not pairs:
            return
        x, y = self.random.choice(pairs)
        shared = [axis for axis in x.axes if axis in y.axes]
        over = self.random.sample(shared, self.random.choice([1, 1, 1, len(shared)]))
        rest = [axis for axis in dict.fromkeys((*x.axes, *y.axes)) if axis not in over]
        if len(rest) > MOST_AXES:
            return
        axes, format = self.maybe_shuffled(rest, 0.4), "i32" if x.format == "i32" else "f32"
        tf32 = " as tf32" if x.format == "f32" and self.random.random() < 0.4 else ""
        line = f"diagram.contract {x.name}, {y.name} over [{', '.join(over)}] accumulate {format}{tf32}"
        self.add(axes, format, f"{line} : {self.type_of(x)}, {self.type_of(y)} -> {self.type(axes, format)}", x, y)

    def reduce(self) -> None:
        found = [value for value in self.values if value.axes and value.format in BINARY]
        if not found:
            return
        x = self.random.choice(found)
        over = self.random.sample(x.axes, self.random.choice([1, 1, len(x.axes)]))
        axes = self.maybe_shuffled([axis for axis in x.axes if axis not in over], 0.2)
        kind = self.random.choice(["add", "add", "max", "min"])
        types = f"{self.type_of(x)} -> {self.type(axes, x.format)}"
        self.add(axes, x.format, f"diagram.reduce {kind} {x.name} over [{', '.join(over)}] : {types}", x)

    def cast(self) -> None:
        found = [value for value in self.values if value.format != "i32"]
        if not found:
            return
        x = self.random.choice(found)
        narrow = self.format if self.format in ("f16", "bf16") else self.random.choice(["f16", "bf16"])
        format = narrow if x.format == "f32" else "f32"
        self.add(x.axes, format, f"diagram.cast {x.name} : {self.type_of(x)} -> {self.type(x.axes, format)}", x)

    def softmax(self) -> None:
        found = [value for value in self.values if value.axes and value.format == "f32"]
        if not found:
            return
        x = self.random.choice(found)
        type, over = self.type_of(x), self.random.choice(x.axes)
        self.add(x.axes, "f32", f"diagram.apply @softmax({x.name}) over [{over}] : ({type}) -> {type}", x)

    def map(self) -> None:
        taken = [self.random.choice(self.values) for _ in range(self.random.choice([1, 1, 2, 2, 3]))]
        integers = [value for value in taken if value.format == "i32"]
        taken = integers or taken
        axes = self.maybe_shuffled(list(dict.fromkeys(axis for value in taken for axis in value.axes)), 0.3)
        if len(axes) > MOST_AXES:
            return
        format = "i32" if integers else "f32"
        scalars = [value for value in self.arguments if not value.is_array]
        if scalars and not integers and self.random.random() < 0.5:
            taken.append(scalars[0])
        body = self.body(taken, format)
        inputs = ", ".join(f"%a{i} = {value.name} : {self.type_of(value)}" for i, value in enumerate(taken))
        text = "".join(f"    {line}\n" for line in body)
        self.add(axes, format, f"diagram.map ({inputs}) -> {self.type(axes, format)} {{\n{text}  }}", *taken)

    def body(self, taken: list[Value], format: str) -> list[str]:
        lines: list[str] = []

        def name(line: str) -> str:
            lines.append(f"%s{len(lines)} = {line}")
            return f"%s{len(lines) - 1}"

        scalars = [
            name(f"arith.extf %a{i} : {value.format} to f32") if value.format in ("f16", "bf16") else f"%a{i}"
            for i, value in enumerate(taken)
        ]
        result, *others = scalars
        if self.random.random() < 0.3:
            others.append(result)
        for other in others:
            result = name(f"{self.random.choice(BINARY[format])} {result}, {other} : {format}")
        if format == "f32" and self.random.random() < 0.7:
            result = self.unary(result, name)
        return [*lines, f"diagram.yield {result} : {format}"]

    def unary(self, value: str, name: Callable[[str], str]) -> str:
        match self.random.choice(UNARY):
            case "scale":
                constant = name(f"arith.constant {self.random.choice(['0.125', '-0.5', '0.3'])} : f32")
                return name(f"arith.mulf {value}, {constant} : f32")
            case "exp of tanh":
                return name(f"math.exp {name(f'math.tanh {value} : f32')} : f32")
            case "square of tanh":
                small = name(f"math.tanh {value} : f32")
                return name(f"arith.mulf {small}, {small} : f32")
            case operation:
                return name(f"{operation} {value} : f32")

    # -- the whole ---------------------------------------------------------------------------------

    def text(self) -> str:
        made = [value for value in self.values if value.name.startswith("%v")]
        results = [value for value in made if value.name not in self.used or self.random.random() < 0.15][-4:]
        self.random.shuffle(results)
        arguments = ", ".join(f"{value.name}: {self.type_of(value)}" for value in self.arguments)
        types = ", ".join(self.type_of(value) for value in results)
        names = ", ".join(value.name for value in results)
        lines = "\n".join(self.lines)
        return f"func.func @f({arguments}) -> ({types}) {{\n{lines}\n  func.return {names} : {types}\n}}\n"


def random_program(seed: int) -> str | None:
    """A program; None where the dice made none."""
    dice = random.Random(seed)
    names = dice.sample("abcde", dice.choice([2, 3, 3, 4, 4, 5]))
    axes = {name: dice.choice(STATIC) if dice.random() < 0.4 else None for name in names}
    program = Program(dice, axes, dice.choice(["f16", "f16", "f16", "bf16", "f32", "f32", "i32"]))
    for i in range(dice.choice([1, 2, 2, 3])):
        rank = min(len(names), dice.choice([0, 1, 2, 2, 2, 3, 3]))
        format = program.format if dice.random() < 0.8 else dice.choice(["f16", "f32"])
        program.arguments.append(Value(f"%in{i}", tuple(dice.sample(names, rank)), format))
    program.values = list(program.arguments)
    if dice.random() < 0.15:
        program.arguments.append(Value("%scalar", (), "f32", is_array=False))
    operations = (program.contract, program.map, program.reduce, program.cast, program.softmax)
    for operation in dice.choices(operations, [3, 4, 2, 2, 1], k=dice.randint(1, 7)):
        operation()
    return program.text() if program.lines else None
