"""Diagrams as `linalg`, and back: the examples give the same numbers, evaluated as `linalg` too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from xdsl.dialects import arith, func, linalg, tensor
from xdsl.dialects.builtin import FloatAttr, IntegerAttr, ModuleOp
from xdsl.ir import Operation, SSAValue

from treadle.compiler.errors import Refusal
from treadle.compiler.source import load_module, make_context, parse_module
from treadle.dialects.diagram import CastOp
from treadle.dialects.diagram.array import axes_of, format_of, sizes_of
from treadle.dialects.diagram.formats import INTEGERS, NUMBER_FORMATS
from treadle.dialects.diagram.read import with_fitting
from treadle.passes.convert_diagram_to_linalg import ConvertDiagramToLinalgPass
from treadle.passes.convert_linalg_to_diagram import ConvertLinalgToDiagramPass
from treadle.passes.diagram_set_sizes import DiagramSetSizesPass
from treadle.passes.linalg.structured import STRUCTURED, structured
from treadle.runtime.interpreter import entry_function, run_function
from treadle.runtime.interpreter.scalars import value_of

SCATTERED = ("attention_paged", "embedding", "experts")
"""What is read where data say, which no map of `linalg` says (`test_scattered_reads.py`)."""
ADDED = ("combine",)
"""What is added up there, which none does either (`test_scatter.py`)."""
PADDED = ("attention_forgetting", "experts_sorted")
"""What reads zeros around an array, which none does either."""
SCANNED = ("attention_stick_breaking",)
"""What is scanned, which no operation of it says."""
RECURRENT = ("delta_rule", "gru")
"""What any function takes from position to position, which none says either (`test_recurrence.py`)."""
EVERY = sorted((Path(__file__).parents[1] / "examples").glob("*.mlir"))
OF_WIDE_PRODUCTS = ("attention_dropout",)
"""What multiplies integers of 64 bits as `linalg`, which no diagram has."""
UNSIGNED = ("matmul_int4",)
"""What `arith` has no types for."""
NONE = (*SCATTERED, *ADDED, *PADDED, *SCANNED, *RECURRENT, *UNSIGNED)
EXAMPLES = [path for path in EVERY if path.stem not in NONE]
SIZES = (2, 3, 4, 5)
"""Of symbolic axes, in turn."""


def inputs_of(module: ModuleOp) -> list[NDArray[Any]]:
    """Small random arguments, one size for each symbolic axis."""
    random = np.random.default_rng(7)
    sizes: dict[str, int] = {}
    found: list[NDArray[Any]] = []
    for argument in entry_function(module).body.block.args:
        for axis, size in sizes_of(argument.type).items():
            sizes.setdefault(axis, size if size >= 0 else SIZES[len(sizes) % len(SIZES)] + 6 * (axis == "s"))
        shape = [sizes[axis] for axis in axes_of(argument.type)]
        format = str(format_of(argument.type))
        made = random.integers(0, 3, shape) if format in INTEGERS else random.normal(size=shape)
        found.append(made.astype(np.int32) if format == "i32" else made)
    return found


class Evaluator:
    """`linalg` by its definition: loops over the reduced axes, whole arrays along the others."""

    def __init__(self) -> None:
        self.values: dict[SSAValue, NDArray[Any]] = {}

    def run(self, function: func.FuncOp, arguments: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        self.values |= zip(function.body.block.args, arguments, strict=True)
        *ops, terminator = function.body.block.ops
        for op in ops:
            self.values[op.results[0]] = self.result(op)
        return [self.values[operand] for operand in terminator.operands]

    def result(self, op: Operation) -> NDArray[Any]:
        if isinstance(op, STRUCTURED):
            return self.loops(op)
        match op:
            case arith.ConstantOp(value=FloatAttr() | IntegerAttr()):
                return np.asarray(op.value.value.data)  # pyright: ignore
            case tensor.DimOp():
                return np.asarray(self.values[op.source].shape[int(self.values[op.index])])
            case tensor.EmptyOp():
                sizes = iter(op.dynamic_sizes)
                shape = [int(self.values[next(sizes)]) if n < 0 else n for n in op.tensor.type.get_shape()]
                return np.full(shape, np.nan)
            case arith.IndexCastOp():
                return self.values[op.operands[0]].astype(np.int32)
            case tensor.ExtractOp():
                assert not op.indices
                return self.values[op.tensor]
            case tensor.ExtractSliceOp():
                sizes = iter(op.sizes)
                assert not op.offsets
                assert not op.strides
                given = (op.static_offsets, op.static_sizes, op.static_strides)
                ends = [int(self.values[next(sizes)]) if n < 0 else n for n in given[1].get_values()]
                taken = zip(given[0].get_values(), ends, given[2].get_values(), strict=True)
                return self.values[op.source][tuple(slice(at, at + step * n, step) for at, n, step in taken)]
            case _:
                return value_of(op, tuple(self.values[operand] for operand in op.operands))

    def loops(self, op: Operation) -> NDArray[Any]:
        what = structured(op)
        operands = [self.values[operand] for operand in what.operands]
        extents = dict[int, int]()
        for array, places in zip(operands, what.places, strict=True):
            extents |= {place.loop: n for place, n in zip(places, array.shape, strict=True) if place.loop is not None}
        kept = [place.loop for place in what.places[-1]]
        start, reduced = operands[-1], sorted(what.reduced)
        grid = dict(zip(kept, np.indices(start.shape), strict=True))
        for at in product(*(range(extents[loop]) for loop in reduced)):
            index: dict[int | None, Any] = {**grid, **dict(zip(reduced, at, strict=True))}
            scalars: dict[SSAValue, NDArray[Any]] = dict(self.values)
            for argument, array, places in zip(what.body.args, [*operands[:-1], start], what.places, strict=True):
                where = [sum(index[loop] * factor for loop, factor in p.terms) + p.constant for p in places]
                element = array[tuple(np.broadcast_to(each, start.shape) for each in where)] if where else array
                scalars[argument] = np.broadcast_to(element, start.shape)
            for inner in list(what.body.ops)[:-1]:
                if isinstance(inner, linalg.ops.IndexOp):
                    scalars[inner.result] = np.broadcast_to(index[inner.dim.value.data], start.shape)
                    continue
                scalars[inner.results[0]] = value_of(inner, tuple(scalars[each] for each in inner.operands))
            start = np.broadcast_to(scalars[what.yielded[0]], start.shape)
        return start


def as_linalg(path: Path, sizes: Mapping[str, int] | None = None) -> ModuleOp:
    """An example as `linalg`, printed and read again; with these sizes, if any are given."""
    module = load_module(path)
    if sizes:
        DiagramSetSizesPass(tuple(f"{axis}={size}" for axis, size in sizes.items())).apply(make_context(), module)
    ConvertDiagramToLinalgPass().apply(make_context(), module)
    module.verify()
    module = parse_module(str(module), "linalg.mlir")
    assert not [op.name for op in module.walk() if op.name.startswith("diagram.")]
    return module


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_nothing_of_ours_is_left_for_another_compiler_to_refuse(path: Path) -> None:
    text = str(as_linalg(path))
    assert "linalg." in text
    assert not [name for name in ("diagram.", "hierarchy.", "cuda.", "derivation") if name in text]


@pytest.mark.sample(20)
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples(path: Path) -> None:
    module = load_module(path)
    arguments = inputs_of(module)
    for op in module.walk():
        if isinstance(op, CastOp):
            op.properties.pop("fixed", None)  # `arith.truncf` says no such thing: over the reals it is the identity
    wanted = run_function(module, arguments).results
    function = entry_function(module)
    found = {}
    for argument, array in zip(function.body.block.args, arguments, strict=True):
        found |= zip(axes_of(argument.type), array.shape, strict=True)
    symbolic = {axis for argument in function.body.block.args for axis, n in sizes_of(argument.type).items() if n < 0}

    lowered = as_linalg(path)
    for result, value in zip(Evaluator().run(entry_function(lowered), arguments), wanted, strict=True):
        np.testing.assert_allclose(result, value, rtol=1e-9, atol=1e-12)
    if path.stem in OF_WIDE_PRODUCTS:
        return
    if any(isinstance(op, tensor.ExtractSliceOp) for op in lowered.walk()):  # of a computed size, which stays
        sizes = with_fitting(function.body.block, found)
        lowered = as_linalg(path, {axis: size for axis, size in sizes.items() if axis in symbolic or axis not in found})
    ConvertLinalgToDiagramPass().apply(make_context(), lowered)
    lowered.verify()
    assert not [op.name for op in lowered.walk() if op.name.startswith(("linalg.", "tensor.", "builtin.unrealized"))]
    for result, value in zip(run_function(lowered, arguments).results, wanted, strict=True):
        np.testing.assert_allclose(result, value, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("format", ["f8E4M3FN", "f8E5M2", "bf16"])
def test_integers_as_floats(format: str) -> None:
    """A cast to 8 bits saturates, and `arith.sitofp` does not: linalg clips in f32."""
    text = f"""!X = tensor<6xi32, #diagram.array<[x]>>
!Y = tensor<6x{format}, #diagram.array<[x]>>
func.func @f(%X: !X) -> !Y {{
  %Y = diagram.cast %X : !X -> !Y
  func.return %Y : !Y
}}"""
    module = parse_module(text)
    ConvertDiagramToLinalgPass().apply(make_context(), module)
    x = np.array([0, 3, -100000, 100000, -7, 448], np.int32)
    largest = NUMBER_FORMATS[format].largest
    wanted = np.clip(x, -largest, largest)
    np.testing.assert_array_equal(Evaluator().run(entry_function(module), [x])[0], wanted)
    ConvertLinalgToDiagramPass().apply(make_context(), module)
    module.verify()
    assert "linalg.generic" not in str(module)
    np.testing.assert_array_equal(run_function(module, [x]).results[0], wanted)


def test_windows() -> None:
    text = """!X = tensor<2x9xf32, #diagram.array<[b, s]>>
!W = tensor<2x4x3xf32, #diagram.array<[b, t, r]>>
func.func @f(%X: !X) -> !W {
  %W = diagram.read %X at "b, 2 * t + r" : !X -> !W
  %Y = diagram.map (%a = %W : !W) -> !W {
    %b = arith.negf %a : f32
    diagram.yield %b : f32
  }
  func.return %Y : !W
}"""
    module = parse_module(text)
    x = np.random.default_rng(1).normal(size=(2, 9))
    ConvertDiagramToLinalgPass().apply(make_context(), module)
    module.verify()
    wanted = -np.stack([x[:, 2 * t : 2 * t + 3] for t in range(4)], axis=1)
    np.testing.assert_array_equal(Evaluator().run(entry_function(module), [x])[0], wanted)


WIDE = """!X = tensor<?x?xf32, #diagram.array<[m, n]>>
!m = tensor<?xf32, #diagram.array<[m]>>
func.func @f(%X: !X, %far: i32) -> (!X, !m) {
  %A = diagram.where %X if "1000000 * n <= 1000000 * m + far" with (far = %far : i32) : !X
  %s = diagram.reduce max %A over [n] : !X -> !m
  func.return %A, %s : !X, !m
}"""


@pytest.mark.parametrize("far", [2**31 - 1, -(2**31), 1_000_000, -1, 0])
def test_conditions_beyond_32_bits(far: int) -> None:
    x = np.random.default_rng(1).normal(size=(6, 9))
    wanted = run_function(parse_module(WIDE), [x, np.int32(far)]).results
    module = parse_module(WIDE)
    ConvertDiagramToLinalgPass().apply(make_context(), module)
    module.verify()
    for result, value in zip(Evaluator().run(entry_function(module), [x, np.int32(far)]), wanted, strict=True):
        np.testing.assert_array_equal(result, value)


@pytest.mark.parametrize("what", ["nan", "inf"])
def test_what_an_absent_element_meets_does_not_matter(what: str) -> None:
    """Zero times NaN would be NaN: the product is left out, not the factor alone."""
    module = parse_module("""!P = tensor<3x4xf32, #diagram.array<[q, x]>>
!V = tensor<4x2xf32, #diagram.array<[x, e]>>
!O = tensor<3x2xf32, #diagram.array<[q, e]>>
func.func @f(%P: !P, %V: !V) -> !O {
  %A = diagram.where %P if "x <= q" : !P
  %O = diagram.contract %A, %V over [x] accumulate f32 : !P, !V -> !O
  func.return %O : !O
}""")
    p, v = np.random.default_rng(1).normal(size=(3, 4)), np.random.default_rng(2).normal(size=(4, 2))
    wanted = np.tril(p) @ v
    p[0, 1] = v[3] = float(what)
    ConvertDiagramToLinalgPass().apply(make_context(), module)
    np.testing.assert_allclose(Evaluator().run(entry_function(module), [p, v])[0], wanted, rtol=1e-12)


def test_a_read_of_absent_elements_is_refused() -> None:
    module = parse_module("""!X = tensor<6xf32, #diagram.array<[x]>>
!W = tensor<4x3xf32, #diagram.array<[t, r]>>
func.func @f(%X: !X) -> !W {
  %A = diagram.where %X if "x != 2" : !X
  %W = diagram.read %A at "t + r" : !X -> !W
  func.return %W : !W
}""")
    with pytest.raises(Refusal, match="put the condition after the read"):
        ConvertDiagramToLinalgPass().apply(make_context(), module)


NUMBERS = """!X = tensor<?x?xf32, #diagram.array<[m, n]>>
!W = tensor<?xf32, #diagram.array<[t]>>
func.func @f(%X: !X, %a: f32) -> (f32, f32, f32, !W, !W) {
  %s = diagram.reduce max %X over [m, n] : !X -> f32
  %t = diagram.reduce add %X over [m, n] into %a : !X -> f32
  %u = diagram.contract %X, %X over [m, n] accumulate f32 into %t : !X, !X -> f32
  %first = diagram.read %X at "0, t" : !X -> !W
  %scaled = diagram.map (%x = %first : !W, %k = %u : f32) -> !W {
    %y = arith.mulf %x, %k : f32
    diagram.yield %y : f32
  }
  func.return %s, %t, %u, %first, %scaled : f32, f32, f32, !W, !W
}"""


def test_numbers_and_constant_places() -> None:
    """A reduction along all axes gives a number, which is no tensor; a read may stay at one place of an axis."""
    x = np.random.default_rng(1).normal(size=(4, 7))
    module = parse_module(NUMBERS)
    ConvertDiagramToLinalgPass().apply(make_context(), module)
    module.verify()
    total = 2.5 + x.sum()
    wanted = [x.max(), total, total + (x * x).sum(), x[0], x[0] * (total + (x * x).sum())]
    results = Evaluator().run(entry_function(module), [x, np.float64(2.5)])
    for result, value in zip(results, wanted, strict=True):
        np.testing.assert_allclose(result, value, rtol=1e-12)


def test_arrays_of_other_operations_are_refused() -> None:
    module = parse_module("""!x = tensor<?xf32, #diagram.array<[x]>>
func.func private @g(%a: !x) -> !x {
  func.return %a : !x
}
func.func @f(%X: !x) -> !x {
  %b = func.call @g(%X) : (!x) -> !x
  %c = diagram.cast %b : !x -> !x
  func.return %c : !x
}""")
    with pytest.raises(Refusal, match="it gives an array, which is no plain tensor: inline the function"):
        ConvertDiagramToLinalgPass().apply(make_context(), module)
