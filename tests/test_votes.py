"""What the lanes of a warp answer together: printed, run in the emulator, and alike on the machine of PTX."""

from __future__ import annotations

import ctypes
import re
import shutil
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ptx_bodies import run

from treadle.compiler.pipeline import print_cuda
from treadle.compiler.source import parse_module
from treadle.runtime.backend import has_host_compiler
from treadle.runtime.emulator import Array, EmulatedModule, EmulationError, compile_source
from treadle.runtime.ptx.errors import PtxFault

needs_compiler = pytest.mark.skipif(not has_host_compiler(), reason="no C++ compiler is installed")
WARPS, LANES, EACH = 3, 32, 2
KERNEL = """
!A = memref<?xf32, strided<[1], offset: ?>, #diagram.array<[q], level = device>>
!a = tensor<192xf32, #diagram.array<[q], level = register,
  layout = #cuda.layout<register = [q:2:1], lane = [q:32:2], warp = [q:3:64]>>>
cuda.kernel @asks (%A: !A, %B: !A) threads 96 shared 0 {
  %zero = arith.constant 0 : index
  %a = cuda.load %A[%zero] widths [1] : !A -> !a
  %grown = cuda.exceeds %a limit LIMIT : !a
  scf.if %grown {
    %one = diagram.fill 1.0 : f32 -> !a
    cuda.store %one into %B[%zero] widths [1] : !a, !A
  }
}
"""


def printed(limit: float = 256.0) -> str:
    return print_cuda(parse_module(KERNEL.replace("LIMIT", repr(limit))))


@cache
def made() -> EmulatedModule:
    return compile_source(printed(), ["asks"])


def answers(values: np.ndarray, module: EmulatedModule | None = None) -> np.ndarray:
    """What each lane of each warp is told."""
    result = np.zeros_like(values)
    stride = ctypes.c_int64(1)
    arguments = [Array(values, writable=False), stride, Array(result, writable=True), stride]
    (module or made()).launch("asks", (1, 1, 1), (WARPS * LANES, 1, 1), 0, arguments)
    return result.reshape(WARPS, LANES * EACH)


def test_every_element_is_compared() -> None:
    assert re.search(
        r"const bool grown = any_lane\(!\((\w+)\[0\] <= 256\.0f\) \|\| !\(\1\[1\] <= 256\.0f\)\);", printed()
    )
    assert "!(a[0] <= -0.5f)" in printed(-0.5)


@needs_compiler
@pytest.mark.parametrize("number", [256.0, -np.inf, 0.0, -1e30])
def test_what_is_not_above_the_limit(number: float) -> None:
    assert not answers(np.full(WARPS * LANES * EACH, number, np.float32)).any()


@needs_compiler
@pytest.mark.parametrize("number", [np.nextafter(np.float32(256), np.float32(257)), 1e30, np.inf, np.nan, -np.nan])
@pytest.mark.parametrize("place", [0, 1, 63, 64, 100, 191])
def test_one_element_decides_for_its_warp(number: float, place: int) -> None:
    values = np.zeros(WARPS * LANES * EACH, np.float32)
    values[place] = number
    assert (answers(values) == (np.arange(WARPS) == place // (LANES * EACH))[:, None]).all()


NUMBERS = st.sampled_from([0.0, 256.0, 256.5, 1e-40, -1e30, 3e38, np.inf, -np.inf, np.nan])
PLACES = st.integers(0, WARPS * LANES * EACH - 1)


@needs_compiler
@settings(deadline=None)
@given(st.lists(st.tuples(PLACES, NUMBERS), max_size=5))
def test_any_elements(found: list[tuple[int, float]]) -> None:
    values = np.zeros(WARPS * LANES * EACH, np.float32)
    for place, number in found:
        values[place] = number
    within = np.all(values.reshape(WARPS, -1) <= 256, axis=1, keepdims=True)
    assert (answers(values) == ~within).all()


@needs_compiler
def test_a_lane_that_has_returned_is_missed() -> None:
    text, count = re.subn(r"(?m)^.*any_lane\(!", r"  if (lane == 3) return;\n\g<0>", printed())
    assert count == 1
    with pytest.raises(EmulationError, match=r"any_lane needs all 32 lanes of the warp, but threads? 3"):
        answers(np.zeros(WARPS * LANES * EACH, np.float32), compile_source(text, ["asks"]))


@needs_compiler
def test_lanes_that_do_not_ask_are_waited_for() -> None:
    text, count = re.subn(r"any_lane\(!", r"lane < 5 ? false : any_lane(!", printed())
    assert count == 1
    with pytest.raises(EmulationError, match="any_lane"):
        answers(np.zeros(WARPS * LANES * EACH, np.float32), compile_source(text, ["asks"]))


# -- the machine of PTX -------------------------------------------------------------------------------

ASK = "vote.sync.any.pred %p2, %p1, {mask}; selp.u32 %r9, 1, 0, %p2;"
STORE = "mul.wide.u32 %d1, %tid, 4; add.s64 %d1, %out, %d1; st.global.u32 [%d1], %r9;"


@pytest.mark.parametrize(("asked", "told"), [("setp.eq.u32 %p1, %tid, 40;", 1), ("setp.lt.u32 %p1, %tid, 32;", 0)])
def test_a_vote_is_of_a_warp(asked: str, told: int) -> None:
    result = run(f"{asked} {ASK.format(mask=-1)} {STORE}", np.zeros(64, np.int32), threads=64)
    assert result.reshape(2, 32).tolist() == [[int(warp == told)] * 32 for warp in range(2)]


def test_a_vote_waits_for_its_warp() -> None:
    body = f"""setp.eq.u32 %p1, %tid, 3; setp.lt.u32 %p3, %tid, 7; @%p3 bra MEET; mov.u32 %r1, 1;
    MEET: {ASK.format(mask=-1)} {STORE}"""
    assert run(body, np.zeros(32, np.int32)).tolist() == [1] * 32


def test_half_a_warp_may_vote() -> None:
    body = f"""setp.eq.u32 %p1, %tid, 20; setp.ge.u32 %p3, %tid, 16; @%p3 ret;
    {ASK.format(mask="0xffff")} {STORE}"""
    assert run(body, np.full(32, 7, np.int32)).tolist() == [0] * 16 + [7] * 16


def test_who_is_named_has_to_vote() -> None:
    body = f"setp.ge.u32 %p1, %tid, 16; @%p1 bra OTHER; {ASK.format(mask=-1)} ret; OTHER: bar.warp.sync -1;"
    with pytest.raises(PtxFault, match=r"(?s)16 wait for others of their warps.*vote\.sync"):
        run(body, np.zeros(32, np.int32))


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
def test_nvcc_makes_one_vote_of_it() -> None:
    from treadle.runtime.nvcc import compile_ptx

    assert len(re.findall(r"vote\.sync\.any\.pred", compile_ptx(printed(), "sm_90a"))) == 1
