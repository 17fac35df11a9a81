"""A random program through every prefix of the pipeline: after each pass that changed it, it runs (in the interpreter
while it is a diagram or a hierarchy, its printed CUDA C in the emulator from then on) and is compared with what it
computed before any.

Everything that is decided for a program follows from its seed: the machine, sizes, how arguments lie in memory, how
small pieces are, which axes are made one, whether kernels are shared or split. So `python tests/random_prefixes.py
SEED` shows a failure again, and makes it small (`SEED COUNT products` one of `random_products.py`);
`benchmarks/random_programs.py` does so for ten thousand of them."""

from __future__ import annotations

import gc
import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from random_held_rows import in_other_order
from random_products import random_products
from shrinking import shrunk
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.utils.arg_spec import ArgSpec

from random_diagrams import SYMBOLIC, random_program
from roads import Road, fitting
from treadle.compiler.errors import InternalError, TreadleError
from treadle.compiler.pipeline import Options, pipeline, print_cuda, run_passes
from treadle.compiler.source import parse_module
from treadle.dialects.diagram import ContractOp
from treadle.dialects.diagram.array import DYNAMIC, axes_of, sizes_of
from treadle.dialects.hierarchy import KernelOp
from treadle.dialects.hierarchy.schedule import ScheduleAttr, derivation_of
from treadle.passes._functions import functions
from treadle.passes.axes.candidates import Candidates
from treadle.passes.conditions.sought import sought_along
from treadle.passes.products.apart import apart_in
from treadle.passes.products.copied import ways_in
from treadle.passes.products.depths import depths_in
from treadle.passes.products.reduced import reduced_in
from treadle.passes.products.repeated import repeated_in
from treadle.passes.products.windows import windows_in
from treadle.runtime.inputs import Input, axis_sizes, make_inputs
from treadle.runtime.interpreter import Bounded, entry_function, run_function, run_with_bounds
from treadle.runtime.verify import compare

MOST_ELEMENTS = 20_000
MOST_PIECES = 4
"""Of an axis that is cut by hand."""
FLOAT64 = 2.0**-24
"""How much smaller than those of the formats the roundings of the interpreter are: it computes in float64 (2^-53), and
no format of a program is finer than f32 (2^-24)."""
COARSE = ("diagram-expand-approximations", "diagram-exp-to-exp2")
"""They write constants in f32, which passes after them take."""
CONSTANTS = "exp(a) exp(b) = exp(a + b)"
"""By this law `diagram-hoist-factors` writes logarithms of factors in f32."""
COLLECTED = 8
"""Programs after which memory is collected."""
LEFT_OUT = "diagram-hoist-factors"
"""A pass that others may not need: now and then it is left out."""
CHOICE = "hierarchy-choose-sizes"
LOWERING = "convert-hierarchy-to-cuda"
COALESCING = "coalescing"


Axes = tuple[str, ...]


def _free_axes(function: FuncOp) -> list[Axes]:
    everywhere = Candidates(function.body.block).free_groups()
    return [*everywhere, *(each.axes for each in apart_in(function.body.block, everywhere))]


TO_BE_ONE: dict[str, Callable[[FuncOp], Sequence[Axes]]] = {
    "diagram-copy-operands": lambda function: [each.order for ways in ways_in(function) for each in ways.copyings],
    "diagram-merge-depths": lambda function: [depth.axes for depth in depths_in(function)],
    "diagram-repeat-operands": lambda function: [(each.along, each.row) for each in repeated_in(function)],
    "diagram-merge-reduced-axes": lambda function: [each.axes for each in reduced_in(function)],
    "diagram-tile-windows": lambda function: [each.axes for each in windows_in(function)],
    "diagram-merge-free-axes": _free_axes,
    "diagram-find-ranges": lambda function: [(axis,) for axis in sought_along(function.body.block)],
}
"""What may be asked for by axes, of passes that else decide by time."""


@dataclass(frozen=True)
class Trouble:
    """What went wrong with a program, after which pass."""

    prefix: str
    kind: str
    message: str

    def __str__(self) -> str:
        return f"after {self.prefix}: {self.kind}: {self.message}"


class Wrong(Exception):
    """A result is not what the program computes."""


class Refused(Exception):
    """A pass says that it cannot do this program."""


@dataclass(frozen=True)
class Kind:
    """A kind of random programs, and what is done with them."""

    make: Callable[[int], str | None] = random_program
    most: int = MOST_ELEMENTS
    """Of all axes together."""
    machines: Sequence[str] = ("a100", "a100", "h100")
    pieces: Sequence[int] = (16,)
    """What groups take, and streams are fed, where that is asked for."""
    emulates_each: bool = True
    """Whether kernels run after each pass that changed them, not only as they are at last."""


ANY = Kind()
PRODUCTS = Kind(random_products, 5_000, ("a100", "h100"), (16, 64), emulates_each=False)
KINDS = {"any": ANY, "products": PRODUCTS}


@dataclass
class Journey:
    """One program on its way down."""

    text: str
    seed: int
    tally: Counter[str] = field(default_factory=Counter[str])
    """Runs after each pass, refusals by pass, results that could not be verified."""
    kind: Kind = field(default_factory=lambda: ANY)
    prefix: str = "parsing"
    refusal: str = ""
    fineness: float = FLOAT64

    def trouble(self) -> Trouble | None:
        try:
            self._travel()
        except Wrong as wrong:
            return Trouble(self.prefix, "wrong", str(wrong))
        except Refused as refusal:
            self.tally[f"refused by {self.prefix}"] += 1
            self.refusal = str(refusal)
        except Exception as error:
            return Trouble(self.prefix, type(error).__name__, str(error))
        return None

    def dice(self, what: str) -> random.Random:
        """Decisions of one kind: a program that is made smaller keeps the others."""
        return random.Random(f"{self.seed} {what}")

    def _travel(self) -> None:
        self.algorithm = parse_module(self.text)
        self.function = entry_function(self.algorithm)
        self.sizes = self._sizes()
        whole = axis_sizes(self.function, self.sizes)
        self.inputs = self._laid_out(make_inputs(self.function, whole, self.seed))
        self.prefix = "nothing"
        with np.errstate(all="ignore"):
            self.wanted = run_with_bounds(self.algorithm, self.inputs, sizes=self.sizes)
            self.exact = run_function(self.algorithm, self.inputs, sizes=self.sizes).results
        module, now, lowered = self.algorithm.clone(), written(self.algorithm), False
        leaves_out = LEFT_OUT if self.dice("passes").random() < 0.15 else ""
        for spec in pipeline(self._options()):
            if spec.name == leaves_out:
                continue
            self.prefix = spec.name
            if spec.name == CHOICE:
                self._small_pieces(module.clone(), whole)
            module = self._step(spec, module)
            lowered |= spec.name == LOWERING
            before, now = now, written(module)
            if now == before or spec.name in ("set-machine", CHOICE, COALESCING):
                continue
            self.fineness = 1.0 if spec.name in COARSE else self.fineness
            if not lowered:
                self._interpret(module, self.fineness)
            elif self.kind.emulates_each:
                self._emulate(module.clone())
        if not self.kind.emulates_each:
            self.prefix = "everything"
            self._emulate(module)
        self.tally["whole"] += 1

    # -- decisions ---------------------------------------------------------------------------------

    def _sizes(self) -> dict[str, int]:
        dice, axes = self.dice("sizes"), Road(self.algorithm, self.algorithm, "").symbolic
        static = prod(size for size in axis_sizes(self.function, dict.fromkeys(axes, 1)).values())
        chosen = {axis: dice.choice(SYMBOLIC) for axis in axes}
        while static * prod(chosen.values()) > self.kind.most and any(size > 3 for size in chosen.values()):
            largest = max(chosen, key=lambda axis: chosen[axis])
            chosen[largest] = dice.choice([size for size in SYMBOLIC if size < chosen[largest]])
        if chosen and dice.random() < 0.06:
            chosen[dice.choice(list(chosen))] = 0
        return fitting(self.function, chosen)

    def _laid_out(self, inputs: Sequence[Input]) -> tuple[Input, ...]:
        """Now and then with gaps, backwards, in another order, unaligned or with one row for all."""
        if self.dice("layout").random() >= 0.3:
            return tuple(inputs)
        numbers = np.random.default_rng(self.seed)
        return tuple(in_other_order(given, numbers) if isinstance(given, np.ndarray) else given for given in inputs)

    def _options(self) -> Options:
        dice = self.dice("options")
        return Options(machine=dice.choice(self.kind.machines), fusion=dice.random() < 0.85)

    def _step(self, spec: ArgSpec, module: ModuleOp) -> ModuleOp:
        """One pass; where a choice of ours is refused, as the pipeline asks for it."""
        for asked in self._asked(spec.name, module):
            trial = module.clone()
            try:
                self._pass(ArgSpec(spec.name, asked), trial)
            except Refused:
                continue
            self.tally[f"{spec.name} as asked"] += 1
            return trial
        self._pass(spec, module)
        return module

    @staticmethod
    def _pass(spec: ArgSpec, module: ModuleOp) -> None:
        try:
            run_passes(module, [spec])
        except InternalError:
            raise
        except TreadleError as error:
            raise Refused(str(error)) from error

    def _asked(self, name: str, module: ModuleOp) -> Sequence[dict[str, tuple[Any, ...]]]:
        """What may be asked of a pass, so that more of it is tried."""
        dice = self.dice(name)
        if name == "hierarchy-split-streams" and dice.random() < 0.2:
            return [dice.choice([{"parts": (2,)}, {"parts": (3,)}, {"length": (3,)}, {"length": (17,)}])]
        if name in TO_BE_ONE and dice.random() < 0.5:
            found = [axes for function in functions(module) for axes in TO_BE_ONE[name](function)]
            dice.shuffle(found)
            several = {"axes": tuple(dict.fromkeys(axis for axes in found for axis in axes))}
            return [*([several] if found and dice.random() < 0.3 else []), *({"axes": axes} for axes in found)]
        if name == "hierarchy-subloop" and dice.random() < 0.3:
            over = {axis for op in module.walk() if isinstance(op, ContractOp) for axis in op.over_axes}
            return [{"axis": (axis,)} for axis in sorted(over)]
        if name == "diagram-reassociate" and dice.random() < 0.5:
            chunk: dict[str, tuple[Any, ...]] = {"chunk": (dice.choice([1, 2, 5, 16, 64]),)}
            sums = [op.result.name_hint for op in module.walk() if isinstance(op, ContractOp)]
            return [{"sums": (name,)} | chunk for name in sums if name is not None]
        if name != CHOICE or dice.random() < 0.3:
            return []
        schedules = [op.schedule for op in module.walk() if isinstance(op, KernelOp) and op.schedule is not None]
        streamed = {axis for schedule in schedules for axis in schedule.stream.as_dict()}
        grouped = {axis for schedule in schedules for axis in schedule.group.as_dict()} - streamed
        size = dice.choice(self.kind.pieces)
        stream = ",".join(f"{axis}={size}" for axis in sorted(streamed))
        group = ",".join(f"{axis}={size}" for axis in sorted(grouped))
        asked = [{"stream": (stream,)}] if stream else []
        return [{"stream": (stream,), "group": (group,)}, *asked] if stream and group else asked

    # -- running -----------------------------------------------------------------------------------

    def _small_pieces(self, module: ModuleOp, sizes: dict[str, int]) -> None:
        """Streams of a few uneven pieces, which no machine would choose."""
        dice, self.prefix = self.dice("pieces"), "hierarchy-expand-streams, in small pieces"
        for kernel in [op for op in module.walk() if isinstance(op, KernelOp)]:
            if (old := kernel.schedule) is None:
                continue
            known = {axis: size for value in kernel.inputs for axis, size in sizes_of(value.type).items()} | sizes
            group, stream = (
                {axis: self._small_piece(known.get(axis, DYNAMIC), dice) for axis in part.as_dict()}
                for part in (old.group, old.stream)
            )
            kernel.schedule = ScheduleAttr(group, stream, old.whole.as_dict(), {})
        self._pass(ArgSpec("hierarchy-expand-streams", {}), module)
        self._interpret(module)
        before = written(module)
        self._pass(ArgSpec("diagram-exp-to-exp2", {}), module)
        if written(module) != before:
            self.prefix = "diagram-exp-to-exp2, in small pieces"
            self._interpret(module, 1.0)
        self.prefix = CHOICE

    @staticmethod
    def _small_piece(size: int, dice: random.Random) -> int:
        return max(dice.choice([2, 3, 5]), -(-(size if size > 0 else 8) // MOST_PIECES))

    def _interpret(self, module: ModuleOp, fineness: float = FLOAT64) -> None:
        if any(step.law.data == CONSTANTS for step in derivation_of(entry_function(module).attributes)):
            fineness = 1.0
        with np.errstate(all="ignore"):
            results = run_function(module, self.inputs, sizes=self.sizes).results
        self.tally[self.prefix] += 1
        for i, (got, exact, bounded) in enumerate(zip(results, self.exact, self.wanted, strict=True)):
            if (place := differs(got, exact, bounded, fineness)) is not None:
                at = tuple(map(int, np.unravel_index(place, exact.shape)))
                raise Wrong(f"result {i} is {got.flat[place]} at {at}, expected {exact.flat[place]}")

    def _emulate(self, module: ModuleOp) -> None:
        """What is not coalesced cannot be printed."""
        self._pass(ArgSpec(COALESCING, {}), module)
        if not Road(self.algorithm, module, "").kernels:  # it only reads, or only hands on
            return
        road = Road(self.algorithm, module, print_cuda(module))
        given: list[Input] = list(self.inputs)
        with np.errstate(all="ignore"):
            outputs = road.run(given)
        self.tally[self.prefix] += 1
        types = self.function.function_type.outputs.data
        for i, (type, output, wanted) in enumerate(zip(types, outputs, self.wanted, strict=True)):
            verdict = compare(f"result {i}", type, np.asarray(output), wanted, "emulator")
            if verdict.wrong or verdict.note:
                raise Wrong(f"{verdict} (axes {', '.join(axes_of(type))}, sizes {self.sizes})")
            self.tally[f"{self.prefix}: unverifiable"] += verdict.unverifiable


def differs(got: Any, exact: Any, bounded: Bounded, fineness: float) -> int | None:
    """The place of an element that is another than it was, if there is one: by more than its bound allows, were every
    rounding so much finer."""
    if got.shape != exact.shape:
        raise Wrong(f"has shape {got.shape}, expected {exact.shape}")
    tolerance = bounded.error * fineness + 1e-290
    known = np.isfinite(bounded.error) & (np.abs(exact.astype(np.float64)) < 1e150)
    with np.errstate(all="ignore"):
        same = (got == exact) | (np.abs(got.astype(np.float64) - exact) <= tolerance)
    wrong = np.flatnonzero(known & ~same)
    return int(wrong[0]) if wrong.size else None


def written(module: ModuleOp) -> list[Any]:
    """What a module says, operation by operation, without the account of how it was made: in two equal ones the same.
    Printing them would take as long as all the passes."""
    numbers: dict[Any, int] = {}
    said: list[Any] = []
    for op in module.walk():
        numbers[op] = len(numbers)
        blocks = [block for region in op.regions for block in region.blocks]
        for value in (*op.results, *(arg for block in blocks for arg in block.args)):
            numbers[value] = len(numbers)
        attributes = {name: each for name, each in op.attributes.items() if name != "derivation"}
        types = [result.type for result in op.results], [[arg.type for arg in block.args] for block in blocks]
        operands = [numbers[operand] for operand in op.operands]
        parent = op.parent_op()
        said.append((op.name, parent and numbers[parent], attributes, dict(op.properties), *types, operands))
    return said


def trouble_of(text: str, seed: int, tally: Counter[str] | None = None, kind: Kind = ANY) -> Trouble | None:
    """What goes wrong with a program under the decisions of a seed, if anything does."""
    return Journey(text, seed, Counter() if tally is None else tally, kind).trouble()


def check(seed: int, tally: Counter[str], kind: Kind = ANY) -> dict[str, Any] | None:
    """What is wrong with the program of a seed, and a small program of which the same is true; None if all is well."""
    text = kind.make(seed)
    if text is None:
        return None
    tally["programs"] += 1
    trouble = trouble_of(text, seed, tally, kind)
    if trouble is None:
        return None

    def fails(smaller: str) -> bool:
        other = trouble_of(smaller, seed, None, kind)
        return other is not None and (other.prefix, other.kind) == (trouble.prefix, trouble.kind)

    return {"seed": seed, "trouble": str(trouble), "small": shrunk(text, fails)}


def main(first: int, count: int = 1, kind: str = "any") -> int:
    """Prints as JSON how often each pass ran a program of `count` seeds, and what failed."""
    tally: Counter[str] = Counter()
    failed: list[dict[str, Any]] = []
    gc.freeze()
    gc.disable()  # it would walk all operations again and again
    for seed in range(first, first + count):
        if (found := check(seed, tally, KINDS[kind])) is not None:
            failed.append(found)
        if seed % COLLECTED == 0:
            gc.collect()
    print(json.dumps({"tally": dict(sorted(tally.items())), "failed": failed}))
    return 1 if failed else 0


if __name__ == "__main__":
    first, count, kind = [*sys.argv[1:], *["0", "1", "any"][len(sys.argv) - 1 :]]
    sys.exit(main(int(first), int(count), kind))
