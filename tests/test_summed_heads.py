"""Products of many heads with one array, summed over the heads: a step takes one head, a product of matrices."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import test_counts
from xdsl.dialects.builtin import ModuleOp

import treadle
import treadle.language as tl
from roads import compiled
from treadle.estimated import estimate
from treadle.runtime.backend import has_host_compiler

PROGRAM = Path(__file__).parent / "programs" / "summed_heads.mlir"
LARGE = {"q": 4096, "x": 32768, "h": 64}

needs_compiler = pytest.mark.skipif(not has_host_compiler(), reason="no C++ compiler is installed")


def test_rows_and_columns_lie_along_axes_of_the_result() -> None:
    """Not along the heads, which would leave one query to a group, whose keys it reads again: 2.96 ms by the model, for
    tensor cores take 1.1 ms of f16."""
    kernel = treadle.compile(PROGRAM, machine="h100", sizes=LARGE)
    *_, group = re.findall(r"hierarchy.group \[q = (\d+), x = (\d+)\]", kernel.hierarchy)
    assert min(map(int, group)) >= 64
    assert kernel.hierarchy.count("hierarchy.stream [h = 1]") == 1
    assert kernel.cost().time_us < 1600


def test_the_model_decides() -> None:
    """Warps of an A100 have no room for the sums of large tiles: 4.5 ms by heads, 5.2 one by one."""
    kernel = treadle.compile(PROGRAM, machine="a100", sizes=LARGE)
    assert "hierarchy.stream [h = 1]" not in kernel.hierarchy
    assert kernel.cost().time_us < 4700


@pytest.mark.parametrize(("heads", "depth", "most"), [(3, 32, 95), (8, 64, 190)])
def test_few_heads_are_one_kernel(heads: int, depth: int, most: float) -> None:
    """Which were kept apart as few columns: 1046 and 2650 us on an H100."""
    found = estimate(_traced(heads, depth, 4096), machine="h100")
    assert found.kernels == 1
    assert found.time_us is not None
    assert found.time_us < most


def test_few_queries_keep_columns_along_the_heads() -> None:
    """Rows of one query fill no tile."""
    kernel = treadle.compile(_traced(64, 64, 1), machine="h100")
    assert "hierarchy.stream [h = 1]" not in kernel.hierarchy


def test_what_a_softmax_divides_is_streamed_by_pieces() -> None:
    """Each index would repair all sums: a stream of which reductions need each other has columns along it."""

    def pooled(Q: tl.Array, K: tl.Array) -> tl.Array:
        scores = tl.contract(Q, K, over="d")
        return tl.sum(tl.softmax(scores, over="h") * scores, over="h").to("f16")

    made = treadle.kernel("q h d, x d -> q x", machine="h100", static="d")(pooled)
    kernel = treadle.compile(made.trace(["f16", "f16"], {"q": 512, "x": 512, "h": 64, "d": 64}, ["d"]), machine="h100")
    assert "hierarchy.stream [h = 1]" not in kernel.hierarchy


@needs_compiler
@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("stated", [{}, LARGE], ids=["small", "large"])
def test_any_sizes(machine: str, stated: dict[str, int]) -> None:
    text = PROGRAM.read_text()
    if stated:
        text = text.replace("q = 70, x = 100, h = 5", ", ".join(f"{axis} = {size}" for axis, size in stated.items()))
    road = compiled(text, machine=machine)
    for q, x, h in ((70, 133, 5), (1, 9, 1), (129, 1, 2), (5, 3, 0), (0, 4, 2)):
        road.check({"q": q, "x": x, "h": h})


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few heads: the emulator multiplies two matrices for each."""
    sizes = {"dividing": {"q": 128, "x": 128, "h": 4}, "odd": {"q": 67, "x": 133, "h": 3}}
    monkeypatch.setattr(test_counts, "sizes", lambda path, kind: sizes[kind])


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("kind", ["dividing", "odd"])
def test_counts_are_what_is_predicted(kind: str) -> None:
    test_counts.test_interpreter_counts_what_is_predicted(PROGRAM, kind)


@needs_compiler
@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("kind", ["dividing", "odd"])
def test_printed_c_moves_what_is_predicted(kind: str) -> None:
    test_counts.test_emulator_counts_what_is_predicted(PROGRAM, kind)


def _traced(heads: int, depth: int, queries: int) -> ModuleOp:
    def index(Q: tl.Array, K: tl.Array, W: tl.Array) -> tl.Array:
        return tl.sum(tl.maximum(tl.contract(Q, K, over="d"), 0.0) * W, over="h").to("f16")

    fixed = {"h": heads, "d": depth}
    made = treadle.kernel("q h d, x d, q h -> q x", machine="h100", static=fixed)(index)
    return made.trace(["f16", "f16", "f16"], {"q": queries, "x": 32768, **fixed}, fixed)


def test_maxima_of_elements_exchange_nothing() -> None:
    """Each lane has its elements of all steps: the largest of 16 products, which four lanes were counted to exchange in
    each (126 us on an H100, where the products take 38)."""

    def largest(A: tl.Array, B: tl.Array) -> tl.Array:
        return tl.max(tl.contract(A, B, over="d"), over="k").to("f16")

    made = treadle.kernel("n k d, m d -> n m", machine="h100", static="k d")(largest)
    program = made.trace(["f16", "f16"], {"n": 4096, "m": 4096, "k": 16, "d": 64}, ["k", "d"])
    found = estimate(program, machine="h100")
    assert found.time_us is not None
    assert found.time_us < 50
    assert "shuffle_xor(" not in treadle.compile(program, machine="h100").cuda.split("_body(", 1)[1]
