"""Random programs of rows that are not long, which groups hold whole: under conditions that may leave nothing of them,
reduced in several ways along one axis or all, by maps that are infinite or no number at 0. They multiply nothing."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
from random_rows import WEIGHTS

from random_diagrams import Program, Value

LENGTHS = (1, 2, 3, 31, 33, 64, 255, 256, 257, 300, 511, 513, 1000, 1024, 2047, 4097)
MORE = {"several": 2, "powers": 3, "steep": 5, "read": 0.5}
EIGHT_BIT = ("f8E4M3FN", "f8E5M2")
STEEP = (
    "%y = math.rsqrt %a : f32",
    "%y = arith.divf %one, %a : f32",
    "%t = math.absf %a : f32\n%y = math.log %t : f32",
    "%y = math.exp %a : f32",
    "%y = arith.mulf %a, %three : f32",
    "%y = arith.maximumf %a, %three : f32",
    "%t = arith.cmpf ogt, %a, %one : f32\n%y = arith.select %t, %a, %three : f32",
    "%t = arith.cmpf oeq, %a, %low : f32\n%y = arith.select %t, %one, %a : f32",
)
"""What may be infinite or no number where an operand is 0, or what stands for an absent element."""
COMBINED = {
    "f32": ("arith.addf", "arith.subf", "arith.maximumf", "arith.mulf"),
    "i32": ("arith.addi", "arith.subi", "arith.maxsi"),
}


class HeldRows(Program):
    def condition(self, x: Value, inputs: dict[str, Value]) -> str:
        one, *rest = self.random.sample(x.axes, len(x.axes))
        kinds = ["common", "common", "common", "none", "twice", "sum", "not"]
        kind, other = self.random.choice([*kinds, "between", "around", "last"] if rest else kinds), (rest or [one])[0]
        match kind:
            case "none":
                return f"{one} < 0"
            case "twice":
                return f"2 * {one} {self.random.choice(['<=', '>', '<', '>='])} {other} + {self.random.choice([0, 7])}"
            case "sum":
                return f"{one} + {self.counted(inputs, (other,), one)} {self.random.choice(['<', '>='])} 5"
            case "not":
                return f"not ({super().condition(x, inputs)})"
            case "between" | "around":
                begin, end = (self.counted(inputs, (other,), one) for _ in range(2))
                return f"{begin} <= {one} < {end}" if kind == "between" else f"({one} < {begin} or {one} >= {end})"
            case "last":
                end = self.counted(inputs, (other,), one)
                return f"{end} - {self.random.choice([1, 40, 300])} <= {one} <= {end}"
            case _:
                return super().condition(x, inputs)

    def over(self, x: Value) -> Sequence[str]:
        return self.random.sample(x.axes, self.random.choice([1, 1, 1, len(x.axes)]))

    def several(self) -> None:
        """Reductions of one array in several ways, and what is made of it and all of them."""
        if (x := self.chosen("f32", "i32")) is None:
            return
        over, kinds = self.over(x), self.random.sample(["add", "max", "min"], self.random.choice([2, 3]))
        taken = {"%a": x, **{f"%r{i}": self.reduced(x, over, kind) for i, kind in enumerate(kinds)}}
        lines, value = list[str](), "%a"
        for name in list(taken)[1:]:
            lines.append(f"%t{len(lines)} = {self.random.choice(COMBINED[x.format])} {value}, {name} : {x.format}")
            value = f"%t{len(lines) - 1}"
        self.mapped(x.axes, x.format, taken, [*lines, f"diagram.yield {value} : {x.format}"])

    def powers(self) -> None:
        """Powers of the distance from an extremum, what they are reduced to, and perhaps their shares."""
        if self.random.random() < 0.6:
            self.where()
        if (x := self.chosen("f32")) is None:
            return
        over, kind = self.over(x), self.random.choice(["max", "min"])
        way = "%a, %r" if kind == "max" else "%r, %a"
        body = [f"%d = arith.subf {way} : f32", "%y = math.exp %d : f32", "diagram.yield %y : f32"]
        power = self.mapped(x.axes, "f32", {"%a": x, "%r": self.reduced(x, over, kind)}, body)
        total = self.reduced(power, over, self.random.choice(["add", "add", "add", "max", "min"]))
        if self.random.random() < 0.5:
            body = ["%y = arith.divf %a, %r : f32", "diagram.yield %y : f32"]
            self.mapped(power.axes, "f32", {"%a": power, "%r": total}, body)

    def steep(self) -> None:
        if (x := self.chosen("f32", "f16", "bf16", *EIGHT_BIT)) is None:
            return
        wide = "" if x.format == "f32" else f"%a = arith.extf %narrow : {x.format} to f32"
        constants = (("%one", "1.0"), ("%three", "-3.0"), ("%low", "0xFF800000"))
        lines = [f"{name} = arith.constant {number} : f32" for name, number in constants]
        lines += [*filter(None, [wide]), *self.random.choice(STEEP).split("\n"), "diagram.yield %y : f32"]
        self.mapped(x.axes, "f32", {"%narrow" if wide else "%a": x}, lines)


def random_held_rows(seed: int) -> str:
    dice, aside = random.Random(f"held rows {seed}"), random.Random(f"aside of held rows {seed}")
    axes: dict[str, int | None] = {"x": dice.choice(LENGTHS), "r": None if dice.random() < 0.8 else dice.choice((1, 7))}
    if dice.random() < 0.35:
        axes["s"] = dice.choice((1, 2, 5, 33)) if (axes["x"] or 0) <= 300 else 2
    program = HeldRows(aside, dice, axes, dice.choice(["f32", "f32", "f16", "bf16", "i32"]))
    kinds = [
        ["r", "x"],
        ["x"],
        ["r"],
        ["x", "r"],
        *([["r", "s", "x"], ["x", "s"], ["r", "x", "s"]] if "s" in axes else []),
    ]
    for i in range(dice.choice([1, 2, 2, 3])):
        other = dice.choice(["f16", "f32", *EIGHT_BIT])
        program.argument(["r", "x"] if i == 0 else dice.choice(kinds), program.format if dice.random() < 0.7 else other)
    program.values, weights = list(program.arguments), WEIGHTS | MORE
    while not program.lines or dice.random() < 0.7:
        (operation,) = dice.choices(list(weights), list(weights.values()))
        getattr(program, operation)()
    return program.text()


def rare_rows(given: np.ndarray, dice: np.random.Generator) -> np.ndarray:
    """An input some of whose rows are nothing but an infinity, or have one, or NaN, at one place or from there on."""
    if given.dtype.kind == "i" or not given.size or not given.ndim:
        return given
    wide = given.astype(np.float32)
    for row in wide.reshape(-1, wide.shape[-1]):
        begin = int(dice.choice([0, dice.integers(len(row))]))
        end = int(dice.choice([begin + 1, len(row)]))
        if dice.random() < 0.7:
            row[begin:end] = dice.choice(np.array([-np.inf, -np.inf, np.inf, np.nan, -0.0, 1e-40], np.float32))
    with np.errstate(all="ignore"):
        return wide.astype(given.dtype)


def in_other_order(given: np.ndarray, dice: np.random.Generator) -> np.ndarray:
    """The same elements in memory that is laid out otherwise: by columns, every second one, backwards, unaligned;
    or the first ones, again and again."""
    if not given.size or not given.ndim:
        return given
    room = np.zeros((*given.shape[:-1], 2 * given.shape[-1] + 3), given.dtype)
    match int(dice.integers(6)):
        case 0:
            return np.asfortranarray(given)
        case 1:
            view = room[..., 1:-2:2]
        case 2:
            view = room[..., given.shape[-1] :: -1][..., : given.shape[-1]]
        case 3:
            view = room[..., 1 : given.shape[-1] + 1]
        case 4:
            return np.ascontiguousarray(given[::-1])[::-1]
        case _:
            return np.broadcast_to(given[:1], given.shape)
    view[...] = given
    return view
