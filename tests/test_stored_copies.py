"""Rows aligned to less than lanes copy by `cp.async`, or whose elements are no neighbours: the producer's lanes load
elements and store them where products of warpgroups read, several on their way together, on an H100."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import numpy as np
import pytest

from benchmarking import benchmark
from roads import Road, alone, compiled
from treadle.dialects import cuda
from treadle.runtime.backend import has_host_compiler
from treadle.runtime.emulator import EmulationError
from treadle.runtime.emulator.backend import EmulatorBackend
from treadle.runtime.host import execute
from treadle.runtime.nvcc import compile_cubin, find_nvcc
from treadle.runtime.ptx.backend import PtxBackend
from treadle.runtime.verify import verify

programs = benchmark("programs")
needs_compiler = pytest.mark.skipif(not has_host_compiler(), reason="no C++ compiler is installed")
LONG = {"b": 4, "h": 16, "q": 4096, "x": 4096}
SIZES = {"b": 1, "h": 1, "q": 70, "x": 333}


@cache
def attention(width: int, example: str = "attention") -> Road:
    return compiled(programs.attention(width, LONG, example=example), machine="h100")


def odd(array: Any) -> Any:
    """Rows that are one element further apart: every other one begins between words."""
    return np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, 1)])[..., :-1] if np.ndim(array) else array


def touching(array: Any) -> Any:
    """Rows that follow each other without a gap, from between two words on."""
    flat = np.empty(np.size(array) + 1, np.asarray(array).dtype)[1:]
    flat[:] = np.ravel(array)
    return flat.reshape(np.shape(array)) if np.ndim(array) else array


def strided(array: Any) -> Any:
    """Every second element of a row."""
    return np.repeat(array, 2, axis=-1)[..., ::2] if np.ndim(array) else array


@needs_compiler
@pytest.mark.parametrize("view", [odd, strided])
@pytest.mark.parametrize(("width", "example"), [(64, "attention"), (128, "attention"), (64, "attention_causal")])
def test_attention(width: int, example: str, view: Any) -> None:
    """Three warpgroups, of heads of 64, have room beside lanes that copy in steps of 96 keys."""
    road = attention(width, example)
    for verdict in road.verdicts([view(each) for each in road.inputs(SIZES)], SIZES):
        assert verdict.ok, verdict
    assert {name.rpartition("kernel_")[2] for name in road.backend().variants} == {"by_lanes_strided"}


@needs_compiler
def test_products() -> None:
    road = compiled(programs.matmul({"m": 4096, "n": 4096, "k": 4096}), machine="h100")
    for sizes in ({"m": 130, "n": 257, "k": 201}, {"m": 1, "n": 1, "k": 1}):
        for verdict in road.verdicts([odd(each) for each in road.inputs(sizes)], sizes):
            assert verdict.ok, verdict


@needs_compiler
@pytest.mark.parametrize("first", range(1, 20, 5))
def test_data_may_arrive_in_any_order(first: int) -> None:
    road = attention(128)
    inputs = [odd(each) for each in road.inputs(SIZES)]
    seeds = (0, *range(first, first + 5))
    backends = [EmulatorBackend(road.text, cuda.kernel_names(road.module), seed=seed) for seed in seeds]
    assert len({execute(road.module, inputs, backend)[0].tobytes() for backend in backends}) == 1


FAULTS = {
    "products may not read what lanes stored": (r"fence_proxy_async\(\);  // products", ";  // products"),
    "stores are not followed by an arrival": (r"else mbarrier_arrive\(&K_ring[^;]*;", "else ;"),
    "no wait for the stage": (r"mbarrier_wait\(&K_ring\[2 \+[^;]*;", ";"),
    "a load behind the array": (r"\{0, at_most\((\d+), x - x_full\)\}", r"{0, \1}"),
    "columns that are not the array's": (r"\{0, 128\}, (K_x)", r"{0, 120}, \1"),
    "rows of another place in a box": (
        r"in_box_rows(<[^>]*>\(at_line\[i\], )at_place\[i\]",
        r"in_box_rows\1(at_place[i] ^ 8)",
    ),
    "lanes leave places out": (r"order\.next\(\);", "order.next(), order.next();"),
    "rows further down": (r"advance\(from, UNIT \* stride", "advance(from, UNIT * stride + 1"),
    "the tail of the last row": (r"LINES \+ is_split", "LINES"),
}


@needs_compiler
@pytest.mark.sample(4)
@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_is_caught(fault: str) -> None:
    road, sizes = attention(128), SIZES | {"q": 64}
    given = tuple(touching(each) for each in road.inputs(sizes))
    changed, count = re.subn(*FAULTS[fault], road.text)
    assert count
    for seed in (0, 1, 2):
        backend = EmulatorBackend(changed, cuda.kernel_names(road.module), seed=seed)
        try:
            outputs = execute(road.module, [*given], backend)
        except EmulationError:
            return
        if not all(each.ok for each in verify(road.algorithm, given, outputs, "emulator", sizes=sizes)):
            return
    raise AssertionError("nothing was noticed")


@pytest.mark.skipif(find_nvcc() is None, reason="nvcc is not installed")
@pytest.mark.full
def test_machine_code_spills_nothing() -> None:
    """On an ordinary day kernels whose lanes copy pages are asked for that (tests/test_road_nvcc.py)."""
    found = compile_cubin(attention(128).text, "sm_90a").resources
    assert not any(each.spilled_bytes or each.product_notes for each in found)


@pytest.mark.skipif(find_nvcc() is None, reason="nvcc is not installed")
def test_machine_code_does_the_same() -> None:
    road, sizes = attention(128), {"b": 1, "h": 1, "q": 20, "x": 170}
    inputs = [odd(each) for each in road.inputs(sizes)]
    launched = alone(road.text, "_by_lanes_strided")
    outputs = execute(road.module, inputs, PtxBackend(launched, cuda.kernel_names(road.module), "sm_90a"))
    assert all(each.ok for each in verify(road.algorithm, inputs, outputs, "ptx", sizes=sizes))
