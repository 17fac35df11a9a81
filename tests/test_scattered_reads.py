"""Reads at positions that data say: pages of a cache, rows of a table, weights of an expert; and at remainders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xdsl.utils.arg_spec import ArgSpec

import treadle
import treadle.language as tl
from roads import Road, compiled
from treadle.compiler.errors import TreadleError
from treadle.compiler.pipeline import Options, pipeline, print_cuda, run_passes, run_pipeline
from treadle.compiler.source import parse_module
from treadle.dialects import cuda

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
PAGED = (EXAMPLES / "attention_paged.mlir").read_text(encoding="utf-8")
MACHINES = ["a100", "h100"]


def beyond(inputs: tuple[Any, ...], which: int, seed: int = 0) -> tuple[Any, ...]:
    """The same with some entries outside of the array, far below zero and far above all that there is."""
    dice = np.random.default_rng(seed)
    entries = inputs[which].copy()
    wrong = dice.choice([-(2**31), -1, 10**6, 2**31 - 1], entries.shape)
    entries[...] = np.where(dice.random(entries.shape) < 0.3, wrong, entries)
    return (*inputs[:which], entries, *inputs[which + 1 :])


@pytest.mark.parametrize("machine", MACHINES)
def test_pages_of_a_cache(machine: str) -> None:
    road = compiled(PAGED, machine=machine)
    for b, q, h, g, p, m in ((2, 33, 1, 2, 11, 9), (1, 1, 2, 3, 40, 30), (3, 5, 1, 1, 1, 1), (2, 3, 1, 1, 4, 0)):
        sizes = {"b": b, "q": q, "h": h, "g": g, "p": p, "m": m}
        inputs = road.inputs(sizes, seed=b)
        inputs[4][0] = 0  # a sequence without keys
        for given in (inputs, beyond(inputs, 3)):
            for verdict in road.verdicts(given, sizes):
                assert verdict.ok, f"{sizes}: {verdict}"


def test_pages_that_lie_anywhere_in_memory() -> None:
    """Rows that begin anywhere, gaps between pages, columns that are no neighbours: the entries of each alignment."""
    road = compiled(PAGED)
    sizes = {"b": 2, "q": 5, "h": 2, "g": 1, "p": 7, "m": 3}
    query, *pages, table, length, past = road.inputs(sizes)
    views = (
        lambda a: a.transpose(2, 1, 0, 3).copy().transpose(2, 1, 0, 3),  # [h, s, p, d] in memory
        lambda a: np.pad(a, ((0, 0), (0, 0), (0, 0), (8, 0)))[..., 8:],
        lambda a: np.pad(a, ((0, 0), (0, 0), (0, 0), (2, 0)))[..., 2:],
        lambda a: np.pad(a, ((0, 0), (0, 0), (0, 0), (1, 0)))[..., 1:],
        lambda a: a.transpose(3, 0, 1, 2).copy().transpose(1, 2, 3, 0),
        lambda a: np.repeat(a, 2, axis=0)[::2],
    )
    used = set[str]()
    for view in views:
        for verdict in road.verdicts((query, *map(view, pages), table, length, past), sizes):
            assert verdict.ok, verdict
        used |= {*road.backend().variants}
    assert used == {cuda.variant_name(road.kernels[0], each) for each in cuda.alignments(road.kernels[0])}


@pytest.mark.parametrize("name", ["embedding", "experts"])
@pytest.mark.parametrize("machine", MACHINES)
def test_rows_and_weights_that_data_choose(name: str, machine: str) -> None:
    road = compiled((EXAMPLES / f"{name}.mlir").read_text(encoding="utf-8"), machine=machine)
    for size in (1, 7, 65):
        sizes = dict.fromkeys(road.symbolic, size) | {"n": 50 + size, "v": 3 * size}
        sizes = {axis: sizes[axis] for axis in road.symbolic}
        inputs = road.inputs(sizes)
        which = len(inputs) - 1
        for given in (inputs, beyond(inputs, which)):
            for verdict in road.verdicts(given, sizes):
                assert verdict.ok, f"{sizes}: {verdict}"


EVERYWHERE = """
!X = tensor<?x?x?xf32, #diagram.array<[i, j, k]>>
!n = tensor<?x?xi32, #diagram.array<[u, v]>>
!m = tensor<?xi32, #diagram.array<[w]>>
!Y = tensor<?x?x40xf32, #diagram.array<[y, z, l]>>
func.func @f(%X: !X, %n: !n {diagram.up_to = "i"}, %m: !m {diagram.up_to = "j"}, %like: !Y) -> !Y
    attributes {sizes = #diagram.sizes<i = 9, j = 7, k = 30, u = 4, v = 5, w = 6, y = 33, z = 50>} {
  %Y = diagram.read %X at "2 * n[y // 8, z % 5] - 3", "m[z // 10 + 1] - n[y // 8, z % 5] + 1, l - 3" padded
      with (n = %n : !n, m = %m : !m) : !X -> !Y
  %s = diagram.map (%a = %Y : !Y, %b = %like : !Y) -> !Y {
    %c = arith.addf %a, %b : f32
    diagram.yield %c : f32
  }
  func.return %s : !Y
}
""".replace('- 3", "m', "- 3, m")


def test_sums_of_entries_and_positions() -> None:
    road = compiled(EVERYWHERE)
    names = dict(zip("ijkuvwyz", (9, 7, 30, 4, 5, 6, 33, 50), strict=True))
    for sizes in (names, names | {"y": 1, "z": 1}, names | {"u": 2, "v": 3, "w": 2, "y": 70, "z": 31}):
        road.check(sizes)


BLOCKS = """
!X = tensor<?x16x?xf16, #diagram.array<[p, s, d]>>
!Y = tensor<?x?xf16, #diagram.array<[x, d]>>
!W = tensor<?x24xf16, #diagram.array<[d, e]>>
!O = tensor<?x24xf32, #diagram.array<[x, e]>>
func.func @f(%X: !X, %W: !W, %like: !O) -> !O attributes {sizes = #diagram.sizes<p = 5, x = 70, d = 64>} {
  %Y = diagram.read %X at "x // 16, x % 16, d" padded : !X -> !Y
  %P = diagram.contract %Y, %W over [d] accumulate f32 : !Y, !W -> !O
  %O = diagram.map (%a = %P : !O, %b = %like : !O) -> !O {
    %c = arith.addf %a, %b : f32
    diagram.yield %c : f32
  }
  func.return %O : !O
}
"""


@pytest.mark.parametrize("machine", MACHINES)
def test_remainders_without_entries(machine: str) -> None:
    road = compiled(BLOCKS, machine=machine)
    for p, x, d in ((5, 70, 64), (5, 80, 33), (3, 90, 8), (1, 1, 1)):
        road.check({"p": p, "x": x, "d": d})


@pytest.mark.parametrize("computed", [False, True])
def test_remainders_that_are_returned_are_copied(computed: bool) -> None:
    """They never leave their array, and no strides say where they are (the array itself was returned)."""
    road = compiled(f"""
!X = tensor<16x?xf32, #diagram.array<[d, c]>>
!n = tensor<?xf32, #diagram.array<[a]>>
!Y = tensor<?x?xf32, #diagram.array<[a, c]>>
func.func @f(%X: !X, %n: !n) -> (!Y, !X) attributes {{sizes = #diagram.sizes<a = 20, c = 5>}} {{
  %Z = diagram.map (%x = %X : !X) -> !X {{
    %z = arith.negf %x : f32
    diagram.yield %z : f32
  }}
  %Y = diagram.read %{"Z" if computed else "X"} at "a % 16, c" padded : !X -> !Y
  func.return %Y, %Z : !Y, !X
}}
""")
    for a in (20, 5, 16, 33):
        road.check({"a": a, "c": 5})


def test_parts_of_a_stream_are_whole_pages() -> None:
    def parts(length: int) -> Road:
        algorithm = parse_module(PAGED)
        module = algorithm.clone()
        specs = [
            ArgSpec(spec.name, {"length": (length,)}) if spec.name == "hierarchy-split-streams" else spec
            for spec in pipeline(Options())
        ]
        run_passes(module, specs)
        return Road(algorithm, module, print_cuda(module))

    road = parts(32)
    assert len(road.kernels) == 2
    for m in (13, 1, 2, 3, 0):
        sizes = {"b": 2, "q": 2, "h": 1, "g": 2, "p": 15, "m": m}
        inputs = road.inputs(sizes)
        for given in (inputs, beyond(inputs, 3)):
            for verdict in road.verdicts(given, sizes):
                assert verdict.ok, verdict
    with pytest.raises(TreadleError, match="it takes whole blocks of 16"):
        parts(40)


def test_a_function_says_where_it_reads() -> None:
    @treadle.kernel("b h q d, p s h d, p s h e, b m, b -> b h q e")
    def paged(Q, K_pages, V_pages, table, n):
        K = tl.read(K_pages, "table[b, x // 16], x % 16, h, d", table=table)
        V = tl.read(V_pages, "table[b, x // 16], x % 16, h, e", table=table)
        S = tl.keep(tl.contract(Q, K, over="d") * 0.125, "x < n[b]", n=n)
        return tl.contract(tl.softmax(S, over="x"), V, over="x")

    dice = np.random.default_rng(0)
    Q = dice.standard_normal((2, 2, 5, 64)).astype(np.float16)
    K, V = (dice.standard_normal((9, 16, 2, 64)).astype(np.float16) for _ in range(2))
    table = dice.permutation(9)[:8].reshape(2, 4).astype(np.int32)
    n = np.asarray([50, 17], np.int32)
    found = paged(Q, K, V, table, n)
    for b in range(2):
        keys, values = (pages[table[b]].reshape(64, 2, 64)[: n[b]].astype(float) for pages in (K, V))
        scores = np.einsum("hqd,xhd->hqx", Q[b].astype(float), keys) / 8
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        wanted = np.einsum("hqx,xhe->hqe", powers / powers.sum(-1, keepdims=True), values)
        assert np.abs(found[b] - wanted).max() < 1e-2


ENTRIES: dict[str, tuple[str, Any, Any]] = {
    "row": ("x d, -> d", lambda A, i: tl.read(A, "i[], d", i=i) * 2, lambda A, i: A[i] * 2),
    "shift": (
        "x d, -> x d",
        lambda A, i: tl.read(A, "x + i[], d", i=i) + A,
        lambda A, i: np.concatenate([A[i:], np.zeros((i, A.shape[1]))]) + A,
    ),
    "computed": (
        "x d, -> d",
        lambda A, i: tl.read(A, "i[], d", i=tl.argmax(tl.sum(A, over="d"), over="x")) * i,
        lambda A, i: A[A.sum(1).argmax()] * i,
    ),
    "of all": ("x d, -> ", lambda A, i: tl.read(tl.sum(A, over="d") * 1, "i[]", i=i) * 2, lambda A, i: A.sum(1)[i] * 2),
    "product": (
        "x d, -> x",
        lambda A, i: tl.contract(A, tl.read(A, "i[], d", i=i), over="d"),
        lambda A, i: A @ A[i],
    ),
}


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("name", ENTRIES)
def test_the_entry_of_an_array_without_axes(name: str, machine: str) -> None:
    axes, function, wanted = ENTRIES[name]
    program = treadle.kernel(axes, machine=machine)(function)
    A, i = np.random.default_rng(0).standard_normal((37, 20)).astype(np.float32), np.int32(5)
    for verdict in program.compiled(A, i).verify(A, i, backend="emulator"):
        assert verdict.ok, verdict
    found = program(A, i, backend="emulator")
    np.testing.assert_allclose(found, wanted(A.astype(np.float64), 5), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("i, d", r"'i' is an array, not an axis: its entries are 'i\[\]'"),
        ("t, d", r"'t' is an array, not an axis: its entries are 't\[x\]'"),
        ("i[d], d", r"'i\[d\]' has 1 positions for the axes"),
        ("t[], d", r"'t\[\]' has 0 positions for the axes"),
    ],
)
def test_an_array_of_entries_is_no_axis(place: str, message: str) -> None:
    def read(A: Any, i: Any, t: Any) -> Any:
        return tl.read(A, place, **{place[0]: {"i": i, "t": t}[place[0]]})

    with pytest.raises(TreadleError, match=message):
        treadle.kernel("x d, , x -> d")(read).trace(["f32", "i32", "i32"], {"x": 3, "d": 5})


def shifted(X: Any) -> Any:
    return np.concatenate([X[:, 1:], np.zeros((len(X), 1), X.dtype)], 1)


TWICE: dict[str, tuple[str, Any, Any]] = {
    "shift of rows": (
        "a d, t -> t d",
        lambda X, i: tl.read(tl.read(X, "i[t], d", i=i), "t, d + 1"),
        lambda X, i: shifted(X[i]),
    ),
    "rows of a shift": (
        "a d, t -> t d",
        lambda X, i: tl.read(tl.read(X, "a, d + 1"), "i[t], d", i=i),
        lambda X, i: shifted(X)[i],
    ),
    "rows of rows": (
        "a d, t -> t d",
        lambda X, i: tl.read(tl.read(X, "i[t], d", i=i), "r[t], d", r=i % 3),
        lambda X, i: X[i][i % 3],
    ),
    "rows of blocks": (
        "a d, t -> t d",
        lambda X, i: tl.read(tl.read(X, "a, d // 2"), "i[t], d", i=i),
        lambda X, i: X[i][:, np.arange(X.shape[1]) // 2],
    ),
    "rows of shifted entries": (
        "a d, t -> t d",
        lambda X, i: tl.read(X, "j[t], d", j=tl.read(i, "t + 1")),
        lambda X, i: X[np.append(i[1:], 0)],
    ),
}


@pytest.mark.parametrize("format", ["f32", "f16", "i8"])
@pytest.mark.parametrize("name", TWICE)
def test_a_read_of_a_read(name: str, format: str) -> None:
    """The first is saved where no one place says both."""
    axes, function, wanted = TWICE[name]
    program = treadle.kernel(axes, machine="a100")(function)
    numbers = np.random.default_rng(0).integers(-9, 9, (7, 20))
    X = numbers.astype({"f32": np.float32, "f16": np.float16, "i8": np.int8}[format])
    i = np.array([5, 0, 3, 6], np.int32)
    for verdict in program.compiled(X, i).verify(X, i, backend="emulator"):
        assert verdict.ok, verdict
    np.testing.assert_array_equal(program(X, i, backend="emulator"), wanted(X, i))


def test_a_condition_on_data_of_entries() -> None:
    @treadle.kernel("q d, x d, x e, u, i -> q e")
    def chosen(Q, K, V, group, kept):
        S = tl.contract(Q, K, over="d") * 0.125
        S = tl.keep(S, "k[x] == 1", k=tl.read(kept, "group[x // 8]", group=group))
        return tl.contract(tl.softmax(S, over="x"), V, over="x")

    dice = np.random.default_rng(1)
    Q, K, V = (dice.standard_normal((n, 64)).astype(np.float16) for n in (20, 75, 75))
    group, kept = dice.integers(-1, 6, 10).astype(np.int32), np.asarray([1, 0, 1, 0, 0], np.int32)
    (verdict,) = chosen.compiled(Q, K, V, group, kept).verify(Q, K, V, group, kept)
    assert verdict.ok, verdict


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("other[b, x] + table[b, x], x % 16, d", "'table.*' is not given: name the array that it is"),
        ("p, s, d", "'other' does not appear in the place"),
        ("other[x], x % 16, d", "has 1 positions for the axes 'b', 'm' of its array"),
        ("other[b, other[b, x]], x % 16, d", "which is data, too: let a diagram.read be the input"),
        ("other[b, x // 16] * x, x % 16, d", "multiplies two things that vary"),
        ("other[b, x // 16], d", "2 positions for the 3 axes"),
        ("other[b, x // 0], x, d", "no sum of positions"),
        ("other[b, x // 16], other, d", "'other' has the name|'other' .*axis"),
    ],
)
def test_places_that_are_none(place: str, message: str) -> None:
    @treadle.kernel("p s d, b m -> b p d")
    def read(pages, table):
        return tl.read(pages, place, other=table)

    with pytest.raises(TreadleError, match=message):
        read(np.ones((3, 16, 8), np.float16), np.ones((2, 4), np.int32))


def test_the_copies_are_asynchronous_and_as_wide_as_any() -> None:
    module = parse_module(PAGED)
    run_pipeline(module, Options())
    (kernel,) = [op for op in module.walk() if isinstance(op, cuda.KernelOp)]
    copies = [op for op in kernel.walk() if isinstance(op, cuda.CopyOp) and op.place is not None]
    assert copies
    assert all(op.asynchronous is not None and op.has_widest_vectors for op in copies)
    assert cuda.alignments(kernel)[0] == cuda.WHOLE_SECTORS
