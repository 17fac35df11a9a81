"""The model as it is against ways to make a kernel that were measured beside each other on an H200, whose times it was
fitted to nowhere: it takes what lasts on an H100, and as large a part of the datasheet's device memory. Needs no GPU.

python benchmarks/model_ways.py [--markdown]
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import results
from model_against import THIRD, Measured, kernels_then, planned, tell
from speed.cases import cases

from treadle.compiler.bench.predict import Row, found_in_l2
from treadle.compiler.cost import estimate
from treadle.compiler.cost.timing.roofline import compulsory_bytes
from treadle.compiler.cost.timing.turns import Made
from treadle.compiler.machines import Machine, load_machine

WAYS = "ways-nvidia-h200-2026-11-26.json"
WITHOUT = "without cuda-speculate"
RECIPROCALS = "no shared reciprocals"
"""Ways that kernels may be made, beside sizes: the former is no pass of choosing, and the model is told of it."""
ROWS_OF_WARP = 16


def measured() -> Iterator[tuple[Measured, str]]:
    """Each case, and the way in which its kernel was made."""
    known = {str(case): case for case in cases(False)}
    for each in json.loads((results.RESULTS / WAYS).read_text(encoding="utf-8"))["ways"]:
        case = known[each["case"]]
        yield Measured(each["case"], case.program, case.open_sizes, True, each["median_us"] / 1e6), each["way"]


def kernel_of(case: str, way: str) -> Mapping[str, Any]:
    """As it was chosen, but for the sizes that the way says."""
    chosen = kernels_then(THIRD)[case]
    found = re.search(r"q (\d+), x (\d+)", way)
    if found is None:
        return chosen
    rows, columns = map(int, found.groups())
    return {
        "group": {**chosen["group"], "q": rows},
        "stream": {"x": columns},
        "warps": {"q": rows // ROWS_OF_WARP},
    }


def machine_of_ways() -> Machine:
    h200, h100 = load_machine("h200"), load_machine("h100")
    device = h200.levels["device"].bandwidth / h100.levels["device"].bandwidth
    lasts = replace(h100.sustained, device=device * (h100.sustained.device or 0))
    return replace(h200, sustained=lasts).as_sustained()


def row(each: Measured, way: str, machine: Machine) -> Row:
    """Blocks take pieces in turns where the model says that this is faster; what pieces hold had one place then."""
    without = {"hierarchy-share-reciprocals"} if RECIPROCALS in way else set[str]()
    plan, sizes = planned(each, kernel_of(each.name, way), machine, without)
    machine = found_in_l2(machine, compulsory_bytes(plan, sizes))
    tried = (
        estimate(plan, machine, sizes, Made(turns, powers_first=WITHOUT not in way, twice=False))
        for turns in (True, False)
    )
    time_us, bottleneck = min((found.time_us, found.bottleneck) for found in tried if found is not None)
    predicted = time_us + 1e6 * machine.launch
    return Row(f"{each.name}: {way}", each.sizes, predicted, each.seconds * 1e6, bottleneck, {}, None)


def rows() -> list[Row]:
    machine = machine_of_ways()
    return [row(each, way, machine) for each, way in measured()]


def table(found: list[Row]) -> list[list[str]]:
    head = ["kernel and way", "predicted us", "measured us", "off by"]
    cells = (
        [each.program, f"{each.predicted_us:.4g}", f"{each.measured_us:.4g}", f"{each.error:+.0%}"] for each in found
    )
    return [head, *cells]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markdown", action="store_true", help="print the table of the page")
    parsed = parser.parse_args()
    found = rows()
    tell(found, table(found), parsed.markdown)
    return 0


if __name__ == "__main__":
    sys.exit(main())
