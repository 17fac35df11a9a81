"""What each scalar operation adds to a bound: which rule it follows, and how accurate its instructions are."""

from __future__ import annotations

from xdsl.dialects import arith, math
from xdsl.ir import Operation

from treadle.runtime.interpreter.bounds import spreads
from treadle.runtime.interpreter.bounds.spreads import Spread
from treadle.runtime.interpreter.bounds.units import APPROXIMATE, EXPONENTIAL, FUNCTION, QUOTIENT
from treadle.runtime.interpreter.scalars import UNARY

_MONOTONE = (
    math.ExpOp,
    math.Exp2Op,
    math.ExpM1Op,
    math.CbrtOp,
    math.AtanOp,
    math.SinhOp,
    math.TanhOp,
    math.AsinhOp,
    math.ErfOp,
    math.CeilOp,
    math.FloorOp,
    math.TruncOp,
    math.RoundOp,
    math.RoundEvenOp,
    arith.FPToSIOp,
    arith.FPToUIOp,
)

SPREAD: dict[type[Operation], Spread] = {
    **dict.fromkeys(_MONOTONE, spreads.corners),
    **dict.fromkeys((math.LogOp, math.Log2Op, math.Log10Op, math.SqrtOp), spreads.corners_and(0.0)),
    math.RsqrtOp: spreads.reciprocal_root,
    **dict.fromkeys((math.AsinOp, math.AcosOp, math.AtanhOp), spreads.corners_and(-1.0, 1.0)),
    math.Log1pOp: spreads.corners_and(-1.0),
    math.AcoshOp: spreads.corners_and(1.0),
    math.CoshOp: spreads.corners_and(0.0),
    math.AbsFOp: spreads.corners_and(0.0),
    math.SinOp: spreads.wave,
    math.CosOp: spreads.wave,
    math.TanOp: spreads.tangent,
    math.CopySignOp: spreads.sign_of,
    math.PowFOp: spreads.power,
    math.FPowIOp: spreads.power,
    math.FmaOp: spreads.fused,
    arith.AddfOp: spreads.sum_of,
    arith.SubfOp: spreads.difference,
    arith.MulfOp: spreads.product,
    arith.DivfOp: spreads.quotient,
    arith.NegfOp: spreads.as_first,
    arith.ExtFOp: spreads.as_first,
    arith.TruncFOp: spreads.as_first,
    arith.SIToFPOp: spreads.as_first,
    arith.UIToFPOp: spreads.as_first,
    arith.MaximumfOp: spreads.larger,
    arith.MinimumfOp: spreads.larger,
    arith.MaxnumfOp: spreads.larger,
    arith.MinnumfOp: spreads.larger,
    arith.SelectOp: spreads.choice,
    arith.CmpfOp: spreads.comparison,
    arith.CmpiOp: spreads.comparison,
    arith.AddiOp: spreads.sum_of,
    arith.SubiOp: spreads.sum_of,
    arith.MuliOp: spreads.product,
    arith.IndexCastOp: spreads.as_first,
    arith.ExtSIOp: spreads.as_first,
    arith.ExtUIOp: spreads.as_first,
}
"""How each operation passes bounds on; for others see `all_or_nothing`."""

EXACT: frozenset[type[Operation]] = frozenset(
    {
        arith.NegfOp,
        arith.ExtFOp,
        arith.MaximumfOp,
        arith.MinimumfOp,
        arith.MaxnumfOp,
        arith.MinnumfOp,
        arith.SelectOp,
        math.AbsFOp,
        math.CopySignOp,
        math.CeilOp,
        math.FloorOp,
        math.TruncOp,
        math.RoundOp,
        math.RoundEvenOp,
    }
)
"""Operations that do not round."""

_ARITHMETIC = frozenset(
    {
        arith.AddfOp,
        arith.SubfOp,
        arith.MulfOp,
        arith.TruncFOp,
        arith.SIToFPOp,
        arith.UIToFPOp,
        math.FmaOp,
    }
)

RELATIVE: dict[type[Operation], float] = {
    **{kind: FUNCTION for kind in UNARY if kind.name.startswith("math.") and kind not in EXACT | _ARITHMETIC},
    arith.DivfOp: QUOTIENT,
    **dict.fromkeys((math.PowFOp, math.FPowIOp, math.Atan2Op), FUNCTION),
    math.SqrtOp: APPROXIMATE,
    math.RsqrtOp: APPROXIMATE,
    math.ExpOp: EXPONENTIAL,
    math.Exp2Op: EXPONENTIAL,
    math.LogOp: EXPONENTIAL,
    math.Log2Op: EXPONENTIAL,
}
"""Relative error of an instruction beyond the rounding of its result."""

ABSOLUTE: dict[type[Operation], float] = {
    math.SinOp: FUNCTION,
    math.CosOp: FUNCTION,
    math.LogOp: EXPONENTIAL,
    math.Log2Op: EXPONENTIAL,
    math.Log10Op: EXPONENTIAL,
    math.ErfOp: FUNCTION,
    math.TanhOp: FUNCTION,
    math.SinhOp: FUNCTION,
}
"""Absolute error, for what crosses zero and is computed from something that does not. `log1p` and `expm1` are not: that
is what they are for."""

ARGUMENT: dict[type[Operation], float] = {
    math.ExpOp: APPROXIMATE,
    math.SinhOp: APPROXIMATE,
    math.CoshOp: APPROXIMATE,
}
"""Error relative to argument and result, for what scales its argument first."""
