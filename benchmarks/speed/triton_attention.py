"""Attention's forward pass as one writes it in Triton: from the definition, a block of rows at a time, with the running
maximum and sum of online softmax. A peer that is always there, tuned over a few configurations where it runs.

Needs Triton and a GPU; `TRITON_INTERPRET=1` runs `forward` on tensors of the CPU."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl


@triton.jit
def further(
    q,
    keys,
    values,
    made,
    greatest,
    total,
    first,
    end,
    rows,
    length,
    scale,
    MASKED: tl.constexpr,
    CAUSAL: tl.constexpr,
    WIDTH: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """The state of some rows after the columns from `first` to `end`; `scale` is of scores in powers of two."""
    d = tl.arange(0, WIDTH)
    for start in range(first, end, COLUMNS):
        columns = start + tl.arange(0, COLUMNS)
        places = columns[:, None] * WIDTH + d[None, :]
        if MASKED:
            there = columns[:, None] < length
            k = tl.load(keys + places, mask=there, other=0.0)
            v = tl.load(values + places, mask=there, other=0.0)
        else:
            k = tl.load(keys + places)
            v = tl.load(values + places)
        scores = tl.dot(q, tl.trans(k)) * scale
        if MASKED:
            seen = columns[None, :] < length
            if CAUSAL:
                seen = seen & (columns[None, :] <= rows[:, None])
            scores = tl.where(seen, scores, float("-inf"))
        highest = tl.maximum(greatest, tl.max(scores, 1))
        weights = tl.exp2(scores - highest[:, None])
        kept = tl.exp2(greatest - highest)
        total = total * kept + tl.sum(weights, 1)
        made = tl.dot(weights.to(v.dtype), v, made * kept[:, None])
        greatest = highest
    return made, greatest, total


@triton.jit
def forward(
    queries,
    keys,
    values,
    results,
    scale,
    length_q,
    length_x,
    CAUSAL: tl.constexpr,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """A block of rows of one head. Arrays are contiguous, [heads, length, WIDTH]; a causal row sees itself and what is
    before, so both lengths are one."""
    head = tl.program_id(1).to(tl.int64)
    begin = tl.program_id(0) * ROWS
    rows = begin + tl.arange(0, ROWS)
    places = head * length_q * WIDTH + rows[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    q = tl.load(queries + places, mask=rows[:, None] < length_q, other=0.0)
    keys += head * length_x * WIDTH
    values += head * length_x * WIDTH
    made = tl.zeros([ROWS, WIDTH], tl.float32)
    greatest = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    end = tl.minimum(begin + ROWS, length_x) if CAUSAL else length_x
    # Blocks of columns of which every row sees all need no mask.
    whole = (tl.minimum(begin, length_x) if CAUSAL else length_x) // COLUMNS * COLUMNS
    made, greatest, total = further(
        q, keys, values, made, greatest, total, 0, whole, rows, length_x, scale, False, CAUSAL, WIDTH, COLUMNS
    )
    made, greatest, total = further(
        q, keys, values, made, greatest, total, whole, end, rows, length_x, scale, True, CAUSAL, WIDTH, COLUMNS
    )
    made = made / total[:, None]
    tl.store(results + places, made.to(results.dtype.element_ty), mask=rows[:, None] < length_q)


CONFIGURATIONS = ((128, 128, 8, 3), (128, 128, 8, 2), (128, 64, 8, 3), (128, 64, 4, 3), (64, 64, 4, 3), (64, 128, 4, 2))
"""Rows, columns, warps and stages."""
LOG2_E = 1.4426950408889634

tuned: Any = triton.autotune(
    [triton.Config({"ROWS": r, "COLUMNS": c}, num_warps=w, num_stages=s) for r, c, w, s in CONFIGURATIONS],
    key=["length_q", "length_x", "CAUSAL", "WIDTH"],
)(forward)


def attention(Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, causal: bool) -> torch.Tensor:
    """Of [batch, heads, length, width]; the first call tunes."""
    made = torch.empty_like(Q)
    *many, length, width = Q.shape
    heads = many[0] * many[1]
    tuned[lambda meta: (triton.cdiv(length, meta["ROWS"]), heads)](
        Q, K, V, made, LOG2_E * width**-0.5, length, K.shape[-2], CAUSAL=causal, WIDTH=width
    )
    return made
