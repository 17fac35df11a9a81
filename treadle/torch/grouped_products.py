# pyright: standard
"""Products of rows that are sorted by what they are multiplied with: `torch._grouped_mm`, as experts whose tokens are
sorted use it. As `treadle.torch.operations`."""

from __future__ import annotations

from typing import Any

from treadle.language import functions as tl
from treadle.torch.axes import leaves
from treadle.torch.registry import FORMATS, aten, computed
from treadle.torch.tensors import Body, Tensor, Unsupported


@computed(aten._grouped_mm.default)
def grouped_mm(
    body: Body, rows: Tensor, weights: Tensor, offs: Any = None, bias: Any = None, out_dtype: Any = None
) -> Tensor:
    """[t, k] x [e, k, n], each range of rows with one matrix: the first rows up to `offs[0]`, and so on; rows behind
    the last are zeros. A condition names both ends of a range, so that it is one product (`diagram-merge-depths`)."""
    if bias is not None or out_dtype not in (None, rows.dtype) or not isinstance(offs, Tensor):
        raise Unsupported("a product in groups with a bias, in another format, or without ranges")
    if len(rows.dims) != 2 or len(weights.dims) != 3 or rows.dtype not in FORMATS:
        raise Unsupported("a product in groups that is not of a matrix by one for each range of its rows")
    (t, k), (e, other, n) = rows.dims, weights.dims
    if not leaves(e):
        raise Unsupported("a product in groups of which there is one")
    body.unify(k, other)
    body.unify(e, offs.dims[0])
    body.keep_whole(e)
    product = body.contract(rows, weights, (e, t, n), k, FORMATS[rows.dtype])
    if body.graph is None:
        return body.tensor((t, n))
    if offs.text is None:
        raise Unsupported("where ranges of rows end is computed by the program: conditions speak of what is given")
    (group,) = (body.names[axis] for axis in leaves(e))
    ends = body.whole(offs)
    _, at = body.place_along(leaves(t))
    condition = f"begins[{group}] <= {at} and {at} < ends[{group}]"
    begins = tl.read(ends, f"{group} - 1")
    kept = tl.keep(body.whole(product), condition, begins=begins, ends=ends)
    return body.tensor((t, n), kept.sum(group))
