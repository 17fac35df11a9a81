"""Powers of how far elements are from a maximum, of which conditions leave some out, where a multiple of the maximum is
beyond f32, or what is added to the distance is: what numpy says, in f32, operation by operation."""

from __future__ import annotations

import numpy as np
import pytest

from roads import array, compiled

ROWS, KEYS, SUM = array("f32", q=None, x=None), array("i32", x=None), array("f32", q=None)
BODIES = {
    "multiple of a distance": (
        """%t = arith.subf %a, %m : f32
        %u = arith.mulf %t, %two : f32
        %y = math.exp2 %u : f32""",
        lambda a, m: np.exp2((a - m) * np.float32(2)),
    ),
    "distance from a multiple": (
        """%t = arith.mulf %m, %two : f32
        %u = arith.subf %a, %t : f32
        %y = math.exp %u : f32""",
        lambda a, m: np.exp(a - m * np.float32(2)),
    ),
    "added to a distance": (
        """%t = arith.subf %a, %m : f32
        %u = arith.addf %t, %far : f32
        %y = math.exp %u : f32""",
        lambda a, m: np.exp(a - m + np.float32(1000)),
    ),
}


@pytest.mark.parametrize("name", BODIES)
def test_rows_at_the_end_of_all_numbers(name: str) -> None:
    body, plain = BODIES[name]
    road = compiled(f"""
func.func @f(%S: {ROWS}, %k: {KEYS}) -> {SUM} attributes {{sizes = #diagram.sizes<q = 4, x = 100>}} {{
  %W = diagram.where %S if "k[x] == 1" with (k = %k : {KEYS}) : {ROWS}
  %top = diagram.reduce max %W over [x] : {ROWS} -> {SUM}
  %e = diagram.map (%a = %W : {ROWS}, %m = %top : {SUM}) -> {ROWS} {{
    %two = arith.constant 2.0 : f32
    %far = arith.constant 1000.0 : f32
    {body}
    diagram.yield %y : f32
  }}
  %l = diagram.reduce add %e over [x] : {ROWS} -> {SUM}
  func.return %l : {SUM}
}}
""")
    sizes = np.array([-2e38, -3e38, 2e38, 3e38, -1, 1], np.float32)
    rows, kept = np.repeat(sizes[:, None], 300, 1), np.arange(300) % 3 == 0
    (sums,) = road.run((rows, kept.astype(np.int32)))
    with np.errstate(over="ignore", under="ignore"):
        powers = plain(rows[:, kept], rows[:, :1])
        np.testing.assert_allclose(sums, powers.sum(1, dtype=np.float32), rtol=1e-5)
