"""Masks: bits of the places of a lane that lie in an interval, with ends of all rows or of each."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from xdsl.dialects import arith

from treadle.compiler.layouts.places import places_along
from treadle.compiler.pipeline import Options, print_cuda, run_pipeline
from treadle.compiler.primitives import source
from treadle.compiler.source import load_module
from treadle.dialects import cuda
from treadle.dialects.cuda.layout import LayoutAttr, Mode
from treadle.dialects.cuda.tiles import is_fragment
from treadle.dialects.diagram import MapOp
from treadle.runtime.emulator import Array, compile_source

EXAMPLES = Path(__file__).parents[1] / "examples"

DIGITS = [
    [(8, 1)],
    [(16, 8), (2, 1)],
    [(24, 8), (2, 1)],  # 48 places: two words
    [(8, 128), (4, 1)],
    [(3, 96), (4, 20), (3, 5)],
    [(2, 512), (32, 16), (2, 8), (2, 1)],
]

KERNEL = """
template <class T>
__device__ void tell(uint32_t* out, T end) {{
{lines}
}}
__global__ void bits(const int32_t* near, const int64_t* far, uint32_t* out) {{
  const int t = threadIdx.x;
  for (int i = t; i < {ends}; i += 32) {{
    tell<int32_t>(out + {words} * i, load_global(near + i));
    tell<int64_t>(out + {words} * ({ends} + i), load_global(far + i));
  }}
}}
"""


@pytest.mark.parametrize("digits", DIGITS, ids=str)
def test_bits_are_set_before_an_end(digits: list[tuple[int, int]]) -> None:
    places = [sum(at) for at in product(*(range(0, size * stride, stride) for size, stride in digits))]
    assert places == sorted(places)
    words = -(-len(places) // 32)
    near = np.array([-(2**31), -7, *range(-1, places[-1] + 4), 2**30, 2**31 - 1], np.int32)
    far = near.astype(np.int64)
    far[0], far[-1] = -(2**40), 2**40
    spelled = ", ".join(f"{size}, {stride}" for size, stride in digits)
    lines = "\n".join(f"  store_global(out + {w}, bits_before<{w}, {spelled}>(end));" for w in range(words))
    names = ["bits_before", "load_global", "store_global"]
    module = compile_source(source(names) + KERNEL.format(lines=lines, words=words, ends=len(near)), ["bits"])
    out = np.zeros((2, len(near), words), np.uint32)
    module.launch("bits", (1, 1, 1), (32, 1, 1), 0, [Array(near, False), Array(far, False), Array(out, True)])
    number = np.arange(32 * words)
    found = out[..., number // 32] >> (number % 32).astype(np.uint32) & 1
    for ends, each in zip((near, far), found, strict=True):
        assert np.array_equal(each[:, : len(places)], np.array(places) < ends[:, None])


def test_places_of_digits_that_carry_are_compared() -> None:
    def along(*modes: Mode) -> object:
        return places_along(LayoutAttr(modes, [Mode("", 32, 0)], []), "x")

    assert along(Mode("x", 2, 1), Mode("q", 2, 1), Mode("x", 4, 8)) == (Mode("x", 4, 8), Mode("x", 2, 1))
    assert along(Mode("x", 4, 3), Mode("x", 4, 1)) is None


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize(
    ("name", "begins"), [("attention_causal", False), ("attention_window", True), ("attention_lengths", False)]
)
def test_what_a_condition_leaves_is_one_mask(machine: str, name: str, begins: bool) -> None:
    """No element is compared, and where the last piece ends is the end of the same mask."""
    module = load_module(EXAMPLES / f"{name}.mlir")
    run_pipeline(module, Options(machine=machine))
    masks = [op for op in module.walk() if isinstance(op, cuda.MaskOp) and str(op.value.type).count("[b, h, q, x]")]
    assert masks
    assert not any(isinstance(op.value.owner, cuda.MaskOp) for op in masks)
    assert any(is_fragment(op.limit.type) for op in masks)
    assert any(op.begin is not None for op in masks) == begins
    maps = [op for op in module.walk() if isinstance(op, MapOp) and "[b, h, q, x]" in str(op.result.type)]
    assert maps
    assert not any(isinstance(op, arith.CmpiOp) for each in maps for op in each.walk())
    text = print_cuda(module)
    assert re.search(r"S_kept\w*(\[.*\])? & 1u << \(", text)
