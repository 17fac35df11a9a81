"""Between which positions comparisons with data hold is found once, where that saves time (`diagram-find-ranges`), and
what is told of a condition is taken for granted (`diagram.where .. within .. throughout ..`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from xdsl.utils.arg_spec import ArgSpec
from xdsl.utils.exceptions import VerifyException

import treadle
import treadle.language as tl
from treadle.compiler.errors import TreadleError
from treadle.compiler.pipeline import run_passes
from treadle.compiler.source import parse_module
from treadle.dialects.diagram import WhereOp
from treadle.runtime.interpreter import run_function

ROOT = Path(__file__).parents[1]
PASS = "diagram-find-ranges"
Numbers = NDArray[np.int32]

SUMS = (ROOT / "tests/programs/mixed_numbers.mlir").read_text(encoding="utf-8")


def numbers_of(order: str, size: int, random: np.random.Generator) -> Numbers:
    found = {
        "ascending": np.sort(random.integers(0, 6, size)),
        "mixed": random.integers(0, 6, size),
        "again": (np.arange(size) // 20 * 7) % 5,
        "descending": 5 - np.arange(size) // max(1, -(-size // 6)),
        "strangers": np.full(size, random.integers(9, 99)),
    }
    return found[order].astype(np.int32)


ORDERS = ("ascending", "mixed", "again", "descending", "strangers")

# -- what is found -----------------------------------------------------------------------------------


@pytest.mark.parametrize("of_x", ORDERS)
@pytest.mark.parametrize(("q", "x"), [(9, 37), (1, 1), (70, 131), (0, 5), (5, 0)])
def test_ends_are_those_of_each_row(of_x: str, q: int, x: int) -> None:
    random = np.random.default_rng(0)
    module = parse_module(SUMS)
    told = module.clone()
    run_passes(told, [ArgSpec(PASS, {"axes": ("x",)})])
    (where,) = [op for op in told.walk() if isinstance(op, WhereOp) and op.within is not None]
    given = [random.standard_normal((q, x)), numbers_of("mixed", q, random), numbers_of(of_x, x, random)]
    wanted, got = (run_function(each, given).results[0] for each in (module, told))  # which checks what is told
    np.testing.assert_array_equal(wanted, got)
    ends = [where.inputs[[name.data for name in where.names].index(name)] for name in ("first", "end", "whole")]
    first, end, whole = found_by(told, ends, given)
    for row, number in enumerate(given[1]):
        places = np.flatnonzero(given[2] == number)
        assert (first[row], end[row]) == ((places[0], places[-1] + 1) if len(places) else (0, 0))
        assert whole[row] == (end[row] if end[row] - first[row] == len(places) else 0)


def found_by(module: Any, values: list[Any], given: list[Any]) -> list[Numbers]:
    """What values of a function are, as results of it."""
    function = next(op for op in module.walk() if op.name == "func.func")
    returned = function.body.block.last_op
    returned.operands = values
    function.update_function_type()
    return [np.asarray(each, np.int32) for each in run_function(module, given).results]


@pytest.mark.parametrize(
    ("condition", "within", "throughout"),
    [
        (
            "x <= q and of_x[x] == of_q[q]",
            "x <= q and first[q] <= x and x + 1 <= end[q]",
            "x <= q and first[q] <= x and x + 1 <= whole[q]",
        ),
        (
            "of_x[x] == of_q[q] or x < 4",
            "first[q] <= x and x + 1 <= end[q] or x <= 3",
            "first[q] <= x and x + 1 <= whole[q] or x <= 3",
        ),
        (
            "not (of_x[x] == of_q[q] or x < 4)",
            "(first[q] <= x and x + 1 <= end[q] or first_b[q] <= x and x + 1 <= end_b[q]) and 4 <= x",
            "(first[q] <= x and x + 1 <= whole[q] or first_b[q] <= x and x + 1 <= whole_b[q]) and 4 <= x",
        ),
        (
            "of_x[x] <= q and 2 <= of_x[x]",
            "first[q] <= x and x + 1 <= end[q]",
            "first[q] <= x and x + 1 <= whole[q]",
        ),
    ],
)
def test_what_is_told_of_a_condition(condition: str, within: str, throughout: str) -> None:
    text = SUMS.replace("of_x[x] == of_q[q]", condition)
    if "of_q" not in condition:
        text = text.replace(", of_q = %of_q : !of_q", "")
    module = parse_module(text)
    told = module.clone()
    run_passes(told, [ArgSpec(PASS, {"axes": ("x",)})])
    (where,) = [op for op in told.walk() if isinstance(op, WhereOp) and op.within is not None]
    assert where.condition.text.data == condition
    assert [each.text.data.replace("(", "").replace(")", "") for each in where.told.values()][1:] == [
        each.replace("(", "").replace(")", "") for each in (within, throughout)
    ]
    random = np.random.default_rng(1)
    for order in ORDERS:
        given = [random.standard_normal((23, 47)), numbers_of("mixed", 23, random), numbers_of(order, 47, random)]
        wanted, got = (run_function(each, given).results[0] for each in (module, told))
        np.testing.assert_array_equal(wanted, got)


BOTH = SUMS.replace("-> !q attributes", "-> (!q, !x) attributes").replace(
    "  func.return %sum : !q",
    "  %columns = diagram.reduce add %W over [q] : !S -> !x\n  func.return %sum, %columns : !q, !x",
)
BOTH = BOTH.replace("!of_q =", "!x = tensor<?xf32, #diagram.array<[x]>>\n!of_q =")
"""Of the gradients, say: each stream takes what is told of its own axis."""


def of_both() -> list[Any]:
    random = np.random.default_rng(2)
    return [random.standard_normal((23, 47)), numbers_of("mixed", 23, random), numbers_of("mixed", 47, random)]


def test_both_axes_may_be_summed() -> None:
    module = parse_module(BOTH)
    told = module.clone()
    run_passes(told, [ArgSpec(PASS, {"axes": ("x", "q")})])
    (where,) = [op for op in told.walk() if isinstance(op, WhereOp) and op.within is not None]
    assert len(where.names) == 2 + 3 + 3
    for wanted, got in zip(*(run_function(each, of_both()).results for each in (module, told)), strict=True):
        np.testing.assert_array_equal(wanted, got)


@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_kernels_may_sum_both_axes(machine: str) -> None:
    kernel = treadle.compile(BOTH, machine=machine, passes=[f"{PASS}{{axes=x,q}}"])
    scores, *numbers = of_both()
    verify(kernel, scores.astype(np.float32), *numbers)


# -- what it is good for -----------------------------------------------------------------------------


def packed(Q: Any, K: Any, V: Any, of_q: Any, of_x: Any) -> Any:
    scores = tl.keep(tl.contract(Q, K, over="d"), "of_x[x] == of_q[q]", of_x=of_x, of_q=of_q)
    return tl.contract(tl.softmax(scores * 0.125, over="x"), V, over="x")


def attention(order: str, h: int, q: int, x: int) -> list[Any]:
    random = np.random.default_rng(0)
    arrays = [random.standard_normal((h, size, 64)).astype(np.float16) for size in (q, x, x)]
    return [*arrays, numbers_of(order, q, random), numbers_of(order, x, random)]


def verify(kernel: treadle.Kernel, *given: Any) -> None:
    for verdict in kernel.verify(*given, backend="emulator"):
        assert verdict.ok, str(verdict)


def rewrites(kernel: treadle.Kernel) -> list[str]:
    return [step.rewrite for step in kernel.derivation]


def test_long_packed_attention_has_roles() -> None:
    """A producer knows the ends that another kernel has found."""
    kernel = treadle.kernel("h q d, h x d, h x e, q, x -> h q e", machine="h100")(packed)
    long = kernel.compiled(*attention("again", 8, 4100, 4050))
    assert PASS in rewrites(long)
    assert "warp-specialization" in rewrites(long)


def test_short_packed_attention_searches_in_each_group() -> None:
    """Of few keys that is faster."""
    kernel = treadle.kernel("h q d, h x d, h x e, q, x -> h q e", machine="h100")(packed)
    given = attention("again", 1, 70, 131)
    short = kernel.compiled(*given)
    assert f"decline {PASS}" in rewrites(short)
    verify(short, *given)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_packed_attention_is_right(machine: str, order: str) -> None:
    text = (ROOT / "examples/attention_packed.mlir").read_text(encoding="utf-8")
    long = text.replace("b = 2, h = 3, q = 333, x = 333", "b = 4, h = 16, q = 4096, x = 4096")
    kernel = treadle.compile(long, machine=machine)
    assert ("warp-specialization" in rewrites(kernel)) == (machine == "h100")
    for q, x in ((77, 331), (1, 1), (130, 0), (0, 12)):
        given = attention(order, 2, q, x)
        verify(kernel, *(each[None] for each in given[:3]), *given[3:])


# -- what is told ------------------------------------------------------------------------------------

TOLD = SUMS.replace(
    '"of_x[x] == of_q[q]" with (',
    '"of_x[x] == of_q[q]" within "x < end[q]" throughout "x < whole[q]" '
    "with (end = %end : !of_q, whole = %whole : !of_q, ",
).replace("%of_x: !of_x)", "%of_x: !of_x, %end: !of_q, %whole: !of_q)")


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("parts", [1, 3])
def test_what_a_program_tells_spares_a_search(parts: int, machine: str) -> None:
    """Also where the axis is split, and positions are told by parts."""
    kernel = treadle.compile(TOLD, machine=machine, passes=[f"hierarchy-split-streams{{parts={parts}}}"])
    assert not any("the first where" in step.reason for step in kernel.derivation)
    of_q, of_x = np.arange(9, dtype=np.int32) // 3, np.sort(np.arange(37, dtype=np.int32) % 4)
    end = np.searchsorted(of_x, of_q, side="right").astype(np.int32)
    whole = np.where(of_q == 0, end, 0).astype(np.int32)
    verify(kernel, np.random.default_rng(0).standard_normal((9, 37)).astype(np.float32), of_q, of_x, end, whole)


@pytest.mark.parametrize(
    ("end", "whole", "reason"),
    [(36, 0, r"holds where 'x < end\[q\]' does not"), (37, 37, r"does not hold throughout 'x < whole\[q\]'")],
)
def test_what_is_not_so_is_refused(end: int, whole: int, reason: str) -> None:
    of_x = np.arange(37, dtype=np.int32) % 2
    ends = [np.full(9, each, np.int32) for each in (end, whole)]
    with pytest.raises(TreadleError, match=reason):
        run_function(parse_module(TOLD), [np.zeros((9, 37)), np.zeros(9, np.int32), of_x, *ends])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (TOLD.replace("x < end[q]", "x < other[q]"), r"'other\[q\]' reads no input"),
        (TOLD.replace("x < end[q]", "x < 4"), "input 'end' does not appear"),
        (TOLD.replace("x < whole[q]", "x < whole[x]"), r"read as 'whole\[x\]': write 'whole\[q\]'"),
    ],
)
def test_what_is_told_is_checked(text: str, reason: str) -> None:
    with pytest.raises((TreadleError, VerifyException), match=reason):
        parse_module(text)


# -- what is asked for -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "axes", "reason"),
    [
        (SUMS, ("q",), "no condition compares data along axis 'q', .*: there are some along x"),
        (SUMS, ("x", "z"), "no condition compares data along axis 'z', .*: there are some along x"),
        (SUMS.replace("of_x[x] == of_q[q]", "of_x[x] == 1").replace(", of_q = %of_q : !of_q", ""), ("x",), "none"),
        (TOLD, ("x",), "there are none"),
    ],
)
def test_what_is_asked_for_in_vain_is_refused(text: str, axes: tuple[str, ...], reason: str) -> None:
    with pytest.raises(TreadleError, match=reason):
        run_passes(parse_module(text), [ArgSpec(PASS, {"axes": axes})])


def test_what_is_kept_in_8_bits_is_rounded_as_before() -> None:
    """A maximum of positions tells which elements there are, and moves no rounding."""
    module = parse_module(SMALL_NUMBERS)
    told = module.clone()
    run_passes(told, [ArgSpec(PASS, {"axes": ("x",)})])
    random = np.random.default_rng(0)
    given = [random.standard_normal((5, 30)), random.integers(0, 6, 30), random.standard_normal((30, 3))]
    wanted, got = (run_function(each, given).results[0] for each in (module, told))
    np.testing.assert_allclose(got, wanted, rtol=1e-12)


SMALL_NUMBERS = """
!S = tensor<?x?xf32, #diagram.array<[q, x]>>
!S8 = tensor<?x?xf8E5M2, #diagram.array<[q, x]>>
!V = tensor<?x3xf8E5M2, #diagram.array<[x, e]>>
!len = tensor<?xi32, #diagram.array<[x]>>
!O = tensor<?x3xf32, #diagram.array<[q, e]>>
func.func @f(%S: !S, %len: !len, %V: !V) -> !O {
  %W = diagram.where %S if "q < len[x]" with (len = %len : !len) : !S
  %W8 = diagram.cast %W : !S -> !S8
  %O = diagram.contract %W8, %V over [x] accumulate f32 : !S8, !V -> !O
  func.return %O : !O
}
"""
