"""What is taken out of a tile as a number, such as the limit of a stream."""

from __future__ import annotations

from xdsl.dialects.tensor import ExtractOp
from xdsl.ir import SSAValue

from treadle.dialects.hierarchy import StreamOp


def is_extracted(value: SSAValue) -> bool:
    """Whether a value, or the result of the stream of which it is a state, is taken out of its tile as a number. Each
    warp then finds it by itself, from all that it is made of."""
    for use in value.uses:
        if isinstance(use.operation, ExtractOp):
            return True
        stream = use.operation.parent_op()
        if isinstance(stream, StreamOp) and use.operation in [step.block.last_op for step in stream.steps]:
            end = stream.finish.block.args[use.index]
            if any(is_extracted(o) for o in stream.outputs if stream.finished(o) is end):
                return True
    return False
