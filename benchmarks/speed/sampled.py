"""The float64 reference of a case, on some indices of axes of which each has a result of its own: of a few heads, or
rows, for the whole of a large case would take hours."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from speed.cases import Case

MOST_WORK = 2**27
"""Elements of the largest operation of the reference, its summed axes included."""


@dataclass(frozen=True)
class Sampled:
    """What results must be at these indices: by worst-case bounds, and by those of independent roundings."""

    indices: Mapping[str, Sequence[int]]
    strict: Sequence[Any]
    likely: Sequence[Any]

    def judge(self, case: Case, result: Any) -> Any:
        """The verdict on the first result of a case."""
        from treadle.compiler.source import parse_module
        from treadle.dialects.diagram.array import axes_of
        from treadle.runtime.interpreter import entry_function
        from treadle.runtime.verify import compare

        type = entry_function(parse_module(case.program)).function_type.outputs.data[0]
        part = taken(result, axes_of(type), self.indices)
        strict = compare("result", type, part, self.strict[0], "gpu")
        return strict if not strict.unverifiable else compare("result", type, part, self.likely[0], "gpu")


def sampled(case: Case, inputs: Sequence[Any]) -> Sampled:
    """Indices are drawn; of axes that are reduced, or that conditions ask for, all are taken."""
    from treadle.compiler.source import parse_module
    from treadle.dialects.diagram.array import axes_of
    from treadle.runtime.interpreter import entry_function, run_with_bounds

    module = parse_module(case.program)
    function = entry_function(module)
    indices = _drawn(function, case.sizes)
    types = function.function_type.inputs
    some = [taken(each, axes_of(type), indices) for each, type in zip(inputs, types, strict=True)]
    both = [run_with_bounds(module, some, coarse=np.inf, lenient=False, likely=likely) for likely in (False, True)]
    return Sampled(indices, *both)


def taken(array: Any, axes: Sequence[str], indices: Mapping[str, Sequence[int]]) -> Any:
    for place, axis in enumerate(axes):
        if axis in indices:
            array = np.take(array, indices[axis], place)
    return np.ascontiguousarray(array)


def independent_axes(function: Any) -> set[str]:
    """The axes along which a function does the same for each index, whatever the index, and knows no other."""
    from treadle.dialects import diagram
    from treadle.dialects.diagram.array import axes_of, is_array

    found = {axis for type in function.function_type.outputs for axis in axes_of(type)}
    for op in function.body.block.ops:
        axes = {axis for value in (*op.operands, *op.results) if is_array(value.type) for axis in axes_of(value.type)}
        if isinstance(op, diagram.ContractOp | diagram.ReduceOp | diagram.ApplyOp):
            found -= set(op.over_axes)
        elif isinstance(op, diagram.WhereOp):
            found -= set(re.findall(r"\w+", str(op.condition))) if not op.inputs else axes
        elif not isinstance(op, diagram.MapOp | diagram.CastOp) and op.name not in ("func.return", "arith.constant"):
            found -= axes
    return found


def _drawn(function: Any, sizes: Mapping[str, int]) -> dict[str, list[int]]:
    """As many indices of each independent axis as the work allows, the longest axis halved first."""
    from treadle.dialects.diagram.array import axes_of, is_array

    free = {axis: sizes[axis] for axis in sorted(independent_axes(function)) if axis in sizes}
    known = dict(sizes)
    operations = [
        {axis for value in (*op.operands, *op.results) if is_array(value.type) for axis in axes_of(value.type)}
        for op in function.body.block.ops
    ]
    while any(size > 1 for size in free.values()):
        if max(prod(known.get(axis, 1) for axis in axes) for axes in operations) <= MOST_WORK:
            break
        longest = max(free, key=lambda axis: free[axis])
        free[longest] = known[longest] = (free[longest] + 1) // 2
    drawn = np.random.default_rng(0)
    return {axis: sorted(drawn.choice(sizes[axis], size, replace=False).tolist()) for axis, size in free.items()}
