"""What a warp must do as one: the emulator finds lanes that do otherwise, whatever the order they run in.

`bar.sync` is `.aligned`: all lanes of a warp execute it, or none (PTX ISA 9.7.13.1).
"""

from __future__ import annotations

import os
import re
import shutil

import numpy as np
import pytest

from treadle.compiler.primitives import primitive_names, source
from treadle.runtime.emulator import Array, EmulationError, compile_source

COMPILER = os.environ.get("CXX") or next(filter(shutil.which, ("g++", "clang++", "c++")), "")
pytestmark = pytest.mark.skipif(not COMPILER, reason="no C++ compiler is installed")
SEEDS = (0, 1, 2, 3)
PRIMITIVES = source(primitive_names("sm_90a"))


def run(body: str, seed: int, threads: int = 64) -> None:
    """Runs a kernel with this body; `p` has a float for each thread, `s` is shared memory."""
    head = (
        "__global__ void kernel(float* p) { const int t = threadIdx.x; "
        "float* s = reinterpret_cast<float*>(shared_memory()); (void)s;"
    )
    module = compile_source(f"{PRIMITIVES}{head}{body}\n}}\n", ["kernel"])
    out = Array(np.zeros(threads, np.float32), True)
    module.launch("kernel", (1, 1, 1), (threads, 1, 1), 1024, [out], seed=seed)


# Each: what is wrong, of what kind that is, what the fault says, the correct twin.
WRONG = {
    "half of a warp goes past": (
        "store_shared(s + t, 1.0f); if (t % 2 == 0) barrier_block(); store_global(p + t, load_shared(s + t));",
        "missing lanes",
        r"barrier_block needs all living lanes of a warp, but threads 1, 3, .* returned without it",
        "store_shared(s + t, 1.0f); barrier_block(); if (t % 2 == 0) store_global(p + t, load_shared(s + t));",
    ),
    "one lane of the second warp goes past": (
        "if (t != 40) barrier_block(); store_global(p + t, 1.0f);",
        "missing lanes",
        r"but thread 40 returned without it",
        "barrier_block(); if (t != 40) store_global(p + t, 1.0f);",
    ),
    "a lane returns where others may come": (
        "if (t == 3) return; barrier_block();",
        "missing lanes",
        r"but thread 3 returned without it",
        "if (t == 3) return; barrier_warp(); barrier_block();",
    ),
    "some lanes take one turn more": (
        "for (int i = t % 2; i < 2; ++i) barrier_block();",
        "missing lanes",
        r"but threads 1, 3, .* returned without it",
        "for (int i = t / 32 % 1; i < 2; ++i) barrier_block();",
    ),
    "two barriers on a line": (
        "if (t % 2) barrier_block(); else barrier_block();",
        "divergence",
        r"threads 0, 2, .* wait at barrier_block on line \d+ for .*; threads 1, 3, .* wait at barrier_block",
        "if (t / 32) barrier_block(); else barrier_block();",
    ),
    "two shuffles on a line": (
        "float x = t; if (t % 2) x = shuffle_xor(x, 2); else x = shuffle_xor(x, 4); store_global(p + t, x);",
        "divergence",
        r"threads 0, 2, .* wait at shuffle_xor on line \d+ for .*; threads 1, 3, .* wait at shuffle_xor",
        "float x = t; x = shuffle_xor(x, t % 2 ? 2 : 4); store_global(p + t, x);",
    ),
    "two named barriers on a line": (
        "if (t % 2) barrier_named<1>(64); else barrier_named<1>(64);",
        "divergence",
        r"wait at barrier_named on line \d+",
        "if (t < 32) barrier_named<1>(64); else barrier_named<1>(64);",
    ),
    "the block barrier's name": (
        "barrier_numbered(0, 64);",
        "barrier",
        r"named barrier 0: names are 1 to 15, 0 is barrier_block's",
        "barrier_numbered(1, 64);",
    ),
    "the block barrier's name, and no wait": (
        "if (t < 32) barrier_numbered_arrive(0, 64); else barrier_numbered(0, 64);",
        "barrier",
        r"named barrier 0: names are 1 to 15, 0 is barrier_block's",
        "if (t < 32) barrier_numbered_arrive(15, 64); else barrier_numbered(15, 64);",
    ),
    "a name that is no number of a barrier": (
        "barrier_numbered(65537, 64);",
        "barrier",
        r"named barrier 32767: names are 1 to 15",
        "barrier_numbered(15, 64);",
    ),
    "a negative name": (
        "barrier_numbered(-1, 64);",
        "barrier",
        r"named barrier 32767: names are 1 to 15",
        "barrier_numbered(2, 64);",
    ),
    "more threads than fit": (
        "barrier_numbered(1, 65536 + 64);",
        "barrier",
        r"32767 threads are to come to a named barrier: it counts whole warps",
        "barrier_numbered(1, 64);",
    ),
    "lanes that give two names": (
        "barrier_numbered(1 + t % 2, 64);",
        "divergence",
        r"barrier_named is one instruction of all lanes: thread \d+ says barrier 2 for 64 threads, thread \d+ says "
        r"barrier 1 for 64 threads",
        "barrier_numbered(1 + t / 32, 32);",
    ),
    "lanes that count otherwise": (
        "barrier_numbered(1, t % 2 ? 32 : 64);",
        "divergence",
        r"barrier_named is one instruction of all lanes: thread \d+ says barrier 1 for 32 threads",
        "barrier_numbered(1, blockDim.x);",
    ),
    "a number that lanes do not share": (
        "store_global(p + t, float(uniform(t / 16)));",
        "divergence",
        r"uniform is one instruction of all lanes: thread \d+ says \d, thread \d+ says \d",
        "store_global(p + t, float(uniform(t / 32)));",
    ),
    "a number that some lanes do not give": (
        "if (t % 2) return; store_global(p + t, float(uniform(3)));",
        "missing lanes",
        r"uniform",
        "store_global(p + t, float(uniform(3)));",
    ),
    "lanes that arrive at two barriers": (
        "if (t < 32) barrier_numbered_arrive(1 + t % 2, 64); else barrier_numbered(1, 64);",
        "divergence",
        r"barrier_named_arrive is one instruction of all lanes",
        "if (t < 32) barrier_numbered_arrive(1, 64); else barrier_numbered(1, 64);",
    ),
}


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("seed", SEEDS)
def test_lanes_that_do_not_act_as_one(what: str, seed: int) -> None:
    wrong, kind, message, _ = WRONG[what]
    with pytest.raises(EmulationError) as caught:
        run(wrong, seed)
    # What goes on after too many threads are counted may wait for ever: that is said as well.
    assert {fault.kind for fault in caught.value.faults} - {"deadlock"} == {kind}
    assert any(re.search(message, fault.message) for fault in caught.value.faults)


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("seed", SEEDS)
def test_their_correct_twins(what: str, seed: int) -> None:
    run(WRONG[what][3], seed)


@pytest.mark.parametrize("threads", [40, 64, 96])
@pytest.mark.parametrize("seed", SEEDS)
def test_warps_at_the_barriers_of_loops(threads: int, seed: int) -> None:
    """A last warp may have few lanes; a call in a function is one call, from wherever that is called."""
    body = "auto meet = [] { barrier_block(); }; for (int i = 0; i < 3; ++i) { if (i == t / 32) meet(); else meet(); }"
    run(f"{body} store_global(p + t, 1.0f);", seed, threads)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_warp_may_return_as_a_whole(seed: int) -> None:
    run("if (t >= 32) return; barrier_block(); store_global(p + t, 1.0f); barrier_block();", seed)
