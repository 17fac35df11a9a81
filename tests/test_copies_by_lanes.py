"""Tiles that no tensor copy brings, copied by the lanes of the producer's warps to where products of warpgroups read
them: rows that data choose one by one, pages of few positions, views with zeros around them, on an H100."""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import pytest
from test_scattered_reads import PAGED
from test_tensor_gathers import SIZES, WINDOWS, check, gathers, paged
from xdsl.dialects import scf
from xdsl.rewriter import Rewriter

from roads import Road, compiled
from treadle.compiler.rings import ring_problems
from treadle.dialects import cuda
from treadle.dialects.cuda.tiles import is_boxed
from treadle.runtime.backend import has_host_compiler
from treadle.runtime.emulator import EmulationError
from treadle.runtime.emulator.backend import EmulatorBackend
from treadle.runtime.host import execute
from treadle.runtime.nvcc import find_nvcc
from treadle.runtime.ptx.backend import PtxBackend
from treadle.runtime.verify import verify

pytestmark = pytest.mark.skipif(not has_host_compiler(), reason="no C++ compiler is installed")


@cache
def pages(page: int = 4, d: int = 64, format: str = "f16") -> Road:
    return compiled(paged(page, d, format=format), machine="h100")


def with_roles(road: Road) -> cuda.KernelOp:
    (kernel,) = (kernel for kernel in road.kernels if kernel.sym_name.data.endswith("_specialised"))
    return kernel


def copies(road: Road) -> list[cuda.CopyOp]:
    """Those of tiles, by the lanes of the producer."""
    copies = [op for op in with_roles(road).walk() if isinstance(op, cuda.CopyOp)]
    return [op for op in copies if is_boxed(op.tile.type)]


@pytest.mark.sample(3)
@pytest.mark.parametrize("d", [64, 128, 256])
@pytest.mark.parametrize("page", [1, 2, 4, 6])
def test_pages_of_few_positions(page: int, d: int) -> None:
    road = pages(page, d)
    assert not gathers(road)
    assert {each.buffer.name_hint for each in copies(road)} == {"K_pages", "V_pages"}
    for seed, sizes in enumerate(SIZES):
        check(road, sizes, 3, seed)


def test_another_format() -> None:
    check(pages(format="bf16"), SIZES[0], 3)


@pytest.mark.parametrize("first", range(1, 20, 5))
def test_data_may_arrive_in_any_order(first: int) -> None:
    road, sizes = pages(), {"b": 1, "q": 40, "h": 1, "g": 1, "p": 90, "m": 80}
    inputs = [given if isinstance(given, np.ndarray) else given.item() for given in road.inputs(sizes)]
    inputs[4][...], inputs[5][...] = 315, 300
    backends = [
        EmulatorBackend(road.text, cuda.kernel_names(road.module), seed=seed) for seed in (0, *range(first, first + 5))
    ]
    found = {execute(road.module, inputs, backend)[0].tobytes() for backend in backends}
    assert len(found) == 1


def test_rows_of_any_alignment() -> None:
    """What is copied needs no more alignment than an element: each entry of the kernel with roles."""
    road, sizes = pages(), {"b": 2, "q": 5, "h": 2, "g": 1, "p": 23, "m": 11}
    query, *arrays, table, length, past = road.inputs(sizes)
    views = (
        lambda a: np.pad(a, ((0, 0), (0, 0), (0, 0), (8, 0)))[..., 8:],
        lambda a: np.pad(a, ((0, 0), (0, 0), (0, 0), (2, 0)))[..., 2:],
        lambda a: np.pad(a, ((0, 0), (0, 0), (0, 0), (1, 0)))[..., 1:],
        lambda a: a.transpose(3, 0, 1, 2).copy().transpose(1, 2, 3, 0),
    )
    used = set[str]()
    for view in views:
        for verdict in road.verdicts((query, *map(view, arrays), table, length, past), sizes):
            assert verdict.ok, verdict
        used |= {name.rpartition("_kernel_")[2] for name in road.backend().variants}
    assert used == {"specialised_aligned_16", "specialised_aligned_4", "specialised_strided"}


def test_what_lies_behind_a_length_may_be_no_number() -> None:
    road, sizes = pages(), {"b": 1, "q": 20, "h": 2, "g": 1, "p": 24, "m": 24}
    query, keys, values, table, length, past = road.inputs(sizes)
    table[...] = np.arange(24)
    for count in (0, 1, 3, 4, 50, 95, 96):
        length[...], past[...] = count, 0
        holed = [each.copy() for each in (keys, values)]
        for each in holed:
            each.reshape(96, 2, 64)[count:] = np.nan
        for verdict in road.verdicts((query, *holed, table, length, past), sizes):
            assert verdict.ok, f"{count} keys: {verdict}"


TOKENS = """
!C = tensor<?x?xf16, #diagram.array<[t, k]>>
!token = tensor<?xi32, #diagram.array<[x]>>
!E = tensor<?x?xf16, #diagram.array<[x, k]>>
!W = tensor<?x?xf16, #diagram.array<[k, n]>>
!O = tensor<?x?xf32, #diagram.array<[x, n]>>
func.func @f(%C: !C, %token: !token {diagram.up_to = "t"}, %W: !W) -> !O
    attributes {sizes = #diagram.sizes<t = 32000, x = 4096, k = 1024, n = 4096>} {
  %E = diagram.read %C at "token[x], k" padded with (token = %token : !token) : !C -> !E
  %O = diagram.contract %E, %W over [k] accumulate f32 : !E, !W -> !O
  func.return %O : !O
}
"""


@cache
def tokens() -> Road:
    return compiled(TOKENS, machine="h100")


def test_rows_that_data_choose_beside_a_tile_of_tensor_copies() -> None:
    road = tokens()
    assert {each.buffer.name_hint for each in copies(road)} == {"C"}
    assert any(isinstance(op, cuda.TensorLoadOp) for op in with_roles(road).walk())
    for sizes in ({"t": 77, "x": 150, "k": 200, "n": 136}, {"t": 3, "x": 1, "k": 8, "n": 8}):
        check(road, sizes, 1)


def test_pages_beside_rows_one_by_one() -> None:
    """Keys come by runs, values row by row: tensor copies of the lanes of one warp, and copies of those of four."""
    text = re.sub(r"!V_pages = .*", "!V_pages = tensor<?x?x64xf16, #diagram.array<[t, h, e]>>", PAGED)
    text = text.replace("!table = ", "!token = tensor<?x?xi32, #diagram.array<[b, x]>>\n!table = ")
    text = text.replace("%table: !table", '%token: !token {diagram.up_to = "t"}, %table: !table')
    text = text.replace(
        '"table[b, x // 16], x % 16, h, e" padded with (table = %table : !table)',
        '"token[b, x], h, e" padded with (token = %token : !token)',
    )
    road = compiled(text.replace("p = 40", "p = 40, t = 640, x = 208"), machine="h100")
    assert {op.map.name_hint for op in gathers(road)} == {"K_pages_map"}
    assert {each.buffer.name_hint for each in copies(road)} == {"V_pages"}
    for x in (1, 40, 144, 300):
        sizes = {"b": 2, "q": 33, "h": 2, "g": 1, "p": 30, "m": -(-x // 16), "t": 55, "x": x}
        check(road, sizes, 3)


def test_a_view_with_zeros_around_it() -> None:
    """Which ends before its array does, so that no map has it; the tile ends where neither does."""
    text = WINDOWS.replace("!P = ", "!V = tensor<?x40x64xf16, #diagram.array<[b, j, c]>>\n!P = ")
    read = '  %P = diagram.read %X at "b, t + r - 3, c" padded : !X -> !P'
    again = read.replace("%X", "%V").replace("!X", "!V")
    text = text.replace(read, f'  %V = diagram.read %X at "b, j + 2, c" padded : !X -> !V\n{again}')
    road = compiled(text, machine="h100")
    assert copies(road)
    for i, t in ((90, 70), (30, 301), (1, 4)):
        road.check({"b": 2, "i": i, "t": t, "o": 72})


# -- what goes wrong is noticed ------------------------------------------------------------------------

FAULTS = {
    "products may not read what lanes copy": (r"fence_proxy_async\(\);  // products", ";  // products"),
    "copies are not followed by an arrival": (r"if constexpr \(ALIGNED >= 4\) copy_async_arrive\(&K[^;]*;\s*else", ""),
    "lanes arrive before their copies have come": (r"\) copy_async_arrive(\(&K)", r") mbarrier_arrive\1"),
    "lanes arrive at the ring of another tile": (r"copy_async_arrive\(&K_ring", "copy_async_arrive(&V_ring"),
    "lanes arrive at another stage": (
        r"(copy_async_arrive\(&K_ring\[uint32_t\(turn\w*)\)",
        r"\1 + 1)",
    ),
    "a barrier waits for one warp": (r"(mbarrier_init\(&K_ring\[stage\], )128", r"\1 32"),
    "a barrier waits for a lane more": (r"(mbarrier_init\(&K_ring\[stage\], )128", r"\1 129"),
    "lanes do not wait for an empty stage": (r"mbarrier_wait\(&K_ring\[\d \+ [^;]*?;", ";"),
    "lanes copy to the first stage always": (r"stage_at\((K_\w+), [^;]*;", r"\1;"),
    "consumers do not wait": (r"mbarrier_wait\(&K_ring\[[^;]*?\], (uint32_t\(turn\w*\) / \d) % 2\);", ";"),
    "rows of another place in a box": (r"(in_boxes_down<64, \d+, 2, x_step>\()x_i, d_i", r"\1x_i + 1, d_i"),
    "lanes go down too far": (r"(x_down \+= x_step)", "x_down += 2 * x_step"),
    "entries of other rows": (r"(int source\w* = )", r"\1 1 + "),
    "entries that are rows of no page": (r"uint32_t\(table_\w+\) < uint32_t\(p\)", "true"),
    "keys behind the end": (r"(const bool is_there\w* = )x0 [^&]*&&", r"\1"),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.sample(5)
def test_every_fault_is_caught(fault: str) -> None:
    road, sizes = pages(), {"b": 1, "q": 40, "h": 1, "g": 1, "p": 200, "m": 150}
    query, keys, values, table, length, past = road.inputs(sizes)
    length[...], past[...], table[0, ::7] = 595, 595, 10**6
    table[table == 0], values[0] = 1, np.inf  # which no entry names: that of a row that is not wanted is taken as 0
    given = (query, keys, values, table, length, past)
    pattern, replacement = FAULTS[fault]
    at = road.text.index("_specialised_body")
    changed, count = re.subn(pattern, replacement, road.text[at:])
    assert count
    for seed in (0, 1, 2):
        backend = EmulatorBackend(road.text[:at] + changed, cuda.kernel_names(road.module), seed=seed)
        try:
            outputs = execute(road.module, [*given], backend)
        except EmulationError:
            return
        if not all(each.ok for each in verify(road.algorithm, given, outputs, "emulator", sizes=sizes)):
            return
    raise AssertionError("nothing was noticed")


def clone(road: Road) -> cuda.KernelOp:
    return with_roles(road).clone()


def test_an_arrival_that_is_missing_is_found() -> None:
    kernel = clone(pages())
    assert not ring_problems(kernel)
    Rewriter.erase_op(next(op for op in kernel.walk() if isinstance(op, cuda.ArriveOp)))
    assert "wait for ever" in ring_problems(kernel)[0]


def test_a_copy_to_another_stage_is_found() -> None:
    kernel = clone(pages())
    *_, copy = (op for op in kernel.walk() if isinstance(op, cuda.CopyOp) and is_boxed(op.tile.type))
    stage, loop = copy.tile.owner, copy.parent_op()
    assert isinstance(stage, cuda.StageOp)
    assert isinstance(loop, scf.ForOp)
    stage.operands[1] = loop.lb
    assert "follows copies to another stage" in ring_problems(kernel)[0]


@pytest.mark.full
@pytest.mark.skipif(find_nvcc() is None, reason="nvcc is not installed")
def test_the_machine_code_does_the_same() -> None:
    """On an ordinary day the PTX machine runs what lanes store (tests/test_stored_copies.py)."""
    road, sizes = pages(), {"b": 1, "q": 20, "h": 1, "g": 1, "p": 11, "m": 20}
    inputs = [given if isinstance(given, np.ndarray) else given.item() for given in road.inputs(sizes)]
    outputs = execute(road.module, inputs, PtxBackend(road.text, cuda.kernel_names(road.module), "sm_90a"))
    assert all(each.ok for each in verify(road.algorithm, inputs, outputs, "ptx", sizes=sizes))
