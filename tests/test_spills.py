"""No entry of any example spills, whichever its arrays' alignment, made for its own sizes and for long axes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from treadle.compiler.machines import load_machine
from treadle.compiler.pipeline import Options, print_cuda, run_pipeline
from treadle.compiler.source import parse_module
from treadle.runtime.nvcc import compile_cubin, find_nvcc

EXAMPLES = Path(__file__).parents[1] / "examples"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.mlir"))
SIZES = re.compile(r"(?<=sizes = #diagram\.sizes<)[^>]*")
LONG = {"b": 2, "h": 16, "g": 8, "q": 4096, "x": 4096, "t": 16384, "row": 16384, "v": 32000} | dict.fromkeys(
    ("m", "n", "k", "i", "j", "o", "c", "e", "l", "f", "p", "r"), 4096
)
"""Of axes by name; others, and what is longer as stated, stay as they are stated."""
EVERY_DAY = ("gated_linear_attention", "h100", "stated")

KNOWN = {
    ("attention_backward", "a100", "long"): 244,  # where a block is, which it needs again behind its loops
    ("attention_backward", "h100", "long"): 16,  # of the kernel with roles
    ("attention_dropout", "h100", "long"): 40,  # of consumers beside a producer whose lanes copy
    ("attention_f8", "h100", "long"): 8,  # of the kernel beside, without roles
    ("attention_int8_cache", "h100", "long"): 380,  # of consumers beside a producer whose lanes copy
    ("attention_packed", "a100", "long"): 112,  # any strides
    ("attention_segments", "h100", "long"): 316,  # of consumers beside a producer whose lanes copy
    ("attention_stick_breaking", "h100", "long"): 800,  # of consumers, where lanes copy
    ("attention_window", "a100", "long"): 24,  # rows aligned to 16 bytes, and to 4
    ("gated_linear_attention", "a100", "stated"): 124,  # rows that are not aligned
    ("gated_linear_attention", "a100", "long"): 100,  # any strides
    ("gated_linear_attention", "h100", "long"): 100,  # any strides
    ("linear_attention", "a100", "long"): 16,
    ("lora", "h100", "long"): 432,  # any strides
    ("matmul_int8_nn", "a100", "stated"): 20,
    ("matmul_int8_nn", "h100", "stated"): 8,
    ("matmul_residual", "h100", "long"): 16,  # of consumers, X at any strides
}
"""Bytes that ptxas 13.0 still spills, at most in any entry."""


def made_for(text: str, sizes: str) -> str:
    """A program with other sizes to be made for."""
    if sizes == "stated":
        return text
    found = SIZES.search(text)
    assert found is not None
    stated = [each.split(" = ") for each in found[0].split(", ")]
    longer = {axis: max(int(size), LONG.get(axis, 0)) for axis, size in stated}
    return SIZES.sub(", ".join(f"{axis} = {size}" for axis, size in longer.items()), text)


CASES = [(name, machine, sizes) for name in NAMES for machine in ("a100", "h100") for sizes in ("stated", "long")]


@pytest.mark.skipif(find_nvcc() is None, reason="nvcc is not installed")
@pytest.mark.parametrize(
    ("name", "machine", "sizes"),
    [pytest.param(*case, marks=[] if case == EVERY_DAY else [pytest.mark.full]) for case in CASES],
)
def test_no_entry_of_an_example_spills(name: str, machine: str, sizes: str) -> None:
    module = parse_module(made_for((EXAMPLES / f"{name}.mlir").read_text(encoding="utf-8"), sizes))
    run_pipeline(module, Options(machine=machine))
    found = compile_cubin(print_cuda(module), load_machine(machine).arch).resources
    assert found
    known = KNOWN.get((name, machine, sizes), 0)
    assert not {each.kernel: each.spilled_bytes for each in found if each.spilled_bytes > known}
