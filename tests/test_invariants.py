"""What the body of a map makes of fewer axes than its result has is made once for these."""

from __future__ import annotations

from pathlib import Path

import pytest
from xdsl.dialects import math
from xdsl.dialects.builtin import ModuleOp

from treadle.compiler.lowering.invariants import invariants_of
from treadle.compiler.pipeline import Options, print_cuda, run_pipeline
from treadle.compiler.source import parse_module
from treadle.dialects import cuda
from treadle.dialects.cuda import kernel_names
from treadle.dialects.diagram import MapOp
from treadle.dialects.diagram.array import axes_of
from treadle.runtime.backend import has_host_compiler
from treadle.runtime.emulator.backend import EmulatorBackend
from treadle.runtime.host import HostExecution
from treadle.runtime.inputs import axis_sizes, make_inputs
from treadle.runtime.interpreter import entry_function
from treadle.runtime.verify import verify

SINK = (Path(__file__).parents[1] / "examples" / "attention_sink.mlir").read_text(encoding="utf-8")


def lowered(arch: str) -> ModuleOp:
    module = parse_module(SINK)
    run_pipeline(module, Options(arch=arch))
    return module


def powers(map: MapOp) -> int:
    return sum(isinstance(op, math.ExpOp | math.Exp2Op) for op in map.body.block.ops)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_the_share_of_a_sink_is_computed_for_each_row(arch: str) -> None:
    """Its power stands in a map over rows, and the quotient of each element reads what that gives."""
    kernels = [op for op in lowered(arch).body.block.ops if isinstance(op, cuda.KernelOp)]
    for kernel in kernels:
        maps = [op for op in kernel.walk() if isinstance(op, MapOp)]
        assert not [op for op in maps if "e" in axes_of(op.result.type) and powers(op)]
        assert [op for op in maps if axes_of(op.result.type) == ("b", "h", "q") and powers(op) and len(op.inputs) > 2]


@pytest.mark.skipif(not has_host_compiler(), reason="no C++ compiler is installed")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("sizes", [{"q": 131, "x": 77}, {"q": 3, "x": 0}])
def test_what_a_sink_gives_is_right(arch: str, sizes: dict[str, int]) -> None:
    """At odd sizes, and without keys, where the sink takes all."""
    algorithm, module = parse_module(SINK), lowered(arch)
    inputs = make_inputs(entry_function(algorithm), axis_sizes(entry_function(algorithm), {"b": 1, "h": 2, **sizes}), 0)
    execution = HostExecution(module, EmulatorBackend(print_cuda(module), kernel_names(module), seed=0))
    outputs = execution.run(entry_function(module), inputs)
    assert all(verdict.ok for verdict in verify(algorithm, inputs, outputs, "emulator"))


def test_they_come_in_the_order_of_the_body() -> None:
    """And in no other where addresses differ: a program gives one text, whenever it is compiled."""
    count = 8
    rows = ", ".join(f"%r{i}: !r" for i in range(count))
    given = ", ".join(f"%b{i} = %r{i} : !r" for i in range(count))
    powers = "\n".join(f"%e{i} = math.exp %b{i} : f32" for i in range(count))
    products = "\n".join(f"%p{i + 1} = arith.mulf %p{i}, %e{i} : f32" for i in range(count))
    module = parse_module(f"""
    !r = tensor<?xf32, #diagram.array<[q]>>
    !A = tensor<?x?xf32, #diagram.array<[q, x]>>
    func.func @f(%A: !A, {rows}) -> !A {{
      %B = diagram.map (%p0 = %A : !A, {given}) -> !A {{
        {powers}
        {products}
        diagram.yield %p{count} : f32
      }}
      func.return %B : !A
    }}""")
    (map,) = [op for op in module.walk() if isinstance(op, MapOp)]
    found = invariants_of(map)
    assert [each.value.name_hint for each in found] == [f"e{i}" for i in range(count)]
    assert {each.axes for each in found} == {("q",)}
