"""Kernels for an H100 as the PTX that nvcc makes of them, run by the PTX machine: every example, and what the examples
at their own sizes leave out, against the reference."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import pytest
import test_clusters
import test_clusters_along
import test_finish
import test_hopper_roles
import test_overlap_pieces
import test_persistent
import test_ping_pong
import test_promoted_sums
import test_rows_clusters
from test_examples import EXAMPLES, odd_sizes
from xdsl.dialects.builtin import ModuleOp

from benchmarking import benchmark
from roads import Road, alone, compiled, matmul
from treadle.compiler.sizes import default_sizes
from treadle.compiler.source import parse_module
from treadle.dialects.cuda import kernel_names
from treadle.runtime.host import HostExecution
from treadle.runtime.inputs import axis_sizes, make_inputs
from treadle.runtime.interpreter import entry_function
from treadle.runtime.nvcc import find_nvcc
from treadle.runtime.ptx.backend import PtxBackend
from treadle.runtime.ptx.errors import PtxFault
from treadle.runtime.verify import verify

pytestmark = pytest.mark.skipif(find_nvcc() is None, reason="nvcc is not installed")
programs = benchmark("programs")
FOLDER = Path(__file__).parents[1] / "examples"

Made = tuple[ModuleOp, ModuleOp, str]


class Makes(Protocol):
    """Makes a program, its module for an H100, and the printed file."""

    def __call__(self) -> Made: ...


class Wrong(Exception):
    """A result is not what the reference says."""


def launched(made: Made, sizes: Mapping[str, int], seed: int = 0) -> list[str]:
    """The kernels that were launched; their results hold against the reference (Wrong, PtxFault)."""
    algorithm, module, printed = made
    function = entry_function(algorithm)
    inputs = make_inputs(function, axis_sizes(function, sizes), seed)
    plain: list[Any] = [given if hasattr(given, "shape") and given.shape else _number(given) for given in inputs]
    execution = HostExecution(module, PtxBackend(printed, kernel_names(module), "sm_90a", seed=seed))
    outputs = execution.run(entry_function(module), plain)
    for verdict in verify(algorithm, inputs, outputs, "ptx", sizes=sizes):
        if not verdict.ok:
            raise Wrong(f"{dict(sizes)}: {verdict}")
    return [launch.kernel for launch in execution.launches]


def _number(given: Any) -> Any:
    return given.item() if hasattr(given, "item") else given


def of(road: Road) -> Made:
    return road.algorithm, road.module, road.text


def example(name: str) -> Made:
    return of(compiled((FOLDER / f"{name}.mlir").read_text(encoding="utf-8"), machine="h100"))


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", EXAMPLES)
def test_examples(name: str) -> None:
    made = example(name)
    launched(made, default_sizes(entry_function(made[0])))


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_at_odd_sizes(name: str) -> None:
    launched(example(name), odd_sizes(name, 0), seed=1)


@dataclass(frozen=True)
class Case:
    """A program whose kernel has something that others have not; `kernel` ends the name of what is launched."""

    make: Makes
    sizes: Mapping[str, int]
    kernel: str = "_specialised"

    def made(self) -> Made:
        algorithm, module, printed = self.make()
        return algorithm, module, alone(printed, rf"{self.kernel}(_aligned_\d+)?")


def attention(width: int, example: str = "attention") -> Made:
    return test_hopper_roles.made(programs.attention(width, example=example))


def product(name: str) -> Made:
    return test_hopper_roles.made((FOLDER / f"{name}.mlir").read_text(encoding="utf-8"))


def ping_pong(text: str) -> Made:
    return parse_module(text), test_ping_pong.made(text), test_ping_pong.printed(text)


def along(name: str) -> Made:
    text, sides, _ = test_clusters_along.PROGRAMS[name]
    return test_clusters_along.made_along(text, sides)


def promoted() -> Made:
    return of(test_promoted_sums.product(128))


def rows() -> Made:
    return of(test_rows_clusters.of_clusters("softmax", 65537))


def tf32() -> Made:
    return of(compiled(matmul("mk", "nk", "f32", tf32=True), machine="h100"))


SHORT = {"b": 1, "h": 2, "q": 70, "x": 200}
CLUSTERS = "_specialised_clusters"
CASES = {
    "heads of 16": Case(partial(attention, 16), SHORT),
    "heads of 80": Case(partial(attention, 80), SHORT),
    "heads of 96": Case(partial(attention, 96), SHORT),
    "heads of 128": Case(partial(attention, 128), SHORT),
    "heads of 256": Case(partial(attention, 256), SHORT),
    "bf16": Case(partial(attention, 128, "attention_bf16"), {"b": 2, "q": 70, "x": 200}),
    # Values lie along the keys, so that rows of 8-bit numbers are multiples of 16 bytes where keys are of 16.
    "8 bits, heads of 128": Case(partial(attention, 128, example="attention_f8"), SHORT | {"x": 208}),
    "mixed, heads of 128": Case(partial(attention, 128, example="attention_mixed"), SHORT),
    "causal": Case(partial(attention, 128, example="attention_causal"), SHORT | {"x": 333}),
    "window": Case(partial(attention, 64, example="attention_window"), {"b": 1, "q": 200, "x": 333}),
    "one key": Case(partial(attention, 64), {"b": 1, "h": 1, "q": 1, "x": 1}),
    "no keys": Case(partial(attention, 64), {"b": 1, "h": 1, "q": 64, "x": 0}, "_by_lanes"),
    "A and B as they are": Case(partial(product, "matmul"), {"m": 200, "n": 136, "k": 336}),
    "B transposed": Case(partial(product, "matmul_nt"), {"m": 72, "n": 264, "k": 40}),
    "A transposed": Case(partial(product, "matmul_tn"), {"m": 200, "n": 136, "k": 72}),
    "both transposed": Case(partial(product, "matmul_tt"), {"m": 136, "n": 72, "k": 200}),
    "promoted sums": Case(promoted, {"m": 70, "n": 48, "k": 272}),
    "ping-pong": Case(partial(ping_pong, test_ping_pong.FULL), {"b": 1, "h": 1, "q": 130, "x": 200}),
    "ping-pong, causal": Case(partial(ping_pong, test_ping_pong.CAUSAL), {"b": 1, "h": 1, "q": 200, "x": 200}),
    "blocks that take pieces": Case(
        partial(test_persistent.made, test_persistent.ATTENTION), {"b": 1, "h": 2, "q": 300, "x": 136}
    ),
    "products that take pieces": Case(
        partial(test_persistent.made, test_persistent.PRODUCT), {"m": 300, "n": 520, "k": 136}
    ),
    "pieces that overlap": Case(
        partial(test_persistent.made, test_overlap_pieces.CAUSAL), {"b": 1, "h": 2, "q": 300, "x": 300}
    ),
    "clusters of two": Case(
        partial(test_clusters.made, test_clusters.PRODUCT), {"m": 256, "n": 512, "k": 200}, CLUSTERS
    ),
    "attention in clusters": Case(
        partial(test_clusters.made, test_clusters.ATTENTION), {"b": 1, "h": 1, "q": 250, "x": 136}, CLUSTERS
    ),
    "clusters along both sides": Case(
        partial(along, "product along m and n"), {"m": 512, "n": 512, "k": 136}, CLUSTERS
    ),
    "grouped heads in clusters": Case(
        partial(along, "grouped heads along those that share"), {"b": 1, "h": 1, "g": 2, "q": 130, "x": 100}, CLUSTERS
    ),
    "rows in clusters": Case(rows, {"row": 2}, "_rows_kernel_strided"),
    "a residual in pieces": Case(
        partial(test_finish.made, "matmul_residual", "sm_90a", test_finish.WIDE), {"t": 131, "j": 72, "i": 264}
    ),
    "two results": Case(
        partial(test_finish.made, "two_results", "sm_90a", test_finish.WIDE), {"t": 60, "j": 40, "i": 264}
    ),
    "products of f32": Case(tf32, {"m": 70, "n": 40, "k": 36}, "_kernel"),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", CASES)
def test_kernels_of_every_kind(name: str) -> None:
    case = CASES[name]
    (kernel,) = launched(case.made(), case.sizes)
    assert kernel.partition("_aligned_")[0].endswith(case.kernel)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(1, 4))
@pytest.mark.parametrize(
    "name", ["causal", "pieces that overlap", "B transposed", "clusters of two", "a residual in pieces"]
)
def test_any_order(name: str, seed: int) -> None:
    """Other warps go first, and what is asynchronous is done at other moments. On an ordinary day the emulator has them
    in twenty orders (tests/test_hopper_roles.py), and the PTX machine in one."""
    case = CASES[name]
    launched(case.made(), case.sizes, seed)


UNSEEN = {
    "barriers are not fenced",
    "nobody waits for the barriers",
    "the left operand is made after the fence",
}
"""Orders of memory and of registers, which the machine keeps whether they are asked for or not, or breaks for few seeds
only: those are the emulator's to find."""


@pytest.mark.sample(2)
@pytest.mark.parametrize("fault", sorted(set(test_hopper_roles.FAULTS) - UNSEEN))
def test_every_fault_shows(fault: str) -> None:
    """Those that the emulator has to notice, in the text that nvcc compiles."""
    text, sizes = programs.attention(64, {"q": 128, "x": 8192}), {"b": 1, "h": 1, "q": 128, "x": 1700}
    algorithm, module, printed = test_hopper_roles.made(text)
    printed = alone(printed)
    at = test_hopper_roles.start_of_roles(printed)
    changed, count = re.subn(*test_hopper_roles.FAULTS[fault], printed[at:], count=1, flags=re.S)
    assert count == 1
    for seed in range(3):
        try:
            launched((algorithm, module, printed[:at] + changed), sizes, seed)
        except (Wrong, PtxFault):
            return
    raise AssertionError("nothing was noticed")
