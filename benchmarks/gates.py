"""The gates of attention and products, as `treadle compile --report` shows them for one program. Needs nvcc, no GPU.

python benchmarks/gates.py [--tables]

Writes every figure as JSON, and beside it a page of tables.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import programs
import results
from xdsl.utils.arg_spec import ArgSpec

from treadle.compiler.gates import Gate, KernelReport, check, codes_of_cubin, gate_lines, report_kernels, report_lines
from treadle.compiler.pipeline import Options, pipeline, print_cuda, run_passes
from treadle.compiler.sass import find_disassembler
from treadle.compiler.source import parse_module
from treadle.runtime.nvcc import Resources, compile_cubin, find_nvcc

LONG = {"b": 4, "h": 16, "q": 4096, "x": 4096}
PROGRAMS: Mapping[str, str] = {
    "attention d 64": programs.attention(64, LONG),
    "attention d 128": programs.attention(128, LONG),
    "attention d 256": programs.attention(256, LONG),
    "matmul k 64": programs.matmul({"m": 4096, "n": 4096, "k": 64}),
    "matmul k 128": programs.matmul({"m": 4096, "n": 4096, "k": 128}),
    "matmul k 4096": programs.matmul({"m": 4096, "n": 4096, "k": 4096}),
}
OTHER_SIZES: Mapping[str, Mapping[str, int]] = {
    "attention_causal": LONG,
    "attention_window": LONG,
    "attention_gqa": {"b": 4, "h": 4, "g": 4, "q": 4096, "x": 4096},
    "attention_decode": {"b": 4, "h": 16},
}
OTHERS: Mapping[str, str] = {
    f"{name.removeprefix('attention_')} d {width}": programs.attention(width, sizes, example=name)
    for name, sizes in OTHER_SIZES.items()
    for width in (64, 128, 256)
}
"""Attention with conditions, grouped heads, one query: what has roles only from sm_90 on."""

FLASH_ATTENTION_3: Mapping[str, str] = {
    "attention d 64": "6.42 (192 keys)",
    "causal d 128": "7.08",
    "attention d 128, q = 128, x = 176": "6.53",
    "attention d 256, x = 80": "11.1",
}
"""Others a score of a consumer warp, read with `compiler/sass` from its release build by the same nvcc."""


@dataclass(frozen=True)
class Case:
    """A program for an architecture; with sizes of the group and of the stream where they are given by hand."""

    name: str
    text: str
    arch: str
    group: str = ""
    stream: str = ""

    @property
    def tile(self) -> str:
        """`q = 128, x = 64`"""
        sizes = [size for text in (self.group, self.stream) if text for size in text.split(",")]
        return ", ".join(sizes).replace("=", " = ")

    @property
    def title(self) -> str:
        return f"{self.name}{f', {self.tile}' if self.tile else ''}"


CHOSEN = (
    *(Case(name, text, "sm_80") for name, text in PROGRAMS.items()),
    *(Case(name, text, "sm_90a") for name, text in (PROGRAMS | OTHERS).items()),
)
GIVEN = (
    Case("attention d 128", PROGRAMS["attention d 128"], "sm_90a", "q=128", "x=176"),
    Case("attention d 256", PROGRAMS["attention d 256"], "sm_90a", stream="x=80"),
    Case("matmul k 4096", PROGRAMS["matmul k 4096"], "sm_80", "m=128,n=128", "k=32"),
    *(
        Case(f"attention d {width}", PROGRAMS[f"attention d {width}"], "sm_80", f"q={rows}", f"x={keys}")
        for width in (64, 128)
        for rows in (64, 128)
        for keys in (32, 64, 128)
    ),
)
"""Pieces that bounds were stated for, and how tiles decide."""


@dataclass(frozen=True)
class Found:
    """What was read of a case: its kernels, and what ptxas says of every entry, those for narrower rows among them."""

    case: Case
    reports: Sequence[KernelReport]
    entries: Sequence[Resources]


def read(case: Case) -> Found:
    given = {"group": case.group, "stream": case.stream}
    fixed = ArgSpec("hierarchy-choose-sizes", {name: (text,) for name, text in given.items() if text})
    options = Options(arch=case.arch)
    module = parse_module(case.text)
    run_passes(module, [fixed if spec.name == fixed.name else spec for spec in pipeline(options)])
    cubin = compile_cubin(print_cuda(module), case.arch)
    return Found(case, report_kernels(module, cubin.resources, codes_of_cubin(cubin.path)), cubin.resources)


# -- tables --------------------------------------------------------------------------------------------

HEAD = ("", "kernel", "tile a turn", "registers", "spilled", "warps/SM", "products", "others", "each", "not met")


def row(case: Case, report: KernelReport) -> list[str]:
    resources, loop, step = report.resources, report.loop, report.step
    others = report.others_per_score or report.others_per_product
    missed = dict.fromkeys(f"{gate.name} {gate.relation} {gate.bound:g}" for gate in not_met(report))
    return [
        f"{case.title}, {case.arch}",
        report.kernel,
        " x ".join(str(size) for size in step.tile.values() if size != 1) if step else "",
        f"{resources.registers}" if resources else "",
        f"{resources.spilled_bytes}" if resources else "",
        f"{report.warps_on_sm}",
        f"{loop.products}" if loop else "",
        f"{loop.others}" if loop else "",
        f"{others:.2f}" if others else "",
        ", ".join(missed),
    ]


def not_met(report: KernelReport) -> list[Gate]:
    return [gate for gate in check(report) if not gate.ok]


def rows(found: Sequence[Found]) -> list[list[str]]:
    return [row(each.case, report) for each in found for report in each.reports]


def beside_others(found: Sequence[Found]) -> list[list[str]]:
    """Loops of consumers beside those of FlashAttention-3."""
    made: list[list[str]] = []
    for each in found:
        theirs = FLASH_ATTENTION_3.get(each.case.title, "")
        for report in each.reports:
            if report.step is None or not report.step.warpgroups or report.others_per_score is None:
                continue
            bound = next((str(gate.bound) for gate in check(report) if "a score" in gate.name), "")
            made.append([each.case.title, f"{report.others_per_score:.2f}", bound, theirs])
    return made


def spilling(found: Sequence[Found]) -> list[list[str]]:
    return [
        [f"{each.case.title}, {each.case.arch}", entry.kernel, str(entry.registers), str(entry.spilled_bytes)]
        for each in found
        for entry in each.entries
        if entry.spilled_bytes
    ]


def markdown(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """A table of a page."""
    lines = [head, ["---"] * len(head), *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def page(chosen: Sequence[Found], given: Sequence[Found], nvcc: str) -> str:
    entries = [entry for each in (*chosen, *given) for entry in each.entries]
    spilled = spilling((*chosen, *given))
    return f"""# Machine code beside the gates

Written by `benchmarks/gates.py`: what `compiler/sass` reads from what nvcc {nvcc} makes of the printed kernels, beside
the gates of `compiler/gates/checks.py`. No GPU: nothing here is a time. Attention is made for b 4, h 16, q = x = 4096,
products for 4096 x 4096 over k, in f16.

Products and others are instructions of one warp in one turn of the main loop; `each` is others a score of a lane, or a
product where there are no scores. Of a program with two kernels for sm_90a, the one without roles takes the arrays that
tensor maps cannot.

## Sizes that the model chooses

{markdown(HEAD, rows(chosen))}

## Sizes given by hand

{markdown(HEAD, rows(given))}

## Consumers on sm_90a, beside FlashAttention-3

Others a score. Its figures are read by the same reader from its release build, made with nvcc 13.0.88.

{markdown(("", "others a score", "goal", "FlashAttention-3"), beside_others((*chosen, *given)))}

## Entries that spill

A kernel has an entry for each alignment of rows. Of the {len(entries)} entries of the programs above
{len(spilled)} spill.

{markdown(("", "entry", "registers", "bytes spilled"), spilled)}
"""


def nvcc_version(nvcc: str) -> str:
    said = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"V(\d[\d.]*)", said)
    return found[1] if found else "of an unknown version"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", action="store_true", help="show every main loop by opcode, too")
    tables = parser.parse_args().tables
    nvcc = find_nvcc()
    if nvcc is None or find_disassembler() is None:
        print("nvcc or cuobjdump was not found: nothing was measured")
        return
    chosen, given = ([read(case) for case in cases] for cases in (CHOSEN, GIVEN))
    found = [*chosen, *given]
    for each in found if tables else ():
        for report in each.reports:
            print("\n".join([each.case.title, *report_lines(report), *gate_lines(report), ""]))
    print(results.table(HEAD, rows(found)))
    data = [dict(zip(("program", *HEAD[1:]), each, strict=True)) for each in rows(found)]
    version = nvcc_version(nvcc)
    path = results.write("gates", {"nvcc": version, "kernels": data, "spilling": spilling(found)})
    path.with_suffix(".md").write_text(page(chosen, given, version), encoding="utf-8")
    print(f"written to {path}, with a page beside it")


if __name__ == "__main__":
    main()
