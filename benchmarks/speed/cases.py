"""What is measured: programs of `examples/` at the sizes at which others publish."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import programs

TOKENS, CHANNELS = 16384, 2048
"""Batch times length, and heads times width, stay the same, as in the figures of FlashAttention-3."""
ROW_ELEMENTS = 2**27
"""Of an array whose rows are normalised: many times what L2 holds."""


@dataclass(frozen=True)
class Case:
    """One program at one set of sizes, and the work that its time is divided by."""

    kind: str
    program: str
    sizes: Mapping[str, int]
    flop: int = 0
    """Of the products: two for each multiplication and addition; under a causal condition, of half of the scores."""
    bytes: int = 0
    """Of inputs and results, each moved once; where that is the work."""

    def __str__(self) -> str:
        return f"{self.kind} {', '.join(f'{axis} {size}' for axis, size in self.sizes.items())}"

    @property
    def unit(self) -> str:
        return "TFLOP/s" if self.flop else "TB/s"

    def rate(self, seconds: float) -> float:
        """In `unit`."""
        return (self.flop or self.bytes) / seconds / 1e12


def cases(quick: bool) -> Iterator[Case]:
    """Everything, or a few of each kind."""
    yield from _attention((1024, 4096) if quick else (512, 1024, 2048, 4096, 8192, 16384))
    yield from map(product, (2048,) if quick else (1024, 2048, 4096, 8192, 16384))
    yield from map(layer, (2048,) if quick else (1024, 4096, 8192))
    yield from map(swiglu, (2048,) if quick else (1024, 4096, 8192))
    for length in (4096,) if quick else (1024, 4096, 16384, 65536):
        yield softmax(length)
        yield rms_norm(length)


def _attention(lengths: tuple[int, ...]) -> Iterator[Case]:
    for causal in (False, True):
        for width in (64, 128, 256):
            for length in lengths:
                yield attention(TOKENS // length, CHANNELS // width, length, width, causal)


def attention(batch: int, heads: int, length: int, width: int, causal: bool = False) -> Case:
    sizes = {"b": batch, "h": heads, "q": length, "x": length}
    text = programs.attention(width, sizes, example="attention_causal" if causal else "attention")
    flop = 4 * batch * heads * length * length * width
    kind = "causal attention" if causal else "attention"
    return Case(kind, text, {**sizes, "d": width}, flop=flop // 2 if causal else flop)


def product(size: int) -> Case:
    sizes = dict.fromkeys("mnk", size)
    return Case("product", programs.matmul(sizes), sizes, flop=2 * size**3)


def layer(size: int) -> Case:
    """A product with bias and SiLU, which PyTorch alone makes two kernels of."""
    sizes = dict.fromkeys("tio", size)
    return Case("layer", programs.example("matmul_epilogue", sizes), sizes, flop=2 * size**3)


def swiglu(size: int) -> Case:
    sizes = dict.fromkeys("tij", size)
    return Case("swiglu", programs.example("swiglu", sizes), sizes, flop=4 * size**3)


def softmax(length: int) -> Case:
    sizes = {"row": ROW_ELEMENTS // length, "x": length}
    return Case("softmax", programs.example("softmax", sizes), sizes, bytes=2 * 2 * ROW_ELEMENTS)


def rms_norm(length: int) -> Case:
    sizes = {"t": ROW_ELEMENTS // length, "i": length}
    return Case("rms norm", programs.example("rms_norm", sizes), sizes, bytes=2 * 2 * ROW_ELEMENTS + 4 * length)
