"""Streams cut into parts: what the two kernels compute is what one computed, and what cannot be cut is refused."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.arg_spec import ArgSpec

import treadle
import treadle.language as tl
from roads import Road, compiled, fitting
from treadle.compiler.errors import TreadleError
from treadle.compiler.pipeline import Options, pipeline, print_cuda, run_passes
from treadle.compiler.sizes import default_sizes
from treadle.compiler.source import load_module, parse_module
from treadle.dialects import cuda
from treadle.dialects.diagram import ReadOp
from treadle.dialects.diagram.array import axes_of, format_of, sizes_of
from treadle.dialects.diagram.read import with_fitting
from treadle.dialects.hierarchy import KernelOp
from treadle.runtime.inputs import axis_sizes, make_inputs
from treadle.runtime.interpreter import entry_function, run_function

EXAMPLES = Path(__file__).parents[1] / "examples"
PASS = "hierarchy-split-streams"

REFUSED = {
    "combine": "no axis of it is streamed",
    "delta_rule": "it is a recurrence along 't': no part of that knows the state before it",
    "embedding": "a result has axis 'd'",
    "layer_norm": "a result has axis 'i'",
    "rms_norm": "a result has axis 'i'",
    "log_softmax": "a result has axis 'x'",
    "softmax": "a result has axis 'x'",
    "lora": "every part would compute the product %base again",
    "softmax_bounded": "a result has axis 'x'",
    "quantised_matmul": "there is no law that merges parts of 'i': the program fixes how %X8 is rounded",
    "sin2cos2": "no axis of it is streamed",
}
PAGED = ("attention_paged", "matmul_int4", "experts_sorted")
"""Whose parts are whole pages (`test_scattered_reads.py`), or blocks (`test_reads_at_quotients.py`)."""
SPLIT = sorted(path.stem for path in EXAMPLES.glob("*.mlir") if path.stem not in (*REFUSED, *PAGED))
TOO_LARGE = ("linear_attention",)
"""With all sizes static the other axes are held whole, and do not fit."""
SIZES = {"variance": {"row": 5}, "attention_latent": {"b": 2, "h": 20, "x": 300}, "routing": {"d": 300}}
"""So that they fit, for a warp holds all rows of what it has of them; so that keys, or depths, are too many to be held
whole."""


def cut(name: str, parts: int) -> tuple[ModuleOp, ModuleOp, Sequence[ArgSpec], dict[str, int]]:
    """An example as it is, and with every size static and an axis cut; the passes that are left; the sizes."""
    algorithm = load_module(EXAMPLES / f"{name}.mlir")
    defaults = default_sizes(entry_function(algorithm))
    sizes = {axis: size if size <= 20 else size // 2 - 3 for axis, size in defaults.items()} | SIZES.get(name, {})
    options = {"diagram-set-sizes": {"sizes": tuple(f"{a}={s}" for a, s in sizes.items())}, PASS: {"parts": (parts,)}}
    specs = [ArgSpec(s.name, options[s.name]) if s.name in options else s for s in pipeline(Options())]
    first = [spec.name for spec in specs].index(PASS) + 1
    module = algorithm.clone()
    run_passes(module, specs[:first])
    return algorithm, module, specs[first:], sizes


@pytest.mark.sample(6)
@pytest.mark.parametrize("parts", [2, 3, 5])
@pytest.mark.parametrize("name", SPLIT)
def test_parts_give_what_the_whole_gives(name: str, parts: int) -> None:
    algorithm, module, _, sizes = cut(name, parts)
    assert any(op.kernel_name.data.endswith("_parts") for op in module.walk() if isinstance(op, KernelOp))
    inputs = make_inputs(entry_function(algorithm), axis_sizes(entry_function(algorithm), sizes), parts)
    whole = run_function(algorithm, inputs, sizes=sizes).results
    for ours, theirs in zip(run_function(module, inputs).results, whole, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6 * float(np.abs(theirs).max(initial=0)))


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", [name for name in SPLIT if name not in TOO_LARGE])
def test_the_kernels_of_the_parts_are_verified(name: str) -> None:
    algorithm, module, rest, sizes = cut(name, 3)
    run_passes(module, rest)
    Road(algorithm, module, print_cuda(module)).check(sizes)


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_cut_is_refused(name: str) -> None:
    with pytest.raises(TreadleError, match="no axis can be cut into parts") as refusal:
        cut(name, 3)
    assert REFUSED[name] in str(refusal.value)


NO_LAW = """
!X = tensor<4x600xf32, #diagram.array<[i, x]>>
!r = tensor<4xf32, #diagram.array<[i]>>
func.func @f(%X: !X) -> !r {
  %m = diagram.reduce max %X over [x] : !X -> !r
  %D = diagram.map (%x = %X : !X, %r = %m : !r) -> !X {
    %distance = arith.subf %x, %r : f32
    %d = math.sin %distance : f32
    diagram.yield %d : f32
  }
  %s = diagram.reduce add %D over [x] : !X -> !r
  func.return %s : !r
}
"""


def test_without_a_law_nothing_merges() -> None:
    module = parse_module(NO_LAW)
    specs = [ArgSpec(s.name, {"parts": (2,)}) if s.name == PASS else s for s in pipeline(Options())]
    with pytest.raises(TreadleError, match=r"no law that merges parts of 'x': sin does not split|%d does not split"):
        run_passes(module, specs)


MASKED = """
!S = tensor<{q}x600xf32, #diagram.array<[q, x]>>
!V = tensor<600x16xf32, #diagram.array<[x, e]>>
!O = tensor<{q}x16xf32, #diagram.array<[q, e]>>
!len = tensor<{q}xi32, #diagram.array<[q]>>
func.func @f(%S: !S, %V: !V, %len: !len) -> !O {{
  %W = diagram.where %S if "x < len[q]" with (len = %len : !len) : !S
  %P = diagram.apply @softmax(%W) over [x] : (!S) -> !S
  %O = diagram.contract %P, %V over [x] accumulate f32 : !S, !V -> !O
  func.return %O : !O
}}
"""


@pytest.mark.parametrize("parts", [2, 7])
def test_parts_without_elements_and_rows_without_any_are_zero_and_never_nan(parts: int) -> None:
    lengths = np.array([0, 1, 85, 86, 299, 300, 301, 600], np.int32)
    algorithm = parse_module(MASKED.format(q=len(lengths)))
    module = algorithm.clone()
    specs = [ArgSpec(PASS, {"parts": (parts,)}) if spec.name == PASS else spec for spec in pipeline(Options())]
    run_passes(module, specs)
    assert sum(isinstance(op, cuda.KernelOp) for op in module.body.block.ops) >= 2
    road = Road(algorithm, module, print_cuda(module))
    dice = np.random.default_rng(parts)
    scores = dice.normal(size=(len(lengths), 600)).astype(np.float32)
    inputs = (scores, dice.normal(size=(600, 16)).astype(np.float32), lengths)
    assert not road.run(inputs)[0][0].any()
    assert all(verdict.ok for verdict in road.verdicts(inputs))


def kernels_of(m: int, k: int) -> list[str]:
    a = f"tensor<{m}x{k}xf16, #diagram.array<[m, k]>>"
    b = f"tensor<{k}x64xf16, #diagram.array<[k, n]>>"
    c = f"tensor<{m}x64xf32, #diagram.array<[m, n]>>"
    module = parse_module(
        f"func.func @f(%A: {a}, %B: {b}) -> {c} {{\n"
        f"%C = diagram.contract %A, %B over [k] accumulate f32 : {a}, {b} -> {c}\nfunc.return %C : {c}\n}}"
    )
    specs = list(pipeline(Options()))
    run_passes(module, specs[: [spec.name for spec in specs].index(PASS) + 1])
    return [op.kernel_name.data for op in module.walk() if isinstance(op, KernelOp)]


def test_an_axis_is_cut_unasked_only_where_too_few_groups_would_fill_the_machine() -> None:
    assert kernels_of(64, 4096) == ["f_parts", "f"]
    assert kernels_of(16384, 4096) == ["f"]
    assert kernels_of(64, 511) == ["f"]


IN_VAIN: list[dict[str, tuple[int | str, ...]]] = [
    {"parts": (9999,)},
    {"length": (9999,)},
    {"length": (-1,)},
    {"parts": (2,), "length": (9,)},
    {"parts": (2,), "kernel": ("g",)},
    {"axis": ("m",)},
]


@pytest.mark.parametrize("options", IN_VAIN)
def test_what_is_asked_for_in_vain_is_refused(options: dict[str, tuple[int | str, ...]]) -> None:
    module = load_module(EXAMPLES / "split_k.mlir")
    specs = list(pipeline(Options()))
    before = specs[: [spec.name for spec in specs].index(PASS)]
    with pytest.raises(
        TreadleError,
        match=r"cannot be (9999 parts|cut into parts of -?\d+)|no axis can be cut|no kernel @g|one of the two",
    ):
        run_passes(module, [*before, ArgSpec(PASS, options)])


LENGTH = 40
AT_LAUNCH = [
    name
    for name in SPLIT
    if name not in ("batched_matmul", "block_diagonal", "conv1d", "conv1d_dilated", "moving_average", "split_k")
    and name not in ("linear_attention_causal", "retention", "state_space")  # whose length is in chunks already
    and name not in (unmerged := ("l2_norm_matmul", "rms_norm_matmul", "softmax_matmul", "variance"))
]
"""Examples whose streamed axis has a size that only the launch tells."""


def cut_at_launch(name: str) -> tuple[ModuleOp, ModuleOp, Sequence[ArgSpec], list[str]]:
    """An example as it is, and with an axis cut into parts of a length; the passes that are left; the axes cut."""
    algorithm = load_module(EXAMPLES / f"{name}.mlir")
    specs = [ArgSpec(s.name, {"length": (LENGTH,)}) if s.name == PASS else s for s in pipeline(Options())]
    first = [spec.name for spec in specs].index(PASS) + 1
    module = algorithm.clone()
    run_passes(module, specs[:first])
    reads = [axis for op in module.walk() if isinstance(op, ReadOp) for axis in axes_of(op.result.type)]
    found = {axis.removesuffix("_part") for axis in reads if axis.endswith("_part")}
    return algorithm, module, specs[first:], sorted(found & default_sizes(entry_function(algorithm)).keys())


@pytest.mark.sample(6)
@pytest.mark.parametrize("size", [0, 1, LENGTH - 1, LENGTH, 2 * LENGTH - 1, 2 * LENGTH, 3 * LENGTH + 7])
@pytest.mark.parametrize("name", AT_LAUNCH)
def test_parts_of_an_axis_are_as_many_as_the_launch_finds(name: str, size: int) -> None:
    algorithm, module, _, axes = cut_at_launch(name)
    assert axes
    function = entry_function(algorithm)
    small = {axis: min(length, 20) for axis, length in default_sizes(function).items()}
    sizes = fitting(function, small | dict.fromkeys(axes, size))
    inputs = make_inputs(function, axis_sizes(function, sizes), size)
    with np.errstate(all="ignore"):
        whole = run_function(algorithm, inputs, sizes=sizes).results
        found = run_function(module, inputs, sizes=sizes).results
    for ours, theirs in zip(found, whole, strict=True):
        largest = float(np.abs(theirs[np.isfinite(theirs)]).max(initial=0))
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6 * largest)


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", AT_LAUNCH)
def test_kernels_of_parts_that_the_launch_counts_are_verified(name: str) -> None:
    algorithm, module, rest, axes = cut_at_launch(name)
    run_passes(module, rest)
    function = entry_function(algorithm)
    road = Road(algorithm, module, print_cuda(module))
    small = {axis: min(size, 33) for axis, size in default_sizes(function).items()}
    for size in (1, LENGTH + 5, 2 * LENGTH + 3):
        road.check(fitting(function, small | dict.fromkeys(axes, size)))


@pytest.mark.parametrize("name", unmerged)
def test_a_state_that_lacks_an_axis_of_the_groups_is_not_merged(name: str) -> None:
    with pytest.raises(TreadleError, match=r"cannot be cut into parts: axis '\w+' is not in %\w+, which every group"):
        cut_at_launch(name)


def cut_unasked(text: str) -> str:
    module = parse_module(text)
    specs = list(pipeline(Options()))
    run_passes(module, specs[: [spec.name for spec in specs].index(PASS) + 1])
    return str(module)


def test_an_axis_of_unknown_size_is_cut_by_its_default_where_that_takes_less_time() -> None:
    text = (EXAMPLES / "attention_decode.mlir").read_text()
    assert '"(64 * x_part + x_in)' in cut_unasked(text).replace("b, h, ", '"')
    assert "x_part" not in cut_unasked(text.replace("x = 2048", "x = 100"))
    assert "x_part" not in cut_unasked(text.replace("h = 4", "h = 400"))
    rows = (EXAMPLES / "log_sum_exp.mlir").read_text()
    assert "two kernels take at least" in (found := cut_unasked(rows))
    assert "decline hierarchy-split-streams" in found


def test_a_reader_is_told_why_few_groups_share_no_long_row() -> None:
    text = (EXAMPLES / "softmax.mlir").read_text()
    told = cut_unasked(text.replace("?x?x", "1x100000x").replace("row = 77, x = 1000", ""))
    assert '"decline hierarchy-split-streams", "@softmax_rows along x"' in told
    assert "1 group leaves places of the machine empty, and one kernel takes" in told
    assert "a result has axis 'x'" in told
    assert "decline hierarchy-split-streams" not in cut_unasked(text)


@pytest.mark.parametrize(("k", "parts"), [(7, 5), (10, 6), (600, 4), (5, 5)])
def test_there_are_as_many_parts_as_are_asked_for(k: int, parts: int) -> None:
    a, c = f"tensor<3x{k}xf32, #diagram.array<[m, k]>>", "tensor<3xf32, #diagram.array<[m]>>"
    text = (
        f"func.func @f(%A: {a}) -> {c} {{\n%C = diagram.reduce add %A over [k] : {a} -> {c}\nfunc.return %C : {c}\n}}"
    )
    module = parse_module(text)
    run_passes(module, [ArgSpec("fusion", {}), ArgSpec(PASS, {"parts": (parts,)})])
    (read,) = [op for op in module.walk() if isinstance(op, ReadOp)]
    found = sizes_of(read.result.type)
    assert found["k_part"] == parts
    assert found["k_in"] == k - (parts - 1) * (k // parts)


READ = """
!X = tensor<?xf32, #diagram.array<[x]>>
!R = tensor<?xf32, #diagram.array<[r]>>
!Y = tensor<?x?xf32, #diagram.array<[{axes}]>>
func.func @f(%X: !X{given}) -> !Y {{
  %Y = diagram.read %X at "{place}" : !X -> !Y
  func.return %Y : !Y
}}
"""


@pytest.mark.parametrize(
    ("axes", "place", "given", "sizes", "found"),
    [
        ("p, i", "256 * p + i", "", {"x": 1000}, {"p": 3, "i": 488}),
        ("i, p", "i + 256 * p + 4", "", {"x": 1000}, {"p": 3, "i": 484}),
        ("p, i", "256 * p + i", "", {"x": 255}, {"p": 1, "i": 255}),
        ("p, i", "256 * p + i", "", {"x": 0}, {"p": 1, "i": 0}),
        ("p, i", "256 * p + 2 * i", "", {"x": 1000}, {"p": 3, "i": 244}),
        ("t, r", "2 * t + r", ", %R: !R", {"x": 10, "r": 3}, {"t": 4}),
        ("t, r", "2 * t + r", ", %R: !R", {"x": 10}, {}),  # the caller has still to say how large r is
        ("s, t", "t + s", "", {"x": 10}, {}),
    ],
)
def test_sizes_of_axes_that_share_a_place(
    axes: str, place: str, given: str, sizes: dict[str, int], found: dict[str, int]
) -> None:
    module = parse_module(READ.format(axes=axes, place=place, given=given))
    assert with_fitting(entry_function(module).body.block, sizes) == sizes | found


@pytest.mark.sample(2)
@pytest.mark.parametrize("x", [65, 700, 1100])
@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_caches_of_lengths_of_their_own(machine: str, x: int) -> None:
    """Parts are cut unasked, and a sequence may end before a part begins."""
    algorithm = load_module(Path(__file__).parent / "programs" / "decode_lengths.mlir")
    module = algorithm.clone()
    run_passes(module, list(pipeline(Options(machine=machine))))
    road = Road(algorithm, module, print_cuda(module))
    assert len({re.sub("_specialised$|_by_lanes$", "", each.sym_name.data) for each in road.kernels}) == 2
    dice = np.random.default_rng(x)
    query = dice.normal(size=(3, 1, 8, 64)).astype(np.float16)
    keys, values = dice.normal(size=(2, 3, 1, x, 64)).astype(np.float16)
    lengths = np.array([0, x // 3, x], np.int32)
    assert all(verdict.ok for verdict in road.verdicts((query, keys, values, lengths)))


TWO = """
!A = tensor<64x8192xf16, #diagram.array<[m, k]>>
!B = tensor<8192x64xf16, #diagram.array<[k, n]>>
!C = tensor<64x64xf32, #diagram.array<[m, n]>>
!X = tensor<?x?xf32, #diagram.array<[row, x]>>
!r = tensor<?xf32, #diagram.array<[row]>>
func.func @f(%A: !A, %B: !B, %X: !X) -> (!C, !r) attributes {sizes = #diagram.sizes<row = 77, x = 1000>} {
  %C = diagram.contract %A, %B over [k] accumulate f32 : !A, !B -> !C
  %r = diagram.apply @log_sum_exp(%X) over [x] : (!X) -> !r
  func.return %C, %r : !C, !r
}
"""


def test_what_one_kernel_saves_is_not_counted_for_the_next() -> None:
    text = cut_unasked(TWO)
    assert "@f_1_parts" in text
    assert "@f_2_parts" not in text
    assert '"decline hierarchy-split-streams", "@f_2 along x"' in text


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("format", ["f16", "bf16", "f8E4M3FN"])
def test_parts_of_a_sum_are_rounded_once_they_are_merged(format: str, machine: str) -> None:
    """The result has a narrow format, its accumulator has not."""
    w, x, y = (
        f"tensor<{'x'.join([*sizes, format])}, #diagram.array<[{', '.join(axes)}]>>"
        for sizes, axes in ((("8", "?"), "nk"), (("?",), "k"), (("8",), "n"))
    )
    module = parse_module(
        f"func.func @gemv(%W: {w}, %x: {x}) -> {y} attributes {{sizes = #diagram.sizes<k = 600>}} {{\n"
        f"%y = diagram.contract %W, %x over [k] accumulate f32 : {w}, {x} -> {y}\nfunc.return %y : {y}\n}}"
    )
    algorithm, specs = module.clone(), list(pipeline(Options(machine=machine)))
    at = [spec.name for spec in specs].index(PASS)
    run_passes(module, [*specs[:at], ArgSpec(PASS, {"length": (256,)})])
    parts = next(op for op in module.walk() if isinstance(op, KernelOp))
    assert str(format_of(parts.outputs[0].type)) == "f32"
    run_passes(module, specs[at + 1 :])
    Road(algorithm, module, print_cuda(module)).check({"k": 600})


CUT_AND_REDUCED = {
    "a sum over another axis of elements beyond the end of a part is a number like others": """
        !X = tensor<4x?x8xf32, #diagram.array<[i, x, d]>>
        !Y = tensor<4x?xf32, #diagram.array<[i, x]>>
        !s = tensor<4xf32, #diagram.array<[i]>>
        func.func @f(%X: !X) -> !s attributes {sizes = #diagram.sizes<x = 101>} {
          %Z = diagram.map (%a = %X : !X) -> !X {
            %c = arith.mulf %a, %a : f32
            diagram.yield %c : f32
          }
          %m = diagram.reduce max %Z over [x, d] : !X -> !s
          %Y = diagram.reduce add %Z over [d] : !X -> !Y
          %l = diagram.reduce min %Y over [x] : !Y -> !s
          %o = diagram.map (%a = %m : !s, %b = %l : !s) -> !s {
            %c = arith.subf %a, %b : f32
            diagram.yield %c : f32
          }
          func.return %o : !s
        }""",
    "what a condition is about is absent for itself alone": """
        !S = tensor<2x?xf32, #diagram.array<[q, x]>>
        !a = tensor<?xi32, #diagram.array<[x]>>
        !s = tensor<2xf32, #diagram.array<[q]>>
        !o = tensor<i32, #diagram.array<[]>>
        func.func @f(%S: !S, %a: !a) -> !s attributes {sizes = #diagram.sizes<x = 101>} {
          %m = diagram.reduce max %a over [x] : !a -> !o
          %W = diagram.where %S if "a[x] >= 0" with (a = %a : !a) : !S
          %s = diagram.reduce add %W over [x] : !S -> !s
          %o = diagram.map (%c = %m : !o, %b = %s : !s) -> !s {
            %e = arith.sitofp %c : i32 to f32
            %d = arith.addf %e, %b : f32
            diagram.yield %d : f32
          }
          func.return %o : !s
        }""",
    "names of axes and of what conditions are given are taken": """
        !S = tensor<3x?xf32, #diagram.array<[parts, x]>>
        !s = tensor<3xf32, #diagram.array<[parts]>>
        func.func @f(%S: !S, %n: i32) -> !s attributes {sizes = #diagram.sizes<x = 101>} {
          %W = diagram.where %S if "x <= x_in or x < x_part" with (x_in = %n : i32, x_part = %n : i32) : !S
          %s = diagram.reduce add %W over [x] : !S -> !s
          func.return %s : !s
        }""",
}


@pytest.mark.parametrize("asked", [{"length": (32,)}, {"parts": (3,)}])
@pytest.mark.parametrize("what", CUT_AND_REDUCED)
def test_elements_beyond_the_end_of_a_part_count_nowhere(what: str, asked: dict[str, tuple[str | int, ...]]) -> None:
    module = parse_module(CUT_AND_REDUCED[what])
    algorithm, specs = module.clone(), list(pipeline(Options()))
    run_passes(module, [ArgSpec(PASS, asked) if spec.name == PASS else spec for spec in specs])
    road = Road(algorithm, module, print_cuda(module))
    assert len(road.kernels) == 2
    for size in (1, 33, 101, 200):
        road.check({"x": size})


def test_parts_of_one_position_are_refused_where_the_launch_counts_them() -> None:
    v, s = "tensor<?xf32, #diagram.array<[x]>>", "tensor<f32, #diagram.array<[]>>"
    text = (
        f"func.func @f(%v: {v}) -> {s} {{\n%s = diagram.reduce max %v over [x] : {v} -> {s}\nfunc.return %s : {s}\n}}"
    )
    with pytest.raises(TreadleError, match="ask for a length of 2 or more"):
        run_passes(parse_module(text), [ArgSpec("fusion", {}), ArgSpec(PASS, {"length": (1,)})])


@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_columns_in_parts_are_as_fast_as_rows(machine: str) -> None:
    """Which operand of a product has the axis that is cut tells nothing: rows of the groups are of the other one."""
    times: set[float | None] = set()
    for reduced, kept in (("i", "j"), ("j", "i")):

        @treadle.kernel(f"i d, j d -> {kept}", machine=machine)
        def log_sum_exp(A: tl.Array, B: tl.Array, reduced: str = reduced) -> tl.Array:
            S = tl.contract(A, B, over="d")
            most = tl.max(S, over=reduced)
            return tl.log(tl.sum(tl.exp(S - most), over=reduced)) + most

        formats, sizes = ["f16", "f16"], {"i": 4096, "j": 4096, "d": 64}
        estimate = treadle.compile(log_sum_exp.trace(formats, sizes, sizes), machine=machine).estimate
        times.add(estimate.time_us)
    assert len(times) == 1


def test_a_line_that_ends_where_its_part_does() -> None:
    """Lanes copy it, and no tensor copy brings its rows (an internal error)."""
    algorithm = parse_module("""
!A = tensor<?x?xf32, #diagram.array<[a, z]>>
!C = tensor<?xf32, #diagram.array<[a]>>
!m = tensor<f32, #diagram.array<[]>>
func.func @f(%A: !A, %B: !A) -> !m attributes {sizes = #diagram.sizes<a = 17, z = 5>} {
  %C = diagram.contract %A, %B over [z] accumulate f32 as tf32 : !A, !A -> !C
  %m = diagram.reduce max %C over [a] : !C -> !m
  func.return %m : !m
}""")
    module, split = algorithm.clone(), {"length": (64,), "axis": ("z",)}
    specs = [
        ArgSpec(spec.name, split) if spec.name == "hierarchy-split-streams" else spec
        for spec in pipeline(Options(machine="h100"))
    ]
    run_passes(module, specs)
    Road(algorithm, module, print_cuda(module)).check({"a": 17, "z": 200})


def test_a_condition_whose_numbers_grow_beyond_64_bits_by_parts_stays_whole() -> None:
    """`c x <= n` is in range, and `c (length part + x)` may not be: that axis is not cut, and the result is right."""
    text = """
!S = tensor<?x?xf32, #diagram.array<[b, x]>>
!R = tensor<?xf32, #diagram.array<[b]>>
!n = tensor<?xi32, #diagram.array<[b]>>
func.func @f(%S: !S, %n: !n) -> !R attributes {sizes = #diagram.sizes<b = 2, x = 200000>} {
  %W = diagram.where %S if "1000000000 * x <= n[b]" with (n = %n : !n) : !S
  %R = diagram.reduce add %W over [x] : !S -> !R
  func.return %R : !R
}"""
    road = compiled(text)
    assert len(road.kernels) == 1
    n = np.array([2_000_000_000, -1], np.int32)
    (found,) = road.run([np.arange(1, 21, dtype=np.float32).reshape(2, 10), n])
    assert found.tolist() == [1.0 + 2.0 + 3.0, 0.0]
    specs = [ArgSpec(s.name, {"parts": (4,)}) if s.name == PASS else s for s in pipeline(Options())]
    with pytest.raises(TreadleError, match=r"by parts of 'x', condition '.*' has numbers beyond 64 bits"):
        run_passes(parse_module(text), specs)


@pytest.mark.parametrize("k", [1, 31, 64, 200])
def test_a_distance_from_a_mean_whose_row_ends_where_the_launch_says(k: int) -> None:
    """The kernel of the parts is given the size that the mean divides by; it was then no size to the law that repairs
    the maximum (an internal error)."""
    text = """
!A = tensor<?x?xf16, #diagram.array<[t, k]>>
!D = tensor<?x?xf32, #diagram.array<[t, k]>>
!m = tensor<?xf32, #diagram.array<[t]>>
func.func @f(%A: !A) -> !m attributes {sizes = #diagram.sizes<t = 4, k = 200>} {
  %l = diagram.reduce add %A over [k] : !A -> !m
  %n = diagram.extent "k" : i32
  %D = diagram.map (%a = %A : !A, %s = %l : !m, %i = %n : i32) -> !D {
    %x = arith.extf %a : f16 to f32
    %f = arith.sitofp %i : i32 to f32
    %u = arith.divf %s, %f : f32
    %d = arith.subf %x, %u : f32
    diagram.yield %d : f32
  }
  %m = diagram.reduce max %D over [k] : !D -> !m
  func.return %m : !m
}"""
    algorithm = parse_module(text)
    module = algorithm.clone()
    run_passes(module, [ArgSpec(PASS, {"length": (32,)}) if s.name == PASS else s for s in pipeline(Options())])
    road = Road(algorithm, module, print_cuda(module))
    assert len(road.kernels) == 2
    road.check({"t": 3, "k": k})
