"""What does each pass bring? Programs beside the same without one pass, with another option of one, or other sizes.

    python benchmarks/ablation.py [--machine h100] [--cases PATTERN] [--few] [--workers N] [--minutes N]

Which passes and options there are is asked of the pipeline (`ways.py`). On a machine with a GPU each way is compared
with the float64 reference at some places, and with the pipeline's own everywhere, and all ways of a program are
measured in turns: 9 rounds in random orders, each a sample of 30 ms right behind as many that are not timed. Without a
GPU it says what each brings by the model, and in the machine code that nvcc makes: registers, spills, blocks on an SM,
and instructions other than products a score. Either way the figures are written to `benchmarks/results` as JSON, with a
page of tables beside them. `gpu.py --prepare` compiles all of it beforehand."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import closing
from dataclasses import asdict, dataclass, field
from multiprocessing import Pool, TimeoutError
from multiprocessing.pool import AsyncResult
from pathlib import Path
from textwrap import fill
from time import monotonic
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import checks
import preparing
import results
import ways
from speed import cases
from speed.cases import CHANNELS, TOKENS, Case
from speed.sampled import Sampled, sampled
from ways import OWN, Way, ways_of

LENGTHS = (4096, 1024, 512)


def programs(few: bool = False) -> Iterator[Case]:
    """What is taken apart, what tells most first; a `few`: each program once."""
    for length in LENGTHS[:1] if few else LENGTHS:
        for width in (128, 64):
            for causal in (False, True):
                yield cases.attention(TOKENS // length, CHANNELS // width, length, width, causal)
        if length == LENGTHS[0]:
            yield from _others(few)


def _others(few: bool) -> Iterator[Case]:
    yield cases.product(4096)
    yield cases.layer(4096, 4096, 4096)
    yield cases.swiglu(4096)
    yield cases.mixed_attention(4096 if few else 16384)
    yield cases.window_attention(4096)
    if not few:
        yield cases.product(8192)


# -- without a GPU -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Counted:
    """A way, and what its machine code says: of the kernel whose loop multiplies most."""

    what: str
    refused: str = ""
    model_us: float | None = None
    kernels: int | None = None
    registers: int | None = None
    spilled_bytes: int | None = None
    blocks_on_sm: int | None = None
    others: float | None = None
    """Instructions of the main loop other than products: for each score of a lane, or product."""


def counted(way: Way, reads_code: bool = True) -> Counted:
    """Machine code from nvcc, if it is to be read."""
    from treadle.compiler.gates import codes_of_cubin, report_kernels
    from treadle.compiler.source import parse_module
    from treadle.dialects import cuda
    from treadle.runtime.nvcc import NvccFailure, compile_cubin

    if way.refused or not reads_code:
        return Counted(way.what, way.refused, way.model_us)
    module = parse_module(way.module)
    try:
        cubin = compile_cubin(way.cuda, way.arch)
    except NvccFailure as error:
        return Counted(way.what, f"nvcc: {error}".splitlines()[0], way.model_us)
    run = {op.sym_name.data for op in module.body.block.ops if isinstance(op, cuda.KernelOp) and _runs(op)}
    reports = [
        each for each in report_kernels(module, cubin.resources, codes_of_cubin(cubin.path)) if each.kernel in run
    ]
    main = max(reports, key=lambda each: (each.scores, each.loop.products if each.loop else 0))
    taken = main.resources
    return Counted(
        way.what,
        model_us=way.model_us,
        kernels=len(reports),
        registers=taken.registers if taken else None,
        spilled_bytes=taken.spilled_bytes if taken else None,
        blocks_on_sm=main.blocks_on_sm,
        others=main.others_per_score or main.others_per_product,
    )


def _runs(kernel: Any) -> bool:
    return ways.WITHOUT_MAPS not in kernel.attributes


def counted_of(name: str, machine: str, others: int, reads_code: bool) -> list[Counted]:
    """Of a case by its name: for processes beside."""
    return [counted(way, reads_code) for way in ways_of(known()[name], machine, others)]


def known() -> dict[str, Case]:
    return {str(case): case for few in (True, False) for case in programs(few)}


COUNTED_HEAD = ("", "model us", "ratio", "kernels", "registers", "spilled", "blocks/SM", "others each")


def counted_rows(found: Sequence[Counted]) -> list[list[str]]:
    """What can be had; ratios are of the model's time to that of the pipeline's own."""
    own = found[0].model_us
    return [
        [
            each.what,
            _text(each.model_us, ".4g"),
            _text(each.model_us / own if each.model_us and own else None, ".2f"),
            _text(each.kernels),
            _text(each.registers),
            _text(each.spilled_bytes),
            _text(each.blocks_on_sm),
            _text(each.others, ".2f"),
        ]
        for each in found
        if not each.refused
    ]


def beside_each_other(found: Mapping[str, Sequence[Counted]]) -> str:
    """Ratios by the model of all programs in one table, ways with other sizes aside; a gap where a way changes
    nothing."""
    ratios: dict[str, dict[str, str]] = {}
    for name, many in found.items():
        own = many[0].model_us
        for each in many[1:]:
            if each.refused:
                ratios.setdefault(each.what, {})[name] = "refused"
            elif not each.what.startswith("@"):
                ratio = each.model_us / own if each.model_us and own else None
                ratios.setdefault(each.what, {})[name] = _text(ratio, ".2f")
    told = {what: row for what, row in ratios.items() if any(cell not in ("-", "refused") for cell in row.values())}
    rows = [[f"`{what}`", *(row.get(name, "") for name in found)] for what, row in told.items()]
    others = [f"`{what}`" for what, row in ratios.items() if what not in told and "-" in row.values()]
    head = ["", *map(short, found)]
    untold = f"The model says nothing of these, which change kernels: {', '.join(others)}."
    return markdown(head, rows) + (f"\n\n{fill(untold, 120, break_on_hyphens=False)}" if others else "")


def short(name: str) -> str:
    """`causal d 64` of `causal attention b 4, h 32, q 4096, x 4096, d 64`."""
    kind = re.split(r" \w+ \d", name)[0].replace("causal attention", "causal")
    width = re.search(r"\bd \d+$", name)
    return f"{kind} {width[0]}" if width else kind


def _text(value: float | None, form: str = "d") -> str:
    return "-" if value is None else format(value, form)


def counted_page(found: Mapping[str, Sequence[Counted]], machine: str) -> str:
    start = f"""# What each pass brings, without a GPU

Written by `benchmarks/ablation.py` for `{machine}`. `model us` is by the cost model, at the rates that last (`-`: it
does not tell this way from the pipeline's own), `ratio` to the first row. The others are read from the machine code
that nvcc makes of the kernel whose loop multiplies most, for arrays that tensor maps can describe: registers and bytes
spilled of a thread, blocks that an SM holds, and instructions of a warp other than products, for each score of a lane,
or each product. Ways that make the same kernels as one above are left out.
"""
    parts = [f"## {name}\n\n{markdown(COUNTED_HEAD, counted_rows(each))}\n" for name, each in found.items()]
    refused = [(name, each.what, each.refused) for name, many in found.items() for each in many if each.refused]
    together = f"## Ratios by the model\n\n{beside_each_other(found)}\n"
    return "\n".join([start, together, *parts, refusals(refused)])


def refusals(found: Sequence[tuple[str, str, str]]) -> str:
    """Ways that cannot be made, each reason once."""
    by_reason: dict[tuple[str, str], list[str]] = {}
    for case, what, reason in found:
        by_reason.setdefault((what, reason.replace("|", "\\|")), []).append(case)
    rows = [[what, reason, str(len(every))] for (what, reason), every in by_reason.items()]
    return f"## Refused\n\n{markdown(('', 'why', 'programs'), rows)}\n" if rows else ""


def markdown(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *body])


def count_all(chosen: Sequence[Case], machine: str, others: int, workers: int, code: str = "") -> Path:
    """Written anew after each program; machine code of those whose names hold `code`."""
    found: dict[str, list[Counted]] = {}
    path = results.RESULTS
    with ProcessPoolExecutor(workers) as pool:
        names = [str(case) for case in chosen]
        reads = [re.search(code, name) is not None for name in names]
        begun = {
            pool.submit(counted_of, name, machine, others, does): name for name, does in zip(names, reads, strict=True)
        }
        for future in as_completed(begun):
            found[begun[future]] = future.result()
            ordered = {name: found[name] for name in names if name in found}
            print(f"{begun[future]}\n{results.table(COUNTED_HEAD, counted_rows(found[begun[future]]))}", flush=True)
            data = {"for": machine, "cases": {name: [asdict(each) for each in many] for name, many in ordered.items()}}
            path = results.write("ablation", data)
            path.with_suffix(".md").write_text(counted_page(ordered, machine), encoding="utf-8")
    return path


# -- on a GPU ----------------------------------------------------------------------------------------


@dataclass
class Measuring:
    """What a run knows, kept in its result as it is found."""

    device: str
    machine: str
    until: float = checks.FOREVER
    data: dict[str, Any] = field(default_factory=dict[str, Any])
    ended: list[checks.Done] = field(default_factory=list[checks.Done])

    def all(self, chosen: Sequence[Case], others: int, child: Callable[[int], Sequence[str]]) -> Path:
        """In turns, one program after another (the ways are made, and references computed, in processes beside)."""
        from speed.conditions import Conditions
        from speed.news import Job
        from speed.watch import Watch

        path = self._keep()
        # What is still at work when the time is over ends with the pool.
        with Pool(max(1, min(6, (os.cpu_count() or 2) // 2))) as pool, Conditions() as conditions:
            ahead = {str(case): pool.apply_async(_ahead, (str(case), self.machine, others)) for case in chosen}

            def found(known: Any, whole: bool) -> None:
                self.data["cases"][str(known.case)] |= as_json(known, conditions)
                self._keep()

            with closing(Watch(child, self.until, found, self._ended)) as watch:
                for case in chosen:
                    if (made := self._made(case, ahead[str(case)])) is None:
                        continue
                    every, reference = made
                    refused = {each.what: each.refused for each in every if each.refused}
                    self.data["cases"][str(case)] = {"refused": refused}
                    lowered = {each.what: each.lowered for each in every if not each.refused}
                    watch.measure(Job(case, (), None, lowered, reference))
                    path = self._keep()
                    print(results.table(MEASURED_HEAD, measured_rows(self.data["cases"][str(case)])), flush=True)
        return path

    def _made(self, case: Case, ahead: AsyncResult[Any]) -> tuple[list[Way], Sampled | None] | None:
        try:
            return ahead.get(None if self.until == checks.FOREVER else max(0.0, self.until - monotonic()))
        except TimeoutError:
            self.data["not begun"].append(str(case))
            return None
        except Exception as error:
            self.ended.append(checks.Done(str(case), False, 0.0, f"{type(error).__name__}: {error}"))
            return None

    def _ended(self, done: checks.Done) -> None:
        self.ended.append(done)
        print(done.told(), flush=True)

    def _keep(self) -> Path:
        self.data.setdefault("cases", {})
        self.data.setdefault("not begun", [])
        self.data["failed"] = [each.as_json() for each in self.ended if not each.ok]
        path = results.write("ablation", self.data, self.device)
        path.with_suffix(".md").write_text(measured_page(self.data, self.device), encoding="utf-8")
        return path


def _ahead(name: str, machine: str, others: int) -> tuple[list[Way], Sampled | None]:
    from speed.kernels import inputs_of

    case = known()[name]
    return ways_of(case, machine, others), sampled(case, inputs_of(case))


def as_json(found: Any, conditions: Any) -> dict[str, Any]:
    """Every way by its name, with its time beside that of the pipeline's own."""
    told = {each.who: each.as_json(found.case) for each in found.measured}
    own = told.get(OWN, {}).get("seconds", {}).get("median")
    for each in told.values():
        if own and "seconds" in each:
            each["ratio"] = round(each["seconds"]["median"] / own, 4)
    return {"ways": told, **conditions.during(found.span)}


MEASURED_HEAD = ("", "us", "ratio", "launched, or why not")


def measured_rows(case: Mapping[str, Any]) -> list[list[str]]:
    """Of a case in the result, the slowest first behind the pipeline's own."""
    told: Mapping[str, Any] = case.get("ways", {})
    order = sorted(told, key=lambda what: (what != OWN, -told[what].get("ratio", 0.0)))
    rows: list[list[str]] = []
    for what in order:
        each = told[what]
        if "seconds" in each:
            us = f"{1e6 * each['seconds']['median']:.4g}"
            rows.append([what, us, f"{each.get('ratio', 1.0):.3f}", str(len(each.get("launched", ())))])
        else:
            rows.append([what, "-", "-", str(each.get("not measured", ""))])
    return rows


def measured_page(data: Mapping[str, Any], device: str) -> str:
    start = f"""# What each pass brings on an {device}

Written by `benchmarks/ablation.py`: medians of 9 samples of 30 ms, all ways of a program in turns; `ratio` is to the
time of the pipeline's own (above 1: that way is slower). Every result was compared with the float64 reference at some
places, and with the pipeline's own everywhere.
"""
    parts: list[str] = []
    for name, case in data["cases"].items():
        state = ", ".join(f"{key} {case[key]}" for key in ("clock MHz", "watts") if key in case)
        parts.append(f"## {name}\n\n{state}\n\n{markdown(MEASURED_HEAD, measured_rows(case))}\n")
    refused = [(name, what, why) for name, case in data["cases"].items() for what, why in case["refused"].items()]
    return "\n".join([start, *parts, refusals(refused)])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machine", default="h100", help="without a GPU: for which machine (default h100)")
    parser.add_argument("--cases", metavar="PATTERN", default="", help="only those whose names hold it")
    parser.add_argument("--code", metavar="PATTERN", default="", help="read machine code of those only (takes longest)")
    parser.add_argument("--few", action="store_true", help="each program at one size")
    parser.add_argument("--sizes", type=int, default=ways.OTHER_SIZES, help="other sizes of each kernel")
    parser.add_argument("--workers", type=int, default=2, help="processes at a time")
    parser.add_argument("--minutes", type=float, default=checks.FOREVER, help="begin nothing after so many")
    parsed = parser.parse_args(arguments)
    from treadle.runtime.gpu import missing_for_gpu

    chosen = [case for case in programs(parsed.few) if re.search(parsed.cases, str(case))]
    if missing_for_gpu() is None:
        from treadle.runtime.gpu_facts import gpus

        gpu = gpus()[0]
        name = preparing.machine_of_device(gpu.name)
        measuring = Measuring(gpu.name, name or parsed.machine, monotonic() + 60 * parsed.minutes)
        path = measuring.all(chosen, parsed.sizes, child_command)
        print(f"written to {path}, with a page beside it")
        return 1 if any(not each.ok for each in measuring.ended) else 0
    path = count_all(chosen, parsed.machine, parsed.sizes, parsed.workers, parsed.code)
    print(f"written to {path}, with a page beside it")
    return 0


def child_command(descriptor: int) -> list[str]:
    """A process that measures: of `gpu.py`."""
    return [sys.executable, str(Path(__file__).with_name("gpu.py")), "--child", str(descriptor)]


if __name__ == "__main__":
    sys.exit(main())
