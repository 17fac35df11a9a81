"""A stream's extremum that may lag behind, and products with a factor that is mostly one.

    %m = diagram.reduce max %S over [x] {diagram.slack = 44.0 : f32} : !S -> !m

`diagram.slack` says how a stream along `x` may go on with `%m`, and not what it is: what the step keeps may be as far
below the maximum so far (above the minimum) as the slack, in units of what is reduced.

    %a = diagram.map (%old = %A : !A, %factor = %f : !l) -> !A attributes {diagram.skips_ones} {...}

`diagram.skips_ones` says of a product of two elements that the right one is one for most of the time, and that a thread
all of whose factors are leaves the elements as they are: a product with one is the number itself."""

from __future__ import annotations

from math import isfinite

from xdsl.dialects import arith
from xdsl.dialects.builtin import FloatAttr, UnitAttr, f32
from xdsl.ir import Attribute, Block, Operation
from xdsl.utils.exceptions import VerifyException

SLACK = "diagram.slack"
SKIPS_ONES = "diagram.skips_ones"


def slack_of(op: Operation) -> float | None:
    """How far behind a stream may leave a reduction; None where it has to follow at once."""
    slack = op.attributes.get(SLACK)
    return slack.value.data if isinstance(slack, FloatAttr) else None


def let_lag(op: Operation, slack: float) -> None:
    """Let streams leave a reduction so far behind."""
    op.attributes[SLACK] = FloatAttr(slack, f32)


def check_slack(op: Operation, kind: str, format: Attribute) -> None:
    """Refuse what cannot lag (VerifyException)."""
    if SLACK not in op.attributes:
        return
    slack = slack_of(op)
    if kind not in ("max", "min") or format != f32:
        raise VerifyException(f"'{SLACK}' of '{kind}' in {format}: a max or a min in f32 may lag")
    if slack is None or not (isfinite(slack) and slack > 0):
        raise VerifyException(f"'{SLACK}' is a finite number above zero, not {op.attributes[SLACK]}")


def skips_ones(op: Operation) -> bool:
    """Whether a map leaves elements whose factor is one as they are."""
    return SKIPS_ONES in op.attributes


def skip_ones(op: Operation) -> None:
    """Let a product leave elements whose factor is one as they are."""
    op.attributes[SKIPS_ONES] = UnitAttr()


def check_skipping(op: Operation, body: Block) -> None:
    """Refuse to skip what is not a product of two elements (VerifyException)."""
    if not skips_ones(op):
        return
    first = body.first_op
    is_product = (
        isinstance(first, arith.MulfOp) and tuple(first.operands) == body.args and first.next_op is body.last_op
    )
    if not is_product or op.operands[0].type != op.results[0].type:
        raise VerifyException(f"'{SKIPS_ONES}': only a product of an element of the result's type and a factor may")
