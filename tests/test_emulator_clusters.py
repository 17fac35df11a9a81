"""Blocks of a cluster in the emulator: what they bring each other arrives, and what goes wrong between them is told."""

from __future__ import annotations

import ctypes
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from treadle.compiler.pipeline import print_cuda
from treadle.compiler.primitives import primitive_names, source
from treadle.compiler.source import load_module
from treadle.dialects import cuda
from treadle.runtime.backend import has_host_compiler
from treadle.runtime.clusters import why_no_cluster
from treadle.runtime.cuda_driver import DriverFailure, Functions, launch_config
from treadle.runtime.emulator import Array, EmulationError, compile_source
from treadle.runtime.emulator.arrays import MappedArray

needs_compiler = pytest.mark.skipif(not has_host_compiler(), reason="no C++ compiler is installed")

ROWS, COLUMNS, BLOCKS, TURNS = 32, 64, 2, 4

# Two blocks read the same TURNS tiles through one stage: each brings half of the rows to both. They add up what they
# read, which is the sum of all rows for each column, and say how they got there in `far`, read from the other block.
KERNEL = """
extern "C" __global__ void __cluster_dims__(2, 1, 1) together(
    float* sums, int64_t turns, const __grid_constant__ TensorMap map) {
  __half* const tile = reinterpret_cast<__half*>(shared_memory());
  float* const mine = reinterpret_cast<float*>(shared_memory() + 4096);
  uint64_t* const full = reinterpret_cast<uint64_t*>(shared_memory() + 8192);
  uint64_t* const empty = full + 1;
  const int thread = threadIdx.x, block = block_in_cluster();
  if (thread == 0) {
    mbarrier_init(full, 1);
    mbarrier_init(empty, 2 * 2);
    mbarrier_init_fence();
  }
  barrier_cluster_arrive();
  barrier_cluster_wait();
  float sum = 0.0f;
  for (int turn = 0; turn < turns; ++turn) {
    if (thread == 64) {
      mbarrier_wait(empty, (turn + 1) % 2);
      mbarrier_arrive_expect(full, 4096);
      tensor_load_multicast(tile + block * 1024, map, full, {0, turn * 32 + block * 16}, 3);
    }
    if (thread < 64) {
      mbarrier_wait(full, turn % 2);
      for (int row = 0; row < 32; ++row)
        sum += to_float(load_shared(&tile[in_boxes<64, 32, 2>(row, thread)]));
      barrier_warp();
      if (thread % 32 < 2) mbarrier_arrive_at(empty, thread % 32);
    }
  }
  if (thread < 64) store_shared(mine + thread, sum);
  barrier_cluster_arrive();
  barrier_cluster_wait();
  if (thread < 64) store_global(sums + blockIdx.x * 64 + thread, load_cluster(mine + thread, 1 - block));
  barrier_cluster_arrive();  // the last
  barrier_cluster_wait();
}
"""


def run(text: str = KERNEL, seed: int = 0, cluster: int = BLOCKS, grid: int = 2 * BLOCKS) -> None:
    """Launch the kernel, in clusters, and hold what it gives against numpy (EmulationError)."""
    a = np.random.default_rng(1).integers(-8, 8, (TURNS * ROWS, COLUMNS)).astype(np.float16)
    out = np.zeros((grid, COLUMNS), np.float32)
    used = [name for name in primitive_names("sm_90a") if name in text]
    module = compile_source(source(used) + text, ["together"])
    map = MappedArray(Array(a, False), (ROWS // BLOCKS, COLUMNS), 128)
    arguments = [Array(out, True), ctypes.c_int64(TURNS), map]
    report = module.launch("together", (grid, 1, 1), (96, 1, 1), 8208, arguments, seed=seed, cluster=cluster)
    np.testing.assert_array_equal(out, np.broadcast_to(a.astype(np.float32).sum(0), out.shape))
    assert report.bytes_loaded == a.nbytes * grid // BLOCKS  # each half once a cluster, not once a block
    # ... and across what others bring; then what each reads of the sums of another.
    assert report.cluster_bytes == a.nbytes * grid // BLOCKS * (BLOCKS - 1) + grid * COLUMNS * 4


@needs_compiler
@pytest.mark.parametrize("seed", range(6))
def test_a_cluster_brings_each_tile_once(seed: int) -> None:
    run(seed=seed)


LAST = KERNEL[KERNEL.index("  barrier_cluster_arrive();  // the last") :]

FAULTS = {
    "no cluster barrier at the end": (LAST, "}\n", "left block"),
    "the cluster only arrives at the end": (LAST, "  barrier_cluster_arrive();\n}\n", "left block"),
    "no cluster barrier before it is read": (
        "sum);\n  barrier_cluster_arrive();\n  barrier_cluster_wait();",
        "sum);",
        "uninitialised|race",
    ),
    "barriers are used before others have initialised them": (
        "  barrier_cluster_arrive();\n  barrier_cluster_wait();\n  float",
        "  barrier_block();\n  float",
        "uninitialised|race",
    ),
    "the mask names the own block only": ("block * 16}, 3)", "block * 16}, 1 << block)", "deadlock"),
    "the mask names the first block only": ("block * 16}, 3)", "block * 16}, 1)", "deadlock|phase|race"),
    "the mask names a block too many": ("block * 16}, 3)", "block * 16}, 7)", "out of bounds"),
    "fewer bytes are expected": ("full, 4096", "full, 2048", "phase|race"),
    "more bytes are expected": ("full, 4096", "full, 8192", "deadlock"),
    "arrivals at the own block only": (
        "mbarrier_arrive_at(empty, thread % 32)",
        "mbarrier_arrive_at(empty, block)",
        "race",
    ),
    "arrivals at the other block only": (
        "mbarrier_arrive_at(empty, thread % 32)",
        "mbarrier_arrive_at(empty, 1 - block)",
        "race",
    ),
    "arrivals of the own block are awaited, others come": (
        "mbarrier_init(empty, 2 * 2)",
        "mbarrier_init(empty, 2)",
        "race|phase",
    ),
    "an arrival too few": ("if (thread % 32 < 2) mbarrier", "if (thread % 32 < 1) mbarrier", "deadlock"),
    "an arrival at a block that is not there": (
        "mbarrier_arrive_at(empty, thread % 32)",
        "mbarrier_arrive_at(empty, 2)",
        "bounds",
    ),
    "both bring the same half": ("tile + block * 1024", "tile", "race"),
    "the stage is not awaited": ("      mbarrier_wait(empty, (turn + 1) % 2);\n", "", "race"),
    "an arrival before the tile is read": (
        "      mbarrier_wait(full, turn % 2);\n",
        "      mbarrier_wait(full, turn % 2);\n      if (thread % 32 < 2) mbarrier_arrive_at(empty, thread % 32);\n",
        "race|phase",
    ),
    "a wait at the cluster's barrier without an arrival": (
        "  barrier_cluster_arrive();  // the last\n",
        "",
        "phase",
    ),
    "two arrivals at the cluster's barrier": (
        "  barrier_cluster_arrive();  // the last\n",
        "  barrier_cluster_arrive();\n  barrier_cluster_arrive();\n",
        "phase",
    ),
    "one thread does not come to the cluster's barrier": (
        "  barrier_cluster_arrive();\n  barrier_cluster_wait();\n  float",
        "  if (thread != 5) barrier_cluster_arrive();\n  if (thread != 5) barrier_cluster_wait();\n  float",
        "deadlock|race|uninitialised",
    ),
}


@needs_compiler
@pytest.mark.parametrize("seed", [0, 3])
@pytest.mark.parametrize("what", FAULTS)
def test_what_goes_wrong_between_blocks_is_told(what: str, seed: int) -> None:
    old, new, kind = FAULTS[what]
    assert KERNEL.count(old) == 1
    with pytest.raises(EmulationError, match=kind):
        run(KERNEL.replace(old, new), seed)


@needs_compiler
def test_a_fault_names_its_block() -> None:
    with pytest.raises(EmulationError) as caught:
        run(KERNEL.replace(LAST, "}\n"))
    assert {fault.block[0] // BLOCKS for fault in caught.value.faults} == {0}
    assert "which may have returned" in str(caught.value)
    assert "of the cluster" in str(caught.value)


# -- from the IR -------------------------------------------------------------------------------------


@cache
def printed() -> str:
    """A kernel in which each block reads the tile of the other: @swapped."""
    module = load_module(Path(__file__).parents[1] / "lit_tests" / "cuda" / "clusters.mlir")
    for kernel in [op for op in module.body.block.ops if isinstance(op, cuda.KernelOp)]:
        if kernel.sym_name.data != "swapped":
            kernel.detach()
    return print_cuda(module)


def swapped(text: str, seed: int) -> None:
    """Each block gets the rows of its neighbour (EmulationError)."""
    x = np.random.default_rng(seed).standard_normal((256, 32)).astype(np.float16)
    y = np.zeros_like(x)
    arguments = [Array(x, False), ctypes.c_int64(32), Array(y, True), ctypes.c_int64(32)]
    module = compile_source(text, ["swapped"])
    report = module.launch("swapped", (4, 1, 1), (128, 1, 1), 5120, arguments, seed=seed, cluster=2)
    np.testing.assert_array_equal(y, x.reshape(2, 2, 64, 32)[:, ::-1].reshape(256, 32))
    assert report.cluster_bytes == x.nbytes


MEET = r"  barrier_cluster_arrive\(\);\n  barrier_cluster_wait\(\);\n"

UNORDERED = {
    "read before it is written": (rf"{MEET}(  __half theirs)", r"\1", "race|uninitialised"),
    "the block leaves while it is read": (rf"{MEET}(\}}\n)", r"\1", "left block"),
    "its own tile is read": (r"int\(other\)", "int(number)", "(?i)arrays are not equal"),
    "a block that is not there": (r"int\(other\)", "int(other + 1)", "load_cluster names block 2"),
    "written again while it is read": (
        rf"(  \}}  // Y\[q, d\] from registers\n)({MEET})",
        r"\1  store_shared(X_shared + thread, mine[0][0]);\n\2",
        "race",
    ),
}


@needs_compiler
@pytest.mark.parametrize("seed", range(4))
def test_a_block_reads_the_tile_of_another(seed: int) -> None:
    swapped(printed(), seed)


@needs_compiler
@pytest.mark.parametrize("seed", [0, 3])
@pytest.mark.parametrize("what", UNORDERED)
def test_reads_of_another_block_must_be_ordered(what: str, seed: int) -> None:
    pattern, replacement, said = UNORDERED[what]
    text, count = re.subn(pattern, replacement, printed())
    assert count == 1
    with pytest.raises((EmulationError, AssertionError), match=said):
        swapped(text, seed)


@needs_compiler
@pytest.mark.parametrize(
    ("cluster", "grid", "reason"),
    [
        (2, 3, "a cluster of 2 blocks does not divide a grid of 3 along x"),
        (9, 9, "a cluster of 9 blocks: 1 to 8 can be launched"),
        (0, 2, "a cluster of 0 blocks"),
    ],
)
def test_clusters_that_cannot_be_launched(cluster: int, grid: int, reason: str) -> None:
    assert reason in str(why_no_cluster(cluster, grid))
    with pytest.raises(ValueError, match=reason):
        run(cluster=cluster, grid=grid)
    with pytest.raises(DriverFailure, match=reason):
        Functions(b"").launch("together", (grid, 1, 1), (96, 1, 1), 0, [], cluster)


def test_the_driver_is_told_of_clusters() -> None:
    driver = pytest.importorskip("cuda.bindings.driver")
    config = launch_config(driver, (6, 1, 1), (384, 1, 1), 1000, 2)
    assert (config.gridDimX, config.blockDimX, config.sharedMemBytes, config.numAttrs) == (6, 384, 1000, 1)
    (attribute,) = config.attrs
    assert attribute.id == driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    dimensions = attribute.value.clusterDim
    assert (dimensions.x, dimensions.y, dimensions.z) == (2, 1, 1)
