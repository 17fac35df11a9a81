# pyright: standard
"""Products of rows that are sorted by what they are multiplied with: `torch._grouped_mm`, as experts whose tokens are
sorted use it, and the sums over such rows that are the gradients of their weights. As `treadle.torch.operations`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from treadle.language import functions as tl
from treadle.language.array import Array
from treadle.torch.axes import Axis, leaves
from treadle.torch.registry import FORMATS, aten, computed
from treadle.torch.tensors import Body, Tensor, Unsupported


@computed(aten._grouped_mm.default)
def grouped_mm(
    body: Body, left: Tensor, right: Tensor, offs: Any = None, bias: Any = None, out_dtype: Any = None
) -> Tensor:
    """[t, k] x [e, k, n], each range of rows with one matrix: the first rows up to `offs[0]`, and so on; rows behind
    the last are zeros. Or [k, t] x [t, n], summed over each range of t alone: [e, k, n]. A condition names both ends
    of a range, so that each is one product (`diagram-merge-depths`, `diagram-repeat-operands`)."""
    if bias is not None or out_dtype not in (None, left.dtype) or not isinstance(offs, Tensor):
        raise Unsupported("a product in groups with a bias, in another format, or without ranges")
    ranks = len(left.dims), len(right.dims)
    format = None if left.dtype is None else FORMATS.get(left.dtype)
    if ranks not in ((2, 3), (2, 2)) or format is None:
        raise Unsupported("a product in groups that is neither of a matrix by one for each range nor of two matrices")
    return (_rows if ranks == (2, 3) else _sums)(body, left, right, offs, format)


def _rows(body: Body, rows: Tensor, weights: Tensor, offs: Tensor, format: str) -> Tensor:
    (t, k), (e, other, n) = rows.dims, weights.dims
    body.unify(k, other)
    body.unify(e, offs.dims[0])
    _check_ranges(body, e)
    product = body.contract(rows, weights, (e, t, n), k, format)
    if body.graph is None:
        return body.tensor((t, n))
    kept, group = _kept(body, body.whole(product), t, offs)
    return body.tensor((t, n), kept.sum(group))


def _sums(body: Body, left: Tensor, right: Tensor, offs: Tensor, format: str) -> Tensor:
    """Which rows count is asked of the right operand, of which rows lie in memory as copies bring them; in its own
    format, so that nothing is between the copies and the product."""
    (k, t), (other, n), (e,) = left.dims, right.dims, offs.dims
    body.unify(t, other)
    _check_ranges(body, e)
    if body.graph is None:
        return body.tensor((e, k, n))
    kept, _ = _kept(body, body.repeated(body.whole(right).to(format), e), t, offs)
    return body.contract(left, replace(right, dims=(e, t, n), array=kept.to(format)), (e, k, n), t, format)


def _check_ranges(body: Body, e: tuple[Axis, ...]) -> None:
    if not leaves(e):
        raise Unsupported("a product in groups of which there is one")
    body.keep_whole(e)


def _kept(body: Body, array: Array, t: tuple[Axis, ...], offs: Tensor) -> tuple[Array, str]:
    """The rows of each range, and the axis that counts ranges (Unsupported)."""
    if offs.text is None:
        raise Unsupported("where ranges of rows end is computed by the program: conditions speak of what is given")
    (group,) = (body.names[axis] for axis in leaves(offs.dims[0]))
    ends = body.whole(offs)
    _, at = body.place_along(leaves(t))
    begins = tl.read(ends, f"{group} - 1")
    condition = f"begins[{group}] <= {at} and {at} < ends[{group}]"
    return tl.keep(array, condition, begins=begins, ends=ends), group
