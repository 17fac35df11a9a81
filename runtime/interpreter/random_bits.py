"""Random bits of positions (`diagram.random`), on whole arrays at once: Philox2x32 with seven rounds."""

from __future__ import annotations

import numpy as np

from treadle.dialects.diagram.random import BLOCK, KEY_STEP, MULTIPLIER, ROUNDS, RandomOp
from treadle.runtime.interpreter.arrays import AnyArray


def random_of(op: RandomOp, key: AnyArray, row: AnyArray, column: AnyArray) -> AnyArray:
    """The bits of an operation for arrays of keys and positions, in int32."""
    words = _as_words(key), _as_words(row), _as_words(column)
    if not op.are_shared:
        return words_of(*words)[0].astype(np.uint32).astype(np.int32)
    first, second = words_of(words[0], words[1] | np.uint64(BLOCK), words[2] | np.uint64(BLOCK))
    word = np.where(words[1] & np.uint64(BLOCK), second, first)
    half = np.where(words[2] & np.uint64(BLOCK), word >> np.uint64(16), word & np.uint64(0xFFFF))
    return half.astype(np.int32)


def words_of(key: AnyArray, x: AnyArray, y: AnyArray) -> tuple[AnyArray, AnyArray]:
    """Both words of counters (x, y) under a key; all of them are numbers of 32 bits in uint64."""
    key, x, y = np.broadcast_arrays(key, x, y)
    low = np.uint64(0xFFFFFFFF)
    for _ in range(ROUNDS):
        product = np.uint64(MULTIPLIER) * x
        x, y = (product >> np.uint64(32)) ^ key ^ y, product & low
        key = (key + np.uint64(KEY_STEP)) & low
    return x, y


def _as_words(value: AnyArray) -> AnyArray:
    return value.astype(np.int64).astype(np.uint64) & np.uint64(0xFFFFFFFF)
