"""The cost model beside the machine code: registers and the main loop of attention and products at many sizes of their
pieces, as predicted and as read from what nvcc makes. Needs nvcc, no GPU.

python benchmarks/model.py [--chosen] [--jobs N]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import programs
import results
from gates import markdown, nvcc_version
from xdsl.dialects.builtin import ModuleOp

from treadle.compiler.cost import Plan, are_of_warpgroups, footprint, plan_of
from treadle.compiler.cost.kernel.issue import is_issued
from treadle.compiler.gates import KernelReport, codes_of_cubin, report_kernels
from treadle.compiler.machines import load_machine
from treadle.compiler.pipeline import CHOOSING_PASS, Options, pipeline, print_cuda, run_passes
from treadle.compiler.sass import find_disassembler
from treadle.compiler.source import parse_module
from treadle.dialects.hierarchy import KernelOp, ScheduleAttr
from treadle.dialects.hierarchy.schedule import UNDECIDED
from treadle.runtime.nvcc import compile_cubin, find_nvcc

CLASSES: Mapping[str, Sequence[str]] = {
    "products": ("products",),
    "ldmatrix": ("ldmatrix",),
    "float": ("float", "max"),
    "special": ("special",),
    "select": ("select",),
    "convert": ("convert",),
    "shuffle": ("shuffle",),
    "copies": ("async copies",),
    "turn": ("integer", "move", "wait", "branch", "shared", "global", "local", "other"),
}
"""Kinds of instructions of the model, and what the reader of machine code calls them."""

NOT_OF_CONSUMERS = ("products", "ldmatrix", "copies")
"""What the model does not count for the warps of a warpgroup: they start few large products, and a producer copies."""


@dataclass(frozen=True)
class Case:
    """A program for a machine, with its pieces given, or for the model to choose."""

    program: str
    machine: str
    size: int
    """Width of the heads of attention, or every side of a product."""
    tiles: Mapping[str, int] | None = None
    warps: Mapping[str, int] | None = None

    @property
    def text(self) -> str:
        if self.program == "attention":
            return programs.attention(self.size, {"b": 4, "h": 16, "q": 4096, "x": 4096})
        return programs.matmul(dict.fromkeys("mnk", self.size))


@dataclass(frozen=True)
class Comparison:
    """What was predicted of a kernel, and what was read."""

    name: str
    pieces: str
    registers: tuple[int, int]
    """Predicted, with those that are missing; taken."""
    spilled_bytes: int
    shared_bytes: tuple[int, int]
    warps_on_sm: int
    issued: Mapping[str, tuple[float | None, int]]
    """Of each kind, a turn of a warp; None where the model does not count them."""
    others: tuple[float, float]
    """Instructions other than products, a score of a lane; a product where there are none."""


def cases() -> Iterator[Case]:
    for width, rows, piece in _grid((64, 128), ((128, 8), (128, 4), (64, 4), (256, 8)), (32, 64, 128)):
        yield Case("attention", "a100", width, {"q": rows[0], "x": piece}, {"q": rows[1]})
    for piece in (32, 64):
        yield Case("attention", "a100", 256, {"q": 128, "x": piece}, {"q": 8})
    for width, rows, piece in _grid((64, 128), ((128, 8), (128, 4), (256, 8)), (64, 128)):
        yield Case("attention", "h100", width, {"q": rows[0], "x": piece}, {"q": rows[1]})
    shapes = ((64, 64, 2, 2), (128, 64, 2, 2), (128, 128, 2, 2), (128, 128, 2, 4), (128, 256, 2, 4), (256, 128, 4, 2))
    for m, n, down, across in shapes:
        for k in (32, 64):
            yield Case("matmul", "a100", 4096, {"m": m, "n": n, "k": k}, {"m": down, "n": across})
    yield Case("matmul", "h100", 4096, {"m": 128, "n": 256, "k": 64}, {"m": 2, "n": 4})


def chosen() -> Iterator[Case]:
    for machine in ("a100", "h100"):
        yield from (Case("attention", machine, width) for width in (64, 128, 256))
        yield from (Case("matmul", machine, size) for size in (1024, 4096, 8192))


def _grid(widths: Sequence[int], rows: Sequence[tuple[int, int]], pieces: Sequence[int]) -> Iterator[Any]:
    return ((width, row, piece) for width in widths for row in rows for piece in pieces)


def compare(case: Case) -> Comparison:
    module, plan = lowered(case)
    cubin = compile_cubin(print_cuda(module), load_machine(case.machine).arch)
    report, *_ = report_kernels(module, cubin.resources, codes_of_cubin(cubin.path))
    return _comparison(case, plan, report)


def lowered(case: Case) -> tuple[ModuleOp, Plan]:
    """The program with all passes run, and the plan of its one kernel."""
    module = parse_module(case.text)
    passes = list(pipeline(Options(machine=case.machine)))
    choosing = next(i for i, spec in enumerate(passes) if spec.name == CHOOSING_PASS)
    run_passes(module, passes[:choosing])
    if case.tiles is not None:
        decide(module, case.tiles, case.warps or {})
    run_passes(module, passes[choosing : choosing + 1])
    plan = plan_of(_kernel(module))
    run_passes(module, passes[choosing + 1 :])
    return module, plan


def _kernel(module: ModuleOp) -> KernelOp:
    return next(op for op in module.walk() if isinstance(op, KernelOp))


def decide(module: ModuleOp, tiles: Mapping[str, int], warps: Mapping[str, int], turns: int = UNDECIDED) -> None:
    """State the sizes of the one kernel, and of its blocks how many share a processor, where that is known."""
    kernel = _kernel(module)
    schedule = kernel.schedule
    assert schedule is not None
    kernel.schedule = ScheduleAttr(
        group={axis: tiles.get(axis, 1) for axis in schedule.group.as_dict()},
        stream={axis: tiles[axis] for axis in schedule.stream.as_dict()},
        whole=schedule.whole.as_dict(),
        warps=warps,
        turns=turns,
    )


def _comparison(case: Case, plan: Plan, report: KernelReport) -> Comparison:
    needs = footprint(plan, report.machine)
    assert report.resources is not None
    assert report.loop is not None
    assert report.step is not None
    turns = report.loop.products / report.step.products
    counts = _counts(plan, bool(are_of_warpgroups(plan, report.machine)))
    issued = {
        kind: (None if kind not in counts else turns * counts[kind], sum(report.loop.count(each) for each in classes))
        for kind, classes in CLASSES.items()
    }
    units = report.scores or report.loop.products
    predicted = sum(count or 0 for kind, (count, _) in issued.items() if kind != "products")
    cut = {pieces.axis: pieces.size for pieces in (*plan.groups, *plan.streams) if pieces.size > 1}
    warps = " x ".join(str(count) for count in plan.warps.values())
    return Comparison(
        name=f"{case.program} {case.size}, {report.machine.arch}",
        pieces=f"{', '.join(f'{axis} {size}' for axis, size in cut.items())}; {warps} warps",
        registers=(needs.registers_per_thread + needs.spilled, report.resources.registers),
        spilled_bytes=report.resources.spilled_bytes,
        shared_bytes=(needs.shared_bytes, report.shared),
        warps_on_sm=report.warps_on_sm or 0,
        issued=issued,
        others=(predicted / units, report.loop.others / units),
    )


def _counts(plan: Plan, grouped: bool) -> dict[str, float]:
    """Instructions of a turn by kind, as the estimate of the time counts them."""
    counts = dict.fromkeys((kind for kind in CLASSES if not (grouped and kind in NOT_OF_CONSUMERS)), 0.0)
    for issue in plan.issues:
        kind = issue.kind.split()[0]
        kind = "float" if kind == "lagging" else kind
        if issue.streams and kind in counts and is_issued(issue.kind, grouped):
            counts[kind] += issue.count
    return counts


HEAD = ("", "pieces", "registers", "spilled", "shared", "warps/SM", *CLASSES, "others each")


def row(found: Comparison) -> list[str]:
    return [
        found.name,
        found.pieces,
        f"{found.registers[0]} / {found.registers[1]}",
        f"{found.spilled_bytes}",
        f"{found.shared_bytes[0]} / {found.shared_bytes[1]}",
        f"{found.warps_on_sm}",
        *(f"{'-' if predicted is None else round(predicted)} / {read}" for predicted, read in found.issued.values()),
        f"{found.others[0]:.2f} / {found.others[1]:.2f}",
    ]


def page(parts: Mapping[str, Sequence[Comparison]], nvcc: str) -> str:
    """The tables in Markdown."""
    start = f"""# The cost model beside the machine code

Written by `benchmarks/model.py`: predicted / read with `compiler/sass` from what nvcc {nvcc} makes. No GPU:
nothing here is a time. Attention is made for b 4, h 16, q = x = 4096, products for three equal sides, in f16; for
sm_90a it is the kernel with roles where there is one.

Registers of a thread, bytes spilled, bytes of shared memory, warps on an SM, and instructions of one warp in one
turn of the main loop. `turn` is addresses, moves, waits and branches. `others each`: instructions other
than products, for each score of a lane, or each product where there are no scores. More than 255 registers
predicted means that the model expects spills.

Where warpgroups multiply, instructions are those of a warp that computes: products and copies (`-`) are few and
large, the model does not count them. Registers read are those that a thread has before roles move them. Results
get a place of their own in shared memory where there is room beside what is predicted.
"""
    tables = [f"## {title}\n\n{markdown(HEAD, [row(each) for each in found])}\n" for title, found in parts.items()]
    return "\n".join([start, *tables])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chosen", action="store_true", help="only what the model chooses; nothing is written")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time (default: 2)")
    given = parser.parse_args()
    nvcc = find_nvcc()
    if nvcc is None or find_disassembler() is None:
        print("nvcc or cuobjdump was not found: nothing was measured")
        return
    asked = {"Chosen": list(chosen())} | ({} if given.chosen else {"Given": list(cases())})
    with ProcessPoolExecutor(given.jobs) as pool:
        parts = {title: list(pool.map(compare, each)) for title, each in asked.items()}
    for comparisons in parts.values():
        print(results.table(HEAD, [row(each) for each in comparisons]))
    if given.chosen:
        return
    data = {title.lower(): [asdict(each) for each in comparisons] for title, comparisons in parts.items()}
    version = nvcc_version(nvcc)
    path = results.write("model", {"nvcc": version, **data})
    path.with_suffix(".md").write_text(page(parts, version), encoding="utf-8")
    print(f"written to {path}, with a page beside it")


if __name__ == "__main__":
    main()
