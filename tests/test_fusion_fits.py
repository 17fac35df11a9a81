"""Products in a row become one kernel as long as one fits the machine, and no longer."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from xdsl.dialects import func
from xdsl.ir import Operation

import treadle
import treadle.language as tl
from treadle.compiler.pipeline import Options, pipeline, run_passes
from treadle.passes.kernels.clusters import Clusters
from treadle.passes.streams import stages
from treadle.passes.streams.followed import Followed


def chain(products: int, width: int) -> treadle.language.NamedKernel:
    axes = "abcdefgh"[: products + 1]
    weights = ", ".join(f"{left} {right}" for left, right in pairwise(axes))

    def function(*arrays: tl.Array) -> tl.Array:
        value, *rest = arrays
        for axis, weight in zip(axes, rest, strict=False):
            value = tl.contract(value, weight, over=axis).to("f16")
        return value

    return treadle.kernel(f"m {axes[0]}, {weights} -> m {axes[-1]}", static=list(axes))(function)


@pytest.mark.parametrize(("products", "width", "kernels"), [(2, 64, 1), (6, 64, 2)])
def test_products_in_a_row(products: int, width: int, kernels: int) -> None:
    random = np.random.default_rng(0)
    arrays = [random.standard_normal((40, width)).astype(np.float16)]
    arrays += [(random.standard_normal((width, width)) / width**0.5).astype(np.float16) for _ in range(products)]
    compiled = chain(products, width).compiled(*arrays)
    apart = [step for step in compiled.derivation if step.law == "no memory for one kernel"]
    assert (len(compiled.cost().kernels) > 1) == bool(apart) == (kernels > 1)
    assert all("registers a thread" in step.reason or "shared memory" in step.reason for step in apart)
    want = arrays[0].astype(np.float64)
    for weight in arrays[1:]:
        want = want @ weight.astype(np.float64)
    np.testing.assert_allclose(compiled(*arrays), want, atol=0.02 * np.abs(want).max())


@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_what_is_kept_apart_does_not_come_back_with_what_divides_it(machine: str) -> None:
    """Keys and queries that are rotated in registers leave none for the second product. The quotient of it by the sum
    of powers joined both again (a refusal: no sizes fit)."""

    @treadle.kernel("q d, x d, x e, q d, q d, x d, x d -> q e", machine=machine)
    def rotated(
        Q: tl.Array, K: tl.Array, V: tl.Array, cq: tl.Array, sq: tl.Array, cx: tl.Array, sx: tl.Array
    ) -> tl.Array:
        Q = (Q * cq + (tl.read(Q, "q, d - 48") - tl.read(Q, "q, d + 48")) * sq).to("f16")
        K = (K * cx + (tl.read(K, "x, d - 48") - tl.read(K, "x, d + 48")) * sx).to("f16")
        return tl.contract(tl.softmax(tl.contract(Q, K, over="d") * 0.1, over="x"), V, over="x")

    module = rotated.trace(["f16"] * 3 + ["f32"] * 4, {"q": 7, "x": 1, "d": 96, "e": 64}, ["d", "e"])
    kernel = treadle.compile(module, machine=machine)
    assert len(kernel.cost().kernels) > 1
    assert "no memory for one kernel" in {step.law for step in kernel.derivation}
    random = np.random.default_rng(0)
    shapes = [(33, 96), (40, 96), (40, 64), (33, 96), (33, 96), (40, 96), (40, 96)]
    given = [random.standard_normal(s).astype(np.float16 if i < 3 else np.float32) for i, s in enumerate(shapes)]
    (verdict,) = kernel.verify(*given, backend="emulator")
    assert verdict.ok, verdict


def test_what_had_no_memory_joins_what_is_left_when_the_other_is_cut() -> None:
    """Scores without what rotates their operands have room for the product with the values: no array of all scores is
    saved."""

    @treadle.kernel("b h q d, b h x d, b h x e, q d, q d, x d, x d -> b h q e", static="d e")
    def rotated(
        Q: tl.Array, K: tl.Array, V: tl.Array, cq: tl.Array, sq: tl.Array, cx: tl.Array, sx: tl.Array
    ) -> tl.Array:
        def turned(A: tl.Array, cosine: tl.Array, sine: tl.Array, axis: str) -> tl.Array:
            other = tl.read(A, f"b, h, {axis}, other[d]", other=(tl.index("d", A) + 64) % 128)
            return (A * cosine + other * sine).to("f16")

        S = tl.contract(turned(Q, cq, sq, "q"), turned(K, cx, sx, "x"), over="d") * 0.088
        return tl.contract(tl.softmax(S, over="x").to("f16"), V, over="x")

    sizes = {"b": 2, "h": 16, "q": 4096, "x": 4096, "d": 128, "e": 128}
    kernel = treadle.compile(str(rotated.trace(["f16"] * 3 + ["f32"] * 4, sizes, fixed=tuple(sizes))), machine="h100")
    joins = [step for step in kernel.derivation if step.rewrite == "fusion" and "as a kernel" in step.reason]
    assert len(joins) == 1
    assert kernel.estimate.device_bytes < 512 * 2**20  # all scores are 1 GiB
    random = np.random.default_rng(0)
    shapes = [(2, 3, 33, 128), (2, 3, 70, 128), (2, 3, 70, 128), (33, 128), (33, 128), (70, 128), (70, 128)]
    given = [random.standard_normal(s).astype(np.float16 if i < 3 else np.float32) for i, s in enumerate(shapes)]
    small = rotated.trace(["f16"] * 3 + ["f32"] * 4, sizes, fixed=("d", "e"))
    for verdict in treadle.compile(str(small), machine="h100").verify(*given, backend="emulator"):
        assert verdict.ok, verdict


@pytest.mark.parametrize("machine", ["h100", "a100"])
def test_norms_that_leave_no_role_are_kernels_of_their_own(machine: str) -> None:
    """Rows of 512 are summed for their norms and by the product: together no group could hold them beside the sums over
    the columns."""

    @treadle.kernel("i d, j d -> i")
    def contrasted(A: tl.Array, B: tl.Array) -> tl.Array:
        rows, columns = ((X * tl.rsqrt(tl.sum(X * X, over="d"))).to("f16") for X in (A, B))
        S = tl.contract(rows, columns, over="d") / 0.07
        own = tl.sum(tl.where(tl.index("i", S).equals(tl.index("j", S)), S, 0.0), over="j")
        return tl.logsumexp(S, over="j") - own

    sizes = {"i": 8192, "j": 8192, "d": 512}
    kernel = treadle.compile(str(contrasted.trace(["f16"] * 2, sizes, fixed=("d",))), machine=machine)
    assert kernel.estimate.device_bytes < 64 * 2**20  # no scores, of which there are 256 MiB
    random = np.random.default_rng(0)
    given = [random.standard_normal(shape).astype(np.float16) for shape in ((40, 512), (70, 512))]
    (verdict,) = kernel.verify(*given, backend="emulator")
    assert verdict.ok, verdict


def clusters(most: int, first: int = 3) -> tuple[list[int], list[frozenset[Operation]]]:
    """How many operations the clusters of a router's choice of some have, and those of which it was asked whether they
    fit, where `most` do."""

    def choice(S: tl.Array) -> tuple[tl.Array, tl.Array]:
        values, places = tl.topk(S, first, over="e", axis="r")
        return tl.softmax(values, "r"), places

    module = treadle.kernel("n e -> n r, n r")(choice).trace(["f32"], {"n": 4096, "e": 256}, ["n", "e"])
    passes = pipeline(Options("h100"))
    run_passes(module, passes[: [each.name for each in passes].index("fusion")])
    (function,) = (op for op in module.walk() if isinstance(op, func.FuncOp))
    asked: list[frozenset[Operation]] = []

    def unfit(ops: frozenset[Operation]) -> str | None:
        asked.append(ops)
        return "they are too many" if len(ops) > most else None

    found = Clusters(function, function.body.block, 256, unfit=unfit).found
    return [len(each) for each in found], asked


def test_what_adds_nothing_is_asked_for_at_the_end() -> None:
    found, asked = clusters(100)
    assert [*map(len, asked)] == found
    assert len(found) == 1


def test_where_that_does_not_fit_each_operation_is_asked_for() -> None:
    """So that the first ones that fit are one kernel."""
    (whole,), _ = clusters(100)
    found, asked = clusters(12)
    assert len(asked[0]) == whole
    assert len(found) == 2
    assert sum(found) == whole
    assert asked[1:]
    assert all(12 < len(each) < whole for each in asked[1:])


def test_of_no_operations_it_is_asked_twice_whether_they_fit() -> None:
    _, asked = clusters(12, first=6)
    assert len({*asked}) == len(asked)


def test_how_many_reductions_are_asked_how_they_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A choice of more asks of no more: that groups would be fed the row again is told by the first one that waits."""

    def followed(first: int) -> int:
        made: list[Followed] = []

        def follow(*what: Any) -> Followed:
            made.append(Followed(*what))
            return made[-1]

        monkeypatch.setattr(stages, "Followed", follow)
        clusters(1000, first)
        return len(made)

    assert 0 < followed(4) == followed(12)
