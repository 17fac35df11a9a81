"""What reads one array alike is one kernel, which reads it once."""

from __future__ import annotations

import pytest

import treadle
from roads import Road, array, compiled
from treadle.runtime.backend import has_host_compiler

needs_compiler = pytest.mark.skipif(not has_host_compiler(), reason="no C++ compiler is installed")
X, R = array("f32", row=None, x=None), array("f32", row=None)
SIZES = [{"row": 1, "x": 1}, {"row": 17, "x": 65}, {"row": 3, "x": 5000}, {"row": 5, "x": 0}]

RANGE = f"""
func.func @range(%X: {X}) -> ({R}, {R}, {R}) attributes {{sizes = #diagram.sizes<row = 77, x = 333>}} {{
  %most = diagram.reduce max %X over [x] : {X} -> {R}
  %least = diagram.reduce min %X over [x] : {X} -> {R}
  %E = diagram.map (%a = %X : {X}) -> {X} {{
    %e = math.exp %a : f32
    diagram.yield %e : f32
  }}
  %sum = diagram.reduce add %E over [x] : {X} -> {R}
  func.return %most, %least, %sum : {R}, {R}, {R}
}}
"""

WAVES = f"""
func.func @waves(%X: {X}) -> ({X}, {X}) attributes {{sizes = #diagram.sizes<row = 77, x = 333>}} {{
  %sin = diagram.map (%a = %X : {X}) -> {X} {{
    %y = math.sin %a : f32
    diagram.yield %y : f32
  }}
  %cos = diagram.map (%a = %X : {X}) -> {X} {{
    %y = math.cos %a : f32
    diagram.yield %y : f32
  }}
  func.return %sin, %cos : {X}, {X}
}}
"""

ACROSS = f"""
func.func @across(%X: {X}) -> ({R}, {array("f32", x=None)}) attributes {{sizes = #diagram.sizes<row = 77, x = 333>}} {{
  %rows = diagram.reduce add %X over [x] : {X} -> {R}
  %columns = diagram.reduce add %X over [row] : {X} -> {array("f32", x=None)}
  func.return %rows, %columns : {R}, {array("f32", x=None)}
}}
"""


@needs_compiler
@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("text", [RANGE, WAVES], ids=["range", "waves"])
def test_one_kernel_for_all_that_read_alike(text: str, machine: str):
    road: Road = compiled(text, machine=machine)
    assert len(road.kernels) == 1
    for sizes in SIZES:
        road.check(sizes)


@needs_compiler
def test_rows_and_columns_are_walked_apart():
    road = compiled(ACROSS, machine="a100")
    assert len(road.kernels) == 2
    road.check({"row": 17, "x": 65})


@pytest.mark.parametrize(("text", "results"), [(RANGE, 3 * 77), (WAVES, 2 * 77 * 333)], ids=["range", "waves"])
def test_the_array_is_read_once(text: str, results: int):
    (kernel,) = treadle.compile(text, machine="a100").cost().kernels
    (device,) = (level for level in kernel.levels if level.name == "device")
    assert device.transfer_values == 77 * 333 + results
