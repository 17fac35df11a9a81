"""Products that are added up have one accumulator."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest
import torch

import treadle
import treadle.language as tl
from roads import compiled
from treadle.compiler import main as cli
from treadle.compiler.machines import load_machine
from treadle.compiler.pipeline import Options, pipeline, run_passes
from treadle.compiler.source import parse_module
from treadle.passes.hierarchy_join_sums import HierarchyJoinSumsPass
from treadle.runtime.backend import has_host_compiler
from treadle.runtime.nvcc import compile_cubin, find_nvcc

needs_compiler = pytest.mark.skipif(not has_host_compiler(), reason="no C++ compiler is installed")
needs_nvcc = pytest.mark.skipif(find_nvcc() is None, reason="nvcc is not installed")

LORA = (Path(__file__).parents[1] / "examples" / "lora.mlir").read_text(encoding="utf-8")
PASS = "hierarchy-join-sums"


def whole(a: tl.Array, b: tl.Array, c: tl.Array, d: tl.Array) -> tl.Array:
    return tl.contract(a, b, over="k") + tl.contract(c, d, over="r")


def scaled(a: tl.Array, b: tl.Array, c: tl.Array, d: tl.Array) -> tl.Array:
    return tl.contract(a, b, over="k") + 2.0 * tl.contract(c, d, over="r")


def scaled_stream(a: tl.Array, b: tl.Array, c: tl.Array, d: tl.Array, e: tl.Array) -> tl.Array:
    return tl.tanh(0.5 * tl.contract(a, b, over="k") + e + tl.contract(c, d, over="r"))


def by_rows(a: tl.Array, b: tl.Array, c: tl.Array, d: tl.Array, s: tl.Array) -> tl.Array:
    return (tl.contract(a, b, over="k") + 1.0) * 0.25 + s * tl.contract(c, d, over="r")


def alike(a: tl.Array, b: tl.Array, c: tl.Array, d: tl.Array) -> tl.Array:
    return tl.contract(a, b, over="k") + tl.contract(c, d, over="k")


def known_first(a: tl.Array, b: tl.Array, c: tl.Array, d: tl.Array, e: tl.Array) -> tl.Array:
    return (tl.contract(c, d, over="r") + tl.contract(e, b, over="k")) + tl.contract(a, b, over="k")


def shares(q: tl.Array, k: tl.Array, u: tl.Array, r: tl.Array, v: tl.Array) -> tl.Array:
    scores = tl.contract(tl.abs(q), tl.abs(k), over="d") + tl.contract(tl.abs(u), tl.abs(r), over="e")
    return tl.contract((scores / tl.sum(scores, over="x")).to("f16"), v, over="x")


def half_and_sum(a: tl.Array, b: tl.Array, c: tl.Array, d: tl.Array, e: tl.Array, f: tl.Array) -> tl.Array:
    both = tl.contract(a, b, over="k") + tl.contract(e, f, over="r")
    return 0.5 * both + tl.contract(c, d, over="r")


def three(a: tl.Array, b: tl.Array, c: tl.Array, d: tl.Array, e: tl.Array, f: tl.Array) -> tl.Array:
    return tl.contract(a, b, over="k") + (tl.contract(c, d, over="k") + tl.contract(e, f, over="r"))


def scores(q: tl.Array, k: tl.Array, u: tl.Array, r: tl.Array, v: tl.Array) -> tl.Array:
    both = tl.contract(q, k, over="d") * 0.3 + tl.contract(u, r, over="e")
    return tl.contract(tl.softmax(tl.keep(both, "x <= q"), over="x").to("f16"), v, over="x")


TWO = "m k, k n, m r, r n"
PROGRAMS: dict[str, tuple[Callable[..., tl.Array], str, tuple[str, ...], int]] = {
    "whole": (whole, f"{TWO} -> m n", ("n", "r"), 1),
    "scaled": (scaled, f"{TWO} -> m n", ("n", "r"), 1),
    "scaled stream": (scaled_stream, f"{TWO}, n -> m n", ("n", "r"), 1),
    "by rows": (by_rows, f"{TWO}, m -> m n", ("n", "r"), 0),
    "alike": (alike, "m k, k n, m k, k n -> m n", ("n",), 1),
    "known first": (known_first, f"{TWO}, m k -> m n", ("n", "r"), 2),
    "half of two": (half_and_sum, f"{TWO}, m r, r n -> m n", ("n", "r"), 2),
    "shares": (shares, "q d, x d, q e, x e, x v -> q v", ("d", "e", "v"), 0),  # in parts, which else took a stream more
    "three": (three, "m k, k n, m k, k n, m r, r n -> m n", ("n", "r"), 2),
    "scores": (scores, "q d, x d, q e, x e, x v -> q v", ("d", "e", "v"), 1),
}
"""Each with the axes whose sizes are known, and how many products begin with another one."""
SIZES: tuple[dict[str, int], ...] = (
    {"m": 130, "k": 300, "n": 96, "r": 40, "q": 70, "x": 200, "d": 64, "e": 16, "v": 64, "h": 2},
    {"m": 1, "k": 8, "n": 8, "r": 8, "q": 1, "x": 1, "d": 16, "e": 16, "v": 16, "h": 1},
    {"m": 33, "k": 0, "n": 64, "r": 16, "q": 9, "x": 9, "d": 64, "e": 32, "v": 32, "h": 3},
)


def traced(name: str, sizes: Mapping[str, int], format: str = "f16") -> str:
    function, signature, fixed, _ = PROGRAMS[name]
    if format in ("f8E4M3FN", "i8"):  # which tensor cores take along the sum alone
        signature = signature.replace("k n", "n k").replace("r n", "n r")
    names = set(re.findall(r"\w+", signature))
    count = signature.split("->")[0].count(",") + 1
    likely = {axis: size for axis, size in sizes.items() if axis in names}
    return str(treadle.kernel(signature)(function).trace([format] * count, likely, fixed=fixed))


@cache
def kernel(text: str, machine: str = "h100", *passes: str) -> treadle.Kernel:
    return treadle.compile(text, machine=machine, passes=passes)


def joined(found: treadle.Kernel) -> list[str]:
    return [step.reason for step in found.derivation if step.rewrite == PASS]


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("sizes", SIZES, ids=["odd", "small", "empty"])
@pytest.mark.parametrize("machine", ["h100", "a100", "l40s"])
@needs_compiler
def test_results_are_right(name: str, sizes: dict[str, int], machine: str) -> None:
    text = traced(name, sizes)
    road = compiled(text, machine=machine)
    road.check({axis: sizes[axis] for axis in road.symbolic})
    if machine == "h100" and sizes is SIZES[0]:
        assert len(joined(kernel(text))) == PROGRAMS[name][3]


FORMATS = [("whole", "f32"), ("scaled", "f8E4M3FN")]
FORMATS += [(name, format) for name in ("whole", "alike") for format in ("bf16", "f8E4M3FN", "i8")]


@pytest.mark.parametrize(("name", "format"), FORMATS)
@needs_compiler
def test_formats(name: str, format: str) -> None:
    """Sums of 8-bit floats, which threads may add up, have accumulators of their own."""
    sizes = {"m": 70, "k": 160, "n": 64, "r": 32}
    text = traced(name, sizes, format)
    road = compiled(text, machine="h100")
    road.check({axis: sizes[axis] for axis in road.symbolic})
    assert bool(joined(kernel(text))) == (format != "f8E4M3FN")


@needs_compiler
@pytest.mark.parametrize("machine", ["h100", "a100"])
def test_low_rank_updates_are_those_of_torch(machine: str) -> None:
    rng = np.random.default_rng(0)
    x, w, a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((77, 96), (96, 72), (96, 16), (16, 72)))
    found = kernel(LORA, machine)
    assert joined(found) == ["%base begins with %up_scaled"]
    y = found.run(x, w, a, b, backend="emulator")
    given = [torch.tensor(each.astype(np.float64)) for each in (x, w, a, b)]
    low = (given[0] @ given[2]).to(torch.float16).double()
    torch.testing.assert_close(
        torch.from_numpy(y).double(), given[0] @ given[1] + 2 * low @ given[3], rtol=2e-3, atol=0.05
    )


LARGE = {"m": 4096, "k": 4096, "n": 4096, "r": 32}


@pytest.mark.parametrize("name", ["whole", "scaled", "scaled stream", "alike"])
def test_tiles_are_those_of_one_product(name: str) -> None:
    """A tile of 128 x 256 leaves no registers for a second accumulator."""
    found = kernel(traced(name, LARGE))
    assert found.estimate.kernels == 1
    assert "group = [m = 128, n = 256]" in found.hierarchy


@needs_nvcc
@pytest.mark.parametrize("name", ["whole", "scaled", "scaled stream", "alike", "three"])
def test_products_overlap(name: str) -> None:
    """ptxas prints no C75xx line, with which it says that it has products run one after another, or fences of its own;
    and what tensor copies feed spills nothing."""
    cubin = compile_cubin(kernel(traced(name, LARGE)).cuda, load_machine("h100").arch)
    assert cubin.resources
    assert "C75" not in cubin.log
    fed = [each for each in cubin.resources if each.kernel.endswith("_specialised")]
    assert fed
    assert not any(each.spilled_bytes for each in fed)


def two_values(q: tl.Array, k: tl.Array, u: tl.Array, r: tl.Array, b: tl.Array, v: tl.Array, w: tl.Array) -> tl.Array:
    scores = tl.contract(q, k, over="e") + tl.contract(u, r, over="d") + b
    weights = (scores * 0.05).to("bf16")
    return tl.contract(weights, v, over="x") + tl.contract(weights, w, over="x")


@needs_compiler
def test_a_product_that_adds_to_another_one_is_not_delayed() -> None:
    """Tiles of the first would be given back before the second is awaited, a turn later."""
    signature, formats = "h q e, h x e, h q d, x d, x, h x v, x v -> h q v", ["bf16"] * 4 + ["f32"] + ["bf16"] * 2
    likely = {"e": 32, "d": 128, "x": 64, "q": 64, "v": 128, "h": 8}
    traced = treadle.kernel(signature, machine="h100")(two_values).trace(formats, likely, fixed=("d", "e", "v"))
    road = compiled(str(traced), machine="h100")
    assert len(joined(kernel(str(traced)))) == 2
    road.check({"x": 129, "q": 33, "h": 2})


def test_nobody_waits_between_products_of_one_sum() -> None:
    """Each turn starts both, and waits for those of the turn before."""
    text = kernel(traced("alike", LARGE)).cuda
    loop = text[text.rindex("streaming: k in pieces", 0, text.rindex("wgmma_wait<2>")) :]
    turn = loop[: loop.index("wgmma_wait<")]
    assert turn.count("wgmma_commit") == 2
    assert loop[len(turn) :].startswith("wgmma_wait<2>")


def test_a_pass_that_may_be_left_out() -> None:
    """Without it there are two accumulators."""
    module = parse_module(traced("alike", {"m": 64, "k": 512, "n": 64}), "two.mlir")
    run_passes(module, tuple(each for each in pipeline(Options(machine="h100")) if each.name != PASS))
    assert PASS not in str(module)


REPAIRED = """
!s = tensor<64x4096xf32, #diagram.array<[q, x]>>
!sd = tensor<64x4096xf32, #diagram.array<[q, x], level = device>>
!p = tensor<64x4096xf16, #diagram.array<[q, x], level = register>>
!sr = tensor<64x4096xf32, #diagram.array<[q, x], level = register>>
!m = tensor<64xf32, #diagram.array<[q], level = register>>
!v = tensor<4096x64xf16, #diagram.array<[x, e]>>
!vd = tensor<4096x64xf16, #diagram.array<[x, e], level = device>>
!a = tensor<64x64xf32, #diagram.array<[q, e], level = register>>
!o = tensor<64x64xf32, #diagram.array<[q, e]>>
func.func @f(%S: !s, %V: !v, %W: !v) -> !o {
  %O = hierarchy.kernel @f (%s = %S : !s as !sd, %v = %V : !v as !vd, %w = %W : !v as !vd) -> (!o)
      schedule #hierarchy.schedule<group = [q = 64], stream = [x = 64], whole = [e = 64], warps = [q = 4]> {
    %m = diagram.reduce max %s over [x] : !sd -> !m
    %p = diagram.map (%c = %s : !sd, %r = %m : !m) -> !sr {
      %d = arith.subf %c, %r : f32
      %e = math.exp %d : f32
      diagram.yield %e : f32
    }
    %P = diagram.cast %p : !sr -> !p
    %x = diagram.contract %P, %v over [x] accumulate f32 : !p, !vd -> !a
    %y = diagram.contract %P, %w over [x] accumulate f32 INTO : !p, !vd -> !a
    LAST
  }
  func.return %O : !o
}
"""


def test_sums_that_steps_repair_stay_apart() -> None:
    last = """%o = diagram.map (%g = %x : !a, %h = %y : !a) -> !a {
      %b = arith.addf %g, %h : f32
      diagram.yield %b : f32
    }
    hierarchy.yield %o : !a"""
    module = parse_module(REPAIRED.replace(" INTO", "").replace("LAST", last), "f.mlir")
    before = str(module)
    run_passes(module, (next(each for each in pipeline(Options()) if each.name == PASS),))
    assert str(module) == before


def test_what_is_written_so_has_two_states() -> None:
    """A step has no sum that it could repair where two products add to it."""
    text = REPAIRED.replace("INTO", "into %x").replace("LAST", "hierarchy.yield %y : !a")
    module = parse_module(text, "f.mlir")
    run_passes(module, (next(each for each in pipeline(Options()) if each.name == "hierarchy-expand-streams"),))
    assert re.search(r"step \(%m_so_far: .*, %x_so_far: .*, %y_sum_so_far: .*\) \{", str(module))


UNREAD = """
!A = tensor<?x?xf32, #diagram.array<[m, k]>>
!B = tensor<?x7xf32, #diagram.array<[k, n]>>
!E = tensor<?x7xf32, #diagram.array<[m, n]>>
!r = tensor<?xf32, #diagram.array<[m]>>
func.func @f(%A: !A, %B: !B, %C: !A, %E: !E) -> !r attributes {sizes = #diagram.sizes<m = 10, k = 20>} {
  %p = diagram.contract %A, %B over [k] accumulate f32 : !A, !B -> !E
  %s = diagram.contract %C, %B over [k] accumulate f32 : !A, !B -> !E
  %w = diagram.where %E if "n <= m" : !E
  %y = diagram.map (%a = %p : !E, %b = %s : !E, %c = %w : !E) -> !E {
    %z = arith.addf %a, %b : f32
    diagram.yield %z : f32
  }
  %max = diagram.reduce max %y over [n] : !E -> !r
  func.return %max : !r
}
"""


@needs_compiler
def test_what_a_map_does_not_read_may_be_absent() -> None:
    road = compiled(UNREAD, machine="h100")
    road.check({"m": 10, "k": 20})


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("machine", ["h100", "a100"])
def test_registers_are_counted_alike_in_both_forms(name: str, machine: str) -> None:
    """The chosen sizes fit what stands in the kernel."""
    found = kernel(traced(name, LARGE | {"q": 4096, "x": 4096, "d": 64, "e": 32, "v": 64}), machine)
    assert found.estimate.time_us is not None


def test_laws_that_streams_follow_are_kept() -> None:
    """Scores that are not negative have a sum that is no divisor of zero, also where they are a sum of two products."""
    found = kernel(traced("shares", {"q": 4096, "x": 4096, "d": 64, "e": 32, "v": 64}))
    assert found.estimate.kernels == len(joined(found)) == 1
    assert found.hierarchy.count("hierarchy.stream [") == 1


def test_checked_laws_are_those_of_the_sums_alone(tmp_path: Path) -> None:
    text = dedent(HierarchyJoinSumsPass.__doc__ or "").split("```")[3]
    (tmp_path / "after.mlir").write_text(dedent(text), encoding="utf-8")
    assert cli.main(["check", str(tmp_path / "after.mlir")]) == 0


def test_latent_attention_has_room_for_larger_pieces() -> None:
    """Its scores are a sum of two products, and two warpgroups have no registers for both beside 64 keys."""
    text = (Path(__file__).parents[1] / "examples" / "attention_latent.mlir").read_text(encoding="utf-8")
    found = kernel(re.sub(r"sizes<[^>]*>", "sizes<b = 64, h = 128, x = 4096>", text))
    assert joined(found) == ["%S_rotated begins with %S_latent"]
    assert "stream = [x = 64]" in found.hierarchy
