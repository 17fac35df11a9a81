"""Products of which a factor is absent do not count, whatever the other is: data past a length may be NaN. A kernel
loads nothing of that. Elsewhere it takes a zero for what is absent, and where the other is no finite number nothing is
said of the sum."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from mutant_cuda import few_processors
from xdsl.dialects import scf
from xdsl.utils.arg_spec import ArgSpec

from roads import Road, array, compiled
from treadle.compiler.pipeline import Options, pipeline, print_cuda, run_passes
from treadle.compiler.source import parse_module
from treadle.dialects import cuda
from treadle.dialects.cuda.accesses import is_extent
from treadle.runtime.interpreter import Bounded, run_with_bounds

EXAMPLES = Path(__file__).parents[1] / "examples"
Q, X, E = 12, 40, 6
SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan])
LEFT, RIGHT, RESULT = array("f16", q=None, x=None), array("f16", x=None, e=None), array("f32", q=None, e=None)
COUNTS = array("i32", q=None)


def program(left: str = "", right: str = "", turned: bool = False) -> str:
    """A product whose operands are kept where conditions hold."""
    inputs = {"n": " with (n = %n : i32)", "len[q]": f" with (len = %L : {COUNTS})"}
    kept, names = "", {"W": "%W", "V": "%V"}
    for name, condition, type in (("W", left, LEFT), ("V", right, RIGHT)):
        if condition:
            given = "".join(text for word, text in inputs.items() if word in condition.split())
            kept += f'%{name}_1 = diagram.where %{name} if "{condition}"{given} : {type}\n'
            names[name] = f"%{name}_1"
    pair = [(names["W"], LEFT), (names["V"], RIGHT)]
    (one, one_type), (other, other_type) = reversed(pair) if turned else pair
    return f"""
func.func @f(%W: {LEFT}, %V: {RIGHT}, %L: {COUNTS}, %n: i32) -> {RESULT} {{
  {kept}
  %O = diagram.contract {one}, {other} over [x] accumulate f32 : {one_type}, {other_type} -> {RESULT}
  func.return %O : {RESULT}
}}
"""


def operands(specials: float) -> tuple[np.ndarray, ...]:
    random = np.random.default_rng(0)
    left, right = (random.integers(-3, 4, shape).astype(np.float16) for shape in ((Q, X), (X, E)))
    for data in (left, right):
        chosen = random.random(data.shape) < specials
        data[chosen] = random.choice(SPECIAL, chosen.sum())
    return left, right, random.integers(0, X + 1, Q).astype(np.int32), np.int32(30)


def wanted(left, right, there_left, there_right) -> tuple[np.ndarray, np.ndarray]:
    """The sums over the pairs that exist, and where an absent element meets one that is not finite."""
    there = there_left[:, :, None] & there_right[None, :, :]
    with np.errstate(all="ignore"):
        products = left.astype(np.float64)[:, :, None] * right.astype(np.float64)[None]
        sums = np.where(there, products, 0.0).sum(1)
    met = (there_left & ~np.isfinite(left))[:, :, None] & ~there_right[None]
    met |= ~there_left[:, :, None] & (there_right & ~np.isfinite(right))[None]
    return sums, met.any(1)


def reference(text: str, inputs: tuple[np.ndarray, ...]) -> Bounded:
    (result,) = run_with_bounds(parse_module(text), inputs)
    return result


q, of_left = np.indices((Q, X))
of_right, e = np.indices((X, E))
CONDITIONS = {
    ("x <= q", ""): lambda lengths: (of_left <= q, of_right >= 0),
    ("x < len[q]", ""): lambda lengths: (of_left < lengths[:, None], of_right >= 0),
    ("", "x < n"): lambda lengths: (of_left >= 0, of_right < 30),
    ("x <= 2 * q", "x < n or x <= e"): lambda lengths: (of_left <= 2 * q, (of_right < 30) | (of_right <= e)),
}


@pytest.mark.parametrize("specials", [0.0, 0.03, 0.2])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("conditions", CONDITIONS)
def test_products_with_an_absent_factor_do_not_count(conditions, turned: bool, specials: float):
    left, right, lengths, _ = inputs = operands(specials)
    sums, met = wanted(left, right, *CONDITIONS[conditions](lengths))
    result = reference(program(*conditions, turned), inputs)
    np.testing.assert_array_equal(result.value, sums)
    assert (np.isinf(result.error) == met).all()
    assert met.any() == (specials > 0)


# -- kernels --------------------------------------------------------------------------------------------------------

MACHINES = ("a100", "h100")


def garbage(array: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """An array with what nobody wrote: no finite number where it is not kept."""
    random = np.random.default_rng(1)
    return np.where(kept, array, random.choice([np.nan, np.inf, -np.inf], array.shape)).astype(array.dtype)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("turned", [False, True], ids=["", "turned"])
@pytest.mark.parametrize("length", [128, 100, 256, 0, 300])
def test_data_past_a_length(machine: str, turned: bool, length: int):
    """A cache that is not filled: what lies behind its length is not loaded, and counts for nothing."""
    road = compiled(program("x < n", turned=turned), machine=machine)
    left, right = np.ones((16, 256), np.float16), np.ones((256, 16), np.float16)
    inputs = (left, garbage(right, np.arange(256)[:, None] < length), np.zeros(16, np.int32), length)
    (verdict,) = road.verdicts(inputs)
    assert verdict.ok, verdict
    assert (road.run(inputs)[0] == min(length, 256)).all()


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("turned", [False, True], ids=["", "turned"])
@pytest.mark.parametrize("start", [128, 100, 3, 256, 0, 300, -5])
@pytest.mark.sample(7)
def test_data_before_a_start(machine: str, turned: bool, start: int):
    """Padding on the left: what lies before the start is not loaded, and counts for nothing."""
    road = compiled(program("x >= n", turned=turned), machine=machine)
    left, right = np.ones((16, 256), np.float16), np.ones((256, 16), np.float16)
    inputs = (left, garbage(right, np.arange(256)[:, None] >= start), np.zeros(16, np.int32), start)
    (verdict,) = road.verdicts(inputs)
    assert verdict.ok, verdict
    assert (road.run(inputs)[0] == 256 - min(max(start, 0), 256)).all()


PADDED = {"as rows": "[b, h, x, e]", "as columns": "[b, h, e, x]"}


@cache
def padded(values: str, machine: str, d: int = 64, condition: str = "x < len[b]") -> Road:
    """Attention to keys of different lengths, whose values lie in memory in this order of axes."""
    text = (EXAMPLES / "attention_lengths.mlir").read_text(encoding="utf-8").replace("x64x", f"x{d}x")
    if condition != "x < len[b]":
        assert '"x < len[b]" with (len = %len : !len)' in text
        text = text.replace('"x < len[b]" with (len = %len : !len)', f'"{condition}" with ({given(condition)})')
        text = text.replace("%len: !len {", '%since: !len {diagram.up_to = "x"}, %len: !len {')
    if values == PADDED["as columns"]:
        rows = f"!V = tensor<?x?x?x{d}xf16, #diagram.array<[b, h, x, e]>>"
        assert rows in text
        text = text.replace(rows, f"!V = tensor<?x?x{d}x?xf16, #diagram.array<{values}>>")
    return compiled(text, machine=machine)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("values", PADDED.values(), ids=PADDED)
@pytest.mark.parametrize("lengths", [(0, 5), (100, 333), (176, 200), (7, 352), (353, 400), (400, 1)], ids=str)
@pytest.mark.parametrize("keys", [333, 400, 64])
@pytest.mark.sample(8)
def test_keys_and_values_past_a_length(keys: int, lengths: tuple[int, int], values: str, machine: str):
    road = padded(values, machine)
    queries, k, v, _ = road.inputs({"b": 2, "h": 1, "q": 70, "x": keys})
    there = np.arange(keys) < np.array(lengths)[:, None]
    rows, columns = there[:, None, :, None], there[:, None, None, :]
    inputs = (queries, garbage(k, rows), garbage(v, rows if values == PADDED["as rows"] else columns), lengths)
    inputs = (*inputs[:3], np.array(lengths, np.int32))
    (verdict,) = road.verdicts(inputs)
    assert verdict.ok, verdict
    assert np.isfinite(road.run(inputs)[0]).all()


def given(condition: str) -> str:
    return ", ".join(f"{name} = %{name} : !len" for name in ("since", "len") if f"{name}[b]" in condition)


STARTED = {
    "since[b] <= x": lambda starts, lengths: lambda x: x >= starts,
    "since[b] <= x < len[b]": lambda starts, lengths: lambda x: (x >= starts) & (x < lengths),
    "since[b] <= x and x <= q": lambda starts, lengths: lambda x: x >= starts,
    "x > q - len[b] and x >= since[b]": lambda starts, lengths: lambda x: x >= starts,
}


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("values", PADDED.values(), ids=PADDED)
@pytest.mark.parametrize("starts", [(0, 5), (100, 333), (176, 200), (7, 352), (353, 400), (-4, 130)], ids=str)
@pytest.mark.parametrize("keys", [333, 400, 64])
@pytest.mark.parametrize("condition", STARTED)
@pytest.mark.sample(8)
def test_keys_and_values_before_a_start(condition: str, keys: int, starts: tuple[int, int], values: str, machine: str):
    road = padded(values, machine, condition=condition)
    first, lengths = np.array(starts, np.int32), np.array([keys - 1, min(keys, 140)], np.int32)
    made = road.inputs({"b": 2, "h": 1, "q": 70, "x": keys})
    there = STARTED[condition](first[:, None], lengths[:, None])(np.arange(keys))
    rows, columns = there[:, None, :, None], there[:, None, None, :]
    queries, k, v = made[0], garbage(made[1], rows), garbage(made[2], rows if values == PADDED["as rows"] else columns)
    inputs = (queries, k, v, first, lengths)
    (verdict,) = road.verdicts(inputs)
    assert verdict.ok, verdict
    assert np.isfinite(road.run(inputs)[0]).all()


MADE = {
    "a logarithm": "%l = math.log %w : f32",
    "an inverse": "%o = arith.constant 1.0 : f32\n    %l = arith.divf %o, %w : f32",
}


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("made", MADE.values(), ids=MADE)
@pytest.mark.parametrize("condition", ["x < len[b]", "x >= len[b]"])
def test_values_that_a_map_makes(condition: str, made: str, machine: str):
    """Zeros beyond the length would be infinite then: they stand for what the map has made."""
    text = (EXAMPLES / "attention_lengths.mlir").read_text(encoding="utf-8")
    body = f"%w = arith.extf %v : f16 to f32\n    {made}\n    %y = arith.truncf %l : f32 to f16"
    made_of = f"%U = diagram.map (%v = %V : !V) -> !V {{\n    {body}\n    diagram.yield %y : f16\n  }}\n  %A = "
    assert "%P16, %V over" in text
    text = text.replace("%A = ", made_of).replace("%P16, %V over", "%P16, %U over")
    assert "x < len[b]" in text
    road = compiled(text.replace("x < len[b]", condition), machine=machine)
    queries, k, v, _ = road.inputs({"b": 2, "h": 1, "q": 70, "x": 300})
    lengths = np.array([100, 205], np.int32)
    there = np.arange(300) < lengths[:, None]
    there = (there if "<" in condition else ~there)[:, None, :, None]
    v = (np.abs(v) + 0.5).astype(np.float16)
    for values in (v, garbage(v, there)):
        (verdict,) = road.verdicts((queries, k, values, lengths))
        assert verdict.ok, verdict


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("size", [None, 320])
def test_an_end_that_is_a_number(size: int | None, machine: str):
    text = program("x < 100")
    if size is not None:
        text = text.replace(LEFT, array("f16", q=None, x=size)).replace(RIGHT, array("f16", x=size, e=None))
    road = compiled(text, machine=machine)
    left, right = np.ones((16, 320), np.float16), np.ones((320, 16), np.float16)
    inputs = (left, garbage(right, np.arange(320)[:, None] < 100), np.zeros(16, np.int32), 1)
    (verdict,) = road.verdicts(inputs)
    assert verdict.ok, verdict


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("start", [100, 128])
def test_a_start_that_is_a_number(start: int, machine: str):
    """One that begins a piece asks for nothing."""
    road = compiled(program(f"x >= {start}"), machine=machine)
    copies = [op for kernel in road.kernels for op in kernel.walk() if isinstance(op, cuda.CopyOp)]
    assert any(op.begins for op in copies) == (start == 100)
    left, right = np.ones((16, 320), np.float16), np.ones((320, 16), np.float16)
    inputs = (left, garbage(right, np.arange(320)[:, None] >= start), np.zeros(16, np.int32), 1)
    (verdict,) = road.verdicts(inputs)
    assert verdict.ok, verdict


SPLIT = "hierarchy-split-streams"


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("condition", ["x >= 7", "x < 600", "7 <= x < 600"])
@pytest.mark.sample(2)
def test_numbers_along_an_axis_that_is_split(condition: str, machine: str):
    """Where a number lies in a part follows from which part it is, but what is beyond it is there for none."""
    text = (EXAMPLES / "attention_decode.mlir").read_text(encoding="utf-8")
    applied = "%P = diagram.apply @softmax(%T)"
    assert applied in text
    where = f'%W = diagram.where %T if "{condition}" : !S\n  '
    algorithm = parse_module(text.replace(applied, where + applied.replace("%T", "%W")))
    module = algorithm.clone()
    specs = pipeline(Options(machine=machine))
    run_passes(module, [ArgSpec(SPLIT, {"length": (256,)}) if spec.name == SPLIT else spec for spec in specs])
    road = Road(algorithm, module, print_cuda(module))
    assert len({re.sub("_specialised$|_by_lanes$", "", each.sym_name.data) for each in road.kernels}) == 2
    queries, k, v = road.inputs({"b": 1, "h": 2, "x": 777})
    there = np.array([eval(condition, {"x": x}) for x in range(777)])[None, None, :, None]
    (verdict,) = road.verdicts((queries, garbage(k, there), garbage(v, there)))
    assert verdict.ok, verdict


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("start", [3, 64, 100, 170])
@pytest.mark.sample(3)
def test_a_start_beside_a_condition_that_holds_before_it(start: int, machine: str):
    """A piece in which one condition is not asked, since it holds there, may lie on both sides of a start that another
    one sets and that is asked everywhere."""
    text = (EXAMPLES / "attention_lengths.mlir").read_text(encoding="utf-8")
    asked = '"x >= len[b] and kind[x] > 0" with (len = %len : !len, kind = %kind : !kind)'
    for old, new in (
        ('"x < len[b]" with (len = %len : !len)', asked),
        (
            "%T = diagram.map (%s = %W : !S)",
            '%U = diagram.where %W if "x <= q" : !S\n  %T = diagram.map (%s = %U : !S)',
        ),
        ("%len: !len {", "%kind: !kind, %len: !len {"),
        ("!len = ", "!kind = tensor<?xi32, #diagram.array<[x]>>\n!len = "),
    ):
        assert old in text
        text = text.replace(old, new)
    road = compiled(text, machine=machine)
    queries, k, v, _, _ = road.inputs({"b": 2, "h": 1, "q": 500, "x": 400})
    there = (np.arange(400) >= start)[None, None, :, None]
    inputs = (queries, k, garbage(v, there), np.arange(1, 401, dtype=np.int32) % 5, np.full(2, start, np.int32))
    (verdict,) = road.verdicts(inputs)
    assert verdict.ok, verdict


@pytest.mark.parametrize("machine", MACHINES)
def test_sequences_before_those_of_a_group(machine: str):
    """Of packed sequences, what belongs to none that the queries of a group are of."""
    road = compiled((EXAMPLES / "attention_packed.mlir").read_text(encoding="utf-8"), machine=machine)
    queries, k, v, of_q, of_x = road.inputs({"b": 1, "h": 1, "q": 100, "x": 300})
    of_q[:], of_x[:50], of_x[50:] = 1, 0, 1
    there = (of_x == 1)[None, None, :, None]
    (verdict,) = road.verdicts((queries, garbage(k, there), garbage(v, there), of_q, of_x))
    assert verdict.ok, verdict


@pytest.mark.parametrize("machine", MACHINES)
def test_numbers_of_sequences_are_read_to_their_end(machine: str):
    """A condition asks about them behind the stop, too: zeros there would be the keys of sequence 0."""
    road = compiled((EXAMPLES / "attention_packed.mlir").read_text(encoding="utf-8"), machine=machine)
    queries, k, v, of_q, of_x = road.inputs({"b": 1, "h": 1, "q": 100, "x": 300})
    of_q[:], of_x[:50], of_x[50:] = 0, 0, 1
    (verdict,) = road.verdicts((queries, k, v, of_q, of_x))
    assert verdict.ok, verdict


@cache
def held(condition: str, masked: str, keys: str, machine: str) -> Road:
    """Attention of which a condition leaves part of the width of queries or keys, which lie in memory in this order."""
    text = (EXAMPLES / "attention_lengths.mlir").read_text(encoding="utf-8")
    where = f'%R = diagram.where %{masked} if "{condition}" with ({given(condition)}) : !{masked}\n  '
    scores = "%S = diagram.contract %Q, %K"
    assert scores in text
    assert "x < len[b]" in text
    text = text.replace(scores, where + scores.replace(f"%{masked}", "%R"))
    text = text.replace('"x < len[b]" with (len = %len : !len)', '"x <= q"')
    text = text.replace("%len: !len {", '%since: !len {diagram.up_to = "q"}, %len: !len {')
    rows = "!K = tensor<?x?x?x64xf16, #diagram.array<[b, h, x, d]>>"
    assert rows in text
    columns = "!K = tensor<?x?x64x?xf16, #diagram.array<[b, h, d, x]>>"
    return compiled(text if keys == "as rows" else text.replace(rows, columns), machine=machine)


HELD = {
    "d < len[b]": lambda d, since, length: d < length,
    "d >= since[b]": lambda d, since, length: d >= since,
    "since[b] <= d < len[b]": lambda d, since, length: (d >= since) & (d < length),
    "d < len[b] or d >= since[b]": lambda d, since, length: (d >= since) | (d < length),
    "3 <= d < 37": lambda d, since, length: (d >= 3) & (d < 37 + 0 * length),
}


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("keys", PADDED)
@pytest.mark.parametrize("masked", ["Q", "K"])
@pytest.mark.parametrize("condition", HELD)
@pytest.mark.parametrize(("since", "lengths"), [((5, 0), (40, 64)), ((0, 63), (64, 70)), ((30, -1), (29, 0))])
@pytest.mark.sample(7)
def test_part_of_an_axis_that_a_kernel_holds(since, lengths, condition: str, masked: str, keys: str, machine: str):
    """Beside a condition along the streamed axis, which some of its pieces need not test."""
    road = held(condition, masked, keys, machine)
    queries, k, v, *_ = road.inputs({"b": 2, "h": 1, "q": 150, "x": 200})
    first, length = np.array(since, np.int32), np.array(lengths, np.int32)
    there = HELD[condition](np.arange(64), first[:, None], length[:, None])
    if " or " in condition:  # what lies between the two is loaded
        there[:] = True
    rows = there[:, None, None, :]
    k = garbage(k, rows if keys == "as rows" else there[:, None, :, None])
    (verdict,) = road.verdicts((garbage(queries, rows), k, v, first, length))
    assert verdict.ok, verdict


def test_rows_too_narrow_to_be_copied_alone():
    """Rows of 48 bytes reach to 64 in the tile; a row that comes alone would have 128."""
    text = (EXAMPLES / "attention_lengths.mlir").read_text(encoding="utf-8")
    for type in ("!V = tensor<?x?x?x64x", "!A = tensor<?x?x?x64x", "!O = tensor<?x?x?x64x"):
        text = text.replace(type, type.replace("64", "24"))
    road = compiled(text, machine="h100")
    assert "128 lanes copy %V_shared (%V: a row that is copied alone has 128 bytes, not 64)" in road.text
    road.check({})


@pytest.mark.parametrize("d", [80, 64])
def test_rows_of_128_bytes_are_copied_before_a_length(d: int):
    """Other rows of what is multiplied come by `cp.async`, which ends anywhere."""
    text = padded(PADDED["as rows"], "h100", d).text
    assert ("tensor_load_before" in text) == (d == 64)
    assert ("a row that is copied alone has 128 bytes, not 32" in text) == (d == 80)
    assert "no tensor copy ends within one" in padded(PADDED["as columns"], "h100").text


@pytest.mark.parametrize("condition", STARTED)
@pytest.mark.parametrize(
    ("order", "width", "says"),
    [
        ("as rows", 64, "tensor_load_within"),
        ("as columns", 64, "no tensor copy ends within one"),
        ("as rows", 80, "has 128 bytes, not 32"),
    ],
)
def test_rows_of_128_bytes_are_copied_from_a_start(order: str, width: int, says: str, condition: str):
    assert says in padded(PADDED[order], "h100", width, condition).text


def test_whole_pieces_are_copied_whole():
    """What a start leaves of a piece is asked in the borders alone."""
    road = padded(PADDED["as rows"], "a100", condition="since[b] <= x < len[b]")
    loops = [op for kernel in road.kernels for op in kernel.walk() if isinstance(op, scf.ForOp)]
    copies = [[op for op in loop.walk() if isinstance(op, cuda.CopyOp)] for loop in loops]
    assert [sorted({*(axis for op in found for axis in op.begun_axes)}) for found in copies] == [["x"], [], ["x"]]


@pytest.mark.parametrize("condition", ["x < len[b]", "x >= len[b]"])
def test_pieces_that_a_block_takes_one_after_another_end_each_for_itself(condition: str):
    text = (EXAMPLES / "attention_lengths.mlir").read_text(encoding="utf-8").replace("x < len[b]", condition)
    road = compiled(text.replace("b = 2, h = 3, q = 200, x = 333", "b = 4, h = 16, q = 2048, x = 2048"), machine="h100")
    assert "gridDim" in road.text
    assert ("tensor_load_before" if "<" in condition else "tensor_load_within") in road.text
    few_processors(road.module)
    queries, k, v, _ = road.inputs({"b": 2, "h": 2, "q": 300, "x": 700})
    lengths = np.array([1, 650], np.int32)
    there = np.arange(700) < lengths[:, None]
    there = (there if "<" in condition else ~there)[:, None, :, None]
    (verdict,) = road.verdicts((queries, garbage(k, there), garbage(v, there), lengths))
    assert verdict.ok, verdict


def test_only_the_other_factor_ends_early():
    """What is compared or made into scores is absent itself behind the end, and comes whole as ever."""
    road = compiled((EXAMPLES / "attention_packed.mlir").read_text(encoding="utf-8"), machine="a100")
    inward = [op for kernel in road.kernels for op in kernel.walk() if isinstance(op, cuda.LoadOp | cuda.CopyOp)]
    ending = {op.source.name_hint for op in inward if any(not is_extent(limit) for limit in op.limits)}
    assert ending == {op.source.name_hint for op in inward if op.begins} == {"V"}
    assert {type(op) for op in inward if op.source.name_hint == "of_x"} == {cuda.CopyOp}


def test_positions_alone_end_no_copy():
    """What causal attention leaves out of a piece is there for other queries."""
    road = compiled((EXAMPLES / "attention_causal.mlir").read_text(encoding="utf-8"), machine="h100")
    assert "tensor_load_before" not in road.text
    queries, k, v = road.inputs({"b": 1, "h": 1, "q": 100, "x": 100})
    v[:, :, 90] = np.nan
    (verdict,) = road.verdicts((queries, k, v))
    assert verdict.unverifiable, verdict


def test_each_result_has_a_verdict_of_its_own():
    """One that has met zeros in the place of what is absent makes nothing less certain of another."""
    text = f"""
func.func @f(%W: {LEFT}, %V: {RIGHT}, %U: {RIGHT}, %n: i32) -> ({RESULT}, {RESULT}) {{
  %W_1 = diagram.where %W if "x < n" with (n = %n : i32) : {LEFT}
  %O = diagram.contract %W_1, %V over [x] accumulate f32 : {LEFT}, {RIGHT} -> {RESULT}
  %W_2 = diagram.where %W if "x <= q" : {LEFT}
  %R = diagram.contract %W_2, %U over [x] accumulate f32 : {LEFT}, {RIGHT} -> {RESULT}
  func.return %O, %R : {RESULT}, {RESULT}
}}
"""
    left, right = np.ones((70, 300), np.float16), np.ones((300, 64), np.float16)
    other = right.copy()
    other[60] = np.nan
    one, two = compiled(text).verdicts((left, garbage(right, np.arange(300)[:, None] < 100), other, 100))
    assert one.ok, one
    assert two.unverifiable, two
