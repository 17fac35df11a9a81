"""Results of words behind products leave in whole lines, 16 bytes a thread, where that is the cheaper way and takes no
block from a multiprocessor: what the algebra says is what addresses and the emulator count, and what arrives is
right."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import suppress
from functools import cache

import numpy as np
import pytest
from test_coalescing import check
from xdsl.dialects.builtin import ModuleOp

from treadle.compiler.cost.kernel.leaving import words_leave
from treadle.compiler.layouts.conflicts import boxed_wavefronts, phase_lanes
from treadle.compiler.layouts.conversions import by_shuffles
from treadle.compiler.layouts.operations import access_of, strides_of, traffic_of
from treadle.compiler.lowering.conversions import vectors_of
from treadle.compiler.machines import load_machine
from treadle.compiler.pipeline import Options, print_cuda, run_pipeline
from treadle.compiler.source import parse_module
from treadle.dialects import cuda
from treadle.dialects.cuda import kernel_names
from treadle.dialects.cuda.boxes import boxes_layout
from treadle.dialects.cuda.layout import LayoutAttr, Mode, accumulator
from treadle.dialects.cuda.staging import EVERYWHERE
from treadle.dialects.cuda.tiles import boxes_of, format_bytes
from treadle.dialects.diagram.array import axes_of
from treadle.dialects.hierarchy.schedule import derivation_of
from treadle.passes.staging.told import told_of_lines
from treadle.runtime.cuda_driver import FORMATS
from treadle.runtime.emulator import EmulationError
from treadle.runtime.emulator.backend import EmulatorBackend
from treadle.runtime.host import HostExecution
from treadle.runtime.inputs import axis_sizes, make_inputs
from treadle.runtime.interpreter import entry_function
from treadle.runtime.verify import verify

LINE = 128
SIZES = [(128, 256, 128), (200, 136, 72), (129, 257, 33), (8, 8, 8), (64, 40, 24)]


def product(size: int = 2048, order: str = "m, n") -> str:
    return f"""
!A = tensor<?x?xf16, #diagram.array<[m, k]>>
!B = tensor<?x?xf16, #diagram.array<[k, n]>>
!C = tensor<?x?xf32, #diagram.array<[{order}]>>
func.func @product(%A: !A, %B: !B) -> !C attributes {{sizes = #diagram.sizes<m = {size}, n = {size}, k = {size}>}} {{
  %C = diagram.contract %A, %B over [k] accumulate f32 : !A, !B -> !C
  func.return %C : !C
}}
"""


WITH_SUMS = """
!Q = tensor<?x?x64xf16, #diagram.array<[h, q, d]>>
!K = tensor<?x?x64xf16, #diagram.array<[h, x, d]>>
!V = tensor<?x?x64xf16, #diagram.array<[h, x, e]>>
!S = tensor<?x?x?xf32, #diagram.array<[h, q, x]>>
!P = tensor<?x?x?xf16, #diagram.array<[h, q, x]>>
!O = tensor<?x?x64xf32, #diagram.array<[h, q, e]>>
func.func @attention(%Q: !Q, %K: !K, %V: !V) -> !O attributes {sizes = #diagram.sizes<h = 64, q = 2048, x = 2048>} {
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %A = diagram.apply @softmax(%S) over [x] : (!S) -> !S
  %P = diagram.cast %A : !S -> !P
  %O = diagram.contract %P, %V over [x] accumulate f32 : !P, !V -> !O
  func.return %O : !O
}
"""
"""Attention whose result stays in f32."""


@cache
def made(text: str, machine: str) -> ModuleOp:
    module = parse_module(text)
    run_pipeline(module, Options(machine=machine))
    return module


def kernels_of(text: str, machine: str) -> list[cuda.KernelOp]:
    return [op for op in made(text, machine).body.block.ops if isinstance(op, cuda.KernelOp)]


def stores_of(text: str, machine: str) -> list[tuple[cuda.KernelOp, cuda.StoreOp]]:
    return [(k, op) for k in kernels_of(text, machine) for op in k.walk() if isinstance(op, cuda.StoreOp)]


def run(text: str, machine: str, sizes: dict[str, int], seed: int = 0, printed: str = "") -> tuple[list[str], bool]:
    """The kernels that were launched, and whether the result is right (EmulationError)."""
    algorithm, module = parse_module(text), made(text, machine)
    inputs = make_inputs(entry_function(algorithm), axis_sizes(entry_function(algorithm), sizes), seed)
    backend = EmulatorBackend(printed or print_cuda(module), kernel_names(module), seed=seed)
    execution = HostExecution(module, backend)
    outputs = execution.run(entry_function(module), inputs)
    names = [launch.kernel for launch in execution.launches]
    return names, all(verdict.ok for verdict in verify(algorithm, inputs, outputs, "emulator"))


# -- through a tile in rows -----------------------------------------------------------------------


@pytest.mark.parametrize("size", [1024, 4096])
def test_every_request_is_whole_lines(size: int) -> None:
    """Enumerated: 32 lanes of 16 bytes, four lines of 128, each asked for once."""
    ((kernel, store),) = stores_of(product(size), "a100")
    assert store.staged is not None
    assert store.staged.below.data == EVERYWHERE
    access = access_of(store, cuda.threads_at(store, kernel), cuda.WHOLE_SECTORS)
    steps = {axis: step * 4 for axis, step in strides_of(store).items()}
    lines = Counter[int]()
    for request in access.requests(steps):
        assert len(request) == 32
        bytes = {address + byte for address in request for byte in range(0, 16, 4)}
        touched = {address // LINE for address in bytes}
        assert len(bytes) * 4 == 4 * LINE == LINE * len(touched)
        lines.update(touched)
    assert set(lines.values()) == {1}
    moved = traffic_of(store, cuda.threads_at(store, kernel))
    assert moved.has_whole_lines
    assert moved.sectors_per_request == 16


@pytest.mark.parametrize("machine", ["a100", "h100", "l40s"])
@pytest.mark.parametrize("size", [512, 1024, 4096])
def test_no_block_is_lost(size: int, machine: str) -> None:
    """With as few registers as threads can have: no multiprocessor holds fewer."""
    of = load_machine(machine)
    for kernel, store in stores_of(product(size), machine):
        if store.staged is None or store.staged.below.data != EVERYWHERE:
            continue
        warps, own = kernel.threads.data // 32, kernel.shared_bytes.data
        count = int(np.prod(store.value.type.get_shape())) // kernel.threads.data + 26  # type: ignore[attr-defined]
        ends = max(own, store.staged.end(store.piece_type))
        assert of.blocks_on_sm(warps, count, ends) == of.blocks_on_sm(warps, count, own)


@pytest.mark.parametrize(("m", "n", "k"), SIZES)
def test_sectors_are_those_of_the_emulator(m: int, n: int, k: int) -> None:
    """At any size, by copies of 16 bytes, 8, or by sectors."""
    a, b = np.ones((m, k), np.float16), np.ones((k, n), np.float16)
    for loaded, stored in check(product(), [a, b], arch="sm_80"):
        assert loaded.is_fewest
        assert stored.is_fewest


@pytest.mark.parametrize("order", ["m, n", "n, m"])
@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize(("m", "n", "k"), SIZES)
def test_results_are_right_at_any_size(m: int, n: int, k: int, machine: str, order: str) -> None:
    for seed in (0, 1):
        assert run(product(order=order), machine, {"m": m, "n": n, "k": k}, seed)[1]


def test_few_sums_leave_as_lanes_hold_them() -> None:
    """The numbers of both ways are told."""
    ((kernel, store),) = stores_of(product(128), "a100")
    assert store.staged is None or store.staged.below.data < EVERYWHERE
    told = told_of_lines(store, kernel)
    through, held = map(int, re.findall(r"\d+", told.replace(",", "")))
    assert held <= through
    steps = [str(step) for step in derivation_of(entry_function(made(product(128), "a100")).attributes)]
    assert any(told in step for step in steps)


@pytest.mark.parametrize("size", [128, 256, 512, 1024, 4096])
@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_the_model_says_the_same(size: int, machine: str) -> None:
    """Which results are large enough: the model by their elements and warps, the lowering by the layout."""
    for kernel, store in stores_of(product(size), machine):
        if cuda.roles_of(kernel) is None:
            elements = int(np.prod(store.value.type.get_shape()))  # type: ignore[attr-defined]
            is_in_lines = store.staged is not None and store.staged.below.data == EVERYWHERE
            assert bool(words_leave(elements, kernel.threads.data // 32, False)) == is_in_lines


def test_shuffles_take_more() -> None:
    """Neighbours exchange tiles of 8 columns, for half lines, or eight lanes of two rows, for whole ones. For each
    register, with the requests and lines of 16 bytes a lane behind it; as lanes hold them that is 4.5, in rows 4."""
    held = accumulator("m", "n", 1, 8, (4, 1)).slice(("m", "n"))
    columns, rows = Mode("n", 4, 1), Mode("m", 2, 8)
    half = LayoutAttr((Mode("n", 4, 16), rows, columns), (Mode("m", 8, 1), Mode("n", 2, 4), Mode("n", 2, 8)), held.warp)
    whole = LayoutAttr(
        (Mode("n", 2, 32), rows, Mode("m", 2, 1), columns), (Mode("m", 4, 2), Mode("n", 8, 4)), held.warp
    )
    costs = [by_shuffles(held, layout, 4).cost.total / 32 for layout in (half, whole)]
    assert [cost + (1 + lines) / 4 for cost, lines in zip(costs, (8, 4), strict=True)] == [4.75, 9.25]


# -- through boxes --------------------------------------------------------------------------------


@pytest.mark.parametrize(("columns", "turned", "wavefronts"), [(32, False, 4), (64, False, 4), (64, True, 1)])
def test_wavefronts_of_boxes(columns: int, turned: bool, wavefronts: int) -> None:
    """Counted once more by hand: pairs of four rows meet in pairs of banks under the swizzle of rows of 128 bytes, two
    wavefronts a phase; single words of a turned result do not meet."""
    layout = accumulator("m", "n", 1, columns // 8, (4, 1)).slice(("m", "n"))
    axes = ("n", "m") if turned else ("m", "n")
    sizes = {"m": 64, "n": columns}
    boxes = boxes_layout([sizes[axis] for axis in axes], 4)
    assert boxes is not None
    access = vectors_of(layout, axes[-1], 4, sizes)
    assert access.width == (1 if turned else 2)
    found, size = 0, phase_lanes(access.width * 4)
    requests = list(access.coordinates(axes))
    for request in requests:
        for first in range(0, 32, size):
            words = {
                (boxes.offset(place, 4) + 4 * i) // 4
                for place in request[first : first + size]
                for i in range(access.width)
            }
            found += max(Counter(word % 32 for word in words).values())
    assert found == boxed_wavefronts(access, boxes, axes, 4) == wavefronts * len(requests)


def test_tensor_copies_take_whole_lines() -> None:
    """In parts of their own where blocks take several pieces, and each warpgroup its rows."""
    kernel = next(each for each in kernels_of(product(4096), "h100") if "by_lanes" not in each.sym_name.data)
    stores = [op for op in kernel.walk() if isinstance(op, cuda.TensorStoreOp)]
    assert len(stores) == 4
    assert all(op.by_groups is not None for op in stores)
    for store in stores:
        assert boxes_of(store.tile.type).span.data * format_bytes(store.tile.type) == LINE
    assert not any(isinstance(op, cuda.StoreOp) for op in kernel.walk())


@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_whole_numbers_leave_alike(machine: str) -> None:
    text = product(4096).replace("xf16", "xi8").replace("xf32", "xi32").replace("accumulate f32", "accumulate i32")
    text = text.replace("!B = tensor<?x?xi8, #diagram.array<[k, n]>>", "!B = tensor<?x?xi8, #diagram.array<[n, k]>>")
    stores = [op for kernel in kernels_of(text, machine) for op in kernel.walk() if isinstance(op, cuda.TensorStoreOp)]
    assert bool(stores) == (machine == "h100")
    assert run(text, machine, {"m": 200, "n": 136, "k": 96})[1]
    assert "int32" in FORMATS


def test_tensor_copies_of_many_pieces_are_right() -> None:
    for sizes in ({"m": 300, "n": 520, "k": 72}, {"m": 128, "n": 256, "k": 64}):
        (name,), right = run(product(4096), "h100", sizes)
        assert right
        assert name == "product_kernel_specialised"


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("sizes", [{"h": 2, "q": 70, "x": 50}, {"h": 1, "q": 192, "x": 128}])
def test_attention_leaves_in_lines(sizes: dict[str, int], machine: str) -> None:
    kernels = kernels_of(WITH_SUMS, machine)
    by_copies = [op for kernel in kernels for op in kernel.walk() if isinstance(op, cuda.TensorStoreOp)]
    in_lines = [op for _, op in stores_of(WITH_SUMS, machine) if op.staged and op.staged.below.data == EVERYWHERE]
    assert axes_of((by_copies or in_lines)[0].operands[0].type)[-1] == "e"
    assert bool(by_copies) == (machine == "h100")
    assert run(WITH_SUMS, machine, sizes)[1]


@pytest.mark.parametrize(
    ("found", "instead"),
    [
        (r"fence_proxy_async\(\);", ""),
        (r"in_boxes<32, (\d+), 4>\(warp", r"in_boxes<16, \1, 4>(warp"),
        (r"lane % 4 \* 2\)", "lane % 4 * 2 ^ 2)"),
    ],
)
def test_a_mistake_on_the_way_is_noticed(found: str, instead: str) -> None:
    printed = print_cuda(made(product(), "h100"))
    head, begin, body = printed.partition("template <int ALIGNED>")
    wrong, count = re.subn(found, instead, body)
    assert count
    with suppress(EmulationError):
        assert not run(product(), "h100", {"m": 200, "n": 136, "k": 72}, printed=head + begin + wrong)[1]
