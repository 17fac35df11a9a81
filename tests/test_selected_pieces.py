"""Streams that are fed only the pieces that a table of blocks leaves, at every level."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.arg_spec import ArgSpec

import treadle
import treadle.language as tl
from treadle.compiler.cost import LEVELS, plan_of, sizes_of_kernel, transfer_values
from treadle.compiler.pipeline import LAST_HIERARCHY_PASS, Options, pipeline, print_cuda, run_passes, run_pipeline
from treadle.compiler.source import parse_module
from treadle.dialects import cuda, hierarchy
from treadle.runtime.interpreter import entry_function, run_function

from roads import Road, compiled  # isort: skip

MACHINES = ("a100", "h100")
ALONE, CAUSAL = "m[q, x] == 1", "m[q, x] == 1 and x <= q"


def attention(condition: str, block: int, keys: str = "?") -> str:
    """Attention of heads that share one table of blocks."""
    return f"""
!Q = tensor<?x?x64xf16, #diagram.array<[h, q, d]>>
!K = tensor<?x{keys}x64xf16, #diagram.array<[h, x, d]>>
!V = tensor<?x{keys}x64xf16, #diagram.array<[h, x, e]>>
!T = tensor<?x?xi32, #diagram.array<[k, l]>>
!M = tensor<?x{keys}xi32, #diagram.array<[q, x]>>
!S = tensor<?x?x{keys}xf32, #diagram.array<[h, q, x]>>
!P = tensor<?x?x{keys}xf16, #diagram.array<[h, q, x]>>
!A = tensor<?x?x64xf32, #diagram.array<[h, q, e]>>
!O = tensor<?x?x64xf16, #diagram.array<[h, q, e]>>
func.func @blocks(%Q: !Q, %K: !K, %V: !V, %table: !T) -> !O
    attributes {{sizes = #diagram.sizes<h = 4, q = 1000, x = 1000, k = 16, l = 16>}} {{
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %M = diagram.read %table at "q // {block}, x // {block}" padded : !T -> !M
  %W = diagram.where %S if "{condition}" with (m = %M : !M) : !S
  %P = diagram.apply @softmax(%W) over [x] : (!S) -> !S
  %P16 = diagram.cast %P : !S -> !P
  %A = diagram.contract %P16, %V over [x] accumulate f32 : !P, !V -> !A
  %O = diagram.cast %A : !A -> !O
  func.return %O : !O
}}
"""


@cache
def road(condition: str, block: int, machine: str, keys: str = "?") -> Road:
    return compiled(attention(condition, block, keys), machine=machine)


def inputs(queries: int, keys: int, table: NDArray[np.int32], heads: int = 1) -> tuple[NDArray[np.generic], ...]:
    dice = np.random.default_rng(queries + keys)
    arrays = (dice.standard_normal((heads, n, 64)).astype(np.float16) for n in (queries, keys, keys))
    return (*arrays, table)


def random_table(queries: int, keys: int, block: int, part: float) -> NDArray[np.int32]:
    dice = np.random.default_rng(7)
    return (dice.random((-(-queries // block), -(-keys // block))) < part).astype(np.int32)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("condition", [ALONE, CAUSAL])
@pytest.mark.parametrize("block", [48, 128])
def test_blocks_of_any_size(machine: str, condition: str, block: int) -> None:
    """Pieces of one block and of several, in the border and whole; odd sizes, a table too small, or of zeros alone."""
    for queries, keys, part in ((130, 330, 0.4), (70, 64, 0.0), (1, 517, 1.0), (257, 1, 0.5)):
        given = inputs(queries, keys, random_table(queries, keys, block, part))
        for verdict in road(condition, block, machine).verdicts(given):
            assert verdict.ok, f"{queries} x {keys}, {part}: {verdict}"
    given = inputs(100, 300, np.ones((1, 2), np.int32))
    assert all(verdict.ok for verdict in road(condition, block, machine).verdicts(given))


@pytest.mark.parametrize("machine", MACHINES)
def test_a_static_length_and_rows_of_nothing(machine: str) -> None:
    made = road(ALONE, 64, machine, "200")
    expanded = parse_module(attention(ALONE, 64, "200"))
    run_pipeline(expanded, Options(machine=machine), last=LAST_HIERARCHY_PASS)
    (select,) = [op for op in expanded.walk() if isinstance(op, hierarchy.SelectOp)]
    tested = any(op.name == "diagram.where" for op in expanded.walk())
    assert tested == (select.cells_of_piece > 1)  # the list has room for all pieces: nothing is unknown
    for table in (np.zeros((3, 4)), np.eye(3, 4), np.ones((3, 4))):
        assert all(verdict.ok for verdict in made.verdicts(inputs(130, 200, table.astype(np.int32))))


@pytest.mark.parametrize("machine", MACHINES)
def test_what_is_left_out_is_not_read(machine: str) -> None:
    """Keys and values in blocks that the table leaves out may be NaN: nothing of them is multiplied."""
    made = road(ALONE, 128, machine)
    table = np.zeros((1, 8), np.int32)
    table[0, [2, 5]] = 1
    Q, K, V, _ = inputs(128, 1024, table)
    (expected,) = made.run((Q, K, V, table))
    left_out = np.repeat(table[0], 128) == 0
    K[:, left_out], V[:, left_out] = np.nan, np.nan
    (found,) = made.run((Q, K, V, table))
    assert np.array_equal(found, expected)


ROWS = """
!x = tensor<?x?xf32, #diagram.array<[i, j]>>
!b = tensor<?x?xi32, #diagram.array<[k, l]>>
!B = tensor<?x?xi32, #diagram.array<[i, j]>>
!s = tensor<?xf32, #diagram.array<[i]>>
func.func @f(%X: !x, %table: !b) -> (!s, !s)
    attributes {sizes = #diagram.sizes<i = 300, j = 5000, k = 10, l = 5>} {
  %B = diagram.read %table at "i // 32, j // 1024" padded : !b -> !B
  %W = diagram.where %X if "b[i, j] > 0" with (b = %B : !B) : !x
  %m = diagram.reduce max %W over [j] : !x -> !s
  %t = diagram.reduce add %W over [j] : !x -> !s
  func.return %m, %t : !s, !s
}
"""


@pytest.mark.parametrize("machine", MACHINES)
def test_rows_without_products(machine: str) -> None:
    made = compiled(ROWS, machine=machine)
    assert any(isinstance(op, cuda.SelectOp) for kernel in made.kernels for op in kernel.walk())
    for rows, columns in ((40, 5000), (1, 1), (33, 1025)):
        made.check({"i": rows, "j": columns, "k": -(-rows // 32), "l": -(-columns // 1024)})


@pytest.mark.parametrize("machine", MACHINES)
def test_more_pieces_than_threads(machine: str) -> None:
    """The block asks of so many at a time; what its warps have kept of them comes in order."""
    table = np.zeros((1, 313), np.int32)
    table[0, [0, 1, 90, 127, 128, 200, 311]] = 1
    given = inputs(3, 40000, table)
    for verdict in road(ALONE, 128, machine).verdicts(given):
        assert verdict.ok, verdict


@cache
def explicit(condition: str, block: int, machine: str) -> ModuleOp:
    module = parse_module(attention(condition, block))
    run_pipeline(module, Options(machine=machine), last=LAST_HIERARCHY_PASS)
    return module


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(("condition", "block"), [(ALONE, 128), (CAUSAL, 48)])
def test_transfers_count_what_is_visited(machine: str, condition: str, block: int) -> None:
    """In the interpreter; the model says at most that, and exactly that for a full table where nothing else limits."""
    module = explicit(condition, block, machine)
    (kernel,) = [op for op in module.walk() if isinstance(op, hierarchy.KernelOp)]
    sizes = sizes_of_kernel(kernel, entry_function(module), {"h": 1, "q": 256, "x": 512})
    plan = plan_of(kernel)
    assert plan.is_at_most
    loaded: list[int] = []
    shape = -(-256 // block), -(-512 // block)
    one = np.zeros(shape, np.int32)
    one[0, 0] = 1
    for table in (np.zeros(shape, np.int32), one, np.ones(shape, np.int32)):
        given = inputs(256, 512, table)
        (counts,) = run_function(module, given).transfers
        for level in LEVELS[1:]:
            moved = counts.loaded.get(level, 0) + counts.saved.get(level, 0)
            assert moved <= transfer_values(plan, level, sizes)
            assert not table.all() or condition == CAUSAL or moved == transfer_values(plan, level, sizes)
        loaded.append(counts.loaded["shared"])
    nothing, some, all_of_it = loaded
    assert nothing == 256 * 64
    assert nothing < some < all_of_it


def test_pieces_of_one_block_are_not_tested() -> None:
    (select,) = [op for op in explicit(ALONE, 128, "h100").walk() if isinstance(op, hierarchy.SelectOp)]
    (stream,) = [op for op in explicit(ALONE, 128, "h100").walk() if isinstance(op, hierarchy.StreamOp)]
    assert select.cells_of_piece == 1
    assert not any(op.name == "diagram.where" for op in stream.step.walk())
    assert stream.border is not None
    assert any(op.name == "diagram.where" for op in stream.border.walk())


def test_a_list_that_is_too_short() -> None:
    """Behind the pieces that the list has room for all are fed, and tested."""
    module = explicit(ALONE, 128, "h100").clone()
    (select,) = [op for op in module.walk() if isinstance(op, hierarchy.SelectOp)]
    assert select.room.data == 1024
    text = str(module).replace("room 1024", "room 2")
    given = inputs(128, 900, np.asarray([[0, 1, 0, 0, 1, 0, 0, 1]], np.int32))
    short, long = (run_function(each, given) for each in (parse_module(text), module))
    np.testing.assert_allclose(short.results[0], long.results[0], atol=1e-12)
    assert long.transfers[0].steps == {"step": 3 * 2}
    assert short.transfers[0].steps == {"step": 1 * 2, "border": 6 * 2}
    lowered = parse_module(text)
    rest = [each.name for each in pipeline(Options())].index(LAST_HIERARCHY_PASS) + 1
    run_passes(lowered, pipeline(Options())[rest:])
    made = Road(parse_module(attention(ALONE, 128)), lowered, print_cuda(lowered))
    assert all(verdict.ok for verdict in made.verdicts(given))


def kept_of(text: str, given: dict[str, NDArray[np.int32]], queries: int, keys: int) -> NDArray[np.bool_]:
    q, x = np.indices((queries, keys))
    spelled = text.replace(" and ", ") & (").replace(" or ", ") | (")
    return np.asarray(eval(f"({spelled})", {"q": q, "x": x, **given}), bool)


@pytest.mark.parametrize(
    ("condition", "cells"),
    [
        ("table[q // 64, x // 32] == 1 or x <= q and q - x < 20", True),
        ("table[q // 16, x // 64] > 0 and other[x // 128] == 1", True),
        ("table[q // 64, x // 64] == 1 and table[q // 64, x // 64] <= near[q - x + 400]", True),
        ("table[q // 64, x // 64] == 1 or near[q - x + 400] == 1", False),
        ("table[q, x // 64] == 1", False),
    ],
)
def test_conditions(condition: str, cells: bool) -> None:
    """What is not constant in cells may be anything, so that *or* leaves out nothing; too many cells are not asked."""

    @treadle.kernel("q d, x d, x e, m n, o, r -> q e")
    def sparse(Q, K, V, table, other, near):
        S = tl.contract(Q, K, over="d") * 0.125
        named = {"table": table, "other": other, "near": near}
        S = tl.keep(S, condition, **{name: array for name, array in named.items() if name in condition})
        return tl.contract(tl.softmax(S, over="x"), V, over="x")

    dice = np.random.default_rng(3)
    for queries, keys in ((130, 150), (33, 300)):
        Q, K, V = (dice.standard_normal((n, 64)).astype(np.float16) for n in (queries, keys, keys))
        rows = queries if "[q," in condition else -(-queries // 16)
        given = {
            "table": dice.integers(0, 2, (rows, -(-keys // 32))).astype(np.int32),
            "other": dice.integers(0, 2, -(-keys // 128)).astype(np.int32),
            "near": dice.integers(0, 2, 800).astype(np.int32),
        }
        kept = kept_of(condition, given, queries, keys)
        scores = np.where(kept, Q.astype(float) @ K.astype(float).T * 0.125, -np.inf)
        powers = np.exp(scores - np.maximum(scores.max(1, keepdims=True), -1e30))
        expected = powers / np.maximum(powers.sum(1, keepdims=True), 1e-30) @ V.astype(float)
        assert np.abs(sparse(Q, K, V, **given) - expected).max() < 1e-2
    kernel = sparse.compiled(Q, K, V, *given.values())
    assert any("asked once for each cell" in str(step) for step in kernel.derivation) == cells
    assert any("a cell of a table has one value" in str(step) for step in kernel.derivation) != cells


def test_tables_of_batches_and_heads() -> None:
    @treadle.kernel("b h q d, b h x d, b h x e, b h m n -> b h q e")
    def sparse(Q, K, V, table):
        S = tl.contract(Q, K, over="d") * 0.125
        S = tl.keep(S, "table[b, h, q // 32, x // 64] > 0 and x <= q + 40", table=table)
        return tl.contract(tl.softmax(S, over="x"), V, over="x")

    dice = np.random.default_rng(0)
    Q, K, V = (dice.standard_normal((2, 3, n, 64)).astype(np.float16) for n in (70, 150, 150))
    table = dice.integers(0, 2, (2, 3, 3, 3)).astype(np.int32)
    (verdict,) = sparse.compiled(Q, K, V, table).verify(Q, K, V, table)
    assert verdict.ok, verdict


def test_roles_read_the_list() -> None:
    made = road(CAUSAL, 128, "h100")
    kernel = next(op for op in made.kernels if cuda.roles_of(op) is not None)
    roles = cuda.roles_of(kernel)
    assert roles is not None
    assert any(isinstance(op, cuda.SelectOp) for op in kernel.body.block.ops)
    assert any(isinstance(op, cuda.SelectedOp) for op in roles.producer.walk())


def shared_keys(of_heads: bool) -> str:
    """Attention of heads that share their keys, to blocks of one table, or of a table for each head."""
    text = attention(CAUSAL, 128).replace("h = 4, q = 1000, x = 1000", "h = 16, q = 8192, x = 8192")
    for array in ("x, d", "x, e"):
        text = text.replace(
            f"tensor<?x?x64xf16, #diagram.array<[h, {array}]>>", f"tensor<?x64xf16, #diagram.array<[{array}]>>"
        )
    if not of_heads:
        return text
    text = text.replace("tensor<?x?xi32, #diagram.array<[k, l]>>", "tensor<?x?x?xi32, #diagram.array<[h, k, l]>>")
    text = text.replace("tensor<?x?xi32, #diagram.array<[q, x]>>", "tensor<?x?x?xi32, #diagram.array<[h, q, x]>>")
    return text.replace("m[q, x]", "m[h, q, x]").replace('at "q', 'at "h, q')


@pytest.mark.parametrize("of_heads", [False, True])
def test_blocks_of_a_cluster_bring_together_what_their_lists_agree_on(of_heads: bool) -> None:
    algorithm = parse_module(shared_keys(of_heads))
    module = algorithm.clone()
    specs = pipeline(Options(machine="h100"))
    asked = ArgSpec("cuda-cluster", {"size": (2,)})
    run_passes(module, [asked if each.name == asked.name else each for each in specs])
    made = Road(algorithm, module, print_cuda(module))
    assert any(kernel.cluster == 2 for kernel in made.kernels) != of_heads
    dice = np.random.default_rng(1)
    Q, K, V = (dice.standard_normal(shape).astype(np.float16) for shape in ((4, 130, 64), (300, 64), (300, 64)))
    table = dice.integers(0, 2, (4, 2, 3) if of_heads else (2, 3)).astype(np.int32)
    assert all(verdict.ok for verdict in made.verdicts((Q, K, V, table)))
