"""Numpy execution of `diagram` and `hierarchy`: the reference, the transfers, and the error bounds.

`arrays` holds values, `scope` what an axis means at the moment, `scalars` what `arith` and `math` compute,
`functions` and `hierarchy` what xDSL's interpreter calls for each operation, `bounds` how errors grow."""

from treadle.runtime.interpreter.bounds import SLACK
from treadle.runtime.interpreter.run import (
    Argument,
    Bounded,
    Execution,
    entry_function,
    run_function,
    run_with_bounds,
)
from treadle.runtime.interpreter.session import TransferCounts

__all__ = [
    "SLACK",
    "Argument",
    "Bounded",
    "Execution",
    "TransferCounts",
    "entry_function",
    "run_function",
    "run_with_bounds",
]
