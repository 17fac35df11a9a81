"""Products with sums of shares, which are made term by term; factors that leave a sum together with a divisor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import treadle
import treadle.language as tl
from treadle.compiler.errors import TreadleError
from treadle.compiler.main import main

PASS = "diagram-distribute-products"
EXAMPLE = (Path(__file__).parents[1] / "examples" / "attention_differential.mlir").read_text(encoding="utf-8")
Terms = Callable[[Any, Any, Any], Any]
"""What multiplies the values, of two softmaxes and a number for each head."""

SUMS: dict[str, Terms] = {
    "difference": lambda p, r, k: p - k * r,
    "negative": lambda p, r, k: -p - k * r,
    "sum": lambda p, r, k: k * p + r / 3,
    "three": lambda p, r, k: p - (k * r - 2 * p),
    "narrow": lambda p, r, k: p.to("f16") - r.to("f16"),
    "sum of shares": lambda p, r, k: p + r,
    "saturated": lambda p, r, k: (300 * p).to("f8E4M3FN").to("f32") - (600 * r).to("f8E4M3FN").to("f32"),
}


def differential(terms: Terms, condition: str = "", other: str = "", format: str = "f16") -> Callable[..., Any]:
    def function(Q: tl.Array, K: tl.Array, R: tl.Array, L: tl.Array, V: tl.Array, k: tl.Array) -> tl.Array:
        def shares(queries: tl.Array, keys: tl.Array, condition: str) -> tl.Array:
            scores = tl.contract(queries, keys, over="d") * 0.125
            return tl.softmax(tl.keep(scores, condition) if condition else scores, over="x")

        weights = terms(shares(Q, K, condition), shares(R, L, other or condition), k)
        return tl.contract(weights.to(format), V, over="x").to(format)

    return function


SIGNATURE = "h q d, h x d, h q d, h x d, h x e, h -> h q e"


def arrays(h: int, q: int, x: int, d: int, e: int) -> list[NDArray[Any]]:
    random = np.random.default_rng(q + x)
    shapes = ((h, q, d), (h, x, d), (h, q, d), (h, x, d), (h, x, e))
    halves = [random.standard_normal(shape).astype(np.float16) for shape in shapes]
    return [*halves, random.standard_normal(h).astype(np.float32)]


def distributed(kernel: treadle.Kernel) -> list[str]:
    return [step.subject for step in kernel.derivation if step.rewrite == PASS]


def verify(kernel: treadle.Kernel, *given: NDArray[Any]) -> None:
    verdicts = kernel.verify(*given, backend="emulator")
    assert verdicts
    assert all(each.ok for each in verdicts), verdicts


def text(terms: Terms, sizes: Mapping[str, int], condition: str = "", format: str = "f16") -> str:
    kernel = treadle.kernel(SIGNATURE, static="d e")(differential(terms, condition, format=format))
    return str(kernel.trace([format] * 5 + ["f32"], sizes, fixed=("d", "e")))


LONG = {"h": 32, "q": 4096, "x": 4096, "d": 64, "e": 128}
SHORT = {"h": 2, "q": 37, "x": 150, "d": 64, "e": 64}

# -- what the model decides --------------------------------------------------------------------------


@pytest.mark.parametrize(("machine", "most"), [("h100", 0.6), ("h200", 0.6), ("a100", 0.9)])
def test_a_sum_of_two_attentions_is_a_kernel_each(machine: str, most: float) -> None:
    program = text(SUMS["sum of shares"], LONG)
    kernel = treadle.compile(program, machine=machine)
    assert distributed(kernel) == [f"%{_product(program)} over the terms of %weights_f16"]
    assert kernel.estimate.kernels == 2
    apart = [step for step in kernel.derivation if step.rewrite == "keep apart" and "share registers" in step.reason]
    assert len(apart) == 1
    plain = treadle.compile(program, machine=machine, passes=[f"{PASS}{{products=none}}"])
    assert distributed(plain) == []
    assert kernel.estimate.time_us < most * plain.estimate.time_us


def test_what_may_cancel_is_asked_for() -> None:
    program = text(SUMS["difference"], LONG)
    kernel = treadle.compile(program, machine="h100")
    assert distributed(kernel) == []
    declined = [step for step in kernel.derivation if step.rewrite == f"decline {PASS}"]
    assert ["may cancel" in step.reason for step in declined] == [True]
    asked = treadle.compile(program, machine="h100", passes=[f"{PASS}{{products={_product(program)}}}"])
    assert len(distributed(asked)) == 1
    assert asked.estimate.time_us < 0.8 * kernel.estimate.time_us


@pytest.mark.parametrize(("machine", "kernels"), [("h100", 2), ("a100", 2), ("l40s", 2)])
def test_a_difference_of_products_is_two_attentions(machine: str, kernels: int) -> None:
    """As `examples/attention_differential.mlir` has it: which no pass needs to find."""
    kernel = treadle.compile(EXAMPLE, machine=machine, sizes={"b": 1, "h": 32, "q": 4096, "x": 4096})
    assert kernel.estimate.kernels == kernels
    assert not any("further stream" in step.reason for step in kernel.derivation if step.rewrite == "streaming")


# -- what is right -----------------------------------------------------------------------------------


@pytest.mark.parametrize("machine", ["h100", "a100"])
@pytest.mark.parametrize("condition", ["", "x <= q"])
@pytest.mark.parametrize("name", SUMS)
def test_terms_are_multiplied_one_by_one(name: str, condition: str, machine: str) -> None:
    program = text(SUMS[name], SHORT, condition)
    kernel = treadle.compile(program, machine=machine, passes=[f"{PASS}{{products={_product(program)}}}"])
    assert len(distributed(kernel)) == 1
    verify(kernel, *arrays(2, 37, 150, 64, 64))
    verify(kernel, *arrays(1, 1, 1, 64, 64))
    verify(kernel, *arrays(2, 5, 0, 64, 64))


def test_terms_that_wait_for_the_same_sums_are_one() -> None:
    program = text(SUMS["three"], SHORT)
    kernel = treadle.compile(program, machine="h100", passes=[f"{PASS}{{products={_product(program)}}}"])
    assert str(kernel.hierarchy).count("diagram.contract") == 6  # with three products it would be more


def _product(text: str) -> str:
    """The name of the last product."""
    return text[: text.rindex("diagram.contract")].rsplit("%", 1)[1].split()[0]


def _doubled(array: Any, times: int) -> Any:
    return array if not times else _doubled(array + array, times - 1)


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (differential(lambda p, r, k: p - k, "x <= q"), "a term does not vary along the sum"),
        (differential(lambda p, r, k: p * r), "it is a product"),
        (differential(lambda p, r, k: p - r, "x <= q", "x < q"), "terms lack other elements"),
        (differential(lambda p, r, k: k * p - k * k * r), "nothing bounds two of the terms"),
        (differential(lambda p, r, k: _doubled(p - r, 8)), "there are too many terms"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_what_is_no_sum_of_such_terms_stays(function: Callable[..., Any], why: str) -> None:
    traced = treadle.kernel(SIGNATURE, static="d e")(function).trace(
        ["f16"] * 5 + ["f32"], {"h": 2, "q": 37, "x": 150, "d": 64, "e": 64}, fixed=("d", "e")
    )
    with pytest.raises(TreadleError, match="is no product with a sum whose terms wait for different sums"):
        treadle.compile(str(traced), machine="h100", passes=[f"{PASS}{{products={_product(str(traced))}}}"])
    verify(treadle.compile(str(traced), machine="h100"), *arrays(2, 37, 150, 64, 64))


def test_a_sum_that_is_used_otherwise_is_computed_once() -> None:
    def function(Q: tl.Array, K: tl.Array, V: tl.Array) -> tuple[tl.Array, tl.Array]:
        scores = tl.contract(Q, K, over="d") * 0.125
        weights = tl.softmax(scores, over="x") - tl.softmax(2 * scores, over="x")
        return tl.contract(weights.to("f16"), V, over="x").to("f16"), tl.max(weights, over="x")

    traced = treadle.kernel("q d, x d, x e -> q e, q", static="d e")(function).trace(
        ["f16"] * 3, {"q": 40, "x": 70, "d": 64, "e": 64}, fixed=("d", "e")
    )
    kernel = treadle.compile(str(traced), machine="h100")
    assert distributed(kernel) == []
    Q, K, V = arrays(1, 40, 70, 64, 64)[:2] + arrays(1, 40, 70, 64, 64)[4:5]
    verify(kernel, Q[0], K[0], V[0])


def test_a_name_that_is_no_such_product_is_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    program = tmp_path / "differential.mlir"
    program.write_text(text(SUMS["difference"], SHORT), encoding="utf-8")
    assert main(["compile", str(program), "--pass", f"{PASS}{{products=product}}"]) == 2
    assert "such are %product_c" in capsys.readouterr().err


def test_a_product_with_a_term_that_is_such_a_product() -> None:
    """It is found again, once the other one is another value."""

    def function(A: tl.Array, B: tl.Array, V: tl.Array, U: tl.Array) -> tl.Array:
        P, R = tl.softmax(A, over="x"), tl.softmax(B, over="x")
        Y = tl.contract((P + R).to("f16"), V, over="x")
        both = tl.softmax(Y, over="e") + tl.softmax(tl.abs(Y), over="e")
        return tl.contract(both.to("f16"), U, over="e")

    kernel = treadle.kernel("q x, q x, x e, e o -> q o", static="e o")(function)
    program = str(kernel.trace(["f32", "f32", "f16", "f16"], {"q": 40, "x": 70, "e": 64, "o": 64}, fixed=("e", "o")))
    names = [line.split()[0].removeprefix("%") for line in program.splitlines() if "diagram.contract" in line]
    asked = treadle.compile(program, machine="h100", passes=[f"{PASS}{{products={','.join(names)}}}"])
    assert len(distributed(asked)) == 2
    random = np.random.default_rng(0)
    formats = [((33, 50), np.float32), ((33, 50), np.float32), ((50, 64), np.float16), ((64, 64), np.float16)]
    verify(asked, *(random.standard_normal(shape).astype(format) for shape, format in formats))


# -- factors that leave with a divisor ---------------------------------------------------------------


def gated(Q: tl.Array, K: tl.Array, V: tl.Array, k: tl.Array) -> tl.Array:
    """Shares times a number of the head that is at most 1, and may be tiny: rounded to f16 with it, and without the
    divisor, all of a row might vanish."""
    shares = tl.softmax(tl.contract(Q, K, over="d") * 0.125, over="x")
    return tl.contract((tl.sigmoid(k) * shares).to("f16"), V, over="x").to("f16")


def gated_causal(Q: tl.Array, K: tl.Array, V: tl.Array, k: tl.Array) -> tl.Array:
    scores = tl.keep(tl.contract(Q, K, over="d") * 0.125, "x < q")
    return tl.contract((tl.sigmoid(k) * tl.softmax(scores, over="x")).to("f16"), V, over="x").to("f16")


@pytest.mark.parametrize("function", [gated, gated_causal])
def test_shares_times_a_small_number_are_one_stream(function: Callable[..., Any]) -> None:
    traced = treadle.kernel("h q d, h x d, h x e, h -> h q e", static="d e")(function).trace(
        ["f16"] * 3 + ["f32"], {"h": 32, "q": 4096, "x": 4096, "d": 64, "e": 64}, fixed=("d", "e")
    )
    kernel = treadle.compile(str(traced), machine="h100")
    streams = [step for step in kernel.derivation if step.rewrite == "streaming"]
    assert streams
    assert not any("further stream" in step.reason for step in streams)
    Q, K, _, _, V, k = arrays(3, 33, 70, 64, 64)
    verify(kernel, Q, K, V, k)
    verify(kernel, Q, K, V, 5 * k - 10)
    verify(kernel, Q[:, :3], K[:, :0], V[:, :0], k)


@pytest.mark.parametrize("most", [600.0, 1e5])
def test_a_number_that_nothing_bounds_stays_with_its_shares(most: float) -> None:
    """Where the key with the largest score counts for nothing, what f16 loses of the others would be all."""

    def function(Q: tl.Array, K: tl.Array, V: tl.Array, k: tl.Array) -> tl.Array:
        shares = tl.softmax(tl.contract(Q, K, over="d"), over="x")
        return tl.contract((k * shares).to("f16"), tl.keep(V, "x < 8"), over="x")

    Q, K, _, _, V, k = arrays(2, 9, 20, 64, 64)
    K[:, 8:] += 4 * Q[:, :1]
    given = (Q / np.float16(16), K, V, np.full_like(k, most))
    kernel = treadle.kernel("h q d, h x d, h x e, h -> h q e", machine="h100", static="d e")(function)
    verdicts = kernel.compiled(*given).verify(*given, backend="emulator")
    assert not any(each.wrong for each in verdicts), verdicts


def test_shares_that_saturate_stay_what_they_are() -> None:
    def function(Q: tl.Array, K: tl.Array, V: tl.Array, k: tl.Array) -> tl.Array:
        shares = tl.softmax(tl.contract(Q, K, over="d"), over="x")
        return tl.contract((k * shares).to("f8E4M3FN").to("f16"), V, over="x")

    Q, K, _, _, V, k = arrays(2, 9, 20, 64, 64)
    given = (Q, K, V, np.full_like(k, 600))
    kernel = treadle.kernel("h q d, h x d, h x e, h -> h q e", machine="h100", static="d e")(function)
    verdicts = kernel.compiled(*given).verify(*given, backend="emulator")
    assert not any(each.wrong for each in verdicts), verdicts
