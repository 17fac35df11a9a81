"""The gates: what a good engineer would not accept in a kernel. A gate that is not met is shown, never loosened."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from treadle.compiler.gates.report import KernelReport
from treadle.compiler.sass import LoopTable
from treadle.compiler.sass.classes import PRODUCTS
from treadle.dialects.diagram.formats import SIXTEEN_BIT

WARPS_ON_SM = 8
"""Two for each part of an SM: while one waits, the other issues."""

OTHERS_PER_SCORE = (10.5, 9.0)
"""For 16-bit operands, 128 wide, without a mask, on sm_80: about what 16 rows a warp allow; then 32 rows, which
share the loads of operands."""
SCORE_DEPTH = 128

OTHERS_PER_PRODUCT = 1.2
"""For a product of 128 x 128 x 32 a block."""

OTHERS_PER_SCORE_OF_WARPGROUPS = {64: 6.6, 128: 7.1, 256: 11.1}
"""By the depth of the scores, without a mask: what FlashAttention-3's kernels for sm_90a have, at 128 with 128 keys."""

OTHERS_PER_SCORE_OF_EIGHT_BITS = {128: 6.0}
"""The same where both products have 8 bits."""
ALL_IN_EIGHT_BITS = {"QGMMA"}

SHUFFLES, WAITS, STRETCHES = 4, 2, 1
"""Of a turn of warpgroups that makes scores, as FlashAttention-3's: a maximum of two rows a lane is exchanged among
four lanes; it waits for its scores and for its sum; and all its products start together, before the first wait."""

OTHERS_PER_PRODUCT_OF_WARPGROUPS = 18
"""What the best hand-written product for sm_90a has, of 128 x 256 x 64 a block."""


COPYING_WARPS = 1
"""The producer's: others would wait for its barriers, too, and issue what they need not."""


@dataclass(frozen=True)
class Gate:
    """A number of a kernel beside what it should be."""

    name: str
    value: float
    relation: str
    """`<=` or `>=`: how the value should stand to the bound."""
    bound: float

    @property
    def ok(self) -> bool:
        return self.value <= self.bound if self.relation == "<=" else self.value >= self.bound

    def __str__(self) -> str:
        most = "at most" if self.relation == "<=" else "at least"
        return f"{self.name}: {_number(self.value)}, {most} {_number(self.bound)}: {'met' if self.ok else 'not met'}"


def check(report: KernelReport) -> list[Gate]:
    """Every gate that applies to a kernel and whose number is known."""
    return [*_resources(report), *_instructions(report), *_loop(report)]


def _resources(report: KernelReport) -> Iterator[Gate]:
    if report.resources is not None:
        yield Gate("bytes spilled", report.resources.spilled_bytes, "<=", 0)
        if report.step is not None and report.step.warpgroups:
            yield Gate("notes of ptxas on products (C75xx)", report.resources.product_notes, "<=", 0)
    if report.code is not None:
        yield Gate("instructions that touch local memory", report.code.local, "<=", 0)
    if report.warps_on_sm is not None and on_tensor_cores(report):
        yield Gate("warps on an SM", report.warps_on_sm, ">=", WARPS_ON_SM)


def on_tensor_cores(report: KernelReport) -> bool:
    return report.step is not None and report.step.products > 0


def _instructions(report: KernelReport) -> Iterator[Gate]:
    """A main loop that multiplies on tensor cores uses what the hardware has for feeding them."""
    step, code = report.step, report.code
    if step is None or code is None or not on_tensor_cores(report):
        return
    yield Gate("product instructions", code.products, ">=", 1)
    if report.copying_warps:
        yield Gate("warps that start tensor copies", report.copying_warps, "<=", COPYING_WARPS)
    if step.format not in SIXTEEN_BIT:
        return
    if not step.warpgroups:  # which read their operands from shared memory
        yield Gate("LDSM", code.ldmatrix, ">=", 1)
    if step.copies:
        yield Gate("LDGSTS or tensor copies", code.async_copies, ">=", 1)


def _loop(report: KernelReport) -> Iterator[Gate]:
    step = report.step
    if step is None or report.loop is None:
        return
    if step.warpgroups and report.scores and not step.masked and step.depth in OTHERS_PER_SCORE_OF_WARPGROUPS:
        yield from _overlap(report.loop, report.loop.products / step.products)
    scores = report.others_per_score
    in_eight_bits = step.warpgroups and set(report.loop.of(PRODUCTS)) <= ALL_IN_EIGHT_BITS
    if scores is not None and in_eight_bits and not step.masked and step.depth in OTHERS_PER_SCORE_OF_EIGHT_BITS:
        yield Gate("other instructions a score", scores, "<=", OTHERS_PER_SCORE_OF_EIGHT_BITS[step.depth])
    if step.format not in SIXTEEN_BIT:
        return
    if scores is not None and step.depth == SCORE_DEPTH and not step.masked and report.machine.capability == 80:
        for bound in OTHERS_PER_SCORE:
            yield Gate("other instructions a score", scores, "<=", bound)
    if scores is not None and step.warpgroups and not step.masked and step.depth in OTHERS_PER_SCORE_OF_WARPGROUPS:
        yield Gate("other instructions a score", scores, "<=", OTHERS_PER_SCORE_OF_WARPGROUPS[step.depth])
    if report.others_per_product is not None:
        most = OTHERS_PER_PRODUCT_OF_WARPGROUPS if step.warpgroups else OTHERS_PER_PRODUCT
        yield Gate("other instructions a product", report.others_per_product, "<=", most)


def _overlap(loop: LoopTable, turns: float) -> Iterator[Gate]:
    """What lets products of a turn run beside what it computes; the machine code may have several turns of the IR's."""
    yield Gate("shuffles a turn", loop.of("shuffle").get("SHFL", 0) / turns, "<=", SHUFFLES)
    yield Gate("waits for products a turn", loop.waits / turns, "<=", WAITS)
    yield Gate("stretches of products between waits", loop.stretches / turns, "<=", STRETCHES)


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if value != int(value) else str(int(value))
