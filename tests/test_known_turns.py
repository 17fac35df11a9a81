"""Loops whose number of turns nvcc knows: in the text, which stay loops, and which begin with sums that are there; in
machine code, that no lane holds the elements of two turns."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from roads import compiled
from treadle.compiler.machines import load_machine
from treadle.compiler.pipeline import Options, print_cuda, run_pipeline
from treadle.compiler.source import parse_module
from treadle.dialects.cuda import kernel_names
from treadle.runtime.host import execute
from treadle.runtime.nvcc import compile_cubin, find_nvcc
from treadle.runtime.ptx.backend import PtxBackend
from treadle.runtime.verify import verify

EXAMPLES = Path(__file__).parents[1] / "examples"
HEADS = {"b": 2, "h": 3}
SHORT, LONG = HEADS | {"q": 257, "x": 257}, HEADS | {"q": 512, "x": 512}

FIXED = [
    ("attention_f8", SHORT),  # a turn, and what is left: 208 bytes
    ("attention_f8", LONG),  # 348
    ("attention_bias", SHORT),  # 48, and up to 80 for other alignments
    ("attention_bias", LONG),  # 40
    ("attention_spherical", LONG),  # 888, with products one after another
    ("attention_widths", LONG),  # 48
    ("attention", LONG),  # 112
]
"""Examples, and sizes at which ptxas had lanes hold the elements of two turns: it spilled so many bytes a thread."""


def printed(name: str, machine: str, sizes: dict[str, int]) -> str:
    module = parse_module((EXAMPLES / f"{name}.mlir").read_text(encoding="utf-8"))
    run_pipeline(module, Options(machine=machine, sizes=sizes))
    return print_cuda(module)


def settled(text: str) -> list[str]:
    return re.findall(r"^ +settle\((\w+), \w+\);$", text, re.M)


def stays(text: str) -> list[str]:
    """The heads of loops that stay loops."""
    return re.findall(r"for \(.*< .* \+ zero\w*;.*\)", text)


def test_a_loop_whose_turns_sum_for_the_next_stays_one() -> None:
    text = printed("attention_f8", "h100", LONG)
    assert stays(text) == ["for (int count = second; count < int(turns) + zero; ++count)"]
    assert not settled(text)


def test_a_turn_before_what_is_left_has_its_sums() -> None:
    """Of two turns none is the loop's."""
    text = printed("attention_f8", "h100", SHORT)
    assert settled(text) == ["l_raised_new"]
    assert text.index("settle(l_raised_new") < text.index("for (int count = second;")
    assert not stays(text)


def test_a_turn_before_turns_that_ask_for_their_sums_has_its_own() -> None:
    """Lanes vote on those; nvcc may write them out."""
    text = printed("attention_bias", "h100", LONG)
    assert "any_lane(!(l_new" in text
    assert settled(text) == ["l_new", "l_new"]  # with roles whose producer is one thread, and of lanes
    assert not stays(text)


@pytest.mark.parametrize(
    ("name", "machine", "sizes"),
    [
        ("attention", "h100", {}),  # nobody knows how many turns there are
        ("attention_causal", "h100", LONG),  # a block knows
        ("attention", "h100", HEADS | {"q": 64, "x": 16}),  # one turn
        ("attention", "a100", LONG),  # single warps multiply, and wait for it
        ("matmul", "h100", {"m": 512, "n": 512, "k": 512}),  # products add to results, lanes sum nothing
    ],
)
def test_other_loops_are_as_they_are(name: str, machine: str, sizes: dict[str, int]) -> None:
    text = printed(name, machine, sizes)
    assert not settled(text)
    assert not stays(text)


@pytest.mark.skipif(find_nvcc() is None, reason="nvcc is not installed")
@pytest.mark.parametrize(
    ("name", "sizes"), [pytest.param(*each, marks=[] if each is FIXED[0] else [pytest.mark.full]) for each in FIXED]
)
def test_turns_spill_nothing(name: str, sizes: dict[str, int]) -> None:
    """In the entries for any alignment."""
    cubin = compile_cubin(printed(name, "h100", sizes), load_machine("h100").arch)
    assert cubin.resources
    assert not {each.kernel: each.spilled_bytes for each in cubin.resources if each.spilled_bytes}
    assert not re.search(r"C75\d\d", cubin.log), cubin.log


@pytest.mark.skipif(find_nvcc() is None, reason="nvcc is not installed")
@pytest.mark.parametrize(("x", "loops", "sums"), [(257, 0, 2), (384, 2, 0)])
def test_the_machine_code_does_the_same(x: int, loops: int, sums: int) -> None:
    """The end of a loop, and a store that is never made, as nvcc understands them."""
    sizes = {"b": 1, "h": 1, "q": 64, "x": x}
    road = compiled((EXAMPLES / "attention.mlir").read_text(encoding="utf-8"), machine="h100", sizes=sizes)
    assert (len(stays(road.text)), len(settled(road.text))) == (loops, sums)
    outputs = execute(road.module, list(road.inputs(sizes)), PtxBackend(road.text, kernel_names(road.module), "sm_90a"))
    assert all(each.ok for each in verify(road.algorithm, road.inputs(sizes), outputs, "ptx", sizes=sizes))
