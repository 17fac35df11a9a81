"""The gates of attention and products, as `treadle compile --report` shows them for one program. Needs nvcc, no GPU.

python benchmarks/gates.py [--tables]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import programs
import results
from xdsl.utils.arg_spec import ArgSpec

from treadle.compiler.gates import Gate, KernelReport, check, gate_lines, report_kernels, report_lines
from treadle.compiler.pipeline import Options, pipeline, print_cuda, run_passes
from treadle.compiler.sass import disassemble, find_disassembler
from treadle.compiler.source import parse_module
from treadle.runtime.nvcc import compile_cubin, find_nvcc

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

TILES: Mapping[str, tuple[str, str]] = {
    "attention d 128, x 176": (programs.attention(128, LONG), "x=176"),
    "attention d 256, x 80": (programs.attention(256, LONG), "x=80"),
}
"""Pieces of the stream that the model does not choose."""


def reports() -> Iterator[tuple[str, KernelReport]]:
    for name, text in PROGRAMS.items():
        yield from of_program(f"{name}, sm_80", text, Options(arch="sm_80"))
    hopper = Options(arch="sm_90a")
    for name, text in (PROGRAMS | OTHERS).items():
        yield from of_program(f"{name}, sm_90a", text, hopper)
    for name, (text, stream) in TILES.items():
        yield from of_program(f"{name}, sm_90a", text, hopper, stream)


def of_program(name: str, text: str, options: Options, stream: str | None = None) -> Iterator[tuple[str, KernelReport]]:
    """Its kernels; with the pieces of the stream as they are given."""
    fixed = ArgSpec("hierarchy-choose-sizes", {"stream": (stream,)} if stream else {})
    module = parse_module(text)
    run_passes(module, [fixed if spec.name == fixed.name else spec for spec in pipeline(options)])
    cubin = compile_cubin(print_cuda(module), options.arch or "")
    for report in report_kernels(module, cubin.resources, disassemble(cubin.path)):
        yield name, report


def row(name: str, report: KernelReport) -> list[str]:
    resources, loop = report.resources, report.loop
    others = report.others_per_score or report.others_per_product
    return [
        name,
        " x ".join(str(size) for size in report.step.tile.values() if size != 1) if report.step else "",
        f"{resources.registers}" if resources else "",
        f"{resources.spilled_bytes}" if resources else "",
        f"{report.warps_on_sm}",
        f"{loop.products}" if loop else "",
        f"{loop.others}" if loop else "",
        f"{others:.2f}" if others else "",
        ", ".join(dict.fromkeys(f"{gate.name} {gate.relation} {gate.bound:g}" for gate in not_met(report))),
    ]


def not_met(report: KernelReport) -> list[Gate]:
    return [gate for gate in check(report) if not gate.ok]


HEAD = ("", "tile", "registers", "spilled", "warps/SM", "products", "others", "each", "not met")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", action="store_true", help="show every main loop by opcode, too")
    tables = parser.parse_args().tables
    if find_nvcc() is None or find_disassembler() is None:
        print("nvcc or cuobjdump was not found: nothing was measured")
        return
    found = list(reports())
    for name, report in found if tables else ():
        print("\n".join([name, *report_lines(report), *gate_lines(report), ""]))
    print(results.table(HEAD, [row(name, report) for name, report in found]))
    print("each: instructions other than products, a score of a lane, or a product where there are no scores")
    data = [dict(zip(("kernel", *HEAD[1:]), row(name, report), strict=True)) for name, report in found]
    path = results.write("gates", {"kernels": data})
    print(f"written to {path.relative_to(results.RESULTS.parent.parent)}")


if __name__ == "__main__":
    main()
