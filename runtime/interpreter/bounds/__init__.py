"""How far a computed element may be from the float64 reference: a running error analysis.

Beside each value stands a bound `e`, so that whatever a correct kernel computes lies in `[v - e, v + e]`.
Arguments are exact: they are already in their formats. Every operation passes its operands' bounds on,
worst case, and adds its own rounding, by the format that the IR states.

What the units are, and why they are not smaller:

- A rounding to nearest: `u |v|` with u = 2^-4 (f8E4M3FN), 2^-3 (f8E5M2), 2^-11 (f16), 2^-8 (bf16), 2^-24 (f32), plus
  half the smallest subnormal; for f32 and bf16 the smallest *normal* number, because `.ftz` instructions flush.
- A product on tensor cores: 2^-23 for each term in f32. They align the products of a step to the largest
  (with a bit to spare since sm_80) and truncate: for a step of 8, (9 2^-24 + 2^-23) / 8 a term. f32 operands
  multiply on the ordinary cores (2^-24), unless the IR says tf32, which rounds each operand to 2^-11 first.
  Of 8-bit operands they keep about 14 bits of a sum, so 2^-13 a term, if what ran, on a GPU or in the emulator, had
  such products and not those of f16. Where sums of N are promoted, N terms of 2^-13, and 2^-24 for each such sum.
- A sum of n elements, in any order: n roundings of a partial sum, which is at most the sum of the positive
  elements or of the negative ones. No order is assumed, so that splitting, streaming and shuffling need no
  bound of their own; it grows with n, where a lucky order would grow with its square root. Of nothing but exact zeros,
  as where no element is there, it is exact: so a mean of none is known to be NaN.
- A product of n elements, in any order: n roundings, and no bound where an order leaves the range, even if the
  product does not. What a partial product loses below the smallest number, the elements that follow may enlarge.
- An infinite element of a contraction times what may be zero, or of either sign: no bound. Nor if an absent element
  meets one that is infinite or NaN: that product does not count, but a kernel may take a zero for the absent one.
- Square root and reciprocal square root: 2^-22, for the approximate instructions. Division: 7 2^-24, which is 1 ulp of
  a reciprocal and five roundings, where four elements share it.
- A sum or difference of two: a rounding of each term besides that of the result, if it was rounded already, because
  a factor may be moved over it: exp(a - b) becomes exp2(c a - c b) where a is a sum of products.
- exp: 2^-21 for ex2.approx, plus 2^-22 |v| because the argument is multiplied by log2 e first. log the
  like. Other functions: 2^-20, relative, or absolute where the function crosses zero (sin, cos, tan).
- A function passes a bound on by the worst it does on the interval, not by its slope in the middle.
- A comparison of intervals that overlap may go either way; `select` then allows either choice. But an element that
  is compared with the maximum or minimum of all (`argmax`) is it if no other may be: an extremum is one of its
  elements, and passes take care that all that compare numbers have them made in one way
  (`passes.expressions.decisions`).
- The n-th of an order moves no further than the numbers do, and its place is known where no other is near (`orders`).
- An interval that touches the border of a function's domain has no bound. The sign of a zero is not known, so
  neither is that of what is divided by it.
- Where a condition on data along a row leaves elements out, nothing is said of the distance from an extremum of an
  element that is the same infinity: the formula has no number for it, and a kernel, which does not know whether the row
  has an element, sums up to 0. In all other rows both are NaN, or have no element and are 0.
- A value that leaves its format's range has an infinite bound: nothing can be said about it, nor about
  what is computed from it. A cast to 8 bits saturates instead, in the reference too.
- A cast that no rewrite moves is rounded in the reference too (`runtime.interpreter.rounding`), and its bound is how
  far apart the ends of an interval are rounded: mostly nothing.

*Likely* bounds (`Session.likely`) take the errors of what is summed as independent, with no side that they lean to:
then their squares add up, and n roundings are as the square root of n (Higham and Mary, "A New Approach to
Probabilistic Rounding Error Analysis", SIAM J. Sci. Comput. 41, 2019). Each error counts at its worst, and what comes
out is taken `CONFIDENCE` times; all but sums stays as it is. Those of the states of a recurrence are found by trying
(`runtime.interpreter.paths`).

Streaming rewrites a softmax as products of rescales, which round where the formula does not. `SLACK` pays
for that, once, when the bound is used as a tolerance (`run_with_bounds`)."""

from treadle.runtime.interpreter.bounds.arrays import (
    combine_error,
    contract_error,
    contract_gamma,
    reduce_error,
    reduce_gamma,
    scan_error,
    scatter_error,
)
from treadle.runtime.interpreter.bounds.numbers import cast_error, fixed_cast_error
from treadle.runtime.interpreter.bounds.orders import order_error, order_of
from treadle.runtime.interpreter.bounds.scalars import scalar_error
from treadle.runtime.interpreter.bounds.tables import EXACT, SPREAD
from treadle.runtime.interpreter.bounds.units import CONFIDENCE, SLACK
from treadle.runtime.interpreter.bounds.untold import without_untold_rows

__all__ = [
    "CONFIDENCE",
    "EXACT",
    "SLACK",
    "SPREAD",
    "cast_error",
    "combine_error",
    "contract_error",
    "contract_gamma",
    "fixed_cast_error",
    "order_error",
    "order_of",
    "reduce_error",
    "reduce_gamma",
    "scalar_error",
    "scan_error",
    "scatter_error",
    "without_untold_rows",
]
