"""Ways to make kernels that somebody wonders about: what `docs/limits.md` calls not measured, and what passes that were
never measured bring. Data for `tries.py`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent))

from speed import cases
from speed.cases import CHANNELS, TOKENS, Case
from speed.kernels import COPY, UNFUSED

if TYPE_CHECKING:
    from treadle.compiler.tune.alternatives import Passes


@dataclass(frozen=True)
class Changes:
    """What is done otherwise than the pipeline does it; several may be added."""

    options: tuple[str, ...] = ()
    """Of passes, as `--pass` takes them: `cuda-persist{section=8}`."""
    left_out: tuple[str, ...] = ()
    """Passes."""

    def __add__(self, other: Changes) -> Changes:
        return Changes(self.options + other.options, self.left_out + other.left_out)

    def __str__(self) -> str:
        return ", ".join((*self.options, *(f"without {name}" for name in self.left_out)))

    def applied(self, passes: Passes) -> Passes:
        """(TreadleError)"""
        from treadle.compiler.derivation.replay import read_overrides
        from treadle.compiler.overrides import overridden
        from treadle.compiler.tune.alternatives import Without

        changed = overridden(passes, read_overrides(self.options))
        for name in self.left_out:
            changed = Without(name).applied(changed)
        return changed


Ways = Mapping[str, Changes]
"""By what they are called."""


@dataclass(frozen=True)
class Question:
    """What is asked, and of which case; the pipeline's own way is always among those that answer it."""

    asked: str
    case: Case
    ways: Ways = field(default_factory=dict[str, Changes])
    beside: tuple[str, ...] = ()
    """Peers of the case's kind (`speed/kernels.py`)."""
    machine: str | None = None
    """For which kernels are made, if not for the device's own: an older one, whose code the device runs, too."""

    def __str__(self) -> str:
        return f"{self.asked} {self.case}"


def questions() -> Iterator[Question]:
    """What one would know first comes first; each is about a case of its own."""
    yield from _of_mixed_attention()
    yield _of_eight_bits()
    yield from _of_short_attention()
    yield _of_long_attention()
    yield from _of_layers()
    yield from _of_products()
    yield from _of_sums()
    yield from _of_scans()
    yield from _of_others()
    yield from _of_an_older_machine()


LEFT, EACH = "left operand in registers", "a block for each piece"


# -- changes -------------------------------------------------------------------------------------------


def option(text: str) -> Changes:
    return Changes(options=(text,))


def sizes(**given: str | int) -> Changes:
    """Options of the pass that chooses sizes; the others are still its to choose."""
    texts = (f"{key}={value}" if isinstance(value, int) else f'{key}="{value}"' for key, value in given.items())
    return option(f"hierarchy-choose-sizes{{{' '.join(texts)}}}")


def of_attention(queries: int, keys: int, **more: str | int) -> Changes:
    """A block of so many queries of one head, in steps of so many keys."""
    return sizes(group=f"b=1,h=1,q={queries}", stream=f"x={keys}", **more)


def blocks(*shapes: tuple[int, int]) -> Ways:
    return {f"{queries} x {keys}": of_attention(queries, keys) for queries, keys in shapes}


def small_blocks(*keys: int, turns: Sequence[int]) -> Ways:
    """Of 64 queries, of which so many of a multiprocessor take pieces in turns."""
    return {
        f"64 x {each}, {f'{count} in turns' if count else EACH}": of_attention(64, each, turns=count)
        for each in keys
        for count in turns
    }


def clusters(*shapes: tuple[str, int]) -> Ways:
    return {f"clusters of {size} along {axis}": cluster(axis, size) for axis, size in shapes}


def cluster(axis: str, size: int) -> Changes:
    return option(f"cuda-cluster{{size={size} along={axis}}}")


def sections(*rows: int) -> Ways:
    """So many rows of pieces stay in the L2 cache."""
    return {f"sections of {count}": option(f"cuda-persist{{section={count}}}") for count in rows}


def without(*names: str) -> Ways:
    """Each pass by itself."""
    return {f"without {name}": Changes(left_out=(name,)) for name in names}


def otherwise(*texts: str) -> Ways:
    """Each option by itself."""
    return {text: option(text) for text in texts}


# -- questions -----------------------------------------------------------------------------------------

TWICE, APART = "cuda-overlap-pieces{twice=false}", "cuda-overlap-pieces{apart=false}"
CUDNN = ("SDPA cuDNN",)


def _of_mixed_attention() -> Iterator[Question]:
    left = {LEFT: sizes(left="registers")}
    of_left = {f"{q} x {x}, {LEFT}": of_attention(q, x, left="registers") for q, x in ((128, 128), (128, 96))}
    narrow = of_attention(192, 64, left="registers") + Changes(left_out=("cuda-speculate",))
    in_clusters = clusters(("q", 2), ("q", 4))
    peers = ("SDPA flash in f16", "SDPA cuDNN in f16")
    yield Question(
        "What bounds attention in two formats: shared memory, from which Q is read in each step?",
        cases.mixed_attention(16384),
        {
            **left,
            **of_left,
            f"192 x 64, {LEFT}, without cuda-speculate": narrow,
            **blocks((128, 128), (128, 160), (128, 192), (192, 96)),
            **in_clusters,
            **without("cuda-speculate", "cuda-ping-pong"),
            **otherwise(TWICE),
        },
        peers,
    )
    yield Question(
        "Is that so of short rows, too?",
        cases.mixed_attention(2048),
        {**left, **of_left, **blocks((128, 128), (128, 160), (192, 96)), **in_clusters},
        peers,
    )


def _of_eight_bits() -> Question:
    return Question(
        "Why is a product of 8 bits at 0.98 of cuBLAS: what comes from L2, or what a block holds?",
        cases.product_of_eight_bits(16384),
        {
            **clusters(("m", 2), ("n", 2)),
            **sections(4, 12, 16, 32),
            "256 x 128": sizes(group="m=256,n=128"),
            **{f"128 x 256, steps of {k}": sizes(group="m=128,n=256", stream=f"k={k}") for k in (64, 256)},
        },
        ("cuBLAS",),
    )


def _of_short_attention() -> Iterator[Question]:
    """Whose arrays move at 0.75 to 0.83 of the rate of a copy."""
    apart = {
        EACH: sizes(turns=0),
        **without("cuda-speculate", "cuda-overlap-pieces", "cuda-ping-pong"),
        **otherwise(TWICE, APART),
    }
    pair = {"64 x 128, clusters of 2 along q": of_attention(64, 128) + cluster("q", 2)}
    yield Question(
        "What would make attention of 512 faster: other blocks, blocks that share keys, another order?",
        cases.attention(TOKENS // 512, CHANNELS // 128, 512, 128),
        {
            **small_blocks(64, 96, 128, turns=(0, 1)),
            **blocks((192, 64), (128, 64), (128, 176)),
            **clusters(("q", 2), ("q", 4)),
            **pair,
            **sections(4, 64),
            **apart,
        },
        CUDNN,
    )
    yield Question(
        "And causal attention of 512?",
        cases.attention(TOKENS // 512, CHANNELS // 128, 512, 128, causal=True),
        {
            **small_blocks(64, 128, turns=(0, 1)),
            **blocks((192, 64), (128, 64)),
            **clusters(("q", 2)),
            **sections(1, 8, 128),
            **apart,
            "not the longest first": option("cuda-persist{longest=none}"),
        },
        CUDNN,
    )
    yield Question(
        "And with heads of 256?",
        cases.attention(TOKENS // 512, CHANNELS // 256, 512, 256, causal=True),
        {**small_blocks(64, turns=(0, 1)), **blocks((128, 64)), **sections(1, 8, 128), **apart},
        CUDNN,
    )
    yield Question(
        "Are small blocks that share a multiprocessor faster for windows?",
        cases.window_attention(4096),
        {**small_blocks(64, turns=(0, 1, 3)), **blocks((128, 64), (192, 64))},
        ("SDPA masked",),
    )


def _of_long_attention() -> Question:
    return Question(
        "Do blocks gain that share keys of long rows?",
        cases.attention(TOKENS // 4096, CHANNELS // 128, 4096, 128),
        clusters(("q", 2), ("q", 4)),
        CUDNN,
    )


def _of_layers() -> Iterator[Question]:
    ways = {
        **clusters(("t", 2), ("o", 2)),
        **{f"{t} x {o}": sizes(group=f"t={t},o={o}") for t, o in ((256, 128), (128, 256), (128, 192), (192, 128))},
        **sections(8, 32),
        **otherwise(APART),
    }
    for t, i, o in ((4096, 4096, 4096), (TOKENS, 1024, 4096), (TOKENS, 2048, 8192)):
        yield Question("What would bring a layer to 1.3 of the unfused pair?", cases.layer(t, i, o), ways, (UNFUSED,))


def _of_products() -> Iterator[Question]:
    for size in (8192, 16384):
        yield Question(
            "Do blocks of large products gain that share operands, or take pieces in another order?",
            cases.product(size),
            {**clusters(("m", 2), ("n", 2)), **sections(4, 8, 16)},
            ("cuBLAS",),
        )


def _of_sums() -> Iterator[Question]:
    """Of products, as passes make them that were never measured."""
    joined = without("hierarchy-join-sums")
    yield Question(
        "What does one accumulator bring to a low-rank update?", cases.low_rank_update(4096), joined, (UNFUSED,)
    )
    yield Question("And to scores that are sums of two products?", cases.latent_attention(64, 4096), joined, (UNFUSED,))
    yield Question(
        "And to two products over one axis?", cases.products_added_up(4096), joined, (UNFUSED, "one product")
    )
    yield Question(
        "Do operands gain by copying that are summed over a batch and a depth, which lie apart?",
        cases.products_of_a_batch(8, 4096, 1024),
        without("diagram-copy-operands"),
        (UNFUSED,),
    )
    yield Question(
        "Does the projection of heads gain by one depth of two axes?",
        cases.projection_of_heads(4, 16, 4096, 128, 2048),
        without("diagram-merge-depths"),
        (UNFUSED,),
    )


def _of_scans() -> Iterator[Question]:
    yield Question(
        "How fast is stick-breaking attention, in which steps, and what does a polynomial for its logarithm bring?",
        cases.stick_breaking(16, 4096),
        {
            **{f"steps of {x}": sizes(stream=f"x={x}") for x in (64, 96)},
            **without("diagram-allow-approximations"),
        },
        (UNFUSED,),
    )
    yield Question(
        "How near to a copy are cumulative sums of rows?",
        cases.cumulative_sums(16384, 4096),
        without("diagram-raise-scans"),
        (UNFUSED, COPY),
    )


def _of_others() -> Iterator[Question]:
    yield Question(
        "How near to a copy is a divergence of shares?", cases.divergence(8192, 32768), beside=(UNFUSED, COPY)
    )
    yield Question(
        "What do random bits cost in attention?",
        cases.dropped_attention(16, 4096),
        {**{f"steps of {x}": sizes(stream=f"x={x}") for x in (64, 128)}, **otherwise(APART)},
        ("SDPA flash, dropped",),
    )
    yield Question(
        "Is the choice of experts free beside the product that scores them?",
        cases.routing(8192, 4096),
        otherwise(APART),
        (UNFUSED, "torch.compile"),
    )
    yield Question(
        "Are the nearest of many keys best found part by part, and in which parts?",
        cases.nearest(16384, 8192, 256),
        {
            "as a whole": option("diagram-split-orders{lengths=0}"),
            "parts of 128": option("diagram-split-orders{lengths=128}"),
        },
        (UNFUSED, "torch.compile"),
    )
    yield Question(
        "Is a rotation best in the kernel of its projection?",
        cases.rotated_projection(8192, 4096, 32),
        {"a kernel of its own": option("diagram-raise-swaps{products=none}")},
        (UNFUSED, "torch.compile"),
    )
    yield Question(
        "How many positions of a recurrence are best on their way?",
        cases.delta_rule(64, 4096),
        {f"{count}": option(f"pipelining{{positions={count + 1}}}") for count in (1, 3)},
        (UNFUSED,),
    )
    yield Question(
        "Are scores of heads that share keys best summed head by head?",
        cases.summed_heads(1024, 16384, 64, 128),
        {"columns along the heads": sizes(group="q=1,x=512", stream="h=64")},
        (UNFUSED, "torch.compile"),
    )
    yield Question(
        "How fast are rows that are sorted by expert?",
        cases.sorted_experts(8192, 8, 4096, 14336),
        without("diagram-merge-depths"),
        (UNFUSED,),
    )
    yield Question(
        "How fast is attention in the order of projections?",
        cases.projected_attention(1, 8, 4096, 128),
        beside=(UNFUSED,),
    )
    yield Question(
        "How fast are the gradients of attention?",
        cases.attention_backward(4, 16, 4096, 128),
        beside=(UNFUSED, "flash backward"),
    )
    yield Question(
        "Are both products of a gate best in one kernel?",
        cases.swiglu(8192),
        {
            **{f"{t} x {j}": sizes(group=f"t={t},j={j}") for t, j in ((128, 128), (256, 64))},
            "a kernel each": option("fusion{together=false}"),
        },
        (UNFUSED,),
    )


def _of_an_older_machine() -> Iterator[Question]:
    for width in (64, 128, 256):
        yield Question(
            "How fast are kernels for an A100, beside those that PyTorch has for it?",
            cases.attention(TOKENS // 2048, CHANNELS // width, 2048, width),
            beside=("SDPA flash",),
            machine="a100",
        )
