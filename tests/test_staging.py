"""Fragments that go through shared memory: no sector is asked for twice, and what arrives is right, whatever the sizes,
strides and alignments."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from test_coalescing import EXAMPLES, check, program
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from treadle.compiler.layouts import Traffic
from treadle.compiler.layouts.operations import strides_at, traffic_of
from treadle.compiler.machines import machine_of
from treadle.compiler.pipeline import Options, print_cuda, run_pipeline
from treadle.compiler.source import parse_module
from treadle.dialects import cuda
from treadle.dialects.cuda.accesses import GlobalAccess
from treadle.dialects.cuda.kernel import variant_name
from treadle.dialects.cuda.transfers import is_added
from treadle.dialects.diagram.array import DYNAMIC, axes_of, is_array, sizes_of
from treadle.passes.staging.costs import way_costs
from treadle.runtime.emulator.backend import EmulatorBackend
from treadle.runtime.host import HostExecution
from treadle.runtime.inputs import axis_sizes, make_inputs
from treadle.runtime.interpreter import entry_function
from treadle.runtime.verify import verify

SEEDS = (0, 1, 2)


def rows(count: int, length: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal((count, length), np.float32)


def softmax(a: Any) -> Any:
    e = np.exp(a.astype(np.float64) - a.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def of_many_rows(name: str, length: int = 1000) -> str:
    """An example made for so many rows that each warp has one to itself; of those of a softmax that are longer than
    300, several warps would have one together."""
    text = re.sub(r"\b(row|t) = \d+", r"\1 = 16384", program(name))
    return re.sub(r"\bx = \d+", f"x = {length}", text)


def kernels_of(text: str, arch: str = "sm_80") -> list[cuda.KernelOp]:
    return kernels_in(compiled(text, arch))


def compiled(text: str, arch: str) -> ModuleOp:
    module = parse_module(text)
    run_pipeline(module, Options(arch=arch))
    return module


def kernels_in(module: ModuleOp) -> list[cuda.KernelOp]:
    return [op for op in module.body.block.ops if isinstance(op, cuda.KernelOp)]


def fragments(kernel: cuda.KernelOp) -> list[GlobalAccess]:
    """But what is added to what lies there, by the threads that have it."""
    return [op for op in kernel.walk() if isinstance(op, cuda.LoadOp | cuda.StoreOp) and not is_added(op)]


def moved(op: GlobalAccess, kernel: cuda.KernelOp, alignment: int) -> Traffic:
    strides, base = strides_at(op, alignment)
    return traffic_of(op, cuda.threads_at(op, kernel), alignment, strides, base)


def inputs_of(name: str, **sizes: int) -> list[Any]:
    function = entry_function(parse_module(program(name)))
    arrays = [np.asarray(each) for each in make_inputs(function, axis_sizes(function, sizes), 0)]
    return [each.item() if each.ndim == 0 else each for each in arrays]


def shifted(array: Any, by: int) -> Any:
    """The same numbers in rows that begin so many elements behind a sector, each at another place of one."""
    if not isinstance(array, np.ndarray) or not array.ndim:
        return array
    view = np.zeros((*array.shape[:-1], array.shape[-1] + by), array.dtype)[..., by:]
    view[...] = array
    return view


# -- the fewest sectors ---------------------------------------------------------------------------


@pytest.mark.sample(6)
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("length", [1, 3, 31, 64, 77, 300, 1000, 1023, 1024, 1025, 1028, 1032, 2056, 3001, 5000])
def test_softmax_moves_the_fewest_sectors(length: int, arch: str) -> None:
    """What the algebra computes is what the emulator counts (`check`), and both are the fewest there are."""
    ((loaded, stored),) = check(program("softmax"), [rows(13, length)], arch=arch)
    assert loaded.is_fewest
    assert stored.is_fewest


@pytest.mark.parametrize("start", [0, 1, 4, 5])
@pytest.mark.parametrize("pitch", [300, 301, 304, 308, 2000])
def test_rows_that_begin_anywhere(pitch: int, start: int) -> None:
    array = rows(1, 13 * pitch + start)[0, start:].reshape(13, pitch)[:, :300]
    ((loaded, stored),) = check(program("softmax"), [array])
    assert loaded.is_fewest
    assert stored.is_fewest


def test_the_numbers_of_the_page() -> None:
    """docs/layouts.md: rows of 1024, four a block, each loaded twice and stored once."""
    for pitch, loads in ((4096, 2 * 4 * 128), (4100, 2 * 4 * 129), (4097, 2 * 4 * 129)):
        ((loaded, stored),) = check(program("softmax"), [rows(4, pitch)[:, :1024]], arch="sm_80")
        least = 2 * sum((row * pitch + 1023) * 4 // 32 - row * pitch * 4 // 32 + 1 for row in range(4))
        assert loaded.sectors == loaded.fewest_sectors == least <= loads
        assert stored.sectors == stored.fewest_sectors == 512


def test_columns_that_lie_together() -> None:
    """A transposed array: lanes go down the columns, where every element was a sector of its own."""
    ((loaded, _),) = check(of_many_rows("softmax", 300), [rows(300, 64).T])
    assert loaded.is_fewest
    assert loaded.sectors_per_request <= 4


@pytest.mark.parametrize("name", ["log_softmax", "rms_norm", "layer_norm", "sin2cos2"])
def test_other_kernels_without_products(name: str) -> None:
    function = entry_function(parse_module(program(name)))
    sizes = {axis: 333 if size > 64 else 5 for axis, size in axis_sizes(function, {}).items()}
    moved = check(program(name), inputs_of(name, **sizes))
    assert all(loaded.is_fewest and stored.is_fewest for loaded, stored in moved)


@pytest.mark.sample(8)
@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_90a"])
@pytest.mark.parametrize("name", sorted(path.stem for path in EXAMPLES.glob("*.mlir")))
def test_each_access_of_each_entry(name: str, arch: str) -> None:
    """Whatever rows are aligned to: the fewest there are, but for what is loaded beside products, where a block that
    meets would cost more than it spares. Warps with roles meet behind products only, for no single numbers; all of a
    block before its roles."""
    for kernel in kernels_of(program(name), arch):
        roles = cuda.roles_of(kernel)
        products = any(isinstance(op, cuda.ProductOp | cuda.WarpgroupProductOp) for op in kernel.walk())
        for op, alignment in product(fragments(kernel), cuda.alignments(kernel)):
            if roles is not None and roles.is_ancestor(op) and not is_behind_products(op, roles):
                assert op.staged is None
                continue
            spared = spares(op, kernel, alignment)
            entry = alignment if max(op.width_list) > 1 else cuda.alignments(kernel)[0]
            if (products and isinstance(op, cuda.LoadOp)) or (roles is not None and max(op.width_list) == 1):
                # Of places that load the same, where in one of them the way does not pay, it is taken in none.
                alike = [each for each in fragments(kernel) if loads_alike(each, op)]
                assert any(
                    spares(each, kernel, alignment) <= way_costs(each, kernel, alignment, entry, 2) for each in alike
                )
            else:
                assert spared == 0


def spares(op: GlobalAccess, kernel: cuda.KernelOp, alignment: int) -> int:
    """Sectors beyond the fewest."""
    found = moved(op, kernel, alignment)
    return found.sectors - found.fewest_sectors


def loads_alike(one: GlobalAccess, other: GlobalAccess) -> bool:
    """Whether the pieces of one array are of one type."""
    arrays = [[value for value in each.operands if value.type == each.buffer_type][:1] for each in (one, other)]
    return type(one) is type(other) and arrays[0] == arrays[1] and one.piece_type == other.piece_type


def is_behind_products(op: GlobalAccess, roles: cuda.RolesOp) -> bool:
    block = roles.consumers.block
    multiply = [any(isinstance(at, cuda.WarpgroupProductOp) for at in each.walk()) for each in block.ops]
    return op.parent is block and not any(multiply[list(block.ops).index(op) :])


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_rows_that_all_warps_read_are_loaded_once(arch: str) -> None:
    """Layer norm of four rows of 1024: whole sectors, and yet four warps would ask for all of gamma, by halves of
    sectors. X is loaded twice, gamma and beta once."""
    x = np.zeros((4, 1024), np.float16)
    ((loaded, stored),) = check(of_many_rows("layer_norm"), [x, *rows(2, 1024)], arch=arch)
    assert loaded.sectors == loaded.fewest_sectors == (2 * x.nbytes + 2 * 1024 * 4) // 32
    assert stored.sectors == stored.fewest_sectors == x.nbytes // 32


@pytest.mark.parametrize("length", [1000, 77])
@pytest.mark.parametrize(("name", "results"), [("log_sum_exp", 1), ("variance", 2)])
def test_numbers_of_single_rows_are_stored_together(name: str, results: int, length: int) -> None:
    """77 rows, four a block: 20 sectors of each result, where every warp would ask for that of its row."""
    ((_, stored),) = check(of_many_rows(name), [rows(77, length)])
    assert stored.sectors == stored.fewest_sectors == results * 20


@pytest.mark.parametrize("by", [1, 2, 3])
def test_numbers_of_single_rows_are_loaded_together(by: int) -> None:
    """Where the array of numbers begins within a sector, too."""
    array, bound = rows(13, 1024), shifted(rows(1, 13)[0] + 9, by)
    ((loaded, stored),) = check(program("softmax_bounded"), [array, bound])
    assert loaded.is_fewest
    assert stored.is_fewest


@pytest.mark.parametrize("queries", [128, 99])
def test_each_warp_of_a_role_stores_the_numbers_of_its_rows_at_once(queries: int) -> None:
    """Warps with roles do not meet: each asks for the sectors of its 16 rows, by one request."""
    kernel = next(each for each in kernels_of(program("attention_lse"), "sm_90a") if cuda.roles_of(each) is not None)
    (store,) = (op for op in fragments(kernel) if axes_of(op.buffer_type)[-1] == "q")
    threads = cuda.working_threads(kernel)
    rows, own = sizes_of(store.piece_type)["q"], 16
    for start in range(8):
        inside = min(rows, queries)
        found = traffic_of(store, threads, cuda.ANY_STRIDES, base=4 * start, limits={"q": inside})
        warps = [range(first, min(first + own, inside)) for first in range(0, inside, own)]
        assert found.requests == len(warps) == -(-inside // own)
        assert found.sectors == sum(len({(start + row) // 8 for row in each}) for each in warps)


LOADED_BESIDE_PRODUCTS = [
    ("attention_f8", 1, {"q": 37, "x": 75, "h": 1}),
    ("attention_mixed", 1, {"q": 37, "x": 75, "h": 1}),
    ("linear_attention", 1, {"q": 37, "x": 75, "h": 1}),
    ("linear_attention", 2, {"q": 37, "x": 75, "h": 1}),
    ("quantised_matmul", 1, {"t": 37, "i": 75, "o": 41}),
    ("quantised_matmul", 4, {"t": 37, "i": 76, "o": 44}),
    ("softmax_matmul", 1, {"row": 37, "x": 75, "e": 41}),
    ("matmul_residual", 1, {"t": 37, "j": 75, "i": 41}),
]


@pytest.mark.sample(6)
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize(("name", "by", "sizes"), LOADED_BESIDE_PRODUCTS)
def test_rows_beside_products_that_begin_anywhere(name: str, by: int, sizes: dict[str, int], arch: str) -> None:
    """What the algebra computes is what the emulator counts, and for all that is worth it the fewest."""
    known = axis_sizes(entry_function(parse_module(program(name))), {})
    arrays = [shifted(each, by) for each in inputs_of(name, **{a: s for a, s in sizes.items() if a in known})]
    kernels = kernels_of(program(name), arch)
    narrow = [op for kernel in kernels for op in fragments(kernel) if isinstance(op, cuda.LoadOp) and op.staged]
    assert narrow or arch == "sm_90"
    for loaded, stored in check(program(name), arrays, arch=arch):
        assert stored.is_fewest
        assert loaded.sectors - loaded.fewest_sectors <= loaded.requests


RESIDUAL = """
!H = tensor<?x?xf16, #diagram.array<[t, j]>>
!W = tensor<?x?xf16, #diagram.array<[i, j]>>
!bias = tensor<?xf32, #diagram.array<[i]>>
!X = tensor<?x?xf32, #diagram.array<[t, i]>>
func.func @residual(%H: !H, %W: !W, %bias: !bias, %X: !X) -> !X
    attributes {sizes = #diagram.sizes<t = 1024, j = 1024, i = 2048>} {
  %Z = diagram.contract %H, %W over [j] accumulate f32 : !H, !W -> !X
  %Y = diagram.map (%z = %Z : !X, %b = %bias : !bias, %x = %X : !X) -> !X {
    %biased = arith.addf %z, %b : f32
    %y = arith.addf %biased, %x : f32
    diagram.yield %y : f32
  }
  func.return %Y : !X
}
"""
"""Weights lie along what is summed, so that rows of the result may begin anywhere."""

BEHIND_ROLES = [
    (0, {"t": 130, "j": 72, "i": 201}),
    (1, {"t": 130, "j": 72, "i": 200}),
    (2, {"t": 257, "j": 72, "i": 330}),
    (4, {"t": 70, "j": 136, "i": 200}),
]


@pytest.mark.parametrize(("by", "sizes"), BEHIND_ROLES)
def test_consumers_bring_and_send_the_fewest_sectors(by: int, sizes: dict[str, int]) -> None:
    """A residual, walked in pieces behind the products of roles, and its result: they take the place of the tiles that
    the producer brought, as its lanes did the bias, and consumers alone meet. Sectors are those of the algebra,
    whatever the order of threads."""
    function = entry_function(parse_module(RESIDUAL))
    arrays = [np.asarray(each) for each in make_inputs(function, axis_sizes(function, sizes), 0)]
    arrays[2:] = [shifted(each, by) for each in arrays[2:]]
    ((loaded, stored),) = check(RESIDUAL, arrays, arch="sm_90a")
    assert loaded.is_fewest
    assert stored.is_fewest
    module = compiled(RESIDUAL, "sm_90a")
    by_copies, by_lanes = (each for each in kernels_in(module) if cuda.roles_of(each) is not None)
    assert any(isinstance(op, cuda.TensorStoreOp) for op in by_copies.walk())  # the result, if it has a tensor map
    for kernel, count in ((by_copies, 1), (by_lanes, 2)):
        staged = [op.staged.end(op.piece_type) for op in fragments(kernel) if op.staged is not None]
        assert len(staged) == len(fragments(kernel)) == count
        assert max(staged) <= kernel.shared_bytes.data
    for seed in SEEDS:
        found = run(module, arrays, seed)
        verdicts = verify(parse_module(RESIDUAL), arrays, found, "emulator", sizes=axis_sizes(function, sizes))
        assert all(verdict.ok for verdict in verdicts), [str(verdict) for verdict in verdicts]


# -- what arrives ---------------------------------------------------------------------------------


VIEWS: dict[str, Callable[[], Any]] = {
    "odd": lambda: rows(9, 1025),
    "short": lambda: rows(9, 7),
    "vectors": lambda: rows(9, 1036),
    "shifted": lambda: rows(9, 400)[:, 1:334],
    "gaps": lambda: rows(9, 700)[:, ::2],
    "backwards": lambda: rows(9, 333)[::-1, ::-1],
    "turned": lambda: rows(333, 9).T,
    "repeated": lambda: np.broadcast_to(rows(1, 333), (9, 333)),
}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("view", VIEWS)
def test_every_element_arrives_where_it_belongs(view: str, seed: int) -> None:
    """And no thread reads what another has yet to write: the emulator tells of races in any order of threads."""
    array = VIEWS[view]()
    (found,) = run(compiled(program("softmax"), "sm_80"), [array], seed)
    assert np.allclose(found, softmax(array), rtol=1e-5, atol=1e-7)


def run(module: ModuleOp, arrays: list[Any], seed: int) -> list[Any]:
    names = [variant_name(kernel, each) for kernel in kernels_in(module) for each in cuda.alignments(kernel)]
    backend = EmulatorBackend(print_cuda(module), names, seed=seed)
    return list(HostExecution(module, backend).run(entry_function(module), arrays))


@pytest.mark.sample(6)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("by", [0, 1, 4])
@pytest.mark.parametrize(
    "name", ["layer_norm", "variance", "linear_attention", "attention_decode", "quantised_matmul", "matmul_residual"]
)
def test_what_meets_together_arrives(name: str, by: int, seed: int) -> None:
    """Accesses that follow each other, single numbers, what is loaded beside products, and results in the place of
    tiles that are needed no more."""
    function = entry_function(parse_module(program(name)))
    sizes = {axis: min(size, 45) for axis, size in axis_sizes(function, {}).items() if is_symbolic(function, axis)}
    arrays = [shifted(each, by) for each in inputs_of(name, **sizes)]
    found = run(compiled(program(name), "sm_80"), arrays, seed)
    verdicts = verify(parse_module(program(name)), arrays, found, "emulator", sizes=axis_sizes(function, sizes))
    assert all(verdict.ok for verdict in verdicts), [str(verdict) for verdict in verdicts]


def is_symbolic(function: FuncOp, axis: str) -> bool:
    types = [*function.function_type.inputs, *function.function_type.outputs]
    return any(sizes_of(type).get(axis) == DYNAMIC for type in types if is_array(type))


# -- which variants have it -----------------------------------------------------------------------


def test_rows_of_whole_sectors_take_no_shared_memory() -> None:
    (kernel,) = kernels_of(of_many_rows("softmax", 300))
    assert cuda.alignments(kernel) == (32, 16, 0)
    assert [cuda.shared_bytes(kernel, each) > 0 for each in (32, 16, 0)] == [False, True, True]


def test_where_lanes_ask_for_each_sector_once_nothing_is_staged() -> None:
    """One request a warp has all that it moves: rows of 128 bytes or less that follow each other."""
    (kernel,) = kernels_of(program("softmax").replace("x1000", "x8").replace("?x?xf32", "?x8xf32"))
    staged = [op for op in kernel.walk() if isinstance(op, GlobalAccess) and op.staged is not None]
    assert all(not op.is_staged(each) for op in staged for each in cuda.alignments(kernel)[:1])


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize(
    "name", ["softmax", "attention_lse", "linear_attention", "matmul_residual", "quantised_matmul"]
)
def test_there_is_room(name: str, arch: str) -> None:
    """What is staged lies behind the kernel's own tiles, or where those are needed no more; and a multiprocessor holds
    as many blocks as without, or two."""
    module = compiled(program(name), arch)
    machine = machine_of(module)
    a_block = machine.limits.shared_reserved
    for kernel in kernels_in(module):
        held = machine.levels["shared"].capacity // (kernel.shared_bytes.data + a_block)
        for alignment in cuda.alignments(kernel):
            needed = cuda.shared_bytes(kernel, alignment)
            assert needed <= machine.limits.shared_per_block
            assert machine.levels["shared"].capacity // (needed + a_block) >= min(held, 2)


def test_loads_that_follow_each_other_meet_once() -> None:
    (kernel,) = kernels_of(program("layer_norm"))
    together = {op.meets_with for op in fragments(kernel) if len(op.meets_with) > 1}
    assert {tuple(axes_of(op.buffer_type) for op in each) for each in together} == {(("t", "i"), ("i",), ("i",))}
    for each in together:
        places = [(op.staged.at.data, op.staged.end(op.piece_type)) for op in each if op.staged is not None]
        assert len(places) == len(each)
        assert all(end <= begin for (_, end), (begin, _) in pairwise(places))


def test_where_nothing_multiplies_warps_wait_side_by_side() -> None:
    """Where a stream begins, all warps find in the numbers of all rows, before the loop: each loading all would ask for
    sectors seven times."""
    text = program("attention_segments").replace("q = 333, x = 333", "q = 2000, x = 2000")  # 112 rows a block
    (kernel,) = kernels_of(text, "sm_80")
    of_all, of_own = [op for op in fragments(kernel) if isinstance(op, cuda.LoadOp) and op.source.name_hint == "first"]
    assert [op.staged is not None for op in (of_all, of_own)] == [True, False]
    assert [moved(op, kernel, cuda.ANY_STRIDES).sectors for op in (of_all, of_own)] == [15, 28]


def test_results_take_the_place_of_tiles_that_are_needed_no_more() -> None:
    kernel, _ = kernels_of(program("attention_decode"))
    results = [op for op in fragments(kernel) if isinstance(op, cuda.StoreOp)]
    assert kernel.shared_bytes.data
    assert results[0].staged is not None
    assert results[0].staged.at.data == 0
    assert cuda.shared_bytes(kernel, cuda.ANY_STRIDES) == kernel.shared_bytes.data
