"""Runs programs through the lower passes with one mistake in them, to printed CUDA C and the checking emulator, in a
process of its own: `python mutant_cuda.py NAME`.

Exits with 1 at the first program that comes out wrong, is complained about, or does not come out; with 0 if none."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mutated import ROOT, mutate
from mutations_cuda import MUTATIONS

PROCESSORS = 2
"""Of the machine, so that its blocks take several pieces each."""


@dataclass(frozen=True)
class Program:
    """What is compiled, and what it runs at."""

    path: str
    machine: str
    sizes: Sequence[Mapping[str, int]]
    made_for: Mapping[str, int] | None = None
    """Sizes that its pieces are chosen for, if they are not its own."""
    asked: Mapping[str, Mapping[str, Sequence[str | int | bool]]] = field(default_factory=dict)
    """Options of passes, by their names."""
    before: Mapping[int, int] = field(default_factory=dict)
    """Inputs that are NaN before a position along their last axis but one: nobody wrote what is there."""
    past: Mapping[int, int] = field(default_factory=dict)
    """Inputs that are NaN from a position on along that axis, for the same reason."""
    wide: Mapping[int, int] = field(default_factory=dict)
    """Inputs that are NaN from a position on along their last axis."""
    lengths: Mapping[int, float] = field(default_factory=dict)
    """Inputs of which every element is that number."""
    levels: Sequence[float] = ()
    """Of scores, one for each 64 keys: the first element of a key is its level, and that of a query how much of it
    counts."""

    def text(self) -> str:
        text = (ROOT / self.path).read_text(encoding="utf-8")
        if self.made_for is None:
            return text
        listed = ", ".join(f"{axis} = {size}" for axis, size in self.made_for.items())
        return re.sub(r"#diagram\.sizes<[^>]*>", f"#diagram.sizes<{listed}>", text)


SHORT = {"b": 1, "h": 1, "q": 150, "x": 333}
PAIRS = [{"m": 256, "n": 512, "k": 200}, {"m": 300, "n": 200, "k": 136}]
"""Two pieces along m, which a cluster takes, and three."""
BLOCKS = {"h": 2, "q": 200, "x": 333, "k": 4, "l": 6}
LONG = {"b": 2, "h": 16, "q": 2048, "x": 2048}
SUBLOOP: Mapping[str, Mapping[str, Sequence[str | int]]] = {"hierarchy-subloop": {"axis": ("d",), "size": (16,)}}
CLUSTERS: Mapping[str, Mapping[str, Sequence[int]]] = {"cuda-cluster": {"size": (2,)}}
TURNS: Mapping[str, Mapping[str, Sequence[bool]]] = {"cuda-ping-pong": {"turns": (True,)}}

PADDED: Mapping[str, Mapping[int, int]] = {"past": {2: 203}, "lengths": {3: 203}}

STARTED: Mapping[str, Mapping[int, int]] = {"before": {2: 70}, "past": {2: 203}, "lengths": {3: 70, 4: 203}}

SIXTY_FOUR: Mapping[str, Mapping[str, Sequence[str]]] = {
    "hierarchy-choose-sizes": {"group": ("b=1,h=1,q=128",), "stream": ("x=64",)}
}
KEPT: Mapping[str, Mapping[str, Sequence[str]]] = {"hierarchy-choose-sizes": {"left": ("registers",)}}
CLIMBING = (0, 0, 400, 0, 520, 640, 760, 300, 880, 0)
"""By up to 72 doublings of powers at once: more than f16 has, for the rows that go all the way."""

SCATTERED: Mapping[str, Mapping[str, Sequence[str]]] = {
    "diagram-raise-scatters": {"sums": ("S", "count", "product", "rows")}
}

ROWS: Mapping[str, Mapping[str, Sequence[str]]] = {"diagram-merge-depths": {"axes": ("i", "k")}}

PROGRAMS = (
    Program("examples/experts_sorted.mlir", "a100", [{"t": 150, "n": 72}], {"t": 8192, "n": 4096}, ROWS),
    Program("examples/matmul.mlir", "h100", [{"m": 300, "n": 264, "k": 328}], {"m": 4096, "n": 4096, "k": 4096}),
    Program("examples/matmul.mlir", "h100", PAIRS, {"m": 4096, "n": 4096, "k": 4096}, CLUSTERS),
    Program("examples/attention_causal.mlir", "h100", [SHORT | {"q": 400, "x": 600}], LONG, TURNS),
    Program("examples/matmul.mlir", "a100", [{"m": 40, "n": 48, "k": 464}, {"m": 3, "n": 5, "k": 19}]),
    Program("examples/attention_causal.mlir", "a100", [SHORT | {"h": 2}], LONG),
    Program("examples/attention.mlir", "a100", [SHORT | {"x": 300}], LONG, {"pipelining": {"stages": (40,)}}),
    Program("examples/attention_lse.mlir", "a100", [SHORT], None, SUBLOOP),
    Program(
        "tests/programs/computed_operands.mlir", "a100", [{"m": 40, "n": 24, "k": 77}, {"m": 3, "n": 24, "k": 333}]
    ),
    Program("examples/attention_lengths.mlir", "h100", [SHORT], **PADDED),
    Program("examples/attention_lengths.mlir", "a100", [SHORT], **PADDED),
    Program("tests/programs/left_padding.mlir", "h100", [SHORT], **STARTED),
    Program("tests/programs/left_padding.mlir", "a100", [SHORT], **STARTED),
    Program("tests/programs/part_of_the_width.mlir", "a100", [SHORT], wide={0: 37, 1: 37}, lengths={3: 37}),
    Program("tests/programs/packed_causal.mlir", "a100", [SHORT]),
    Program("tests/programs/scattered_sums.mlir", "a100", [{"t": 41, "c": 12, "r": 9}], None, SCATTERED),
    Program("tests/programs/blocks_of_a_table.mlir", "a100", [BLOCKS]),
    Program("tests/programs/blocks_of_a_table.mlir", "h100", [BLOCKS]),
    Program("examples/softmax.mlir", "a100", [{"row": 3, "x": 5000}, {"row": 2, "x": 37}]),
    Program("examples/attention_soft_cap.mlir", "a100", [SHORT]),
    Program("examples/attention_sigmoid.mlir", "a100", [SHORT]),
    Program("tests/programs/tiny_divisors.mlir", "a100", [{"q": 3, "x": 37}], lengths={0: 2e-38}),
    Program("examples/swiglu.mlir", "h100", [{"t": 100, "i": 72, "j": 136}]),
    Program("examples/attention.mlir", "h100", [SHORT | {"x": 640}], None, SIXTY_FOUR, levels=CLIMBING),
    Program("examples/attention_window.mlir", "h100", [SHORT | {"q": 400, "x": 400}], None, SIXTY_FOUR),
    Program("examples/layer_norm.mlir", "h100", [{"t": 2, "i": 3500}]),
    Program("tests/programs/strided.mlir", "a100", [{"q": 70, "x": 700}]),
    Program("examples/attention.mlir", "h100", [SHORT | {"x": 640}], None, KEPT),
    Program("examples/attention_latent.mlir", "h100", [{"b": 2, "h": 70, "x": 100}]),
    Program("examples/attention_stick_breaking.mlir", "a100", [{"h": 1, "q": 70, "x": 90}]),
    Program("examples/gru.mlir", "h100", [{"b": 2, "t": 3}]),
)
FIRST = {
    "across: all warpgroups take the first columns": 26,
    "across: rows are those of another warpgroup": 26,
    "across: columns are written where the first ones lie": 26,
    "_load_ahead": 6,
    "_ping_pong": 2,
    "compiler/lowering/absent": 4,
    "compiler/lowering/comparisons": 12,
    "compiler/lowering/conditions": 12,
    "compiler/lowering/held": 11,
    "compiler/lowering/intervals": 4,
    "compiler/printer/masks": 4,
    "compiler/printer/matrices": 25,
    "compiler/lowering/selections": 13,
    "compiler/printer/order": 2,
    "compiler/printer/renames": 28,
    "compiler/lowering/renames": 28,
    "barriers: what is read in one turn is written in the next": 28,
    "compiler/printer/scans": 27,
    "compiler/printer/selections": 13,
    "selections: nobody waits for the list": 13,
    "selections: roles do not wait for the list": 14,
    "selections: whole pieces end elsewhere": 13,
    "compiler/printer/products": 5,
    "cuda_cluster": 1,
    "diagram_allow_approximations": 18,
    "compiler/printer/sharing": 16,
    "diagram_expand_approximations": 16,
    "sharing: a quotient is not scaled": 17,
    "sharing: what is tested is a quarter only below": 19,
    "passes/grids/apart": 2,
    "passes/grids/beside": 1,
    "passes/grids/cluster_laws": 1,
    "passes/grids/early": 2,
    "passes/grids/renumber": 1,
    "compiler/printer/control_flow": 20,
    "passes/loops/without_products": 22,
    "passes/speculation/law": 20,
    "passes/speculation/rewrite": 20,
    "speculation: what may not lag hides its powers": 21,
    "speculation: begins with another state": 21,
    "compiler/printer/votes": 21,
    "votes: all rows of a lane": 20,
    "lowering: a quotient towards zero": 23,
    "lowering: a remainder by other bits": 23,
}
"""The number of the program that meets the mistakes of a file, or one of them, which runs before all others."""


def complaints(first: int = 0) -> Iterator[str]:
    """What is wrong with the programs that are wrong; `first` is the one to begin with."""
    for program in (PROGRAMS[first], *PROGRAMS[:first], *PROGRAMS[first + 1 :]):
        for said in wrong(program):
            yield f"{program.path} for {program.machine}: {said}"


def wrong(program: Program) -> Iterator[str]:
    from xdsl.utils.arg_spec import ArgSpec

    from treadle.compiler.pipeline import Options, pipeline, print_cuda, run_passes
    from treadle.compiler.source import parse_module
    from treadle.dialects.cuda import kernel_names
    from treadle.runtime.emulator import EmulationError
    from treadle.runtime.emulator.backend import EmulatorBackend
    from treadle.runtime.host import execute
    from treadle.runtime.inputs import axis_sizes, make_inputs
    from treadle.runtime.interpreter import entry_function
    from treadle.runtime.verify import verify

    algorithm = parse_module(program.text())
    module = algorithm.clone()
    specs = pipeline(Options(machine=program.machine))
    run_passes(module, [ArgSpec(each.name, program.asked.get(each.name, each.parameters)) for each in specs])
    few_processors(module)
    backend = EmulatorBackend(print_cuda(module), kernel_names(module))
    for sizes in program.sizes:
        inputs = make_inputs(entry_function(algorithm), axis_sizes(entry_function(algorithm), sizes), 0)
        for number, start in program.before.items():
            inputs[number][..., :start, :] = float("nan")
        for number, length in program.past.items():
            inputs[number][..., length:, :] = float("nan")
        for number, length in program.wide.items():
            inputs[number][..., length:] = float("nan")
        for number, length in program.lengths.items():
            inputs[number][...] = length
        if program.levels:
            climb(*inputs[:2], program.levels)
        try:
            outputs = execute(module, inputs, backend)
        except EmulationError as error:
            yield str(error)
            return
        yield from (str(each) for each in verify(algorithm, inputs, outputs, "emulator", sizes=sizes) if not each.ok)


def climb(queries: Any, keys: Any, levels: Sequence[float]) -> None:
    """A fifth of the rows go all the way, the others a fourth of it."""
    for row in range(queries.shape[-2]):
        queries[..., row, 0] = 0.25 if row % 5 else 1.0
    for key in range(keys.shape[-2]):
        keys[..., key, 0] = levels[key // 64 % len(levels)]


def few_processors(module: object) -> None:
    from xdsl.dialects import arith
    from xdsl.dialects.builtin import IntegerAttr

    for op in module.walk():  # pyright: ignore
        if isinstance(op, arith.MinSIOp) and op.result.name_hint == "grid":
            assert isinstance(op.rhs.owner, arith.ConstantOp)
            op.rhs.owner.properties["value"] = IntegerAttr.from_index_int_value(PROCESSORS)


if __name__ == "__main__":
    mutate(MUTATIONS, sys.argv[1:])
    said = next(complaints(*(FIRST.get(name, FIRST.get(MUTATIONS[name][0], 0)) for name in sys.argv[1:])), "")
    print(said)
    sys.exit(1 if said else 0)
