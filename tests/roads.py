"""The whole road in one call, for tests: text in, kernels printed and run in the emulator, results verified."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from treadle.compiler.pipeline import Options, print_cuda, run_pipeline
from treadle.compiler.source import parse_module
from treadle.dialects import cuda
from treadle.dialects.cuda import kernel_names
from treadle.dialects.diagram import ReadOp
from treadle.dialects.diagram.array import DYNAMIC, axes_of, sizes_of
from treadle.dialects.diagram.read import with_fitting
from treadle.runtime.coarse import EMULATED, coarse_sums
from treadle.runtime.emulator.backend import EmulatorBackend
from treadle.runtime.host import execute
from treadle.runtime.inputs import Input, axis_sizes, make_inputs
from treadle.runtime.interpreter import entry_function
from treadle.runtime.verify import Verdict, verify


def fitting(function: FuncOp, chosen: Mapping[str, int]) -> dict[str, int]:
    """Sizes with which every read stays inside: an axis that a read makes has as many elements as fit, even if inputs
    have it, too."""
    block = function.body.block
    reads = [op for op in block.ops if isinstance(op, ReadOp) and not op.is_padded]
    made = {axis for op in reads for axis in set(axes_of(op.result.type)) - set(axes_of(op.operand.type))}
    static = {axis: size for value in block.args for axis, size in sizes_of(value.type).items() if size != DYNAMIC}
    known = with_fitting(block, static | {axis: size for axis, size in chosen.items() if axis not in made})
    return {axis: known[axis] if axis in made else size for axis, size in chosen.items()}


@dataclass
class Road:
    """A program, compiled once; it runs at any size of its symbolic axes."""

    algorithm: ModuleOp
    module: ModuleOp
    text: str
    backends: dict[bool, EmulatorBackend] = field(default_factory=dict[bool, EmulatorBackend])

    @property
    def kernels(self) -> list[cuda.KernelOp]:
        return [op for op in self.module.body.block.ops if isinstance(op, cuda.KernelOp)]

    @property
    def symbolic(self) -> list[str]:
        """Axes whose sizes are chosen for each run."""
        types = entry_function(self.algorithm).function_type.inputs
        return list(dict.fromkeys(axis for type in types for axis, size in sizes_of(type).items() if size == DYNAMIC))

    def backend(self, checks: bool = True) -> EmulatorBackend:
        if checks not in self.backends:
            self.backends[checks] = EmulatorBackend(self.text, kernel_names(self.module), checks=checks)
        return self.backends[checks]

    def inputs(self, sizes: Mapping[str, int], seed: int = 0) -> tuple[Input, ...]:
        function = entry_function(self.algorithm)
        return make_inputs(function, axis_sizes(function, sizes), seed)

    def run(self, inputs: Sequence[Any], checks: bool = True) -> tuple[Any, ...]:
        plain = [given if isinstance(given, np.ndarray) else np.asarray(given).item() for given in inputs]
        return execute(self.module, plain, self.backend(checks))

    def verdicts(self, inputs: Sequence[Any], sizes: Mapping[str, int] | None = None) -> tuple[Verdict, ...]:
        outputs = self.run(inputs)
        coarse = coarse_sums(self.text, self.backend().variants, EMULATED)
        return verify(self.algorithm, inputs, outputs, "emulator", sizes=sizes, coarse=coarse)

    def check(self, sizes: Mapping[str, int], seed: int = 0) -> None:
        """Run at these sizes on random inputs, and compare with the reference."""
        for verdict in self.verdicts(self.inputs(sizes, seed), sizes):
            assert verdict.ok, f"{dict(sizes)}: {verdict}"


def compiled(text: str, **options: Any) -> Road:
    """A program through the whole pipeline and the printer."""
    algorithm = parse_module(text)
    module = algorithm.clone()
    run_pipeline(module, Options(**options))
    return Road(algorithm, module, print_cuda(module))


def main_entry(text: str) -> str:
    """A printed file without the entries for arrays that are aligned to less: nvcc compiles each by itself."""
    first, *others = re.split(r'(?=^extern "C" __global__)', text, flags=re.MULTILINE)
    kept = others[0]
    return first + kept[: kept.index("\n}\n") + 3]


def alone(printed: str, ending: str = "_specialised") -> str:
    """A printed file with the entries whose names end so, as a regular expression has it: others would only be
    compiled."""
    for each in re.findall(r'(?ms)^extern "C" __global__ .*?^}\n', printed):
        name = re.findall(r"(\w+)\(", each.splitlines()[0])[-1]
        printed = printed if re.search(f"{ending}$", name) else printed.replace(each, "")
    return printed


def array(format: str, **sizes: int | None) -> str:
    """The type of an array: `array("f16", q=None, d=64)`; None is a symbolic axis."""
    shape = "".join(f"{'?' if size is None else size}x" for size in sizes.values())
    return f"tensor<{shape}{format}, #diagram.array<[{', '.join(sizes)}]>>"


def attention(d: int, e: int, format: str, scale: str = "0.125", tf32: bool = False, batch: Sequence[str] = ()) -> str:
    """softmax(scale Q K^T) V, weaved over `batch`; `scale` is a number, or `%scale`, an argument."""
    weaved: dict[str, int | None] = dict.fromkeys(batch)
    runtime = scale.startswith("%")
    scores, out = array("f32", **weaved, q=None, x=None), array("f32", **weaved, q=None, e=e)
    near, result = array(format, **weaved, q=None, x=None), array(format, **weaved, q=None, e=e)
    q, k, v = (
        array(format, **weaved, q=None, d=d),
        array(format, **weaved, x=None, d=d),
        array(format, **weaved, x=None, e=e),
    )
    factor = "" if runtime else f"%c = arith.constant {scale} : f32"
    extra = ", %scale: f32" if runtime else ""
    cast_in = "" if format == "f32" else f"%P16 = diagram.cast %P : {scores} -> {near}"
    cast_out = "" if format == "f32" else f"%O = diagram.cast %A : {out} -> {result}"
    as_tf32 = " as tf32" if tf32 else ""
    inner, last = ("%P", "%A") if format == "f32" else ("%P16", "%O")
    taken = ", %c = %scale : f32" if runtime else ""
    return f"""
func.func @attention(%Q: {q}, %K: {k}, %V: {v}{extra}) -> {result} {{
  %S = diagram.contract %Q, %K over [d] accumulate f32{as_tf32} : {q}, {k} -> {scores}
  %T = diagram.map (%s = %S : {scores}{taken}) -> {scores} {{
    {factor}
    %t = arith.mulf %s, %c : f32
    diagram.yield %t : f32
  }}
  %P = diagram.apply @softmax(%T) over [x] : ({scores}) -> {scores}
  {cast_in}
  %A = diagram.contract {inner}, %V over [x] accumulate f32{as_tf32} : {near}, {v} -> {out}
  {cast_out}
  func.return {last} : {result}
}}
"""


def matmul(lhs: str, rhs: str, format: str, out: str = "mn", tf32: bool = False, **static: int) -> str:
    """A product over `k`; `lhs`, `rhs` and `out` are the axes in the order of each array, a letter an axis."""

    def type(axes: str, format: str) -> str:
        return array(format, **{axis: static.get(axis) for axis in axes})

    left, right = type(lhs, format), type(rhs, format)
    accumulate = "i32" if format == "i32" else "f32"
    how = f"accumulate {accumulate}{' as tf32' if tf32 else ''}"
    result = type(out, accumulate)
    return f"""
func.func @product(%A: {left}, %B: {right}) -> {result} {{
  %C = diagram.contract %A, %B over [k] {how} : {left}, {right} -> {result}
  func.return %C : {result}
}}
"""
