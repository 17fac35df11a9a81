"""Random programs of rows in rare values: reductions that follow others, of what people take powers of, distances from,
shares and squares, with infinities, NaN, zeros of both signs and subnormals in all that they read."""

from __future__ import annotations

import random

import numpy as np

from roads import array

R = array("f32", r=None)
CONDITIONS = ("", "", "", "x <= r", "x < len[r]", "x >= len[r]", "x <= r + 2 and r <= x", "2 * x <= r")
RARE = (np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-40, 3e38, -3e38)


class RareRows:
    """One program; what varies along a row is in `wide`, what does not in `narrow`."""

    def __init__(self, seed: int):
        self.dice = random.Random(f"rare {seed}")
        self.length = self.dice.choice([None, None, 1, 7, 40])
        self.row = array("f32", r=None, x=self.length)
        self.lines: list[str] = []
        self.wide, self.narrow = ["%X", "%Y"], ["%k"]
        condition = self.dice.choice(CONDITIONS)
        if condition:
            given = f" with (len = %len : {array('i32', r=None)})" if "len" in condition else ""
            self.lines.append(f'%W = diagram.where %X if "{condition}"{given} : {self.row}')
            self.wide = ["%W", "%W", "%Y"]
        self.text = self._text()

    def _text(self) -> str:
        for i in range(self.dice.choice([2, 3, 4, 5])):
            getattr(self, self.dice.choice(["extremum", "power", "distance", "share", "joined", "chosen"]))(i)
            self.sum(i)
        results = self.narrow[-2:]
        types = ", ".join([R] * len(results))
        body = "\n  ".join(self.lines)
        lengths = array("i32", r=None)
        return (
            f"func.func @f(%X: {self.row}, %Y: {self.row}, %k: {R}, %len: {lengths}) -> ({types}) {{\n  {body}\n"
            f"  func.return {', '.join(results)} : {types}\n}}\n"
        )

    def map(self, name: str, result: str, operands: dict[str, str], body: str) -> None:
        read = ", ".join(f"%{n} = {v} : {self.row if v in self.wide else R}" for n, v in operands.items())
        self.lines.append(f"{name} = diagram.map ({read}) -> {result} {{\n    {body}\n    diagram.yield %y : f32\n  }}")
        (self.wide if result == self.row else self.narrow).append(name)

    def extremum(self, i: int) -> None:
        kind = self.dice.choice(["max", "max", "min"])
        self.lines.append(f"%m{i} = diagram.reduce {kind} {self.dice.choice(self.wide)} over [x] : {self.row} -> {R}")
        self.narrow.append(f"%m{i}")

    def power(self, i: int) -> None:
        """A power of a distance, perhaps scaled and raised."""
        way = self.dice.choice(["%a, %b", "%a, %b", "%b, %a"])
        scale, more = self.dice.choice(["1.0", "0.125", "2.0"]), self.dice.choice(["0.0", "0.0", "1.5", "60.0", "90.0"])
        kind = self.dice.choice(["exp", "exp", "exp2"])
        body = (
            f"%d = arith.subf {way} : f32\n    %c = arith.constant {scale} : f32\n    %t = arith.mulf %d, %c : f32\n"
            f"    %o = arith.constant {more} : f32\n    %u = arith.addf %t, %o : f32\n    %y = math.{kind} %u : f32"
        )
        self.map(f"%e{i}", self.row, {"a": self.dice.choice(self.wide), "b": self.dice.choice(self.narrow)}, body)

    def distance(self, i: int) -> None:
        """A distance, perhaps its square, or a product with it."""
        last = self.dice.choice(["%d, %d", "%d, %a", "%d, %w"])
        body = f"%d = arith.subf %a, %b : f32\n    %y = arith.mulf {last} : f32"
        names = {"a": self.dice.choice(self.wide), "b": self.dice.choice(self.narrow), "w": self.dice.choice(self.wide)}
        self.map(f"%d{i}", self.row, names, body)

    def share(self, i: int) -> None:
        body = f"%y = arith.{self.dice.choice(['divf', 'divf', 'mulf'])} %a, %b : f32"
        self.map(f"%p{i}", self.row, {"a": self.dice.choice(self.wide), "b": self.dice.choice(self.narrow)}, body)

    def joined(self, i: int) -> None:
        """Numbers of a row put together."""
        op = self.dice.choice(["maximumf", "maximumf", "minimumf", "addf", "mulf", "subf"])
        names = {"a": self.dice.choice(self.narrow), "b": self.dice.choice(self.narrow)}
        self.map(f"%n{i}", R, names, f"%y = arith.{op} %a, %b : f32")

    def chosen(self, i: int) -> None:
        """Zero where a number of the row is infinite, or in its place."""
        infinite = self.dice.choice(["0xFF800000", "0x7F800000"])
        body = (
            f"%z = arith.constant 0.0 : f32\n    %i = arith.constant {infinite} : f32\n"
            "    %is = arith.cmpf oeq, %b, %i : f32\n    %y = arith.select %is, %z, %a : f32"
        )
        wide = self.dice.random() < 0.5
        what = self.dice.choice(self.wide if wide else self.narrow)
        self.map(f"%s{i}", self.row if wide else R, {"a": what, "b": self.dice.choice(self.narrow)}, body)

    def sum(self, i: int) -> None:
        kind = self.dice.choice(["add", "add", "add", "add", "max"])
        self.lines.append(f"%l{i} = diagram.reduce {kind} {self.wide[-1]} over [x] : {self.row} -> {R}")
        self.narrow.append(f"%l{i}")

    def inputs(self, seed: int) -> tuple[np.ndarray, ...]:
        dice = np.random.default_rng(seed)
        length = self.length if self.length is not None else int(dice.choice([0, 1, 6, 40]))
        rows = [dice.standard_normal((16, length)).astype(np.float32) for _ in range(2)]
        for data in rows:
            for row in range(2, 16):
                places = dice.random(length) < dice.choice([0.1, 0.5, 1.0])
                if dice.random() < 0.5 and length > 1:
                    places = np.arange(length) < length * dice.random()
                data[row, places] = dice.choice(RARE[:4] if dice.random() < 0.8 else RARE)
        more = dice.standard_normal(16).astype(np.float32)
        more[::3] = dice.choice(RARE, len(more[::3]))
        return (*rows, more, dice.integers(-1, length + 2, 16).astype(np.int32))
