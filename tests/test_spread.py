"""Products that a map spreads along an axis that they lack (scores times a number for each head): groups hold it whole,
or repeat the product along it, whichever takes less time; what is computed stays the same."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import test_counts
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp

import treadle
import treadle.language as tl
from roads import Road, compiled
from treadle.compiler.derivation.record import Recorder
from treadle.compiler.derivation.replay import read_derivation
from treadle.compiler.errors import TreadleError
from treadle.compiler.explain import explain
from treadle.compiler.machines import load_machine
from treadle.compiler.overrides import read_override
from treadle.compiler.pipeline import LAST_DECORATING_PASS, Options, print_cuda, run_pipeline
from treadle.compiler.source import parse_module
from treadle.dialects.hierarchy import KernelOp
from treadle.dialects.hierarchy.schedule import derivation_of
from treadle.passes.kernels.roles import may_repeat, part_of_kernel
from treadle.passes.kernels.spread import spread_axes, subsets
from treadle.runtime.backend import has_host_compiler
from treadle.runtime.interpreter import entry_function

needs_compiler = pytest.mark.skipif(not has_host_compiler(), reason="no C++ compiler is installed")

ROOT = Path(__file__).resolve().parents[1]
MACHINES = ["a100", "h100"]


def typed(axes: Sequence[str], format: str, sizes: Mapping[str, int | str]) -> str:
    shape = "".join(f"{sizes[axis]}x" for axis in axes)
    return f"tensor<{shape}{format}, #diagram.array<[{', '.join(axes)}]>>"


def attention(heads: Mapping[str, int], how: str, length: int = 200, width: int = 64) -> str:
    """Attention with one array of scores for all of some axes of heads, along each of which there is a factor, a
    summand, or a bias for each query and key."""
    sizes: dict[str, int | str] = {"b": "?", "q": "?", "x": "?", "d": width, "e": width, **heads}
    named, kind = [*heads], {"bias": "f16"}.get(how, "f32")
    given = {axis: typed([axis, "q", "x"] if how == "bias" else [axis], kind, sizes) for axis in heads}
    q, k, v = (typed(axes, "f16", sizes) for axes in ("bqd", "bxd", "bxe"))
    scores, all_scores = typed("bqx", "f32", sizes), typed(["b", *named, "q", "x"], "f32", sizes)
    shares = typed(["b", *named, "q", "x"], "f16", sizes)
    sums, result = (typed(["b", *named, "q", "e"], format, sizes) for format in ("f32", "f16"))
    body, last = list[str](), "%s"
    for axis in heads:
        number = f"%n_{axis}"
        body += [f"{number} = arith.extf %a_{axis} : f16 to f32"] if how == "bias" else []
        operation = "mulf" if how == "factor" else "addf"
        body.append(f"%y_{axis} = arith.{operation} {last}, {number if how == 'bias' else f'%a_{axis}'} : f32")
        last = f"%y_{axis}"
    arguments = ", ".join(f"%{axis}_given: {type}" for axis, type in given.items())
    mapped = ", ".join(f"%a_{axis} = %{axis}_given : {type}" for axis, type in given.items())
    lines = "\n    ".join(body)
    return f"""
func.func @attention(%Q: {q}, %K: {k}, %V: {v}, {arguments}) -> {result}
    attributes {{sizes = #diagram.sizes<b = 2, q = {length}, x = {length}>}} {{
  %S = diagram.contract %Q, %K over [d] accumulate f32 : {q}, {k} -> {scores}
  %T = diagram.map (%s = %S : {scores}, {mapped}) -> {all_scores} {{
    {lines}
    diagram.yield {last} : f32
  }}
  %P = diagram.apply @softmax(%T) over [x] : ({all_scores}) -> {all_scores}
  %P16 = diagram.cast %P : {all_scores} -> {shares}
  %A = diagram.contract %P16, %V over [x] accumulate f32 : {shares}, {v} -> {sums}
  %O = diagram.cast %A : {sums} -> {result}
  func.return %O : {result}
}}
"""


def product(depth: int) -> str:
    """A product whose elements are saved three times, each times another number."""
    sizes: dict[str, int | str] = {"m": "?", "n": "?", "k": depth, "h": 3}
    x, w, t = typed("mk", "f16", sizes), typed("nk", "f16", sizes), typed("h", "f32", sizes)
    one, all_ = typed("mn", "f32", sizes), typed("hmn", "f32", sizes)
    return f"""
func.func @product(%X: {x}, %W: {w}, %t: {t}) -> {all_} attributes {{sizes = #diagram.sizes<m = 1024, n = 1024>}} {{
  %S = diagram.contract %X, %W over [k] accumulate f32 : {x}, {w} -> {one}
  %T = diagram.map (%s = %S : {one}, %a = %t : {t}) -> {all_} {{
    %y = arith.mulf %s, %a : f32
    diagram.yield %y : f32
  }}
  func.return %T : {all_}
}}
"""


@cache
def road(text: str, machine: str) -> Road:
    return compiled(text, machine=machine)


def scheduled(text: str, machine: str, *overrides: str) -> ModuleOp:
    module = parse_module(text)
    options = Options(machine=machine, overrides=tuple(map(read_override, overrides)))
    run_pipeline(module, options, last=LAST_DECORATING_PASS)
    return module


def kernels(module: ModuleOp) -> list[KernelOp]:
    return [op for op in module.walk() if isinstance(op, KernelOp)]


def cut(kernel: KernelOp) -> dict[str, int]:
    assert kernel.schedule is not None
    return dict(kernel.schedule.group.as_dict())


def told(module: ModuleOp, rewrite: str, subject: str) -> list[tuple[str, str]]:
    steps = (step.texts() for step in derivation_of(entry_function(module).attributes))
    return [(law, reason) for each, of, law, reason in steps if each == rewrite and of.startswith(subject)]


def time(text: str, machine: str, *overrides: str) -> float:
    found = explain(scheduled(text, machine, *overrides), load_machine(machine)).time_us
    assert found is not None
    return found


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("how", ["factor", "summand", "bias"])
@pytest.mark.parametrize("heads", [2, 3, 8, 16])
def test_attention_is_one_kernel_whose_groups_repeat_the_scores(heads: int, how: str, machine: str) -> None:
    module = scheduled(attention({"h": heads}, how, 4096), machine)
    (kernel,) = kernels(module)
    assert cut(kernel)["h"] == 1
    ((law, reason),) = told(module, "tiling", "h of @attention")
    assert law == "group partition: weaved over it"
    assert reason.startswith("each group repeats %S, which lacks it: the product %A_sum would have columns along")
    ((_, reason),) = [each for each in told(module, "fusion", "%") if each[0] == "cost model"]
    found = re.fullmatch(r"every group along 'h' repeats %S: estimated (\S+) us together, (\S+) us apart at .*", reason)
    assert found is not None
    assert float(found[1]) < float(found[2])


def test_less_than_a_tenth_may_be_lost_where_axes_are_long() -> None:
    """Of 4096 batches with 4096 queries and keys two kernels, which make the scores once, would take 7 % less."""
    text = attention({"h": 8}, "factor", 512, 128)
    (kernel,) = kernels(scheduled(text, "a100"))
    assert cut(kernel)["h"] == 1


@pytest.mark.parametrize("machine", MACHINES)
def test_two_axes_are_both_cut(machine: str) -> None:
    (kernel,) = kernels(scheduled(attention({"h": 3, "g": 2}, "factor"), machine))
    assert {axis: size for axis, size in cut(kernel).items() if axis in "hg"} == {"h": 1, "g": 1}


@pytest.mark.parametrize("machine", MACHINES)
def test_a_deep_product_is_made_once(machine: str) -> None:
    module = scheduled(product(4096), machine)
    ((law, reason),) = told(module, "tiling", "h of @product")
    assert law == "held whole"
    found = re.search(r"would repeat; estimated (\S+) us held whole, (\S+) us cut$", reason)
    assert found is not None
    assert float(found[1]) < float(found[2])
    chosen, other = time(product(4096), machine), time(product(4096), machine, "tiling{repeated=h}")
    launch = 1e6 * load_machine(machine).launch
    assert chosen == pytest.approx(launch + float(found[1]), rel=0.006)
    assert other == pytest.approx(launch + float(found[2]), rel=0.006)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("depth", [16, 64, 512])
def test_what_is_chosen_takes_at_most_a_ninth_longer_than_the_other_way(depth: int, machine: str) -> None:
    text = product(depth)
    chosen = time(text, machine)
    for way in ("h", "none"):
        assert chosen <= time(text, machine, f"tiling{{repeated={way}}}") / 0.9 * 1.001


@pytest.mark.parametrize("name", ["attention", "attention_bias", "mlp", "swiglu", "attention_backward"])
def test_columns_of_a_later_product_are_not_spread(name: str) -> None:
    """Nor are axes that operands of the product have: nothing is asked, and nothing of it is in the derivation."""
    module = scheduled((ROOT / f"examples/{name}.mlir").read_text(encoding="utf-8"), "h100")
    for kernel in kernels(module):
        assert not may_repeat(part_of_kernel(kernel))


def test_spread_axes_are_found() -> None:
    module = parse_module(attention({"h": 3, "g": 2}, "bias"))
    run_pipeline(module, Options(machine="a100"), last="fusion")
    part = part_of_kernel(next(each for each in kernels(module) if "S" in str(each)))
    assert set(spread_axes(part)) == {"h", "g"}
    assert may_repeat(part) == ("g", "h")  # the shortest first


def test_few_ways_are_tried() -> None:
    assert list(subsets([])) == [()]
    assert list(subsets(["h"])) == [(), ("h",)]
    assert list(subsets(["f", "g", "h"])) == [(), ("f",), ("g",), ("h",), ("f", "g", "h")]


def derivation(text: str, machine: str, tmp_path: Path) -> tuple[Path, str]:
    """The derivation as a file, and the kernels that it made, without comments."""
    module, recorder = parse_module(text), Recorder({})
    run_pipeline(module, Options(machine=machine), recorder)
    path = tmp_path / "a.derivation"
    path.write_text(recorder.text("of attention"), encoding="utf-8")
    return path, code(module)


def code(module: ModuleOp) -> str:
    return re.sub(r"^ *//.*\n", "", print_cuda(module), flags=re.MULTILINE)


REPLAYED = {
    "cut": (attention({"h": 3}, "factor"), "tiling{repeated=h}"),
    "two axes": (attention({"h": 3, "g": 2}, "factor"), "tiling{repeated="),
    "held whole": (product(4096), "tiling{repeated=none}"),
    "two kernels": (attention({"h": 2}, "factor", 1024), "repeated=h}"),
}


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("case", REPLAYED)
def test_a_derivation_makes_the_same_kernels_at_any_size(case: str, machine: str, tmp_path: Path) -> None:
    text, line = REPLAYED[case]
    path, made = derivation(text, machine, tmp_path)
    assert line in path.read_text(encoding="utf-8")
    for other in (text, re.sub(r"\b([qxmn]) = \d+", r"\1 = 3000", text)):
        module = parse_module(other)
        run_pipeline(module, Options(passes=read_derivation(str(path))))
        assert code(module) == made


REFUSED = {
    "columns along two axes": (attention({"h": 3}, "factor"), "tiling{repeated=none}", "so few axes: the product"),
    "an axis of no such kind": (product(64), "tiling{repeated=n}", "a map spreads a product along are 'h'"),
    "no such axis": (product(64), "tiling{repeated=z}", "along axis 'z' would repeat no product"),
    "only that one": (product(64), "tiling{axis=h}", "ask for that, too, with repeated=h"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused(case: str) -> None:
    text, override, reason = REFUSED[case]
    with pytest.raises(TreadleError, match=re.escape(reason)):
        scheduled(text, "a100", override)


SIZES = [{"b": 1, "q": 67, "x": 333}, {"b": 2, "q": 3, "x": 1}, {"b": 1, "q": 5, "x": 0}, {"b": 1, "q": 1, "x": 129}]


@needs_compiler
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("heads", [{"h": 1}, {"h": 2}, {"h": 3}, {"h": 16}, {"h": 3, "g": 2}], ids=str)
@pytest.mark.parametrize("how", ["factor", "summand", "bias"])
def test_the_same_is_computed_at_any_size(how: str, heads: dict[str, int], machine: str) -> None:
    made = road(attention(heads, how), machine)
    for size in SIZES:
        made.check(size)


@needs_compiler
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("way", ["h", "none"])
def test_either_way_computes_the_same(way: str, machine: str) -> None:
    made = compiled(product(96), machine=machine, overrides=(read_override(f"tiling{{repeated={way}}}"),))
    for m, n in ((67, 131), (1, 3), (128, 64)):
        made.check({"m": m, "n": n})


@needs_compiler
@pytest.mark.parametrize("kind", ["dividing", "odd"])
def test_counts_are_predicted(kind: str, tmp_path: Path) -> None:
    """On an A100, where threads copy and load: values, bytes, matrix reads and products."""
    path = tmp_path / "attention.mlir"
    path.write_text(attention({"h": 3}, "factor"), encoding="utf-8")
    test_counts.test_interpreter_counts_what_is_predicted(path, kind)
    test_counts.test_emulator_counts_what_is_predicted(path, kind)


def normal(*shape: int, dtype: type[np.floating[Any]] = np.float16) -> NDArray[Any]:
    return (np.random.default_rng(sum(shape)).standard_normal(shape) / 2).astype(dtype)


def softmax(a: NDArray[Any]) -> NDArray[Any]:
    powers = np.exp(a - a.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


@needs_compiler
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("length", [70, 200, 401])
def test_a_function_of_fixed_sizes_is_compiled(length: int, machine: str) -> None:
    """In registers there is no room for the scores of three heads."""

    @treadle.kernel("b q d, b x d, b x e, h -> b h q e", machine=machine)
    def attention(Q: tl.Array, K: tl.Array, V: tl.Array, t: tl.Array) -> tl.Array:
        return tl.contract(tl.softmax(tl.contract(Q, K, over="d") * t, over="x"), V, over="x")

    given = normal(2, 37, 64), normal(2, length, 64), normal(2, length, 72), normal(3, dtype=np.float32)
    Q, K, V, t = (each.astype(np.float64) for each in given)
    scores = np.einsum("bqd,bxd->bqx", Q, K)[:, None] * t[None, :, None, None]
    found = attention(*given, backend="emulator")
    np.testing.assert_allclose(found, np.einsum("bhqx,bxe->bhqe", softmax(scores), V), atol=2e-3)


@needs_compiler
@pytest.mark.parametrize("machine", MACHINES)
def test_what_saves_the_product_too_is_kernels_that_fit(machine: str) -> None:
    """No group can repeat what is saved without that axis, so the sums over it stay apart from the product."""

    @treadle.kernel("b q d, b x d, b x e, h -> b h q e, b q x", machine=machine)
    def attention(Q: tl.Array, K: tl.Array, V: tl.Array, t: tl.Array) -> tuple[tl.Array, tl.Array]:
        S = tl.contract(Q, K, over="d")
        return tl.contract(tl.softmax(S * t, over="x"), V, over="x"), S

    given = normal(2, 37, 64), normal(2, 83, 64), normal(2, 83, 64), normal(3, dtype=np.float32)
    Q, K, V, t = (each.astype(np.float64) for each in given)
    scores = np.einsum("bqd,bxd->bqx", Q, K)
    result, saved = attention(*given, backend="emulator")
    np.testing.assert_allclose(saved, scores, atol=1e-2)
    shares = softmax(scores[:, None] * t[None, :, None, None])
    np.testing.assert_allclose(result, np.einsum("bhqx,bxe->bhqe", shares, V), atol=2e-3)


MADE = """
!X = tensor<?x48x?x?xbf16, #diagram.array<[b, k, l, m]>>
!F = tensor<?x48x?x?xf32, #diagram.array<[b, k, l, m]>>
!W = tensor<?x3x48x?xbf16, #diagram.array<[b, n, k, l]>>
!Z = tensor<?x144x?xbf16, #diagram.array<[b, z, l]>>
!P = tensor<?x?x3xf32, #diagram.array<[b, m, n]>>
func.func @made(%X: !X, %Z: !Z) -> !P {
  %W = diagram.expand %Z z as [n, k] : !Z -> !W
  %F = diagram.map (%x = %X : !X) -> !F {
    %wide = arith.extf %x : bf16 to f32
    %t = math.tanh %wide : f32
    diagram.yield %t : f32
  }
  %T = diagram.cast %F : !F -> !X
  %P = diagram.contract %T, %W over [k, l] accumulate f32 : !X, !W -> !P
  func.return %P : !P
}
"""


@needs_compiler
@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_a_factor_that_registers_do_not_hold_for_each_index(machine: str) -> None:
    """A tile of it for each of 48 indices that a group would hold whole: the products are saved, and summed apart."""
    made = compiled(MADE, machine=machine)
    for b, length, m in ((2, 70, 33), (1, 1, 1), (2, 0, 5)):
        made.check({"b": b, "l": length, "m": m})
