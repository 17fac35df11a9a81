"""The model as it is against times on record: every kernel that was measured, with the sizes that it had then,
estimated with the rates that last, with those of the run, or with the datasheet's. Needs no GPU.

python benchmarks/model_against.py [--run first|later|third|fourth|fifth] [--rates sustained|run|datasheet] [--markdown]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heapreplace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import programs
import results
from gates import markdown
from model import decide
from speed.cases import cases
from xdsl.dialects import arith
from xdsl.dialects.builtin import ModuleOp

from treadle.compiler.bench.predict import Row, found_in_l2, summary
from treadle.compiler.bench.rates import Rates, with_rates
from treadle.compiler.cost import Plan, estimate, plan_of, sizes_of_kernel
from treadle.compiler.cost.timing.roofline import compulsory_bytes
from treadle.compiler.cost.timing.tile_order import Sharing, longest
from treadle.compiler.cost.timing.traffic import device_bytes
from treadle.compiler.cost.timing.turns import Made, sharing_of
from treadle.compiler.machines import Machine, load_machine
from treadle.compiler.pipeline import CHOOSING_PASS, LAST_HIERARCHY_PASS, Options, pipeline, run_passes
from treadle.compiler.sizes import set_default_sizes
from treadle.compiler.source import only_function, parse_module
from treadle.dialects.diagram import MapOp
from treadle.dialects.diagram.map import axes_in_body
from treadle.dialects.hierarchy import KernelOp
from treadle.dialects.hierarchy.schedule import UNDECIDED

DEVICE, MODEL = "nvidia-h100-80gb-hbm3-2026-11-26", "h100"
"""The first run on record, and the machine file of its device."""
LATER = f"{DEVICE}-later"
"""The second, another H100 on the same day: of kernels that were chosen by a model that had not seen it."""
THIRD = f"{DEVICE}-third"
"""The last of that day, of kernels whose turns take their powers before their maximum."""

FOURTH = "nvidia-h100-80gb-hbm3-2026-11-27"
"""Of the next day: kernels and predictions of a model that had seen the first three."""
FIFTH = f"{FOURTH}-night"
"""Of its night, of all cases but the longest rows: small blocks share processors, and reciprocals are shared."""


@dataclass(frozen=True)
class Run:
    """How kernels were made then, and what their device was like."""

    device: str
    without: frozenset[str] = frozenset()
    """Passes that there were not."""
    pieces_overlap: bool = True
    twice: bool = True
    """Whether what pieces hold had two places, where there was room."""
    loops_carry: bool = True
    powers_first: bool = True
    tested_first: bool = False
    """Whether tiles that conditions cut came before others."""
    reciprocals: bool = False
    """Whether several elements that are divided by the same take its reciprocal."""
    clock: float | None = None
    """Of the device without load, where it is not that of the machine file."""


RUNS = {
    # exp2 and products of zeros both had this clock, within 1 %
    "first": Run(DEVICE, frozenset({"hierarchy-rescale-lazily"}), False, False, False, False, clock=1.58e9),
    "later": Run(LATER, twice=False, powers_first=False),
    "third": Run(THIRD, twice=False),
    "fourth": Run(FOURTH, twice=False, tested_first=True),
    "fifth": Run(FIFTH, reciprocals=True),
}
RATES = ("sustained", "run", "datasheet")


@dataclass(frozen=True)
class Measured:
    """One kernel as it was measured."""

    name: str
    program: str
    sizes: Mapping[str, int]
    are_static: bool
    """Whether it was made for these very sizes."""
    seconds: float
    rates: Rates | None = None
    """Of that run, where it measured them."""
    bytes: Mapping[str, float] | None = None
    """By level, where the profiler counted."""


def measured(device: str = DEVICE) -> Iterator[Measured]:
    """All that is on record of a run: of `treadle bench predict`, then of `gpu.py`."""
    for path in sorted(results.RESULTS.glob(f"predict-*-{device}.json")):
        data = json.loads(path.read_text(encoding="utf-8"))
        for row in data["rows"]:
            name, text = named(row["program"], row["sizes"]), programs.example(row["program"])
            seconds, rates = row["measured_us"] / 1e6, Rates(**data["rates"])
            yield Measured(name, text, row["sizes"], False, seconds, rates, row["measured_bytes"])
    known = {str(case): case for case in cases(False)}
    for found in json.loads((results.RESULTS / f"gpu-{device}.json").read_text(encoding="utf-8"))["speed"]:
        case = known[found["case"]]
        for ours in (each for each in found["kernels"] if each["who"] == "treadle" and "seconds" in each):
            yield Measured(str(case), case.program, case.open_sizes, True, ours["seconds"]["median"])


def named(program: str, sizes: Mapping[str, int]) -> str:
    return f"{program} {', '.join(f'{axis} {size}' for axis, size in sizes.items())}"


def kernels_then(device: str = DEVICE) -> Mapping[str, Mapping[str, Any]]:
    """Sizes of the kernels that were measured, by name: what the model chooses now may be others."""
    return json.loads((results.RESULTS / f"kernels-{device}.json").read_text(encoding="utf-8"))["kernels"]


def row(each: Measured, kernel: Mapping[str, Any], machine: Machine, run: Run = RUNS["first"]) -> Row:
    """It is measured by repeating it, so that what fits L2 is found there. In the first run pieces were not dealt there
    and back, in the others all of them."""
    plan, sizes = planned(each, kernel, machine, run.without, run.reciprocals)
    machine = found_in_l2(machine, compulsory_bytes(plan, sizes))
    share = None if kernel.get("dealt") else share_then(plan, machine, sizes, kernel)
    then = Made(
        kernel["in_turns"],
        share,
        pieces_overlap=run.pieces_overlap,
        twice=run.twice,
        loops_carry=run.loops_carry,
        powers_first=run.powers_first,
        tested_first=run.tested_first,
    )
    found = estimate(plan, machine, sizes, then)
    assert found is not None, each.name
    moved = device_bytes(plan, machine, sizes, machine.sms * found.blocks_per_sm, found.in_turns)
    time = float(found.time_us) + 1e6 * machine.launch
    return Row(each.name, each.sizes, time, each.seconds * 1e6, found.bottleneck, {"device": int(moved)}, each.bytes)


def planned(
    each: Measured,
    kernel: Mapping[str, Any],
    machine: Machine,
    without: Container[str] = (),
    reciprocals: bool = False,
) -> tuple[Plan, Mapping[str, int]]:
    """Of a kernel with the sizes that it had, made without some passes; and the sizes of its axes."""
    module = parse_module(each.program)
    function = only_function(module, each.name)
    set_default_sizes(function, each.sizes)
    made = pipeline(Options(machine.name, sizes=each.sizes if each.are_static else {}))
    specs = [spec for spec in made if spec.name not in without]
    names = [spec.name for spec in specs]
    choosing = names.index(CHOOSING_PASS)
    run_passes(module, specs[:choosing])
    if not reciprocals:
        divide_exactly(module)
    decide(module, {**kernel["group"], **kernel["stream"]}, kernel["warps"], kernel.get("turns", UNDECIDED))
    run_passes(module, specs[choosing : names.index(LAST_HIERARCHY_PASS) + 1])
    (lowered,) = (op for op in module.walk() if isinstance(op, KernelOp))
    return plan_of(lowered), sizes_of_kernel(lowered, function, each.sizes)


def divide_exactly(module: ModuleOp) -> None:
    """By what several elements are divided by alike, a sum of powers: before the fifth run none took a reciprocal."""
    for map in (op for op in module.walk() if isinstance(op, MapOp)):
        axes = axes_in_body(map)
        for op in map.body.block.ops:
            if isinstance(op, arith.DivfOp) and set(axes[op.rhs]) < set(axes[op.lhs]):
                op.fastmath = arith.FastMathFlagsAttr("none")


def share_then(plan: Plan, machine: Machine, sizes: Mapping[str, int], kernel: Mapping[str, Any]) -> float | None:
    """Of uneven pieces, how many times its even share the processor had that had most to do: blocks took every 132nd
    piece, the longest of a section first, or each the next as the pieces lie. Nothing deals them so any more."""
    sharing = sharing_of(plan, machine.sms, sizes)
    if sharing is None or longest(sharing) is None:
        return None
    busy = [0.0] * sharing.slots
    if kernel["in_turns"]:
        for number, piece in enumerate(_taken(sharing, kernel["section"])):
            busy[number % len(busy)] += piece
    else:
        for _ in range(sharing.rows):
            for piece in sharing.pieces:
                heapreplace(busy, busy[0] + piece)
    return max(busy) * len(busy) / sum(busy)


def _taken(sharing: Sharing, section: int) -> Iterator[int]:
    for begin in range(0, sharing.rows, section):
        for piece in reversed(sharing.pieces):
            yield from [piece] * min(section, sharing.rows - begin)


def rows(rates: str, overlaps: bool = False, carries: bool = False, run: str = "first") -> list[Row]:
    """Of a run; `run` as rates are those that it measured (ValueError if it measured none). `overlaps` and `carries`:
    as if pieces, and loops of a piece, had overlapped in the first."""
    machine, then, last = load_machine(MODEL), RUNS[run], None
    then = replace(then, pieces_overlap=then.pieces_overlap or overlaps, loops_carry=then.loops_carry or carries)
    kernels = kernels_then(then.device)
    found: list[Row] = []
    for each in measured(then.device):
        last = each.rates or last
        if rates == "run" and last is None:
            raise ValueError(f"the {run} run measured no rates")
        by = with_rates(machine, last) if rates == "run" and last else machine
        by = by.as_sustained() if rates == "sustained" else by
        if then.clock is not None and rates != "datasheet":
            by = by.at_clock(then.clock)
        found.append(row(each, kernels[each.name], by, then))
    return found


def tell(found: Sequence[Row], lines: Sequence[Sequence[str]], as_page: bool) -> None:
    """Print rows, of which the first line is the head, and how many of them are right."""
    head, *cells = (list(line) for line in lines)
    print(markdown(head, cells) if as_page else results.table(head, cells))
    print(summary(found))


def table(found: Sequence[Row]) -> list[list[str]]:
    head = ["kernel", "predicted us", "measured us", "off by", "bound by"]
    return [
        head,
        *(
            [each.program, f"{each.predicted_us:.4g}", f"{each.measured_us:.4g}", f"{each.error:+.0%}", each.bottleneck]
            for each in found
        ),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", choices=RUNS, default="first", help="which is on record")
    parser.add_argument("--rates", choices=RATES, default=RATES[0])
    parser.add_argument("--overlap", action="store_true", help="as if pieces overlapped, as they have done since")
    parser.add_argument("--carry", action="store_true", help="as if loops of a piece did, as they have done since")
    parser.add_argument("--markdown", action="store_true", help="print the table of the page")
    parsed = parser.parse_args()
    if parsed.run != "first" and parsed.rates == "run":
        parser.error(f"the {parsed.run} run measured no rates")
    found = rows(parsed.rates, parsed.overlap, parsed.carry, parsed.run)
    tell(found, table(found), parsed.markdown)
    return 0


if __name__ == "__main__":
    sys.exit(main())
