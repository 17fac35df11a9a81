"""Attention of each query to what data choose for it, with the heads of a group as rows: blocks of keys
(`programs/selected_blocks.mlir`), against plain numpy."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest
from numpy.typing import NDArray

import treadle

from roads import Road, compiled  # isort: skip

PROGRAM = Path(__file__).resolve().parent / "programs" / "selected_blocks.mlir"
Half: TypeAlias = NDArray[np.float16]

BLOCK, HEADS, WIDTH = 64, 16, 128


@cache
def road(machine: str) -> Road:
    return compiled(PROGRAM.read_text(), machine=machine)


def given(queries: int, keys: int, chosen: int) -> tuple[Half, Half, Half, NDArray[np.int32]]:
    """Of each query and each of 2 heads of keys: the first block, its own, and others, which may lie behind it, be
    none (-1), or lie outside of the keys."""
    dice = np.random.default_rng(queries + keys)
    Q = dice.standard_normal((queries, 2, HEADS, WIDTH)).astype(np.float16)
    K, V = (dice.standard_normal((keys, 2, WIDTH)).astype(np.float16) for _ in range(2))
    blocks = dice.integers(-1, -(-keys // BLOCK), (queries, 2, chosen))
    blocks[..., -1] = np.arange(queries)[:, None] // BLOCK
    blocks[..., 0] = 0
    return Q, K, V, blocks.astype(np.int32)


def by_numpy(Q: Half, K: Half, V: Half, blocks: NDArray[np.int32]) -> NDArray[np.float64]:
    """(t, h, g, e) in float64."""
    result = np.zeros(Q.shape)
    for t, h in np.ndindex(blocks.shape[:2]):
        places = np.concatenate([BLOCK * block + np.arange(BLOCK) for block in blocks[t, h] if block >= 0])
        places = places[(places <= t) & (places < len(K))]
        S = Q[t, h].astype(float) @ K[places, h].astype(float).T / WIDTH**0.5
        P = np.exp(S - S.max(axis=1, keepdims=True))
        result[t, h] = P @ V[places, h].astype(float) / P.sum(axis=1, keepdims=True)
    return result


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize(("queries", "keys", "chosen"), [(70, 70, 3), (1, 300, 1), (37, 130, 4)])
def test_each_query_meets_its_blocks(machine: str, queries: int, keys: int, chosen: int):
    arrays = given(queries, keys, chosen)
    assert all(verdict.ok for verdict in road(machine).verdicts(arrays))
    (found,) = road(machine).run(arrays)
    Q, K, V, blocks = arrays
    np.testing.assert_allclose(found, by_numpy(Q, K, V, blocks), rtol=0, atol=4e-3)


@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_it_is_one_kernel(machine: str):
    assert treadle.compile(PROGRAM.read_text(), machine=machine).estimate.kernels == 1
