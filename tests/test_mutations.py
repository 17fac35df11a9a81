"""Every deliberate mistake in a pass is caught by running programs through it: those of the upper passes by the
interpreter (`mutant.py`), those of the lower ones by the emulator (`mutant_cuda.py`), those in the choice of sizes by
what it promises (`mutant_choice.py`), those on the ways to `linalg` and back by going both (`mutant_linalg.py`)."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import mutant
import pytest
from mutated import NOT_APPLIED, Mutator
from mutations_choice import MUTATIONS as MUTATIONS_CHOICE
from mutations_cuda import MUTATIONS as MUTATIONS_CUDA
from mutations_gradients import MUTATIONS as MUTATIONS_GRADIENTS
from mutations_linalg import MUTATIONS as MUTATIONS_LINALG

from mutations import MUTATIONS
from treadle.runtime.backend import has_host_compiler

TESTS = Path(__file__).parent
EVERY = MUTATIONS | MUTATIONS_CUDA | MUTATIONS_CHOICE | MUTATIONS_LINALG | MUTATIONS_GRADIENTS
needs_compiler = pytest.mark.skipif(not has_host_compiler(), reason="no C++ compiler is installed")


EVERY_DAY = {
    # One of each pass, in the order of the road.
    "machine: newer code runs on older machines",
    "set-sizes: results keep their sizes",
    "expand: reduces another axis",
    "chunk recurrences: no chunk knows those before",
    "raise scans: the element itself counts",
    "orders: a place in a part is one in all",
    "raise scatters: a condition beside is forgotten",
    "masks: every row has an element",
    "merge-axes: a sum of maxima is one over all",
    "ranges: one past the last is the last",
    "split depths: each part begins at the first position",
    "distribute: what is subtracted is added",
    "hoist: the guard upside down",
    "reassociate: forgets the chunk of a row",
    "bubble: a condition is asked elsewhere",
    "compose: one operand for all",
    "raise swaps: a half is where it is",
    "repeat operands: rows of no range are summed",
    "merge-reduced-axes: a quotient is a remainder",
    "tile windows: what lies outside is there",
    "copy operands: what lies apart is one axis",
    "merge-free-axes: a condition keeps its axes",
    "merge-depths: a piece counts for all",
    "transpose operands: what a condition leaves out counts",
    "widen: one operand for the other",
    "recompute: one operand for the other",
    "fusion: takes the results of a kernel for each other",
    "streaming: any axis that is asked for",
    "tiling: any axis that is asked for",
    "transpose: the kernel reads what it read",
    "join sums: begins with what is not scaled",
    "promote: in the middle of a step",
    "sharing: of one element for all",
    "choose: groups of one index",
    "split: the rest counts in every part",
    "subloop: pieces that leave a rest",
    "expand: does not save what is late",
    "approximations: reciprocals of any number",
    "approximations: a cap counts once",
    "exp2: without log2 e after a scale",
    "multiply-adds: the summand multiplies",
    "lowering: forgets the last piece",
    "roles: the second loop counts from 0",
    "pipelining: no stage of its own",
    "tensor stores: no fence",
    "cluster: a block ends before others let go of its memory",
    "persist: all pieces begin with turn 0",
    "overlap: both places are one",
    "order: pieces are left out",
    "ping-pong: nobody takes the last turn back",
    "speculation: a maximum that stays moves",
    "coalescing: no array says how it is aligned",
    "to linalg: a maximum begins with zero",
    "from linalg: forgets what a reduction begins with",
    "gradients: one factor for the other",
    # And of what several passes call.
    "common: forgets the operands",
    "streams: repairs nothing",
    "lagging: what is told from it may leave",
    "moments: one side of a product",
    "visits: least for most",
    "subloop: every piece is the first",
    "choose: the slowest first",
    "from linalg: positions along no axis",
}
"""Each in a process of its own: of those that a program meets, one that it meets soon."""


def some(mutations: Iterable[str]) -> list[Any]:
    return [pytest.param(name, marks=[] if name in EVERY_DAY else [pytest.mark.full]) for name in mutations]


def run(program: str, *name: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(TESTS / program), *name], capture_output=True, text=True, check=False)


def check(program: str, name: str) -> None:
    done = run(program, name)
    assert done.returncode != NOT_APPLIED, done.stderr
    assert done.returncode in (1, -signal.SIGFPE), f"{name}: nobody noticed"  # dividing by zero ends the process


def test_there_are_many():
    assert len(MUTATIONS) >= 40
    assert len(MUTATIONS_CUDA) >= 30
    assert len(EVERY) == sum(
        map(len, (MUTATIONS, MUTATIONS_CUDA, MUTATIONS_CHOICE, MUTATIONS_LINALG, MUTATIONS_GRADIENTS))
    )


# Where the mistakes of a pass are that has its work done elsewhere.
ELSEWHERE = {
    "convert_diagram_to_linalg": "linalg/of_diagram",
    "convert_hierarchy_to_cuda": "lowering/streams",
    "convert_linalg_to_diagram": "linalg/raising",
    "diagram_differentiate": "gradients/rules",
    "diagram_bubble_up_reads": "reads/bubble",
    "diagram_chunk_recurrences": "recurrences/bodies",
    "diagram_copy_operands": "products/copied",
    "diagram_distribute_products": "products/distributed",
    "diagram_find_ranges": "conditions/found",
    "diagram_hoist_factors": "factors/rows",
    "diagram_merge_axes": "axes/joins",
    "diagram_merge_depths": "products/pieces",
    "diagram_repeat_operands": "products/repeated",
    "diagram_merge_reduced_axes": "products/digits",
    "diagram_tile_windows": "products/tiled_windows",
    "diagram_merge_free_axes": "axes/merge",
    "diagram_raise_masks": "masks/identities",
    "diagram_raise_scans": "products/scanned",
    "diagram_raise_scatters": "products/scattered",
    "diagram_raise_swaps": "swaps/write",
    "diagram_reassociate": "products/chunked_products",
    "diagram_split_depths": "products/split",
    "diagram_split_orders": "orders/parts",
    "diagram_transpose_operands": "products/transposed_operands",
    "cuda_overlap_pieces": "grids/two_places",
    "cuda_persist": "grids/persistent",
    "cuda_ping_pong": "warps/ping_pong",
    "cuda_speculate": "speculation/rewrite",
    "hierarchy_rescale_lazily": "streams/lagging",
    "hierarchy_share_reciprocals": "printer/sharing",
    "hierarchy_split_streams": "streams/splits",
    "hierarchy_transpose_arrays": "kernels/transposed",
    "warp_specialization": "warps/specialise",
}


def test_every_pass_has_a_mistake():
    """One that is made every day; but `treadle`, which is the others in their order."""
    files = {"/".join(EVERY[name][0].rsplit("/", 2)[-2:]) for name in EVERY_DAY}
    passes = {path.stem for path in (TESTS.parent / "passes").glob("[a-z]*.py")} - {"treadle"}
    assert {each for each in passes if {each, ELSEWHERE.get(each)}.isdisjoint(files)} == set()


PARTS = 12


@pytest.mark.parametrize("part", range(PARTS))
def test_without_a_mistake_all_is_well(part: int):
    for case in mutant.in_order(None)[part::PARTS]:
        assert mutant.is_right(case), case


def test_without_a_mistake_what_no_law_allows_is_refused():
    mutant.stay_sound()
    assert mutant.refuses()


@pytest.mark.parametrize("name", some(MUTATIONS))
def test_a_mistake_is_caught(name: str):
    check("mutant.py", name)


@pytest.mark.full
def test_without_a_mistake_sizes_are_as_promised():
    done = run("mutant_choice.py")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", some(MUTATIONS_CHOICE))
def test_a_mistake_in_the_choice_is_caught(name: str):
    check("mutant_choice.py", name)


def test_without_a_mistake_programs_come_back_from_linalg():
    done = run("mutant_linalg.py")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.full
def test_without_a_mistake_gradients_are_right():
    done = run("mutant_gradients.py")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", some(MUTATIONS_GRADIENTS))
def test_a_mistake_in_gradients_is_caught(name: str):
    check("mutant_gradients.py", name)


@pytest.mark.parametrize("name", some(MUTATIONS_LINALG))
def test_a_mistake_on_the_way_to_linalg_is_caught(name: str):
    check("mutant_linalg.py", name)


@pytest.mark.full
@needs_compiler
def test_without_a_mistake_kernels_are_right():
    done = run("mutant_cuda.py")
    assert done.returncode == 0, done.stdout + done.stderr


@needs_compiler
@pytest.mark.parametrize("name", some(MUTATIONS_CUDA))
def test_a_mistake_in_a_kernel_is_caught(name: str):
    check("mutant_cuda.py", name)


@pytest.mark.parametrize("name", EVERY)
def test_a_mistake_can_be_made(name: str):
    """What a mutation changes is there, and what it puts there is Python."""
    Mutator(*EVERY[name]).check()
