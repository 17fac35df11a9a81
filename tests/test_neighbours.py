"""Where a group takes few neighbours at a time, L2 gives more bytes than it asked for: predicted as counted."""

from __future__ import annotations

import numpy as np
import pytest

import treadle
import treadle.language as tl
from treadle.compiler.cost.kernel.neighbours import sector_share
from treadle.compiler.gates.traffic import SECTOR, traffic_of
from treadle.dialects.cuda import kernel_names
from treadle.runtime.backend import has_host_compiler
from treadle.runtime.emulator.backend import EmulatorBackend
from treadle.runtime.host import execute


@pytest.mark.parametrize(
    ("near", "share"),
    [
        ([("d", 64)], 1),
        ([("d", 16)], 1),
        ([("d", 4)], 4),
        ([("d", 1)], 16),
        ([("d", 24)], 4 / 3),
        ([("d", 8), ("q", 1)], 2),  # a row of 64 elements goes on elsewhere
        ([("s", 4), ("q", 2)], 2),  # rows of 4 elements are taken whole: two are neighbours
        ([("s", 4), ("q", 8)], 1),
        ([("s", 9), ("q", 8)], 1),  # a piece reaches past the end
    ],
)
def test_the_share_of_sectors(near: list[tuple[str, int]], share: float) -> None:
    assert sector_share(near, 2, {"d": 64, "q": 32, "s": 4}) == pytest.approx(share)


def test_the_share_of_many_candidates() -> None:
    pieces = np.array([1, 8, 16, 64])
    share = sector_share([("d", pieces), ("q", 2)], 2, {"d": 16, "q": 32})
    np.testing.assert_allclose(np.asarray(share, float), [16, 2, 1, 1])


@treadle.kernel("i k c, j k c -> i j c")
def channels(A: tl.Array, B: tl.Array) -> tl.Array:
    """A product for each channel, of which neighbours in memory are."""
    return tl.contract(A, B, over="k")


@treadle.kernel("c i k, c j k -> c i j")
def batches(A: tl.Array, B: tl.Array) -> tl.Array:
    return tl.contract(A, B, over="k")


@pytest.mark.skipif(not has_host_compiler(), reason="no C++ compiler")
@pytest.mark.parametrize("kernel", [channels, batches], ids=["channels", "batches"])
def test_sectors_are_as_predicted(kernel: treadle.language.NamedKernel) -> None:
    sizes = {"i": 128, "j": 128, "k": 128, "c": 16}
    shapes = [[sizes[axis] for axis in axes] for axes in kernel.signature.inputs]
    compiled = treadle.compile(kernel.trace(["f16", "f16"], sizes, sizes), machine="a100")
    backend = EmulatorBackend(compiled.cuda, kernel_names(compiled.module), checks=True)
    execute(compiled.module, [np.ones(shape, np.float16) for shape in shapes], backend)
    moved = traffic_of(compiled.cuda, backend.reports)
    between = next(link for each in compiled.cost().kernels for link in each.links if link.source == "L2")
    assert SECTOR * sum(each.sectors for each in moved) == between.bytes
