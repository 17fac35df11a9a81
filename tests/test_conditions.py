"""Conditions: absent elements at every level, and tiles that are visited only where a condition holds somewhere."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from random import Random

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.arg_spec import ArgSpec
from xdsl.utils.exceptions import VerifyException

from roads import Road, compiled
from treadle.compiler.errors import TreadleError
from treadle.compiler.pipeline import LAST_HIERARCHY_PASS, Options, pipeline, run_pipeline
from treadle.compiler.source import load_module, parse_module
from treadle.dialects import cuda
from treadle.dialects.diagram.condition import Read, evaluate, read_condition
from treadle.dialects.hierarchy import StreamOp
from treadle.runtime.host import HostExecution
from treadle.runtime.inputs import axis_sizes, make_inputs
from treadle.runtime.interpreter import entry_function, run_function, run_with_bounds

EXAMPLES = Path(__file__).parents[1] / "examples"
PROGRAMS = Path(__file__).parent / "programs"
SPLIT = "hierarchy-split-streams"

PROGRAM = """
!Q = tensor<?x?x64xf16, #diagram.array<[b, q, d]>>
!K = tensor<?x?x64xf16, #diagram.array<[b, x, d]>>
!V = tensor<?x?x64xf16, #diagram.array<[b, x, e]>>
!S = tensor<?x?x?xf32, #diagram.array<[b, q, x]>>
!P = tensor<?x?x?xf16, #diagram.array<[b, q, x]>>
!A = tensor<?x?x64xf32, #diagram.array<[b, q, e]>>
!len = tensor<?xi32, #diagram.array<[b]>>
!first = tensor<?xi32, #diagram.array<[q]>>
!seg = tensor<?xi32, #diagram.array<[x]>>
!of_b = tensor<?x?xi32, #diagram.array<[b, x]>>
func.func @f(%Q: !Q, %K: !K, %V: !V{arguments}) -> !A
    attributes {{sizes = #diagram.sizes<b = 2, q = 150, x = 300>}} {{
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %W = diagram.where %S if "{condition}"{inputs} : !S
  %P = diagram.apply @softmax(%W) over [x] : (!S) -> !S
  %P16 = diagram.cast %P : !S -> !P
  %A = diagram.contract %P16, %V over [x] accumulate f32 : !P, !V -> !A
  func.return %A : !A
}}
"""

INPUTS = {
    "len": '!len {diagram.up_to = "x"}',
    "first": '!first {diagram.up_to = "x"}',
    "seg": "!seg",
    "of_q": "!first",
    "of_x": "!seg",
    "of_b": "!of_b",
    "n": 'i32 {diagram.up_to = "x"}',
}


def program(condition: str) -> str:
    named = [name for name in INPUTS if re.search(rf"\b{name}\b", condition)]
    arguments = "".join(f", %{name}: {INPUTS[name]}" for name in named)
    inputs = ", ".join(f"{name} = %{name} : {INPUTS[name].split()[0]}" for name in named)
    return PROGRAM.format(condition=condition, arguments=arguments, inputs=f" with ({inputs})" if inputs else "")


@cache
def road(condition: str) -> Road:
    return compiled(program(condition))


CONDITIONS = [
    "x <= q",
    "x < q",
    "x == q",
    "x != q",
    "x >= q",
    "2 * x <= q + 7",
    "3 * q - 2 * x > 5",
    "x <= q and q - x < 64",
    "x <= q or x < 33",
    "not (x <= q and q < 70)",
    "x < len[b]",
    "x < len[b] and x <= q",
    "q < len[b]",
    "first[q] <= x <= q",
    "first[q] < x or x == n",
    "seg[x] == 1",
    "seg[x] == 1 and x <= q + n - 100",
    "x < 0",
    "b == 1",
    "x + q + b < 200",
    "of_x[x] == of_q[q]",
    "of_b[b, x] == of_q[q] and x <= q",
    "of_x[x] != of_q[q] and seg[x] >= 0",
    "of_x[x] < 2 * of_q[q] - 3 or x == q + n",
    "10 * of_x[x] + x <= q",
]


# -- reading ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [c for c in CONDITIONS if "[" not in c and "n" not in c.split()])
def test_a_condition_says_what_python_says(text: str):
    values = {"x": np.arange(20)[None, :], "q": np.arange(15)[:, None], "b": np.asarray(1)}
    mine = evaluate(read_condition(text), lambda term: values[str(term)])
    theirs = [[eval(text, {}, {"x": x, "q": q, "b": 1}) for x in range(20)] for q in range(15)]
    np.testing.assert_array_equal(np.broadcast_to(mine, (15, 20)), theirs)


def test_inputs_are_read_by_their_axes():
    condition = read_condition("x < len[b]")
    value = {"x": np.arange(4), Read("len", ("b",)): np.asarray(2)}
    np.testing.assert_array_equal(evaluate(condition, lambda term: value[term]), [True, True, False, False])


# -- every level --------------------------------------------------------------------------------------------------


@pytest.mark.sample(8, each=False)
@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("sizes", [{"b": 2, "q": 70, "x": 150}, {"b": 1, "q": 129, "x": 65}, {"b": 3, "q": 1, "x": 1}])
def test_every_level_agrees(condition: str, sizes: dict[str, int]):
    made = road(condition)
    for seed in range(2):
        inputs = made.inputs(sizes, seed)
        for verdict in made.verdicts(inputs, sizes):
            assert verdict.ok, f"{condition} at {sizes}: {verdict}"


def test_what_sees_nothing_is_zero():
    """A row of which every element is absent: no NaN, at any level, however low the scores of others."""
    made = road("first[q] <= x <= q")
    sizes = {"b": 1, "q": 70, "x": 70}
    q, k, v, first = (np.array(given) for given in made.inputs(sizes, 0))
    first[:] = np.where(np.arange(70) % 3 == 0, 70, 0)
    inputs = (q * np.float16(2), k, v, first)
    (reference,) = run_with_bounds(made.algorithm, inputs, sizes=sizes)
    assert np.isfinite(reference.value).all()
    assert (reference.value[:, ::3] == 0).all()
    assert (reference.error[:, ::3] < 1e-30).all()
    for verdict in made.verdicts(inputs, sizes):
        assert verdict.ok, verdict


def test_a_row_that_is_not_a_number_stays_none():
    """A sum of nothing is no divisor; one that is NaN is, and what it divides is NaN at every level."""
    made = road("x <= q")
    sizes = {"b": 1, "q": 70, "x": 70}
    inputs = tuple(np.array(given) for given in made.inputs(sizes, 0))
    inputs[0][0, 5] = np.nan
    tiled = made.algorithm.clone()
    run_pipeline(tiled, Options(machine="a100"), last=LAST_HIERARCHY_PASS)
    levels = [run_function(module, inputs, sizes=sizes).results for module in (made.algorithm, tiled)]
    for (result,) in (*levels, made.run(inputs)):
        assert (np.isnan(np.asarray(result, np.float64)).any(-1)[0] == (np.arange(70) == 5)).all()


def test_absent_elements_of_a_result_are_zero():
    made = compiled(
        """
!S = tensor<?x?xf32, #diagram.array<[q, x]>>
!r = tensor<?xf32, #diagram.array<[q]>>
func.func @f(%S: !S) -> (!S, !r, !r) attributes {sizes = #diagram.sizes<q = 40, x = 70>} {
  %W = diagram.where %S if "x < q - 3" : !S
  %P = diagram.apply @softmax(%W) over [x] : (!S) -> !S
  %lse = diagram.apply @log_sum_exp(%W) over [x] : (!S) -> !r
  %sum = diagram.reduce add %W over [x] : !S -> !r
  func.return %P, %lse, %sum : !S, !r, !r
}
"""
    )
    sizes = {"q": 40, "x": 70}
    inputs = made.inputs(sizes, 0)
    shares, log_sum, total = run_function(made.algorithm, inputs, sizes=sizes).results
    kept = np.arange(70)[None] < np.arange(40)[:, None] - 3
    assert (shares[~kept] == 0).all()
    assert np.isneginf(log_sum[:4]).all()
    assert (total[:4] == 0).all()
    np.testing.assert_allclose(shares[4:].sum(-1), 1)
    np.testing.assert_allclose(total, np.where(kept, np.asarray(inputs[0], np.float64), 0).sum(-1))
    for verdict in made.verdicts(inputs, sizes):
        assert not verdict.wrong, verdict


SHORT_PIECES = ["x <= q", "x >= q", "x <= q and q - x < 13", "x < len[b]", "seg[x] == 1"]


@pytest.mark.parametrize("condition", SHORT_PIECES)
def test_pieces_shorter_than_their_fragments(condition: str):
    """The fragments of scores that become an operand are 16 wide: half of each is past a piece of 8, and what stands
    there comes again with the next piece."""
    text = re.sub(r"(?m)^  %P16.*\n", "", program(condition)).replace("%P16", "%P").replace("!P, !V", "!S, !V")
    passes = pipeline(Options(machine="a100"))
    short = ArgSpec("hierarchy-choose-sizes", {"group": ("q=16",), "stream": ("x=8",)})
    # what is asked for is asked of the axis as it is
    passes = tuple(short if each.name == short.name else each for each in passes if each.name != SPLIT)
    made = compiled(text.replace("xf16", "xf32").replace("x64x", "x8x"), machine="a100", passes=passes)
    for sizes in ({"b": 2, "q": 19, "x": 19}, {"b": 1, "q": 33, "x": 40}):
        made.check(sizes)


# -- visits -------------------------------------------------------------------------------------------------------


def visited(condition: str, sizes: dict[str, int], seed: int = 0) -> tuple[dict[str, int], np.ndarray, int, int]:
    """How many pieces went through step and border; where the condition holds, by group and piece."""
    module = parse_module(program(condition))
    run_pipeline(module, Options(machine="a100"), last=LAST_HIERARCHY_PASS)
    (stream,) = (op for op in module.walk() if isinstance(op, StreamOp))
    group = stream.parent_op()
    assert group is not None
    rows = group.properties["partition"].as_dict()["q"]  # pyright: ignore
    given = road(condition).inputs(sizes, seed)
    counts = dict(run_function(module, given, sizes=sizes).transfers[0].steps)
    named = [name for name in INPUTS if re.search(rf"\b{name}\b", condition)]
    values = dict(zip(named, given[3:], strict=True))
    at = {"b": np.arange(sizes["b"])[:, None, None], "q": np.arange(sizes["q"])[:, None], "x": np.arange(sizes["x"])}
    shapes = {"len": (-1, 1, 1), "first": (-1, 1), "seg": (-1,), "n": ()}

    def value(term: object):
        name = term.name if isinstance(term, Read) else str(term)
        return np.asarray(values[name], np.int64).reshape(shapes[name]) if name in values else at[name]

    shape = (sizes["b"], sizes["q"], sizes["x"])
    return counts, np.broadcast_to(evaluate(read_condition(condition), value), shape), rows, stream.size


RANGES = [
    c for c in CONDITIONS if "seg" not in c and "of_" not in c and "!=" not in c and "not" not in c and " or " not in c
]
"""Conditions that select one range of keys for each query."""


@pytest.mark.sample(6)
@pytest.mark.parametrize("condition", RANGES)
@pytest.mark.parametrize("sizes", [{"b": 2, "q": 300, "x": 600}, {"b": 1, "q": 65, "x": 1000}])
def test_no_tile_is_wasted(condition: str, sizes: dict[str, int]):
    """Counted: pieces between the first and the last key that some query of the group sees are visited, no other; and
    pieces that all its queries see whole are not tested (but where a range is too short for a whole piece)."""
    counts, holds, rows, step = visited(condition, sizes)
    fed = whole = 0
    for b in range(sizes["b"]):
        for q in range(0, sizes["q"], rows):
            group = holds[b, q : q + rows]
            pieces = [group[:, x : x + step] for x in range(0, sizes["x"], step)]
            some = [i for i, piece in enumerate(pieces) if piece.any()]
            fed += some[-1] - some[0] + 1 if some else 0
            whole += sum(piece.all() for piece in pieces)
    assert sum(counts.values()) <= fed + sizes["b"] * -(-sizes["q"] // rows) * (condition in ("x == q",))
    assert sum(counts.values()) >= fed
    if counts.get("step", 0) and counts.get("border", 0):
        assert counts["step"] == whole


@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_what_one_stream_finds_limits_the_next(machine: str):
    """Sequences of which only numbers are known, in any order: the second stream is fed what lies between the first and
    the last key that a group's queries see, and so is the first one, which a search limits."""
    algorithm = load_module(PROGRAMS / "packed_by_places.mlir")
    module = algorithm.clone()
    run_pipeline(module, Options(machine=machine), last=LAST_HIERARCHY_PASS)
    streams = [op for op in module.walk() if isinstance(op, StreamOp)]
    group = streams[0].parent_op()
    assert group is not None
    rows, step = group.properties["partition"].as_dict()["q"], streams[1].size  # pyright: ignore
    assert [op.size for op in streams] == [step, step, step]
    sizes = {"q": 1000, "x": 1000}
    inputs = list(make_inputs(entry_function(algorithm), axis_sizes(entry_function(algorithm), sizes), 0))
    of = np.repeat(np.asarray([5, 2, 9, 0, 7], np.int32), 200)
    inputs[3:] = [of, of]
    wanted, ran = (run_function(each, inputs, sizes=sizes) for each in (algorithm, module))
    np.testing.assert_allclose(ran.results[0], wanted.results[0], atol=1e-9)
    fed = 0
    for q in range(0, sizes["q"], rows):
        seen = np.flatnonzero(np.isin(of, of[q : q + rows]))
        between = np.flatnonzero((of >= of[q : q + rows].min()) & (of <= of[q : q + rows].max()))
        fed += sum(found[-1] // step - found[0] // step + 1 for found in (seen, between)) - (-sizes["x"] // step)
    assert sum(ran.transfers[0].steps.values()) == 2 * fed  # heads


@cache
def packed(machine: str) -> tuple[ModuleOp, ModuleOp, int, int]:
    """Attention to sequences of which only numbers are given: as it is, and tile by tile with their sizes."""
    algorithm = load_module(EXAMPLES / "attention_packed.mlir")
    module = algorithm.clone()
    run_pipeline(module, Options(machine=machine), last=LAST_HIERARCHY_PASS)
    search, stream = (op for op in module.walk() if isinstance(op, StreamOp))
    group = stream.parent_op()
    assert group is not None
    assert search.border is None
    assert stream.border is not None
    return algorithm, module, group.properties["partition"].as_dict()["q"], stream.size  # pyright: ignore


def numbers(kind: str, size: int, dice: np.random.Generator) -> np.ndarray:
    """Of the sequences, a number for each position."""
    sorted_ = np.sort(dice.integers(0, max(size // 150, 1), size)).astype(np.int32)
    match kind:
        case "ascending":
            return sorted_
        case "descending":
            return sorted_[::-1].copy()
        case "mixed":
            return dice.permutation(sorted_)
        case "extreme":
            return np.where(sorted_ < sorted_.mean(), -(2**31), 2**31 - 1).astype(np.int32)
        case _:
            return np.zeros(size, np.int32)


@pytest.mark.sample(6)
@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("kind", ["ascending", "descending", "mixed", "extreme", "one"])
@pytest.mark.parametrize("keys", [1, 333, 1000])
def test_tiles_of_other_sequences_are_not_visited(machine: str, kind: str, keys: int):
    """Counted: those between the first and the last key with a number between the least and the most of a group are
    visited, no other; where the group and these keys are of one sequence, nothing is tested in whole tiles."""
    algorithm, module, rows, step = packed(machine)
    dice = np.random.default_rng(keys)
    sizes = {"b": 1, "h": 2, "q": 700, "x": keys}
    inputs = list(make_inputs(entry_function(algorithm), axis_sizes(entry_function(algorithm), sizes), 0))
    of_q, of_x = numbers(kind, sizes["q"], dice), numbers(kind, keys, dice)
    inputs[3:] = [of_q, of_x]
    wanted, ran = (run_function(each, inputs, sizes=sizes) for each in (algorithm, module))
    np.testing.assert_allclose(ran.results[0], wanted.results[0], atol=1e-9)
    fed = whole = 0
    for q in range(0, sizes["q"], rows):
        group = of_q[q : q + rows]
        seen = np.flatnonzero((of_x >= group.min()) & (of_x <= group.max()))
        fed += seen[-1] // step - seen[0] // step + 1 if len(seen) else 0
        if len(seen) and group.min() == group.max() and len(seen) == seen[-1] + 1 - seen[0]:
            pieces = [of_x[x : x + step] for x in range(0, keys, step)]
            whole += sum((piece == group[0]).all() for piece in pieces)
        fed, whole = fed - (-keys // step), whole - (-keys // step)  # the search, which has no border
    counts = ran.transfers[0].steps
    assert counts.get("step", 0) == sizes["h"] * whole
    assert counts.get("step", 0) + counts.get("border", 0) == sizes["h"] * fed


def test_the_emulator_moves_what_sequences_need():
    """Four sequences one after another: about a fourth of the bytes of keys and values."""
    made = compiled((EXAMPLES / "attention_packed.mlir").read_text(), machine="a100")
    sizes = {"b": 1, "h": 1, "q": 512, "x": 512}
    arrays = made.inputs(sizes, 0)[:3]
    loaded: list[int] = []
    for count in (1, 4):
        of = np.repeat(np.arange(count, dtype=np.int32), 512 // count)
        execution = HostExecution(made.module, made.backend())
        execution.run(entry_function(made.module), [*arrays, of, of])
        loaded.append(execution.launches[0].report.bytes_loaded)
        for verdict in made.verdicts([*arrays, of, of], sizes):
            assert verdict.ok, verdict
    assert loaded[1] < 0.5 * loaded[0]


def test_the_printed_loops_begin_and_end_where_the_condition_says():
    from treadle.compiler.pipeline import print_cuda

    module = load_module(EXAMPLES / "attention_causal.mlir")
    run_pipeline(module, Options(machine="a100"))
    text = print_cuda(module)
    size = re.search(r"x in pieces of (\d+), the condition holds: no test", text)
    assert size is not None
    piece = size.group(1)
    end = re.search(r"const int64_t x_stop = q_end < x \? q_end : x;", text)
    assert end is not None, "the stream ends at the last query of the block"
    loops = re.findall(r"for \(int64_t x0 = (\w+); x0 < (\w+); x0 \+= (\d+)\)", text)
    assert loops == [("0", "x_whole", piece), ("x_whole", "x_stop", piece)]
    whole, border = text.split("for (int64_t x0 = ")[1:]
    assert "bits_before" not in whole
    assert "bits_before" in border


TWO_RESULTS = (
    ("f16", "f32"),
    (
        "  %P16 = diagram.cast %P : !S -> !P\n",
        '  %U = diagram.where %V if "e < len[b]" with (len = %len : !len) : !V\n',
    ),
    ("%P16, %V over [x] accumulate f32 : !P", "%P, %U over [x] accumulate f32 : !S"),
    ("  func.return", "  %B = diagram.contract %P, %V over [x] accumulate f32 : !S, !V -> !A\n  func.return"),
    ("return %A : !A", "return %A, %B : !A, !A"),
    ("-> !A\n    attributes", "-> (!A, !A)\n    attributes"),
)


@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_a_border_takes_the_shared_memory_of_the_step(machine: str):
    """Also of products one of whose operands is made in the border, where the step has it as it is loaded."""
    text = PROGRAM.format(arguments=", %len: !len", condition="x <= q", inputs="")
    for old, new in TWO_RESULTS:
        assert old in text
        text = text.replace(old, new)
    passes = tuple(each for each in pipeline(Options(machine=machine)) if each.name != SPLIT)
    made = compiled(text, machine=machine, passes=passes)
    (kernel,) = made.kernels
    tiles = [op.result.name_hint for op in kernel.walk() if isinstance(op, cuda.SharedOp)]
    assert tiles.count("e_shared") == 2, "an operand of each of two products"
    made.check({"b": 2, "q": 77, "x": 100})


def test_the_emulator_moves_what_is_visited():
    """Half the tiles, half the bytes: keys and values of tiles behind the diagonal are never asked for."""
    made = road("x <= q + n")
    *arrays, _ = made.inputs({"b": 1, "q": 512, "x": 512}, 0)
    loaded: list[int] = []
    for n in (512, 0):
        inputs = [*arrays, n]
        execution = HostExecution(made.module, made.backend())
        execution.run(entry_function(made.module), inputs)
        loaded.append(execution.launches[0].report.bytes_loaded)
    assert loaded[1] < 0.7 * loaded[0]


# -- random conditions --------------------------------------------------------------------------------------------


def random_condition(dice: Random) -> str:
    def comparison() -> str:
        terms = [
            f"{dice.choice(['', '2 * ', '-1 * ', '-3 * '])}{axis}" for axis in ("x", "q", "b") if dice.random() < 0.7
        ]
        left = " + ".join([*terms, str(dice.randint(-60, 60))])
        return f"{left} {dice.choice(['<', '<=', '>', '>=', '==', '!='])} {dice.randint(-80, 80)}"

    text = comparison()
    for _ in range(dice.randint(0, 2)):
        text = f"({text}) {dice.choice(['and', 'or', 'and not', 'or not'])} {comparison()}"
    return text


@pytest.mark.sample(14)
@pytest.mark.parametrize("seed", range(200))
def test_random_conditions(seed: int):
    dice = Random(f"conditions {seed}")
    condition = random_condition(dice)
    sizes = {"b": dice.choice((1, 2)), "q": dice.choice((1, 17, 65, 100)), "x": dice.choice((1, 31, 130, 200))}
    module = parse_module(program(condition))
    plain = parse_module(program(condition))
    run_pipeline(module, Options(machine="a100"), last=LAST_HIERARCHY_PASS)
    dims = {"b": sizes["b"], "q": sizes["q"], "x": sizes["x"]}
    rng = np.random.default_rng(seed)
    inputs = [rng.normal(size=(dims["b"], dims[axis], 64)) for axis in ("q", "x", "x")]
    (expected,) = run_function(plain, inputs, sizes=sizes).results
    (actual,) = run_function(module, inputs, sizes=sizes).results
    np.testing.assert_allclose(actual, expected, atol=1e-9, err_msg=condition)


# -- what absent elements meet ------------------------------------------------------------------------------------

MEETING = """
!S = tensor<?x?xf32, #diagram.array<[q, x]>>
!R = tensor<?xf32, #diagram.array<[q]>>
func.func @f(%S: !S, %G: {other}, %n: i32) -> !R {{
  %B = diagram.where %S if "x < n" with (n = %n : i32) : !S
  {first}
  %C = diagram.map (%a = {left} : !S, %y = %G : {other}) -> !S {{
    {body}
    diagram.yield %z : f32
  }}
  %r = diagram.reduce {kind} %C over [x] : !S -> !R
  func.return %r : !R
}}
"""
BODIES = {
    "a * y": ("add", "%z = arith.mulf %a, %y : f32"),
    "a + y": ("max", "%z = arith.addf %a, %y : f32"),
    "a - y": ("max", "%z = arith.subf %a, %y : f32"),
    "y - a": ("min", "%z = arith.subf %y, %a : f32"),
    "a + y, if y is not inf": (
        "max",
        """%i = arith.constant 0x7F800000 : f32
    %o = arith.constant 0.0 : f32
    %c = arith.cmpf oeq, %y, %i : f32
    %w = arith.select %c, %o, %y : f32
    %z = arith.addf %a, %w : f32""",
    ),
}


@cache
def meeting(body: str, other: str, first: str) -> Road:
    kind, text = BODIES[body]
    left = "%P" if first else "%B"
    return compiled(MEETING.format(other=other, first=first, left=left, kind=kind, body=text))


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("first", ["", "%P = diagram.apply @softmax(%B) over [x] : (!S) -> !S"], ids=["", "softmax"])
@pytest.mark.parametrize("body", BODIES)
def test_absent_elements_meet_what_is_no_number(body: str, first: str, special: float) -> None:
    """What a map makes of an absent element is absent, whatever else it is made of."""
    scores, other = np.random.default_rng(0).standard_normal((2, 5, 40)).astype(np.float32)
    other[:, 30:] = special
    for verdict in (road := meeting(body, "!S", first)).verdicts((scores, other, 30)):
        assert verdict.ok, verdict
    assert np.isfinite(road.run((scores, other, 30))[0]).all()


@pytest.mark.parametrize("count", [0, 30])
@pytest.mark.parametrize("body", BODIES)
def test_absent_elements_meet_an_infinity_of_their_row(body: str, count: int) -> None:
    scores = np.random.default_rng(0).standard_normal((5, 40)).astype(np.float32)
    of_row = np.array([np.inf, -np.inf, np.nan, 1, 2], np.float32)
    for verdict in meeting(body, "!R", "").verdicts((scores, of_row, count)):
        assert verdict.ok, verdict


# -- sums beyond 32 bits ------------------------------------------------------------------------------------------

BEYOND: list[tuple[str, dict[str, int]]] = [
    ("q - w <= x <= q + w", {"w": 2**31 - 1}),
    ("q - w <= x <= q + w", {"w": 1 - 2**31}),
    ("s <= x < s + n", {"s": 3, "n": 2**31 - 1}),
    ("x < n + 4", {"n": 2**31 - 1}),
    ("x + 3 * n < 3 * m + q", {"n": 2**31 - 1, "m": 2**31 - 3}),
    ("x < 3000000000", {}),
    ("100000000 * x < 1000000001 + q", {}),
]


@pytest.mark.parametrize("keys", [40, 3000])
@pytest.mark.parametrize(("condition", "data"), BEYOND)
def test_sums_beyond_32_bits(condition: str, data: dict[str, int], keys: int) -> None:
    """In registers, and in the limits of streams."""
    arguments = "".join(f", %{name}: i32" for name in data)
    inputs = ", ".join(f"{name} = %{name} : i32" for name in data)
    text = f"""
!S = tensor<?x?xf32, #diagram.array<[q, x]>>
!R = tensor<?xf32, #diagram.array<[q]>>
func.func @f(%S: !S{arguments}) -> !R {{
  %W = diagram.where %S if "{condition}"{f" with ({inputs})" if inputs else ""} : !S
  %r = diagram.reduce add %W over [x] : !S -> !R
  func.return %r : !R
}}
"""
    scores = np.random.default_rng(0).standard_normal((5, keys)).astype(np.float32)
    for verdict in compiled(text).verdicts((scores, *data.values())):
        assert verdict.ok, verdict


@pytest.mark.parametrize(
    ("condition", "is_wide"),
    [
        ("x <= q", False),
        ("q - 32 < x <= q + 64", False),
        ("x < len[b]", False),
        ("seg[x] == of_q[q]", False),
        ("q - n <= x", True),
    ],
)
def test_positions_and_single_data_are_compared_in_32_bits(condition: str, is_wide: bool) -> None:
    """The tests of causal attention, windows and lengths are made for every score."""
    assert ("int64_t(at_" in road(condition).text) == is_wide


def test_numbers_beyond_64_bits_are_refused() -> None:
    with pytest.raises(TreadleError, match="has numbers beyond 64 bits"):
        road("4000000000 * x < 3 * q + 9223372036854775000")


def test_names_that_only_python_reserves():
    """What joins comparisons is no name; all else that Python keeps for itself may be one of an axis."""
    condition = read_condition("for <= None and True < seg[in]")
    for last in (2, 3):
        places = {"for": last, "None": 2, "True": 0, "in": 1}
        got = evaluate(condition, lambda term, at=places: 7 if isinstance(term, Read) else at[term])
        assert got == (last <= 2)


def at_positions(text: str, **given: int) -> bool:
    """A condition at one place, as Python reads it and as it is read here, which agree."""
    holds = bool(eval(text.replace("n[q]", "n"), {}, given))  # the texts of the tests below
    assert (
        evaluate(read_condition(text), lambda term: given[term.name if isinstance(term, Read) else str(term)]) == holds
    )
    return holds


@pytest.mark.parametrize(
    "text",
    [
        "x // 16 <= n[q]",
        "n[q] > (3 * x - q + 5) // 7",
        "x // 4 == n[q]",
        "not x // 4 == n[q] or q // 8 >= 2",
        "q - x // 3 - n[q] != 0",
        "n[q] - 1 <= x // 16 <= n[q]",
        "4 * x <= 4 * q + 3",
        "6 * x - 4 * n[q] < 2 * q - 1",
        "2 * x == 2 * q + 1",
    ],
)
def test_quotients_and_common_factors_say_what_they_say(text: str) -> None:
    random = Random(text)
    found = {
        at_positions(text, x=random.randrange(99), q=random.randrange(99), n=random.randrange(-3, 9))
        for _ in range(300)
    }
    assert found == {False, True} or "2 * x ==" in text


def test_what_divides_all_factors_is_divided_out() -> None:
    """So that `c * x <= c * q` is causal, whatever c is."""
    assert read_condition("64 * x <= 64 * q") == read_condition("x <= q")
    assert read_condition("64 * x <= 64 * q + 63") == read_condition("x <= q")
    assert read_condition("64 * x < 64 * q - 1") == read_condition("x < q")
    assert read_condition("x // 16 <= 3") == read_condition("x <= 63")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "x // n <= q",
            "'x // n' is divided by 'n', which is no number above zero: compute it in an array of integers",
        ),
        ("x % -4 == 0", "'x % -4' is divided by '-4', which is no number above zero"),
        ("x % 4.0 == 0", "'x % 4.0' is divided by '4.0', which is no number above zero"),
        ("x / 4 <= q", "'x / 4' is no sum of positions, integer inputs and whole numbers: divide by '//'"),
        ("abs(q - x) < 16", "whole numbers: compare on both sides, as in '-16 < q - x < 16'"),
        ("q - x < 1.5", "'1.5' is no sum of positions, integer inputs and whole numbers"),
        ("x // 0 <= q", "'x // 0' is divided by '0'"),
    ],
)
def test_what_no_comparison_of_positions_says_is_refused(text: str, message: str) -> None:
    with pytest.raises(VerifyException, match=re.escape(message)):
        read_condition(text)


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("(x <= q) & (q < 9)", "join comparisons by 'and' and 'or'"),
        ("(x <= q) | (q < 9)", "join comparisons by 'and' and 'or'"),
        ("x <= q & q < 9", "join comparisons by 'and' and 'or'"),
        ("~(x <= q)", "negate a comparison by 'not'"),
    ],
)
def test_operators_of_arrays_are_told_what_conditions_have(text: str, advice: str) -> None:
    with pytest.raises(VerifyException, match=advice):
        read_condition(text)
