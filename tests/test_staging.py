"""Fragments of rows that begin anywhere: through shared memory no sector is asked for twice, and what arrives is right,
whatever the sizes, strides and alignments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from test_coalescing import check, program

from treadle.compiler.pipeline import Options, print_cuda, run_pipeline
from treadle.compiler.source import parse_module
from treadle.dialects import cuda
from treadle.dialects.cuda.accesses import GlobalAccess
from treadle.dialects.cuda.kernel import variant_name
from treadle.passes._staging import MOST_BYTES
from treadle.runtime.emulator.backend import EmulatorBackend
from treadle.runtime.host import HostExecution
from treadle.runtime.interpreter import entry_function

SEEDS = (0, 1, 2)


def rows(count: int, length: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal((count, length), np.float32)


def softmax(a: Any) -> Any:
    e = np.exp(a.astype(np.float64) - a.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def kernels_of(text: str, arch: str = "sm_80") -> list[cuda.KernelOp]:
    module = parse_module(text)
    run_pipeline(module, Options(arch=arch))
    return [op for op in module.body.block.ops if isinstance(op, cuda.KernelOp)]


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
    ((loaded, _),) = check(program("softmax"), [rows(300, 64).T])
    assert loaded.is_fewest
    assert loaded.sectors_per_request <= 4


@pytest.mark.parametrize("name", ["log_softmax", "rms_norm", "layer_norm", "sin2cos2"])
def test_other_kernels_without_products(name: str) -> None:
    from treadle.runtime.inputs import axis_sizes, make_inputs

    function = entry_function(parse_module(program(name)))
    sizes = {axis: 333 if size > 64 else 5 for axis, size in axis_sizes(function, {}).items()}
    arrays = [np.asarray(each) for each in make_inputs(function, axis_sizes(function, sizes), 0)]
    moved = check(program(name), [each.item() if each.ndim == 0 else each for each in arrays])
    assert all(loaded.is_fewest and stored.is_fewest for loaded, stored in moved)


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
    module = parse_module(program("softmax"))
    run_pipeline(module, Options(arch="sm_80"))
    kernels = [op for op in module.body.block.ops if isinstance(op, cuda.KernelOp)]
    names = [variant_name(kernel, each) for kernel in kernels for each in cuda.alignments(kernel)]
    array = VIEWS[view]()
    backend = EmulatorBackend(print_cuda(module), names, seed=seed)
    (found,) = HostExecution(module, backend).run(entry_function(module), [array])
    assert np.allclose(found, softmax(array), rtol=1e-5, atol=1e-7)


# -- which variants have it -----------------------------------------------------------------------


def test_rows_of_whole_sectors_take_no_shared_memory() -> None:
    (kernel,) = kernels_of(program("softmax"))
    assert cuda.alignments(kernel) == (32, 16, 0)
    assert [cuda.shared_bytes(kernel, each) > 0 for each in (32, 16, 0)] == [False, True, True]


def test_where_lanes_ask_for_each_sector_once_nothing_is_staged() -> None:
    """One request a warp has all that it moves: rows of 128 bytes or less that follow each other."""
    (kernel,) = kernels_of(program("softmax").replace("x1000", "x8").replace("?x?xf32", "?x8xf32"))
    staged = [op for op in kernel.walk() if isinstance(op, GlobalAccess) and op.staged is not None]
    assert all(not op.is_staged(each) for op in staged for each in cuda.alignments(kernel)[:1])


@pytest.mark.parametrize("name", ["softmax", "matmul", "attention", "matmul_residual", "quantised_matmul"])
def test_there_is_room(name: str) -> None:
    """What is staged lies behind the kernel's own tiles, within what every block may have."""
    for kernel in kernels_of(program(name)):
        for op in kernel.walk():
            if isinstance(op, GlobalAccess) and op.staged is not None:
                assert kernel.shared_bytes.data <= op.staged.at.data
                assert op.staged.end(op.piece_type) <= MOST_BYTES
