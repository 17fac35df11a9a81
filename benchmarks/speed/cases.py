"""What is measured: programs of `examples/` at the sizes at which others publish."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import programs

from treadle import language as tl
from treadle.runtime.inputs import SMALL_INTEGERS

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
    factors: Mapping[str, float] = field(default_factory=dict[str, float])
    """By which arguments are smaller than standard normal numbers: weights, by the root of how many numbers a product
    adds up, as networks have them; a product of two such sums would be infinite in f16."""

    def __str__(self) -> str:
        return f"{self.kind} {', '.join(f'{axis} {size}' for axis, size in self.sizes.items())}"

    @property
    def open_sizes(self) -> Mapping[str, int]:
        """Of the axes whose size the program leaves to the launch. Made static for measuring, as `torch.compile`
        does: of clusters, for one, it must be known that they divide the grid."""
        head = self.program.partition("#diagram.sizes<")[2].partition(">")[0]
        stated = [each.partition("=")[0].strip() for each in head.split(",")]
        return {axis: self.sizes[axis] for axis in stated if axis in self.sizes}

    @property
    def unit(self) -> str:
        return "TFLOP/s" if self.flop else "TB/s"

    def rate(self, seconds: float) -> float:
        """In `unit`."""
        return (self.flop or self.bytes) / seconds / 1e12


def cases(quick: bool) -> Iterator[Case]:
    """A few of each kind, by which one would judge; then, unless in haste, all others."""
    first = list(_few())
    yield from first
    if not quick:
        known = {str(case) for case in first}
        yield from (case for case in _all() if str(case) not in known)


def _few() -> Iterator[Case]:
    yield from map(product, (4096, 8192))
    for width in (128, 64, 256):
        for causal in (False, True):
            yield attention(TOKENS // 4096, CHANNELS // width, 4096, width, causal)
    yield softmax(4096)
    yield rms_norm(4096)
    yield layer(4096, 4096, 4096)
    yield layer(TOKENS, 1024, 4096)
    yield swiglu(4096)
    yield mixed_attention(16384)
    yield product_of_eight_bits(8192)
    yield attention_of_eight_bits(16384)
    yield packed_attention(16384)
    yield generation(16, 4096)
    yield latent_attention(64, 4096)
    for causal in (False, True):
        yield attention(TOKENS // 16384, CHANNELS // 128, 16384, 128, causal)
        yield attention(TOKENS // 1024, CHANNELS // 128, 1024, 128, causal)
    yield narrow_heads(4096)
    yield product_in_f32(4096)
    yield distances(4096)


def _all() -> Iterator[Case]:
    yield from _attention((512, 1024, 2048, 4096, 8192, 16384))
    yield from map(product, (1024, 2048, 4096, 8192, 16384))
    yield from map(product_of_eight_bits, (1024, 2048, 4096, 8192, 16384))
    yield from map(mixed_attention, (2048, 4096, 8192, 16384))
    yield from map(attention_of_eight_bits, (2048, 4096, 8192, 16384))
    yield attention_of_eight_bits(4096, "x e")
    yield attention_of_eight_bits(16384, "x e")
    yield from map(packed_attention, (4096, 16384))
    yield from map(grouped_queries, (1024, 4096, 16384))
    yield from (generation(batch, length) for batch, length in ((1, 8192), (1, 65536), (16, 4096), (64, 8192)))
    yield from (latent_attention(batch, length) for batch, length in ((8, 8192), (64, 4096), (128, 1024)))
    yield from map(window_attention, (512, 1024, 2048, 4096, 8192, 16384))
    yield from (layer(size, size, size) for size in (1024, 4096, 8192))
    yield from (layer(TOKENS, width, 4 * width) for width in (768, 1024, 2048))
    yield from map(swiglu, (1024, 4096, 8192))
    yield from map(distances, (1024, 4096, 16384))
    for length in (1024, 4096, 16384, 65536):
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


def narrow_heads(length: int) -> Case:
    """Eight heads of 40, as networks that make images have them: no power of two, nor a multiple of 16."""
    case = attention(4, 8, length, 40)
    return replace(case, kind="attention of narrow heads")


def window_attention(length: int) -> Case:
    """Heads of 64 that see their own position and the 127 before it; the work is that of the scores that are seen."""
    batch, heads, width, seen = TOKENS // length, CHANNELS // 64, 64, 128
    sizes = {"b": batch, "h": heads, "q": length, "x": length}
    text = programs.attention(width, sizes, example="attention_window")
    scores = length * seen - seen * (seen - 1) // 2
    return Case("window attention", text, {**sizes, "d": width}, flop=4 * batch * heads * scores * width)


def mixed_attention(length: int) -> Case:
    """The worked configuration of the method's paper: heads of 128, scores in 8 bits, values weighted in 16."""
    batch, heads, width = TOKENS // length, CHANNELS // 128, 128
    sizes = {"b": batch, "h": heads, "q": length, "x": length}
    text = programs.attention(width, sizes, example="attention_mixed")
    return Case("mixed attention", text, {**sizes, "d": width}, flop=4 * batch * heads * length * length * width)


def attention_of_eight_bits(length: int, values: str = "e x") -> Case:
    """Heads of 128, all in f8, with values in either order."""
    batch, heads, width = TOKENS // length, CHANNELS // 128, 128
    sizes = {"b": batch, "h": heads, "q": length, "x": length}
    text = programs.attention_of_eight_bits(width, sizes, values)
    kind = "attention in 8 bits" if values == "e x" else "attention in 8 bits of values by key"
    return Case(kind, text, {**sizes, "d": width}, flop=4 * batch * heads * length * length * width)


def grouped_queries(length: int) -> Case:
    """Sixteen heads of 128, four of which share keys and values."""
    batch, heads, shared, width = TOKENS // length, CHANNELS // 128, 4, 128
    sizes = {"b": batch, "h": heads // shared, "g": shared, "q": length, "x": length}
    text = programs.attention(width, sizes, example="attention_gqa")
    return Case("grouped queries", text, {**sizes, "d": width}, flop=4 * batch * heads * length * length * width)


def packed_attention(length: int) -> Case:
    """Heads of 128, and in each row as many sequences as there are small integers, of random lengths; the work is that
    of the scores that are seen, on average."""
    batch, heads, width, sequences = TOKENS // length, CHANNELS // 128, 128, SMALL_INTEGERS[1] - SMALL_INTEGERS[0]
    sizes = {"b": batch, "h": heads, "q": length, "x": length}
    # queries and keys draw their sequences apart, so that a pair has the same one in one of as many cases
    scores = length * length // sequences
    text = programs.packed_attention(width, sizes)
    return Case("packed attention", text, {**sizes, "d": width}, flop=4 * batch * heads * scores * width)


def generation(batch: int, length: int) -> Case:
    """A step of generation, as models of 8 billion weights have it: one query of each of 32 heads, four of which share
    keys and values, of which all are read."""
    heads, shared, width = 8, 4, 128
    sizes = {"b": batch, "h": heads, "g": shared, "q": 1, "x": length}
    text = programs.attention(width, sizes, example="attention_gqa")
    moved = 2 * batch * heads * width * (2 * length + 2 * shared)
    return Case("generation", text, {**sizes, "d": width}, bytes=moved)


def latent_attention(batch: int, length: int) -> Case:
    """A step of generation of a model that compresses its keys: 128 heads share keys of 512 columns, which are the
    values, too, and 64 that hold positions."""
    heads, latent, rotated = 128, 512, 64
    sizes = {"b": batch, "h": heads, "x": length}
    flop = 2 * batch * heads * length * (2 * latent + rotated)
    return Case("attention to latent keys", programs.example("attention_latent", sizes), sizes, flop=flop)


def product(size: int) -> Case:
    sizes = dict.fromkeys("mnk", size)
    return Case("product", programs.matmul(sizes), sizes, flop=2 * size**3)


def product_in_f32(size: int) -> Case:
    """Whose results are the sums as they are: twice the bytes."""
    sizes = dict.fromkeys("mnk", size)
    return Case("product in f32", programs.product_in_f32(sizes), sizes, flop=2 * size**3)


def product_of_eight_bits(size: int) -> Case:
    sizes = dict.fromkeys("mnk", size)
    return Case("product of 8 bits", programs.product_of_eight_bits(sizes), sizes, flop=2 * size**3)


def layer(t: int, i: int, o: int) -> Case:
    """A product with bias and SiLU, which PyTorch alone makes two kernels of. In the MLP of a transformer tokens are
    many and the inner size is small: there the second kernel, which moves every result, takes much of the time."""
    sizes = {"t": t, "i": i, "o": o}
    text = programs.example("matmul_epilogue", sizes)
    return Case("layer", text, sizes, flop=2 * t * i * o, factors={"%W": i**-0.5})


def swiglu(size: int) -> Case:
    sizes = dict.fromkeys("tij", size)
    text, factor = programs.example("swiglu", sizes), size**-0.5
    return Case("swiglu", text, sizes, flop=4 * size**3, factors={"%W": factor, "%V": factor})


def distances(points: int) -> Case:
    """Sums of absolute differences of 128 coordinates, which no tensor core computes; of each two operations."""
    sizes = {"i": points, "j": points, "c": 128}
    return Case("distances", programs.example("distances", sizes), sizes, flop=2 * points * points * 128)


def softmax(length: int) -> Case:
    sizes = {"row": ROW_ELEMENTS // length, "x": length}
    return Case("softmax", programs.example("softmax", sizes), sizes, bytes=2 * 4 * ROW_ELEMENTS)


def rms_norm(length: int) -> Case:
    sizes = {"t": ROW_ELEMENTS // length, "i": length}
    return Case("rms norm", programs.example("rms_norm", sizes), sizes, bytes=2 * 2 * ROW_ELEMENTS + 4 * length)


# -- of which only ways are measured (`questions.py`) --------------------------------------------------


def low_rank_update(size: int) -> Case:
    """A layer to which a product of two narrow ones is added; the work is that of the layer alone."""
    sizes, factor = dict.fromkeys("tij", size), size**-0.5
    text = programs.example("lora", sizes)
    return Case("low-rank update", text, sizes, flop=2 * size**3, factors={"%W": factor, "%A": factor, "%B": 0.25})


def products_added_up(size: int) -> Case:
    """Two products over one axis, whose sums are added."""
    sizes = dict.fromkeys("mnk", size)

    def added(a: tl.Array, b: tl.Array, c: tl.Array, d: tl.Array) -> tl.Array:
        return (tl.contract(a, b, over="k") + tl.contract(c, d, over="k")).to("f16")

    text = programs.traced("m k, k n, m k, k n -> m n", added, sizes)
    return Case("products added up", text, sizes, flop=4 * size**3)


def products_of_a_batch(batch: int, size: int, depth: int) -> Case:
    """Summed over the batch, too, which lies apart from the depth."""
    sizes = {"b": batch, "m": size, "n": size, "k": depth}

    def summed(a: tl.Array, b: tl.Array) -> tl.Array:
        return tl.contract(a, b, over="b k").to("f16")

    text = programs.traced("b m k, b k n -> m n", summed, sizes)
    return Case("products of a batch added up", text, sizes, flop=2 * batch * size * size * depth)


def projection_of_heads(batch: int, heads: int, length: int, width: int, columns: int) -> Case:
    """What is behind attention: of all heads' results one, which lie apart."""
    sizes = {"b": batch, "h": heads, "t": length, "d": width, "o": columns}

    def projected(a: tl.Array, b: tl.Array) -> tl.Array:
        return tl.contract(a, b, over="h d").to("f16")

    text = programs.traced("b h t d, h d o -> b t o", projected, sizes)
    flop = 2 * batch * length * heads * width * columns
    return Case("projection of heads", text, sizes, flop=flop, factors={"%b": (heads * width) ** -0.5})


def divergence(rows: int, classes: int) -> Case:
    sizes = {"t": rows, "c": classes}
    return Case("divergence", programs.example("kl_divergence", sizes), sizes, bytes=2 * 4 * rows * classes)


def stick_breaking(heads: int, length: int) -> Case:
    """Of heads of 64; the work is that of causal attention."""
    sizes = {"h": heads, "q": length, "x": length}
    text = programs.example("attention_stick_breaking", sizes)
    return Case("stick-breaking", text, {**sizes, "d": 64}, flop=2 * heads * length * length * 64)


def cumulative_sums(rows: int, length: int) -> Case:
    sizes = {"i": rows, "x": length}

    def summed(a: tl.Array) -> tl.Array:
        return tl.cumsum(a, over="x").to("f16")

    text = programs.traced("i x -> i x", summed, sizes)
    return Case("cumulative sums", text, sizes, bytes=2 * 2 * rows * length)


def attention_backward(batch: int, heads: int, length: int, width: int) -> Case:
    """Five products, of which ours makes two twice: not counted, as nobody counts them."""
    sizes = {"b": batch, "h": heads, "q": length, "x": length}
    text = programs.attention(width, sizes, example="attention_backward")
    return Case("attention backward", text, {**sizes, "d": width}, flop=10 * batch * heads * length * length * width)


def dropped_attention(heads: int, length: int) -> Case:
    """Attention with dropout of a tenth, heads of 64; random bits count as no work."""
    sizes = {"h": heads, "q": length, "x": length}
    text = programs.example("attention_dropout", sizes)
    return Case("attention with dropout", text, {**sizes, "d": 64}, flop=4 * heads * length * length * 64)


def routing(tokens: int, width: int) -> Case:
    """The best two of 64 experts for each token; the work is to read the tokens."""
    sizes = {"t": tokens, "d": width}
    text = programs.example("routing", sizes)
    return Case("routing", text, sizes, bytes=2 * tokens * width, factors={"%W": width**-0.5})


def nearest(queries: int, keys: int, width: int) -> Case:
    """The eight keys that are nearest to each query, by what tells them apart of their distances."""
    sizes = {"n": queries, "k": keys, "d": width}

    def found(Q: tl.Array, K: tl.Array) -> tuple[tl.Array, tl.Array]:
        return tl.topk(2 * tl.contract(Q, K, over="d") - tl.sum(K * K, over="d"), 8, over="k", axis="r")

    text = programs.traced("n d, k d -> n r, n r", found, sizes, ["k", "d"])
    return Case("nearest keys", text, sizes, flop=2 * queries * keys * width)


def rotated_projection(tokens: int, columns: int, heads: int) -> Case:
    """Heads of 128 that a product makes, rotated by halves; the work is that of the product."""
    sizes = {"t": tokens, "i": columns, "h": heads, "d": 128}

    def rotated(X: tl.Array, W: tl.Array, C: tl.Array, S: tl.Array) -> tl.Array:
        P = tl.contract(X, W, over="i")
        turned = tl.read(P, "t, h, other[d]", other=(tl.index("d", P) + 64) % 128)
        return (P * C + turned * S).to("f16")

    text = programs.traced("t i, i h d, t d, t d -> t h d", rotated, sizes, ["h", "d"])
    flop = 2 * tokens * columns * heads * 128
    return Case("rotated projection", text, sizes, flop=flop, factors={"%W": columns**-0.5})


def delta_rule(heads: int, tokens: int) -> Case:
    """Of heads of 64; a token reads its state, moves it, and reads it again."""
    sizes = {"h": heads, "t": tokens, "e": 64}
    text = programs.example("delta_rule", sizes)
    return Case("delta rule", text, {**sizes, "d": 64}, flop=6 * heads * tokens * 64 * 64)


def sorted_experts(tokens: int, experts: int, depth: int, columns: int) -> Case:
    """Rows that are sorted by what they meet, each expert of as many as data say."""
    sizes = {"t": tokens, "i": experts, "k": depth, "n": columns}
    text = programs.example("experts_sorted", {"t": tokens, "n": columns})
    text = text.replace("tensor<5x", f"tensor<{experts}x").replace("x128x", f"x{depth}x")
    return Case("sorted experts", text, sizes, flop=2 * tokens * depth * columns, factors={"%W": depth**-0.5})


def summed_heads(queries: int, keys: int, heads: int, width: int) -> Case:
    """Scores of heads that share keys, made positive, weighted and summed: what finds the keys of sparse attention."""
    sizes = {"q": queries, "x": keys, "h": heads, "d": width}

    def summed(Q: tl.Array, K: tl.Array, W: tl.Array) -> tl.Array:
        return tl.sum(tl.maximum(tl.contract(Q, K, over="d"), 0.0) * W, over="h").to("f16")

    text = programs.traced("q h d, x d, q h -> q x", summed, sizes, ["h", "d"])
    return Case("summed heads", text, sizes, flop=2 * queries * keys * heads * width, factors={"%W": heads**-0.5})


def projected_attention(batch: int, heads: int, length: int, width: int) -> Case:
    """Causal attention in the order in which projections give its arrays, of which four heads share keys."""
    sizes = {"b": batch, "t": length, "x": length, "h": heads, "g": 4, "d": width}

    def attention(Q: tl.Array, K: tl.Array, V: tl.Array) -> tl.Array:
        scores = tl.keep(tl.contract(Q, K, over="d") * width**-0.5, "x <= t")
        return tl.contract(tl.softmax(scores, over="x"), V, over="x").to("f16")

    text = programs.traced("b t h g d, b x h d, b x h d -> b t h g d", attention, sizes, ["h", "g", "d"])
    return Case("projected attention", text, sizes, flop=2 * batch * heads * 4 * length * length * width)
