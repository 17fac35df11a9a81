"""Kernels tile by tile: the same results as the diagram, and exactly the transfers that the closed forms
(docs: theory, section 4) give where sizes divide, with ceilings where they do not."""

from __future__ import annotations

from math import ceil

import numpy as np
import pytest
import torch
from xdsl.utils.arg_spec import ArgSpec

import treadle
from treadle.compiler.errors import TreadleError
from treadle.compiler.pipeline import Options, run_passes, run_pipeline
from treadle.compiler.source import parse_module
from treadle.runtime.interpreter import Execution, run_function, run_with_bounds

EXPANDING = "hierarchy-expand-streams"
RANDOM = np.random.default_rng(11)


def normal(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape)


def array(axes: dict[str, str | int], format: str = "f32", level: str = "device", kind: str = "tensor") -> str:
    """`tensor<?x64xf32, #diagram.array<[q, d], level = device>>`"""
    dims = "".join(f"{size}x" for size in axes.values())
    return f"{kind}<{dims}{format}, #diagram.array<[{', '.join(axes)}], level = {level}>>"


def attention(gq: int, sx: int, d: int = 64) -> str:
    """Online softmax, weaved over batch and heads; d and e held whole."""
    one, b = {"b": 1, "h": 1}, {"b": "?", "h": "?"}
    return f"""
!Q = {array({**b, "q": "?", "d": d}, "f16")}
!K = {array({**b, "x": "?", "d": d}, "f16")}
!V = {array({**b, "x": "?", "e": d}, "f16")}
!O = {array({**b, "q": "?", "e": d}, "f16")}
!Om = {array({**b, "q": "?", "e": d}, "f16", kind="memref")}
!q = {array({**one, "q": gq, "d": d}, "f16", "shared")}
!k = {array({**one, "x": sx, "d": d}, "f16", "shared")}
!v = {array({**one, "x": sx, "e": d}, "f16", "shared")}
!s = {array({**one, "q": gq, "x": sx}, "f32", "register")}
!p = {array({**one, "q": gq, "x": sx}, "f16", "register")}
!r = {array({**one, "q": gq}, "f32", "register")}
!a = {array({**one, "q": gq, "e": d}, "f32", "register")}
!o = {array({**one, "q": gq, "e": d}, "f16", "register")}
func.func @attention(%Q: !Q, %K: !K, %V: !V) -> !O {{
  %O = hierarchy.kernel @attention (%q = %Q : !Q, %k = %K : !K, %v = %V : !V) saves (%out : !Om) -> (!O) {{
    hierarchy.group [b = 1, h = 1, q = {gq}] {{
      %qt = hierarchy.load %q : !Q -> !q
      %o = hierarchy.stream [x = {sx}] -> (!o) initialise {{
        %m = diagram.fill 0xFF800000 : f32 -> !r
        %l = diagram.fill 0.0 : f32 -> !r
        %acc = diagram.fill 0.0 : f32 -> !a
        hierarchy.yield %m, %l, %acc : !r, !r, !a
      }} step (%m : !r, %l : !r, %acc : !a) {{
        %kt = hierarchy.load %k : !K -> !k
        %s = diagram.contract %qt, %kt over [d] accumulate f32 : !q, !k -> !s
        %t = diagram.map (%y = %s : !s) -> !s {{
          %c = arith.constant 0.125 : f32
          %z = arith.mulf %y, %c : f32
          diagram.yield %z : f32
        }}
        %m2 = diagram.reduce max %t over [x] into %m : !s -> !r
        %e = diagram.map (%y = %t : !s, %n = %m2 : !r) -> !s {{
          %z = arith.subf %y, %n : f32
          %w = math.exp %z : f32
          diagram.yield %w : f32
        }}
        %f = diagram.map (%old = %m : !r, %new = %m2 : !r) -> !r {{
          %z = arith.subf %old, %new : f32
          %w = math.exp %z : f32
          diagram.yield %w : f32
        }}
        %lf = diagram.map (%y = %l : !r, %z = %f : !r) -> !r {{
          %w = arith.mulf %y, %z : f32
          diagram.yield %w : f32
        }}
        %l2 = diagram.reduce add %e over [x] into %lf : !s -> !r
        %af = diagram.map (%y = %acc : !a, %z = %f : !r) -> !a {{
          %w = arith.mulf %y, %z : f32
          diagram.yield %w : f32
        }}
        %p = diagram.cast %e : !s -> !p
        %vt = hierarchy.load %v : !V -> !v
        %a2 = diagram.contract %p, %vt over [x] accumulate f32 into %af : !p, !v -> !a
        hierarchy.yield %m2, %l2, %a2 : !r, !r, !a
      }} finish (%m : !r, %l : !r, %acc : !a) {{
        %y = diagram.map (%n = %acc : !a, %z = %l : !r) -> !a {{
          %w = arith.divf %n, %z : f32
          diagram.yield %w : f32
        }}
        %h = diagram.cast %y : !a -> !o
        hierarchy.yield %h : !o
      }}
      hierarchy.save %o into %out : !o, !Om
    }}
    hierarchy.yield
  }}
  func.return %O : !O
}}"""


@pytest.mark.parametrize(
    ("q", "x", "gq", "sx"), [(200, 333, 64, 64), (128, 128, 64, 32), (1, 1, 16, 16), (65, 63, 64, 64)]
)
def test_attention_streams_as_it_should_and_moves_what_it_should(q, x, gq, sx):
    b, h, d = 2, 3, 64
    inputs = normal(b, h, q, d), normal(b, h, x, d), normal(b, h, x, d)
    run = run_function(parse_module(attention(gq, sx)), inputs)
    expected = torch.nn.functional.scaled_dot_product_attention(*map(torch.tensor, inputs))
    np.testing.assert_allclose(run.results[0], expected.numpy(), rtol=1e-11, atol=1e-13)
    (moved,) = run.transfers
    assert moved.kernel == "attention"
    assert moved.loaded == {"shared": b * h * (q * d + 2 * x * d * ceil(q / gq))}
    assert moved.saved == {"register": b * h * q * d}
    assert moved.loaded_bytes == {"shared": 2 * moved.loaded["shared"]}
    assert moved.bytes == 2 * moved.values
    if q % gq == 0:
        assert moved.values == b * h * (2 * q * d + 2 * x * d * q // gq)


def matmul(ga: int, gc: int, sb: int) -> str:
    return f"""
!A = {array({"a": "?", "b": "?"})}
!B = {array({"b": "?", "c": "?"})}
!C = {array({"a": "?", "c": "?"})}
!Cm = {array({"a": "?", "c": "?"}, kind="memref")}
!at = {array({"a": ga, "b": sb}, level="shared")}
!bt = {array({"b": sb, "c": gc}, level="shared")}
!ct = {array({"a": ga, "c": gc}, level="register")}
func.func @matmul(%A: !A, %B: !B) -> !C {{
  %C = hierarchy.kernel @matmul (%l = %A : !A, %r = %B : !B) saves (%out : !Cm) -> (!C) {{
    hierarchy.group [a = {ga}, c = {gc}] {{
      %c = hierarchy.stream [b = {sb}] -> (!ct) initialise {{
        %zero = diagram.fill 0.0 : f32 -> !ct
        hierarchy.yield %zero : !ct
      }} step (%acc : !ct) {{
        %x = hierarchy.load %l : !A -> !at
        %y = hierarchy.load %r : !B -> !bt
        %next = diagram.contract %x, %y over [b] accumulate f32 into %acc : !at, !bt -> !ct
        hierarchy.yield %next : !ct
      }} finish (%acc : !ct) {{
        hierarchy.yield %acc : !ct
      }}
      hierarchy.save %c into %out : !ct, !Cm
    }}
    hierarchy.yield
  }}
  func.return %C : !C
}}"""


def run_matmul(a: int, b: int, c: int, **tiles: int) -> tuple[np.ndarray, Execution]:
    left, right = normal(a, b), normal(b, c)
    return left @ right, run_function(parse_module(matmul(**tiles)), [left, right])


@pytest.mark.parametrize(("a", "b", "c"), [(64, 64, 64), (65, 33, 47), (1, 7, 129), (5, 0, 3), (0, 4, 4)])
def test_matmul(a, b, c):
    expected, run = run_matmul(a, b, c, ga=32, gc=16, sb=8)
    np.testing.assert_allclose(run.results[0], expected, rtol=1e-10, atol=1e-13)
    (moved,) = run.transfers
    assert sum(moved.loaded.values()) == a * b * ceil(c / 16) + b * c * ceil(a / 32)
    assert sum(moved.saved.values()) == a * c


TWO_PASS = f"""
!S = {array({"q": "?", "x": "?"})}
!Pm = {array({"q": "?", "x": "?"}, kind="memref")}
!st = {array({"q": 8, "x": 16}, level="register")}
!rt = {array({"q": 8}, level="register")}
func.func @softmax(%S: !S) -> !S {{
  %P = hierarchy.kernel @softmax (%s = %S : !S) saves (%out : !Pm) -> (!S) {{
    hierarchy.group [q = 8] {{
      %m, %l = hierarchy.stream [x = 16] -> (!rt, !rt) initialise {{
        %m = diagram.fill 0xFF800000 : f32 -> !rt
        %l = diagram.fill 0.0 : f32 -> !rt
        hierarchy.yield %m, %l : !rt, !rt
      }} step (%m : !rt, %l : !rt) {{
        %t = hierarchy.load %s : !S -> !st
        %m2 = diagram.reduce max %t over [x] into %m : !st -> !rt
        %lf = diagram.map (%y = %l : !rt, %o = %m : !rt, %n = %m2 : !rt) -> !rt {{
          %z = arith.subf %o, %n : f32
          %f = math.exp %z : f32
          %w = arith.mulf %y, %f : f32
          diagram.yield %w : f32
        }}
        %e = diagram.map (%y = %t : !st, %n = %m2 : !rt) -> !st {{
          %z = arith.subf %y, %n : f32
          %w = math.exp %z : f32
          diagram.yield %w : f32
        }}
        %l2 = diagram.reduce add %e over [x] into %lf : !st -> !rt
        hierarchy.yield %m2, %l2 : !rt, !rt
      }} finish (%m : !rt, %l : !rt) {{
        hierarchy.yield %m, %l : !rt, !rt
      }}
      hierarchy.stream [x = 16] initialise {{
        hierarchy.yield
      }} step {{
        %t = hierarchy.load %s : !S -> !st
        %p = diagram.map (%y = %t : !st, %n = %m : !rt, %k = %l : !rt) -> !st {{
          %z = arith.subf %y, %n : f32
          %f = math.exp %z : f32
          %w = arith.divf %f, %k : f32
          diagram.yield %w : f32
        }}
        hierarchy.save %p into %out : !st, !Pm
        hierarchy.yield
      }} finish {{
        hierarchy.yield
      }}
    }}
    hierarchy.yield
  }}
  func.return %P : !S
}}"""


@pytest.mark.parametrize(("q", "x"), [(8, 16), (13, 37), (3, 5), (9, 0), (0, 9)])
def test_softmax_in_two_streams_reads_twice_and_writes_once(q, x):
    s = normal(q, x)
    run = run_function(parse_module(TWO_PASS), [s])
    np.testing.assert_allclose(run.results[0], torch.softmax(torch.tensor(s), 1).numpy(), rtol=1e-12)
    assert sum(run.transfers[0].loaded.values()) == 2 * q * x
    assert sum(run.transfers[0].saved.values()) == q * x


# -- what a wrong pass would do --------------------------------------------------------------------


def copy_kernel(group: str, body: str) -> str:
    return f"""
!A = {array({"a": "?", "b": "?"})}
!Am = {array({"a": "?", "b": "?"}, kind="memref")}
!t = {array({"a": 4, "b": 4}, level="register")}
!w = {array({"a": 4, "b": "?"}, level="register")}
func.func @copy(%A: !A) -> !A {{
  %C = hierarchy.kernel @copy (%s = %A : !A) saves (%out : !Am) -> (!A) {{
    hierarchy.group {group} {{ {body} }}
    hierarchy.yield
  }}
  func.return %C : !A
}}"""


def test_an_element_that_nobody_saves():
    text = copy_kernel(
        "[a = 4]",
        """hierarchy.stream [b = 4] initialise { hierarchy.yield } step {
             %t = hierarchy.load %s : !A -> !t
             hierarchy.yield
           } finish { hierarchy.yield }""",
    )
    with pytest.raises(TreadleError, match=r"35 elements of out were never saved; the first is out\[a=0, b=0\]"):
        run_function(parse_module(text), [normal(5, 7)])


def test_two_groups_that_save_the_same_element():
    text = copy_kernel("[a = 4, b = 4]", "%t = hierarchy.load %s : !A -> !t hierarchy.save %t into %out : !t, !Am")
    (result,) = run_function(parse_module(text), [a := normal(5, 7)]).results
    np.testing.assert_array_equal(result, a)
    text = f"""
!A = {array({"a": "?", "b": "?"})}
!r = {array({"a": "?"}, level="register")}
!R = {array({"a": "?"})}
!Rm = {array({"a": "?"}, kind="memref")}
!w = {array({"a": "?", "b": 4}, level="register")}
func.func @sum(%A: !A) -> !R {{
  %C = hierarchy.kernel @sum (%s = %A : !A) saves (%out : !Rm) -> (!R) {{
    hierarchy.group [b = 4] {{
      %t = hierarchy.load %s : !A -> !w
      %u = diagram.reduce add %t over [b] : !w -> !r
      hierarchy.save %u into %out : !r, !Rm
    }}
    hierarchy.yield
  }}
  func.return %C : !R
}}"""
    with pytest.raises(TreadleError, match=r"two groups save the same element, \[a=0\]"):
        run_function(parse_module(text), [normal(5, 7)])


def test_a_tile_kept_from_another_piece_is_noticed():
    text = copy_kernel(
        "[a = 4]",
        """%o = hierarchy.stream [b = 4] -> (!t) initialise {
             %z = diagram.fill 0.0 : f32 -> !t
             hierarchy.yield %z : !t
           } step (%old : !t) {
             %t = hierarchy.load %s : !A -> !t
             %u = diagram.map (%x = %t : !t, %y = %old : !t) -> !t {
               %z = arith.addf %x, %y : f32
               diagram.yield %z : f32
             }
             hierarchy.yield %u : !t
           } finish (%end : !t) { hierarchy.yield %end : !t }""",
    )
    with pytest.raises(TreadleError, match="axis 'b'"):
        run_function(parse_module(text), [normal(5, 7)])


def test_bounds_belong_to_the_algorithm():
    with pytest.raises(TreadleError, match="before its streams are expanded"):
        run_with_bounds(parse_module(matmul(32, 16, 8)), [normal(5, 6), normal(6, 7)])


# -- decorated kernels, and the rest ---------------------------------------------------------------


def test_a_decorated_kernel_runs_as_its_body():
    text = f"""
!A = tensor<?x?xf32, #diagram.array<[a, b]>>
!D = {array({"a": "?", "b": "?"})}
!R = {array({"a": "?", "b": "?"}, level="register")}
func.func @f(%A: !A) -> !A {{
  %B = hierarchy.kernel @f (%s = %A : !A as !D) -> (!A)
      schedule #hierarchy.schedule<group = [a = ?], stream = [b = ?]> {{
    %p = diagram.apply @softmax(%s) over [b] : (!D) -> !R
    hierarchy.yield %p : !R
  }}
  func.return %B : !A
}}"""
    a = normal(5, 7)
    run = run_function(parse_module(text), [a])
    np.testing.assert_allclose(run.results[0], torch.softmax(torch.tensor(a), 1).numpy(), rtol=1e-12)
    assert run.transfers[0].values == 0
    (bounded,) = run_with_bounds(parse_module(text), [a])
    assert (bounded.error > 0).all()


def test_extent_is_the_whole_axis():
    text = f"""
!A = {array({"a": "?", "b": "?"})}
!Am = {array({"a": "?", "b": "?"}, kind="memref")}
!t = {array({"a": 4, "b": 4}, level="register")}
func.func @f(%A: !A) -> !A {{
  %C = hierarchy.kernel @f (%s = %A : !A) saves (%out : !Am) -> (!A) {{
    %n = diagram.extent "b" : i32
    hierarchy.group [a = 4, b = 4] {{
      %u = diagram.map (%k = %n : i32) -> !t {{
        %z = arith.sitofp %k : i32 to f32
        diagram.yield %z : f32
      }}
      hierarchy.save %u into %out : !t, !Am
    }}
    hierarchy.yield
  }}
  func.return %C : !A
}}"""
    np.testing.assert_array_equal(run_function(parse_module(text), [normal(5, 7)]).results[0], 7)


def along_an_axis_of_its_own(size: int) -> str:
    return f"""
!a = tensor<3xf32, #diagram.array<[q]>>
!b = tensor<3x{size}xf32, #diagram.array<[q, c]>>
func.func @f(%A: !a) -> !a {{
  %B = diagram.map (%x = %A : !a) -> !b {{
    diagram.yield %x : f32
  }}
  %W = diagram.where %B if "c >= q" : !b
  %S = diagram.reduce add %W over [c] : !b -> !a
  func.return %S : !a
}}"""


def test_an_axis_that_only_a_kernel_has() -> None:
    """A map may add it; where it is cut into pieces, nothing is left that says how long it is."""
    module = parse_module(along_an_axis_of_its_own(300))
    given = normal(3).astype(np.float32)
    run_pipeline(module, Options(), last="streaming")
    assert any(op.name == "hierarchy.kernel" for op in module.walk())
    (result,) = run_function(module, [given]).results
    np.testing.assert_allclose(result, given * [300, 299, 298], rtol=1e-6)
    with pytest.raises(TreadleError, match="reduces constants along 'c'"):
        run_passes(module, [ArgSpec(name, {}) for name in ("tiling", "hierarchy-choose-sizes", EXPANDING)])


def test_a_short_axis_that_only_a_kernel_has_is_held_whole() -> None:
    given = normal(3).astype(np.float32)
    for machine in ("a100", "h100"):
        found = treadle.compile(along_an_axis_of_its_own(8), machine=machine).run(given, backend="emulator")
        np.testing.assert_allclose(found, given * [8, 7, 6], rtol=1e-6)
