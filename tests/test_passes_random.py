"""Random programs of maps, casts, products and reductions that use each other: no pass changes what they compute."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.arg_spec import ArgSpec

from treadle.compiler.pipeline import make_pass
from treadle.compiler.source import make_context, parse_module
from treadle.dialects.hierarchy import KernelOp
from treadle.dialects.hierarchy.schedule import ScheduleAttr
from treadle.runtime.interpreter import run_function

SIZES = {"q": 3, "d": 4, "x": 7}
"""q and x are symbolic, d is static."""

BODIES = {
    "%y = arith.addf %a, %b : f32",
    "%y = arith.subf %a, %b : f32",
    "%y = arith.mulf %a, %b : f32",
    "%t = arith.mulf %b, %b : f32\n%u = arith.addf %t, %one : f32\n%y = arith.divf %a, %u : f32",
    "%t = arith.mulf %b, %b : f32\n%u = arith.addf %t, %one : f32\n%v = math.rsqrt %u : f32\n"
    "%y = arith.mulf %v, %a : f32",
    "%t = arith.subf %a, %b : f32\n%y = math.exp %t : f32",
    "%t = arith.subf %b, %a : f32\n%u = arith.mulf %t, %half : f32\n%y = math.exp %u : f32",
    "%t = math.exp %a : f32\n%y = arith.divf %t, %b : f32",
    "%y = arith.divf %a, %b : f32",
    "%y = math.tanh %a : f32",
    "%y = arith.mulf %a, %half : f32",
    "%y = math.absf %a : f32",
}


def text_of(axes: tuple[str, ...], format: str = "f32") -> str:
    dims = "".join(f"{SIZES[axis] if axis == 'd' else '?'}x" for axis in axes)
    return f"tensor<{dims}{format}, #diagram.array<[{', '.join(axes)}]>>"


@dataclass
class Program:
    """Grows a program one operation at a time; every operation is a value that later ones may use."""

    random: random.Random
    values: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def text(self, count: int) -> str:
        self.values = [("%A", ("q", "x")), ("%B", ("q", "d", "x")), ("%C", ("q", "x"))]
        arguments = ", ".join(f"{name}: {text_of(axes)}" for name, axes in self.values)
        kinds = [self.map, self.map, self.reduce, self.reduce, self.contract, self.round, self.soften, self.soften]
        while len(self.values) < 3 + count:
            self.random.choice(kinds)()
        results = self.values[3:][-3:]
        types = ", ".join(text_of(axes) for _, axes in results)
        names = ", ".join(name for name, _ in results)
        body = "\n".join(self.lines)
        return f"func.func @f({arguments}) -> ({types}) {{\n{body}\nfunc.return {names} : {types}\n}}"

    def pick(self) -> tuple[str, tuple[str, ...]]:
        return self.random.choice(self.values[-6:])

    def add(self, line: str, axes: tuple[str, ...], letter: str) -> None:
        name = f"%{letter}v{len(self.values)}"
        self.lines.append(f"{name} = {line}")
        self.values.append((name, axes))

    def map(self) -> None:
        self.map_of(self.pick(), self.pick(), self.random.choice(sorted(BODIES)))

    def map_of(self, left: tuple[str, tuple[str, ...]], right: tuple[str, tuple[str, ...]], body: str) -> None:
        (a, of_a), (b, of_b) = left, right
        axes = tuple(axis for axis in SIZES if axis in of_a or axis in of_b)
        constants = "%one = arith.constant 1.0 : f32\n%half = arith.constant 0.5 : f32"
        self.add(
            f"diagram.map (%a = {a} : {text_of(of_a)}, %b = {b} : {text_of(of_b)}) -> {text_of(axes)} {{\n"
            f"{constants}\n{body}\ndiagram.yield %y : f32\n}}",
            axes,
            "m",
        )

    def reduce(self) -> None:
        a, of_a = self.pick()
        if over := self.some(of_a):
            kind = self.random.choice(["add", "max", "min", "add", "max"])
            axes = tuple(axis for axis in of_a if axis not in over)
            types = f"{text_of(of_a)} -> {text_of(axes)}"
            self.add(f"diagram.reduce {kind} {a} over [{', '.join(over)}] : {types}", axes, "r")

    def contract(self) -> None:
        (a, of_a), (b, of_b) = self.pick(), self.pick()
        union = tuple(axis for axis in SIZES if axis in of_a or axis in of_b)
        if over := self.some(union):
            axes = tuple(axis for axis in union if axis not in over)
            types = f"{text_of(of_a)}, {text_of(of_b)} -> {text_of(axes)}"
            self.add(f"diagram.contract {a}, {b} over [{', '.join(over)}] accumulate f32 : {types}", axes, "c")

    def round(self) -> None:
        a, axes = self.pick()
        wide, narrow = text_of(axes), text_of(axes, self.random.choice(["f16", "bf16"]))
        name = f"%n{len(self.values)}"
        self.lines.append(f"{name} = diagram.cast {a} : {wide} -> {narrow}")
        self.add(f"diagram.cast {name} : {narrow} -> {wide}", axes, "w")

    def soften(self) -> None:
        """Exponentials of distances from an extremum along x, perhaps divided by their sum."""
        a, of_a = self.pick()
        if "x" not in of_a:
            return
        rest = tuple(axis for axis in of_a if axis != "x")
        wide, narrow = text_of(of_a), text_of(rest)
        kind, order = self.random.choice([("max", "%a, %b"), ("min", "%b, %a"), ("max", "%b, %a")])
        self.add(f"diagram.reduce {kind} {a} over [x] : {wide} -> {narrow}", rest, "r")
        body = f"%t = arith.subf {order} : f32\n%u = arith.mulf %t, %half : f32\n%y = math.exp %u : f32"
        self.map_of((a, of_a), self.values[-1], body)
        if self.random.random() < 0.6:
            exponentials = self.values[-1]
            self.add(f"diagram.reduce add {exponentials[0]} over [x] : {wide} -> {narrow}", rest, "r")
            self.map_of(exponentials, self.values[-1], "%y = arith.divf %a, %b : f32")

    def some(self, axes: tuple[str, ...]) -> list[str]:
        return [axis for axis in axes if axis != "q" and self.random.random() < 0.7]


def lower(module: ModuleOp, rng: random.Random) -> None:
    names = ["diagram-hoist-factors", "diagram-compose-maps", "fusion", "streaming", "tiling"]
    if rng.random() < 0.3:
        names.remove("diagram-hoist-factors")
    if rng.random() < 0.3:
        names.insert(0, "diagram-compose-maps")
    for name in names:
        make_pass(ArgSpec(name, {})).apply(make_context(), module)
        module.verify()
    for kernel in (op for op in module.walk() if isinstance(op, KernelOp)):
        old = kernel.schedule
        assert old is not None
        kernel.properties["schedule"] = ScheduleAttr(
            dict.fromkeys(old.group.as_dict(), 2), dict.fromkeys(old.stream.as_dict(), 3), old.whole.as_dict()
        )
    make_pass(ArgSpec("hierarchy-expand-streams", {})).apply(make_context(), module)
    module.verify()


@pytest.mark.parametrize("seed", range(60))
def test_a_random_program(seed: int) -> None:
    rng = random.Random(seed)
    text = Program(rng).text(rng.randrange(2, 9))
    given = [
        np.random.default_rng(seed).standard_normal([SIZES[axis] for axis in axes])
        for axes in (("q", "x"), ("q", "d", "x"), ("q", "x"))
    ]
    module = parse_module(text)
    with np.errstate(all="ignore"):
        wanted = run_function(module, given).results
        lower(module, rng)
        got = run_function(module, given).results
    for i, (one, other) in enumerate(zip(wanted, got, strict=True)):
        defined = np.isfinite(one) & (np.abs(one) < 1e150)
        np.testing.assert_allclose(other[defined], one[defined], rtol=1e-7, atol=1e-12, err_msg=f"result {i}\n{text}")
