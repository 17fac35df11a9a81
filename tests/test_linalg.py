"""`linalg` raised to diagrams: what the diagram computes is what NumPy computes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp
from xdsl.parser import Parser

from treadle.compiler.errors import TreadleError
from treadle.compiler.source import make_context, parse_module
from treadle.dialects.diagram.array import is_array
from treadle.passes.convert_linalg_to_diagram import ConvertLinalgToDiagramPass
from treadle.runtime.interpreter import run_function

Numbers = NDArray[np.float64]


def raised(text: str, *, whole: bool = True) -> ModuleOp:
    module = parse_module(text, "foreign.mlir")
    ConvertLinalgToDiagramPass().apply(make_context(), module)
    module.verify()
    if whole:
        assert not [op.name for op in module.walk() if op.name.startswith(("linalg.", "tensor.", "builtin.unrealized"))]
    return module


def generic(name: str, maps: str, loops: str, inputs: str, types: str, out: str, type: str, body: str) -> str:
    """A `linalg.generic` in the syntax of MLIR. `maps` are separated by single blanks (that of a scalar is empty),
    `loops` are p (parallel) and r."""
    dims = ", ".join(f"d{i}" for i in range(len(loops)))
    listed = ", ".join(f"affine_map<({dims}) -> ({each})>" for each in maps.split(" "))
    kinds = ", ".join('"parallel"' if loop == "p" else '"reduction"' for loop in loops)
    arguments = ", ".join(f"%v{i}: f32" for i in range(len(maps.split(" "))))
    return f"""  %{name} = linalg.generic {{indexing_maps = [{listed}], iterator_types = [{kinds}]}}
      ins({inputs} : {types}) outs({out} : {type}) {{
    ^bb0({arguments}):
      {body}
      linalg.yield %y : f32
    }} -> {type}
"""


PRODUCT = "%p = arith.mulf %v0, %v1 : f32\n %y = arith.addf %v2, %p : f32"


def numbers(seed: int, *shape: int) -> Numbers:
    return np.random.default_rng(seed).normal(size=shape)


def result(module: ModuleOp, *arguments: Numbers) -> Numbers:
    return np.asarray(run_function(module, arguments).results[0])


def softmax(s: Numbers) -> Numbers:
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def attention(keep: str) -> str:
    """Attention as front ends spell it; `keep` is how they write the row of a maximum: kept with size 1, or not."""
    row, last = ("2x5x1", "d0,d1,0") if keep == "kept" else ("2x5", "d0,d1")
    S, R, Y = (f"tensor<{shape}xf32>" for shape in ("2x5x7", row, "2x5x4"))
    fill = "  %{0} = linalg.fill ins({1} : f32) outs(%{2} : {3}) -> {3}\n"
    rows = "d0,d1,d2"
    return f"""func.func @attention(%Q: tensor<2x5x8xf32>, %K: tensor<2x7x8xf32>, %V: tensor<2x7x4xf32>) -> {Y} {{
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %scale = arith.constant 0.25 : f32
  %eS = tensor.empty() : {S}
  %eR = tensor.empty() : {R}
  %eO = tensor.empty() : {Y}
""" + (
        fill.format("zS", "%zero", "eS", S)
        + fill.format("zR", "%zero", "eR", R)
        + fill.format("lR", "%low", "eR", R)
        + fill.format("zO", "%zero", "eO", Y)
        + generic(
            "S",
            "d0,d1,d3 d0,d2,d3 d0,d1,d2",
            "pppr",
            "%Q, %K",
            "tensor<2x5x8xf32>, tensor<2x7x8xf32>",
            "%zS",
            S,
            PRODUCT,
        )
        + generic("T", f"{rows} {rows}", "ppp", "%S", S, "%eS", S, "%y = arith.mulf %v0, %scale : f32")
        + generic("m", f"{rows} {last}", "ppr", "%T", S, "%lR", R, "%y = arith.maximumf %v0, %v1 : f32")
        + generic(
            "d", f"{rows} {last} {rows}", "ppp", "%T, %m", f"{S}, {R}", "%eS", S, "%y = arith.subf %v0, %v1 : f32"
        )
        + f"  %e = linalg.exp ins(%d : {S}) outs(%eS : {S}) -> {S}\n"
        + generic("l", f"{rows} {last}", "ppr", "%e", S, "%zR", R, "%y = arith.addf %v0, %v1 : f32")
        + generic(
            "P", f"{rows} {last} {rows}", "ppp", "%e, %l", f"{S}, {R}", "%eS", S, "%y = arith.divf %v0, %v1 : f32"
        )
        + generic("O", "d0,d1,d3 d0,d3,d2 d0,d1,d2", "pppr", "%P, %V", f"{S}, tensor<2x7x4xf32>", "%zO", Y, PRODUCT)
        + f"  func.return %O : {Y}\n}}"
    )


@pytest.mark.parametrize("keep", ["kept", "gone"])
def test_attention(keep: str) -> None:
    q, k, v = numbers(1, 2, 5, 8), numbers(2, 2, 7, 8), numbers(3, 2, 7, 4)
    wanted = softmax(q @ k.swapaxes(1, 2) / 4) @ v
    np.testing.assert_allclose(result(raised(attention(keep)), q, k, v), wanted, rtol=1e-12)


def function(arguments: str, type: str, body: str) -> str:
    return f"""func.func @f({arguments}) -> {type} {{
  %zero = arith.constant 0.0 : f32
  %two = arith.constant 2.0 : f32
{body}
  func.return %r : {type}
}}"""


A, B, C = "tensor<4x8xf32>", "tensor<8x6xf32>", "tensor<4x6xf32>"


def test_matmul_into() -> None:
    product = f"  %r = linalg.matmul ins(%A, %B : {A}, {B}) outs(%C : {C}) -> {C}"
    module = raised(function(f"%A: {A}, %B: {B}, %C: {C}", C, product))
    a, b, c = numbers(1, 4, 8), numbers(2, 8, 6), numbers(3, 4, 6)
    np.testing.assert_allclose(result(module, a, b, c), c + a @ b, rtol=1e-12)


def test_an_array_with_itself() -> None:
    """X X^T and X + X^T: the same axis may not stand twice in one array."""
    S = "tensor<4x4xf32>"
    gram = generic("g", "d0,d2 d1,d2 d0,d1", "ppr", "%X, %X", f"{A}, {A}", "%Z", S, PRODUCT)
    twice = generic("r", "d0,d1 d1,d0 d0,d1", "pp", "%g, %Y", f"{S}, {S}", "%Z", S, "%y = arith.subf %v0, %v1 : f32")
    module = raised(function(f"%X: {A}, %Y: {S}, %Z: {S}", S, gram + twice))
    x, y, z = numbers(1, 4, 8), numbers(2, 4, 4), numbers(3, 4, 4)
    np.testing.assert_allclose(result(module, x, y, z), z + x @ x.T - y.T, rtol=1e-12)
    own = generic("r", "d0,d1 d1,d0 d0,d1", "pp", "%Y, %Y", f"{S}, {S}", "%Y", S, "%y = arith.subf %v0, %v1 : f32")
    np.testing.assert_allclose(result(raised(function(f"%Y: {S}", S, own)), y), y - y.T, rtol=1e-12)


def test_windows() -> None:
    X, W, Y = "tensor<2x10xf32>", "tensor<3xf32>", "tensor<2x4xf32>"
    body = generic("r", "d0,2*d1+d2 d2 d0,d1", "ppr", "%X, %W", f"{X}, {W}", "%Y", Y, PRODUCT)
    module = raised(function(f"%X: {X}, %W: {W}, %Y: {Y}", Y, body))
    x, w, y = numbers(1, 2, 10), numbers(2, 3), numbers(3, 2, 4)
    wanted = y + np.stack([x[:, 2 * t : 2 * t + 3] @ w for t in range(4)], axis=1)
    np.testing.assert_allclose(result(module, x, w, y), wanted, rtol=1e-12)


SLICES: dict[tuple[str, str, str], Callable[[Numbers], Numbers]] = {
    ("4x8", "[0, 0] [4, 5] [1, 1]", "4x5"): lambda x: x[:, :5],
    ("4x8", "[0, 0] [3, 8] [1, 1]", "3x8"): lambda x: x[:3],
    ("4x8", "[1, 0] [3, 4] [1, 2]", "3x4"): lambda x: x[1:, ::2],
    ("4x8", "[2, 0] [1, 8] [1, 1]", "8"): lambda x: x[2],
    ("?x?", "[0, 0] [4, 5] [1, 1]", "4x5"): lambda x: x[:, :5],
    ("?x8", "[0, 3] [%m, 4] [1, 1]", "?x4"): lambda x: x[:, 3:7],
}
"""Of 4 rows of 8."""


@pytest.mark.parametrize("slice", SLICES, ids=" ".join)
def test_slices(slice: tuple[str, str, str]) -> None:
    """A slice from the start of a dimension is no loop through all of it."""
    whole, numbers_of, part = (f"tensor<{each}xf32>" if "[" not in each else each for each in slice)
    rows = f"%c0 = arith.constant 0 : index\n %m = tensor.dim %X, %c0 : {whole}" if "%m" in numbers_of else ""
    module = raised(f"""func.func @f(%X: {whole}) -> {part} {{
  {rows}
  %s = tensor.extract_slice %X{numbers_of} : {whole} to {part}
  %r = linalg.exp ins(%s : {part}) outs(%s : {part}) -> {part}
  func.return %r : {part}
}}""")
    x = numbers(1, 4, 8)
    np.testing.assert_allclose(result(module, x), np.exp(SLICES[slice](x)), rtol=1e-12)


@pytest.mark.parametrize("start", [0, 2])
def test_a_slice_of_a_computed_size_stays(start: int) -> None:
    """No axis of a diagram has the size that a number of the program says, and to leave it out would be wrong."""
    T = "tensor<4x?xf32>"
    text = f"""func.func @f(%X: {T}, %n: index) -> {T} {{
  %s = tensor.extract_slice %X[0, {start}] [4, %n] [1, 1] : {T} to {T}
  %r = linalg.exp ins(%s : {T}) outs(%s : {T}) -> {T}
  func.return %r : {T}
}}"""
    module = raised(text, whole=False)
    assert f"tensor.extract_slice %X[0, {start}] [4, %n]" in str(module)
    assert "math.exp" in str(module)


POSITIONS = """func.func @f(%x: tensor<?xf32>, %k: index) -> tensor<{shape}xi32> {{
  %at = arith.constant {at} : index
  %n = {size}
  %e = tensor.empty({sizes}) : tensor<{shape}xi32>
  %r = linalg.generic {{indexing_maps = [affine_map<({loops}) -> ({loops})>], iterator_types = [{kinds}]}}
      outs(%e : tensor<{shape}xi32>) {{
    ^bb0(%o: i32):
      %i = linalg.index 0 : index
      %y = arith.index_cast %i : index to i32
      linalg.yield %y : i32
  }} -> tensor<{shape}xi32>
  func.return %r : tensor<{shape}xi32>
}}"""


def positions(size: str, at: int = 0, rank: int = 1) -> str:
    """Positions along dimensions whose size is `size`."""
    several = {"shape": "x".join("?" * rank), "sizes": ", ".join(["%n"] * rank), "loops": ", ".join("ij"[:rank])}
    return POSITIONS.format(size=size, at=at, kinds=", ".join(['"parallel"'] * rank), **several)


DIM = "tensor.dim %x, %at : tensor<?xf32>"


def test_a_size_that_an_argument_tells() -> None:
    module = raised(positions(DIM), whole=False)
    np.testing.assert_array_equal(result(module, numbers(1, 5), np.asarray(0)), np.arange(5))


@pytest.mark.parametrize(
    "text",
    [
        positions(DIM, at=2),
        positions(DIM, at=-1),
        positions("arith.constant 4 : index"),
        positions("arith.muli %k, %k : index"),
        positions(DIM, rank=2),
    ],
)
def test_a_size_that_no_argument_tells_stays(text: str) -> None:
    module = raised(text, whole=False)
    assert "the size of a dimension is computed" in str(module)
    assert "diagram.index" not in str(module)


REDUCTIONS: dict[str, Callable[[Numbers], Numbers]] = {
    "%y = arith.addf %v0, %v1 : f32": lambda x: x.sum(1),
    "%y = arith.mulf %v1, %v0 : f32": lambda x: x.prod(1),
    "%y = arith.maximumf %v1, %v0 : f32": lambda x: x.max(1),
    "%y = arith.minimumf %v1, %v0 : f32": lambda x: x.min(1),
    "%s = arith.mulf %v0, %v0 : f32\n %y = arith.addf %s, %v1 : f32": lambda x: (x * x).sum(1),
    "%s = math.absf %v0 : f32\n %y = arith.maximumf %s, %v1 : f32": lambda x: np.abs(x).max(1),
    "%s = arith.divf %v0, %two : f32\n %y = arith.addf %s, %v1 : f32": lambda x: x.sum(1) / 2,
}


@pytest.mark.parametrize("start", [0.0, 1.0, 2.0, float("inf"), float("-inf")])
@pytest.mark.parametrize("body", REDUCTIONS)
def test_reductions(body: str, start: float) -> None:
    """From a start that is neutral, and from others, which count."""
    number = {float("inf"): "0x7F800000", float("-inf"): "0xFF800000"}.get(start, str(start))
    text = f"  %start = arith.constant {number} : f32\n  %E = tensor.empty() : tensor<4xf32>\n"
    text += "  %Z = linalg.fill ins(%start : f32) outs(%E : tensor<4xf32>) -> tensor<4xf32>\n"
    text += generic("r", "d0,d1 d0", "pr", "%X", A, "%Z", "tensor<4xf32>", body)
    x = numbers(1, 4, 8)
    combine = next(rule for name, rule in COMBINE.items() if name in body.splitlines()[-1])
    wanted = combine(np.full(4, start), REDUCTIONS[body](x))
    np.testing.assert_allclose(result(raised(function(f"%X: {A}", "tensor<4xf32>", text)), x), wanted, rtol=1e-12)


ALIKE: dict[str, Callable[[Numbers, float], float]] = {
    "%y = arith.addf %v2, %v0 : f32": lambda x, s: float(x.sum()),
    "%y = arith.maximumf %v2, %v0 : f32": lambda x, s: float(x.max()),
    "%p = arith.mulf %v0, %v0 : f32\n %y = arith.addf %v2, %p : f32": lambda x, s: float((x * x).sum()),
    "%y = arith.addf %v2, %v1 : f32": lambda x, s: s * len(x),
    "%y = arith.addf %v2, %two : f32": lambda x, s: 2 * len(x),
}


@pytest.mark.parametrize("body", ALIKE)
def test_elements_that_are_alike_along_a_kept_axis(body: str) -> None:
    """The result has an axis that no operand has: every element of it is the same reduction, from its own start."""
    text = generic("r", "d1  d0", "pr", "%x, %s", "tensor<8xf32>, f32", "%Y", "tensor<4xf32>", body)
    module = raised(function("%x: tensor<8xf32>, %s: f32, %Y: tensor<4xf32>", "tensor<4xf32>", text))
    x, y, scalar = numbers(1, 8), numbers(2, 4), 1.75
    combine = np.maximum if "maximumf" in body else np.add
    wanted = combine(y, ALIKE[body](x, scalar))
    np.testing.assert_allclose(result(module, x, np.asarray(scalar), y), wanted, rtol=1e-12)


def test_a_product_of_two_operands_without_a_kept_axis() -> None:
    text = generic("r", "d1 d1 d0", "pr", "%x, %w", "tensor<8xf32>, tensor<8xf32>", "%Y", "tensor<4xf32>", PRODUCT)
    module = raised(function("%x: tensor<8xf32>, %w: tensor<8xf32>, %Y: tensor<4xf32>", "tensor<4xf32>", text))
    x, w, y = numbers(1, 8), numbers(2, 8), numbers(3, 4)
    np.testing.assert_allclose(result(module, x, w, y), y + x @ w, rtol=1e-12)


COMBINE = {"addf": np.add, "mulf": np.multiply, "maximumf": np.maximum, "minimumf": np.minimum}


STAYS = {
    "%y = arith.maxnumf %v0, %v1 : f32": "combined by arith.maxnumf",
    "%y = arith.subf %v1, %v0 : f32": "combined by arith.subf",
    "%s = arith.mulf %v0, %v1 : f32\n %y = arith.addf %s, %v1 : f32": "depends on what was combined before",
    "%y = arith.addf %v0, %v0 : f32": "does not combine an element with what was combined before",
}


@pytest.mark.parametrize("body", STAYS)
def test_what_stays_says_why(body: str) -> None:
    text = generic("r", "d0,d1 d0", "pr", "%X", A, "%Y", "tensor<4xf32>", body)
    module = raised(function(f"%X: {A}, %Y: tensor<4xf32>", "tensor<4xf32>", text), whole=False)
    assert STAYS[body] in str(module)
    assert "diagram.reduce" not in str(module)


@pytest.mark.parametrize("second", ["%b = arith.addf %q, %a : f32", "%b = arith.addf %q, %p : f32"])
def test_a_result_of_another_one_s_turns_stays(second: str) -> None:
    """A sum of prefix sums: what the first result is by now is not what it ends as, or starts from."""
    row = "tensor<4xf32>"
    maps = ", ".join(f"affine_map<(d0, d1) -> ({each})>" for each in ("d0, d1", "d0", "d0"))
    module = raised(
        f"""func.func @f(%x: {A}, %y: {row}, %z: {row}) -> ({row}, {row}) {{
  %r, %s = linalg.generic {{indexing_maps = [{maps}], iterator_types = ["parallel", "reduction"]}}
      ins(%x : {A}) outs(%y, %z : {row}, {row}) {{
    ^bb0(%v: f32, %p: f32, %q: f32):
      %a = arith.addf %p, %v : f32
      {second}
      linalg.yield %a, %b : f32, f32
  }} -> {row}, {row}
  func.return %r, %s : {row}, {row}
}}""",
        whole=False,
    )
    assert "depends on what was combined before" in str(module)
    assert "diagram.reduce" not in str(module)


def test_arguments_that_no_diagram_reads() -> None:
    """A body ignores x, y is only returned, z is the room for the result, and w only tells a size."""
    arguments = "%x: tensor<?xf32>, %y: tensor<1x4xf32>, %z: tensor<?xf32>, %w: tensor<?xf32>, %v: tensor<?xf32>"
    module = raised(
        f"func.func @f({arguments})"
        + """ -> (tensor<?xf32>, tensor<1x4xf32>, tensor<?xf32>) {
  %first = arith.constant 0 : index
  %n = tensor.dim %w, %first : tensor<?xf32>
  %e = tensor.empty(%n) : tensor<?xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
                       iterator_types = ["parallel"]}
      ins(%x, %v : tensor<?xf32>, tensor<?xf32>) outs(%z : tensor<?xf32>) {
    ^bb0(%a: f32, %b: f32, %c: f32):
      %d = math.exp %b : f32
      linalg.yield %d : f32
  } -> tensor<?xf32>
  %s = linalg.exp ins(%v : tensor<?xf32>) outs(%e : tensor<?xf32>) -> tensor<?xf32>
  func.return %r, %y, %s : tensor<?xf32>, tensor<1x4xf32>, tensor<?xf32>
}"""
    )
    assert all(is_array(argument.type) for argument in next(iter(module.ops)).regions[0].block.args)
    x, y, z, w, v = numbers(1, 6), numbers(2, 1, 4), numbers(3, 6), numbers(4, 6), numbers(5, 6)
    for given, wanted in zip(run_function(module, [x, y, z, w, v]).results, (np.exp(v), y, np.exp(v)), strict=True):
        np.testing.assert_allclose(given, wanted, rtol=1e-12)


def test_the_type_of_a_called_function_stays() -> None:
    text = f"""func.func @inner(%X: {A}) -> {A} {{
  %Y = linalg.exp ins(%X : {A}) outs(%X : {A}) -> {A}
  func.return %Y : {A}
}}
func.func @outer(%X: {A}) -> {A} {{
  %Y = func.call @inner(%X) : ({A}) -> {A}
  func.return %Y : {A}
}}"""
    module = raised(text, whole=False)
    assert f"@inner(%X: {A}) -> {A}" in str(module)
    assert "diagram.map" in str(module)


BITS = {
    ("0xFF800000", "f32"): -np.inf,
    ("0x7FC00000", "f32"): np.nan,
    ("0xFFC00000", "f32"): np.nan,
    ("0x7F800001", "f32"): np.nan,
    ("0x3F800000", "f32"): 1.0,
    ("0xFC00", "f16"): -np.inf,
    ("0x7E00", "f16"): np.nan,
    ("0xFF80", "bf16"): -np.inf,
    ("0x7FC0", "bf16"): np.nan,
    ("0x7E", "f8E5M2"): np.nan,
    ("0xFF", "f8E4M3FN"): np.nan,
    ("31744.0", "f16"): 31744.0,
}


@pytest.mark.parametrize(("bits", "elements"), BITS)
def test_a_dense_constant_of_bits(bits: str, elements: str) -> None:
    """In MLIR `dense<0xFF800000>` is -inf, and `dense<0x3F800000>` is 1."""
    T = f"tensor<4x{elements}>"
    module = raised(f"""func.func @f(%x: {T}) -> {T} {{
  %q = arith.constant dense<{bits}> : {T}
  %r = linalg.generic {{indexing_maps = [{", ".join(["affine_map<(i) -> (i)>"] * 3)}], iterator_types = ["parallel"]}}
      ins(%x, %q : {T}, {T}) outs(%x : {T}) {{
    ^bb0(%a: {elements}, %b: {elements}, %c: {elements}):
      %one = arith.constant true
      %y = arith.select %one, %b, %a : {elements}
      linalg.yield %y : {elements}
  }} -> {T}
  func.return %r : {T}
}}""")
    np.testing.assert_array_equal(result(module, numbers(1, 4)), np.full(4, BITS[bits, elements]))


@pytest.mark.parametrize("bits", ["-0x7F800000", "0x17F800000"])
def test_bits_of_no_float_are_refused(bits: str) -> None:
    with pytest.raises(TreadleError, match="is not the bits of one f32"):
        parse_module(f"%q = arith.constant dense<{bits}> : tensor<4xf32>")


@pytest.mark.parametrize(("bits", "elements"), [each for each in BITS if each[0] != "0x3F800000"])
def test_a_constant_that_xdsl_misreads_stays(bits: str, elements: str) -> None:
    """xDSL 0.74 reads `dense<0xFF800000>` as 4286578688. Never a silent wrong number: what its own parser read, and may
    be an infinity or NaN, stays. (No rule can tell the bits of 1.0 from the number 1065353216.)"""
    T = f"tensor<4x{elements}>"
    text = f"""func.func @f(%x: {T}) -> {T} {{
  %q = arith.constant dense<{bits}> : {T}
  %r = linalg.generic {{indexing_maps = [{", ".join(["affine_map<(i) -> (i)>"] * 2)}], iterator_types = ["parallel"]}}
      ins(%q : {T}) outs(%x : {T}) {{
    ^bb0(%a: {elements}, %b: {elements}):
      linalg.yield %a : {elements}
  }} -> {T}
  func.return %r : {T}
}}"""
    module = Parser(make_context(), text).parse_module()
    ConvertLinalgToDiagramPass().apply(make_context(), module)
    assert "xDSL reads dense<0x...> as a number" in str(module)
    assert "diagram.map" not in str(module)


def filled(scalar: str, elements: str) -> str:
    """A sum of an array and a fill whose scalar has another format, which upstream's fill casts."""
    T = f"tensor<4x{elements}>"
    argument = "" if scalar.startswith("%z =") else f", %z: {scalar}"
    type = scalar.rsplit(" ", 1)[-1]
    return f"""func.func @f(%x: {T}{argument}) -> {T} {{
  {scalar if not argument else ""}
  %e = tensor.empty() : {T}
  %f = linalg.fill ins(%z : {type}) outs(%e : {T}) -> {T}
  %r = linalg.add ins(%x, %f : {T}, {T}) outs(%e : {T}) -> {T}
  func.return %r : {T}
}}"""


CAST_NUMBERS = {
    ("1.1 : f32", "f16"): 1.099609375,
    ("3 : i32", "f32"): 3.0,
    ("0.25 : f64", "bf16"): 0.25,
    ("-2.75 : f32", "i32"): -2,
    ("7 : i64", "i32"): 7,
}


@pytest.mark.parametrize(("number", "elements"), CAST_NUMBERS)
def test_a_fill_casts_its_number(number: str, elements: str) -> None:
    module = raised(filled(f"%z = arith.constant {number}", elements))
    x = np.arange(4) if elements == "i32" else numbers(1, 4)
    np.testing.assert_allclose(run_function(module, [x]).results[0], x + CAST_NUMBERS[number, elements], rtol=1e-12)


@pytest.mark.parametrize(("scalar", "elements"), [("f32", "f16"), ("i32", "f32"), ("f32", "i32"), ("f16", "f32")])
def test_a_fill_casts_its_scalar(scalar: str, elements: str) -> None:
    module = raised(filled(scalar, elements))
    x = np.arange(4) if elements == "i32" else numbers(1, 4)
    z = np.asarray(3 if scalar == "i32" else 2.75)
    wanted = x + (2 if elements == "i32" else z)
    np.testing.assert_allclose(run_function(module, [x, z]).results[0], wanted, rtol=1e-12)


@pytest.mark.parametrize(
    ("scalar", "elements", "why"),
    [
        ("f64", "f32", "elements are f64"),
        ("%z = arith.constant true", "f32", "elements are i1"),
    ],
)
def test_what_a_fill_cannot_cast_stays(scalar: str, elements: str, why: str) -> None:
    text = filled(scalar, elements).replace("ins(%z : true)", "ins(%z : i1)")
    assert why in str(raised(text, whole=False))


@pytest.mark.parametrize("op", ["%y = arith.addf %a, %a : f8E5M2", "%y = arith.sitofp %i : i32 to f8E5M2"])
def test_what_computes_in_eight_bits_stays(op: str) -> None:
    T = "tensor<4xf8E5M2>"
    maps = ", ".join(["affine_map<(i) -> (i)>"] * 2)
    text = f"""func.func @f(%x: {T}) -> {T} {{
  %r = linalg.generic {{indexing_maps = [{maps}], iterator_types = ["parallel"]}} ins(%x : {T}) outs(%x : {T}) {{
    ^bb0(%a: f8E5M2, %b: f8E5M2):
      %i = arith.constant 1 : i32
      {op}
      linalg.yield %y : f8E5M2
  }} -> {T}
  func.return %r : {T}
}}"""
    assert "computes in f8E5M2 (a diagram widens" in str(raised(text, whole=False))


@pytest.mark.parametrize("scalar", ["f32", "%z = arith.constant 1000.0 : f32"])
def test_a_fill_of_eight_bits_does_not_saturate(scalar: str) -> None:
    text = (
        filled(scalar, "f8E4M3FN")
        .replace("linalg.add ins(%x, %f", "linalg.copy ins(%f")
        .replace(", tensor<4xf8E4M3FN>) outs", ") outs")
    )
    assert "arith.truncf to f8E4M3FN does not saturate" in str(raised(text, whole=False))


def test_a_body_that_yields_another_format_stays() -> None:
    text = """func.func @f(%x: tensor<4xf32>, %y: tensor<4xf16>) -> tensor<4xf16> {
  %r = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%x : tensor<4xf32>) outs(%y : tensor<4xf16>) {
    ^bb0(%a: f32, %b: f16):
      linalg.yield %a : f32
  } -> tensor<4xf16>
  func.return %r : tensor<4xf16>
}"""
    assert "its body yields f32, elements are f16" in str(raised(text, whole=False))


def test_a_fill_of_another_format_may_be_neutral() -> None:
    """What starts from the integer 0, cast to f32, starts from nothing."""
    text = "  %no = arith.constant 0 : i32\n  %E = tensor.empty() : tensor<4xf32>\n"
    text += "  %Z = linalg.fill ins(%no : i32) outs(%E : tensor<4xf32>) -> tensor<4xf32>\n"
    text += generic("r", "d0,d1 d0", "pr", "%X", A, "%Z", "tensor<4xf32>", "%y = arith.addf %v0, %v1 : f32")
    assert "diagram.fill" not in str(raised(function(f"%X: {A}", "tensor<4xf32>", text)))


def test_a_dense_constant_is_a_fill() -> None:
    text = "  %Z = arith.constant dense<3.0> : tensor<4xf32>\n"
    text += generic("r", "d0,d1 d0", "pr", "%X", A, "%Z", "tensor<4xf32>", "%y = arith.addf %v0, %v1 : f32")
    x = numbers(1, 4, 8)
    module = raised(function(f"%X: {A}", "tensor<4xf32>", text))
    np.testing.assert_allclose(result(module, x), 3 + x.sum(1), rtol=1e-12)


def test_other_formats_stay() -> None:
    text = "func.func @f(%X: tensor<4xf64>) -> tensor<4xf64> {\n"
    text += "  %Y = linalg.exp ins(%X : tensor<4xf64>) outs(%X : tensor<4xf64>) -> tensor<4xf64>\n"
    module = raised(text + "  func.return %Y : tensor<4xf64>\n}", whole=False)
    assert "elements are f64" in str(module)
