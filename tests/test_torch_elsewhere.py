# pyright: standard
"""Elements at other places: turned around, rolled, padded, diagonals, windows that overlap, and parts that are written
into. Each is what eager PyTorch makes of it, to the last digit where nothing else is done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf, nan
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from test_torch_operations import nothing_is_left, report_of

from treadle.torch import explain

Function = Callable[..., Any]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


def r(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def written(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    made = y.clone()
    made[:, 2:5] = x * 2
    return made


def shifted(x: torch.Tensor) -> torch.Tensor:
    """Channels of the frame before, and of the one behind."""
    made = torch.zeros_like(x)
    made[:-1, :2] = x[1:, :2]
    made[1:, 2:3] = x[:-1, 2:3]
    made[:, 3:] = x[:, 3:]
    return made * 2


def relative(q: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
    """Scores of distances, moved to the positions that are so far apart (Transformer-XL, Conformer)."""
    scores = q @ p
    b, h, t, n = scores.shape
    return F.pad(scores, (1, 0)).view(b, h, n + 1, t)[:, :, 1:].view(b, h, t, n)[..., :t].softmax(-1)


ONE = r(5, 1, 7)
CASES: dict[str, tuple[Function, tuple[torch.Tensor, ...]]] = {
    "turned": (lambda x: (x * 2).flip(-1) + 1, (r(5, 7),)),
    "turned, two": (lambda x: (x * 2).flip(0, -1) + x, (r(5, 3, 7),)),
    "turned, none": (lambda x: (x * 2).flip([]) + x, (r(5, 3),)),
    "turned, of one element": (lambda x: (x * 2).flip(1, 2) + x, (ONE,)),
    "turned, an argument": (lambda x: x.flip(1) * 2, (r(4, 6).t(),)),
    "turned, of a sum": (lambda x: x.sum(0).flip(0) * 2, (r(4, 6),)),
    "turned, what was split": (lambda x: (x * 2).view(3, 2, 7).flip(0).reshape(6, 7) + 1, (r(6, 7),)),
    "turned, then split": (lambda x: (x * 2).flip(0).reshape(3, 2, 7).sum(1) + 1, (r(6, 7),)),
    "rot90": (lambda x: torch.rot90(x * 2, 1, (1, 2)) + 1, (r(2, 5, 7),)),
    "rolled": (lambda x: torch.roll(x * 2, 3, 1) + 1, (r(3, 7, 5),)),
    "rolled back": (lambda x: torch.roll(x * 2, (-2, -3), (1, 2)) + 1, (r(2, 5, 7),)),
    "rolled around": (lambda x: torch.roll(x * 2, (9, 7), (-1, 0)) + 1, (r(2, 7),)),
    "rolled, as one": (lambda x: torch.roll(x * 2, 4) + 1, (r(7),)),
    "rolled twice along one": (lambda x: torch.roll(x * 2, (2, 3), (1, 1)) + 1, (r(3, 7),)),
    "rolled, of one element": (lambda x: torch.roll(x * 2, 1, 1) + 1, (ONE,)),
    "rolled by nothing": (lambda x: torch.roll(x * 2, (0, 7), (0, 1)) + 1, (r(3, 7),)),
    "rolled windows": (
        lambda x: torch.roll(F.layer_norm(x, (8,)), (-1, -1), (1, 2)).view(2, 2, 3, 2, 3, 8).transpose(2, 3).amax(-1),
        (r(2, 6, 6, 8),),
    ),
    "rolled, in 16 bits": (lambda x: torch.roll(x * 2, 3, 1) + 1, (r(3, 7, dtype=torch.bfloat16),)),
    "padded": (lambda x: F.pad(x * 2, (1, 2, 3, 0)) + 1, (r(3, 5),)),
    "padded by a number": (lambda x: F.pad(x * 2, (1, 2), value=1.5) + 1, (r(3, 5),)),
    "padded by -inf": (lambda x: F.pad(x * 2, (1, 2), value=-inf).softmax(-1), (r(3, 5),)),
    "padded by NaN": (lambda x: F.pad(x * 2, (0, 2), value=nan).relu(), (r(3, 5),)),
    "padded by a third": (lambda x: F.pad(x * 2, (1, 2), value=1 / 3) * 3, (r(3, 5, dtype=torch.float16),)),
    "padded by less than nothing": (lambda x: F.pad(x * 2, (-1, 2, 1, -1)) + 1, (r(4, 5),)),
    "padded, of one element": (lambda x: F.pad(x * 2, (0, 0, 2, 1)) + 1, (ONE,)),
    "padded, of one element, by a number": (lambda x: F.pad(x * 2, (0, 0, 2, 1), value=-3.0) + 1, (ONE,)),
    "padded numbers": (lambda x: F.pad(torch.full((3,), 2.0) * x.sum(), (1, 2)) + 1, (r(3),)),
    "reflected": (lambda x: F.pad(x * 2, (1, 0, 3, 0), mode="reflect") + 1, (r(2, 4, 5),)),
    "reflected along one": (lambda x: F.pad(x * 2, (1, 2), mode="reflect") + 1, (r(4, 5),)),
    "reflected, one side": (lambda x: F.pad(x * 2, (4, 0), mode="reflect") + 1, (r(2, 3, 5),)),
    "reflected, an argument": (lambda x: F.pad(x, (2, 2), mode="reflect") * 2, (r(2, 3, 5),)),
    "with its edges": (lambda x: F.pad(x * 2, (1, 2, 3, 1), mode="replicate") + 1, (r(2, 4, 5),)),
    "with its edges, of one element": (lambda x: F.pad(x * 2, (2, 1, 0, 1), mode="replicate") + 1, (r(2, 3, 4, 1),)),
    "padded integers": (lambda n: F.pad(n * 3, (1, 1), value=7) + 1, (torch.arange(12, dtype=torch.int32).view(3, 4),)),
    "padded truth values": (lambda x: F.pad(x > 0, (1, 1), value=True), (r(3, 5),)),
    "padded, then split": (lambda x: F.pad(x * 2, (1, 2)).view(3, 2, 4).sum(-1), (r(3, 5),)),
    "tokens before": (lambda x: x + 0.5 * (F.pad(x.tanh(), (0, 0, 1, -1)) - x), (r(2, 9, 8),)),
    "relative positions": (relative, (r(2, 2, 5, 8), r(2, 2, 8, 9))),
    "diagonals": (lambda x: torch.diagonal(x * 2, dim1=-2, dim2=-1) + 1, (r(3, 5, 5),)),
    "diagonals above": (lambda x: torch.diagonal(x * 2, 2, 0, 2) + 1, (r(4, 3, 7),)),
    "diagonals below": (lambda x: torch.diagonal(x * 2, -1, 2, 1) + 1, (r(3, 4, 7),)),
    "a trace": (lambda x: (x @ x.t()).diagonal().sum() * 2, (r(5, 7),)),
    "of an argument": (lambda x: x.diagonal().exp() * 2, (r(5, 7),)),
    "windows": (lambda x, w: (x * 2).unfold(-1, 8, 3) * w, (r(3, 31), r(8))),
    "windows in the middle": (lambda x: (x * 2).unfold(1, 4, 4).sum(-1), (r(3, 13, 2),)),
    "windows of an argument": (lambda x, w: (x.unfold(-1, 8, 3) * w).sum(-1), (r(3, 31), r(8))),
    "windows of one element": (lambda x: (x * 2).unfold(1, 1, 1) + 1, (ONE,)),
    "windows that are given back": (lambda x: (x * 2 + 1).unfold(-1, 4, 2), (r(3, 11),)),
    "diagonals that are given back": (lambda x: (x * 2 + 1).diagonal(), (r(5, 7),)),
    "written": (written, (r(4, 3, 6), r(4, 9, 6))),
    "written, in 16 bits": (written, (r(4, 3, 6), r(4, 9, 6, dtype=torch.float16))),
    "frames beside": (shifted, (r(6, 5, 7),)),
}


@pytest.mark.parametrize("case", CASES)
def test_elements_are_where_pytorch_has_them(case: str) -> None:
    function, given = CASES[case]
    nothing_is_left(report_of(function, *given))


@pytest.mark.parametrize(
    "case",
    ["turned", "rolled back", "padded", "padded by a number", "reflected", "with its edges", "diagonals", "windows"],
)
def test_infinities_stay_where_they_are(case: str) -> None:
    function, (x, *others) = CASES[case]
    x = torch.where(torch.arange(x.numel()).view(x.shape) % 3 == 1, torch.tensor(inf), x)
    x = torch.where(torch.arange(x.numel()).view(x.shape) % 5 == 1, torch.tensor(nan), x)
    nothing_is_left(report_of(function, x, *others))


@pytest.mark.parametrize("function", [lambda x: x.flip(-1), lambda x: torch.roll(x, 2, 0), lambda x: F.pad(x, (1, 1))])
def test_alone_they_are_pytorchs(function: Function) -> None:
    with torch.no_grad():
        report = explain(function, (r(3, 5),))
    assert not report.taken
    assert {each.reason for each in report.left} == {"one operation alone gains nothing"}


def test_what_would_be_read_in_many_ways_stays() -> None:
    report = report_of(lambda x: torch.roll(x * 2, (1, 1, 1, 1), (0, 1, 2, 3)) + 1, r(2, 3, 4, 5))
    assert any("read in 16 ways" in each.reason for each in report.left)
    report = report_of(lambda x: F.pad(x * 2, (1, 2, 1, 1), mode="reflect") + 1, r(2, 4, 5))
    assert any("read in 9 ways" in each.reason for each in report.left)


def test_sizes_that_change() -> None:
    compiled = torch.compile(
        lambda x: F.pad((x * 2).flip(0), (0, 0, 1, 0)) + 1, backend="treadle", dynamic=True, options={"machine": "a100"}
    )
    for length in (5, 6, 9):
        x = r(length, 7)
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), F.pad((x * 2).flip(0), (0, 0, 1, 0)) + 1)
