# pyright: standard
"""Elements that an index chooses, under `torch.compile(backend="treadle")`: read where they lie, and never at a place
that there is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import treadle
from treadle.torch import Report
from treadle.torch.backend import make_backend
from treadle.torch.entries import entries
from treadle.torch.options import Options


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(3)
    yield
    torch._dynamo.reset()


def compiled(function: Any, dynamic: bool = False, **options: Any) -> tuple[Any, Report]:
    report = Report()
    made = make_backend(Options.of(options), report.graphs.append)
    return torch.compile(function, backend=made, dynamic=dynamic), report


def check(function: Any, *given: Any, bound: float = 1e-5) -> Report:
    """The result as eager PyTorch's, everything in kernels, and the report of that."""
    made, report = compiled(function)
    with torch.no_grad():
        torch.testing.assert_close(made(*given), function(*given), atol=bound, rtol=bound)
    assert not report.left, report
    return report


def lookups(report: Report) -> int:
    """Reads at entries, in all programs."""
    return sum(each.kernel.diagram.count("padded with") for each in report.taken)


ROWS, WIDTH = 50, 32


def table(*shape: int) -> torch.Tensor:
    return torch.randn(*shape or (ROWS, WIDTH))


def words(*shape: int, below: int = ROWS, least: int = 0) -> torch.Tensor:
    return torch.randint(least, below, shape)


def batch() -> torch.Tensor:
    return torch.arange(3)[:, None]


FORMS: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]] = {
    "embedding": (lambda w, i: F.embedding(i, w).softmax(-1), lambda: (table(), words(3, 7))),
    "embedding with padding": (lambda w, i: F.embedding(i, w, 3).softmax(-1), lambda: (table(), words(3, 7))),
    "index_select": (lambda w, i: w.index_select(0, i).softmax(-1), lambda: (table(), words(9))),
    "index_select of columns": (lambda w, i: w.index_select(1, i).softmax(-1), lambda: (table(), words(9, below=32))),
    "index": (lambda w, i: w[i].softmax(-1), lambda: (table(), words(3, 7))),
    "index from the end": (lambda w, i: w[i].softmax(-1), lambda: (table(), words(3, 7, least=-ROWS))),
    "index of 32 bits": (lambda w, i: w[i.int()].softmax(-1), lambda: (table(), words(3, 7).int())),
    "index in the middle": (lambda w, i: w[:, i].softmax(-1), lambda: (table(3, 9, 32), words(4, below=9))),
    "two indices": (lambda w, i, b: w[b, i].softmax(-1), lambda: (table(3, 9, 32), words(3, 4, below=9), batch())),
    "index that is a part": (lambda w, i: w[i[:, 1::2]].softmax(-1), lambda: (table(), words(3, 8))),
    "index that is repeated": (lambda w, i: w[i.expand(3, 7)].softmax(-1), lambda: (table(), words(1, 7))),
    "rows, gathered": (
        lambda w, i: w.gather(1, i[..., None].expand(-1, -1, 32)).softmax(-1),
        lambda: (table(3, 9, 32), words(3, 9, below=9)),
    ),
    "elements, gathered": (lambda w, i: w.gather(1, i).softmax(-1), lambda: (table(), words(ROWS, 6, below=32))),
    "16 bits": (lambda w, i: F.embedding(i, w).softmax(-1), lambda: (table().half(), words(3, 7))),
    "a table of two orders": (lambda w, i: w.t()[i].softmax(-1), lambda: (table(), words(3, 7, below=32))),
    "a mean of rows": (lambda w, i: F.embedding(i, w).mean(1), lambda: (table(), words(3, 7))),
    "a bag of rows": (
        lambda w, i, s: (F.embedding(i, w) * s[..., None]).sum(1),
        lambda: (table(), words(3, 7), torch.rand(3, 7)),
    ),
    "a product with rows": (lambda w, i: (w[i] @ w.t()).softmax(-1), lambda: (table(), words(3, 7))),
    "two tables": (
        lambda w, p, i, j: F.layer_norm(F.embedding(i, w) + F.embedding(j, p), [32]),
        lambda: (table(), table(9, 32), words(3, 7), words(3, 7, below=9)),
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_forms(name: str) -> None:
    function, given = FORMS[name]
    assert lookups(check(function, *given(), bound=2e-3 if name == "16 bits" else 1e-5))


ONE_OF_A_ROW: dict[str, Callable[[Any, Any], Any]] = {
    "the loss of labels": lambda x, i: -torch.log_softmax(x, -1).gather(-1, i[:, None]).mean(),
    "of converted shares": lambda x, i: torch.log_softmax(x, -1).half().gather(-1, i[:, None]).float(),
    "of a product": lambda x, i: -torch.log_softmax(x @ x.T, -1).gather(-1, i[:, None]).sum(),
    "smoothed": lambda x, i: (
        torch.log_softmax(x.tanh(), -1).sum(-1) - torch.log_softmax(x, -1).gather(1, i[:, None])[:, 0]
    ),
    "of shares": lambda x, i: torch.softmax(x, -1).gather(1, i[:, None]).squeeze(1),
    "of columns": lambda x, i: x.exp().T.gather(0, i[None]),
}


@pytest.mark.parametrize("name", ONE_OF_A_ROW)
def test_one_element_of_a_row_that_is_computed_is_a_sum(name: str) -> None:
    """Read, all would be saved."""
    report = check(ONE_OF_A_ROW[name], table(), words(ROWS, below=32), bound=2e-3 if "converted" in name else 1e-5)
    assert not lookups(report)
    assert "gather" in str(report)


def test_one_element_of_a_row_whose_others_are_infinite() -> None:
    x = torch.full((3, 8), -torch.inf)
    x[range(3), range(3)] = 1.0
    report = check(lambda x, i: torch.log_softmax(x, -1).gather(-1, i[:, None]), x, torch.arange(3))
    assert not lookups(report)


def test_one_element_of_a_row_of_an_argument_is_read() -> None:
    assert lookups(check(lambda x, i: x.gather(-1, i[:, None]).exp(), table(), words(ROWS, below=32), bound=1e-5))


def test_rows_and_their_norm_are_one_program() -> None:
    """The rows are written, for the graph gives them; nobody reads them again."""

    def function(w: Any, gain: Any, i: Any) -> Any:
        x = F.embedding(i, w)
        return x, F.rms_norm(x, [32], gain)

    report = check(function, table(), torch.rand(32), words(3, 7))
    assert len(report.taken) == 1
    assert "embedding" in str(report)
    (each,) = report.taken
    assert each.kernel.diagram.count("diagram.read") == 1


def test_one_row_is_pytorchs() -> None:
    """As of one word that is decoded."""
    made, report = compiled(lambda w, i: F.embedding(i, w).softmax(-1), backend="interpreter")
    given = table(), words(1, 1)
    torch.testing.assert_close(made(*given), F.embedding(given[1], given[0]).softmax(-1))
    assert {each.reason for each in report.left} == {"an index of one element, which PyTorch looks up at once"}


# -- what there is not ---------------------------------------------------------------------------

LOOKUPS: dict[str, Callable[[Any, Any], Any]] = {
    "embedding": lambda w, i: F.embedding(i, w).softmax(-1),
    "index": lambda w, i: w[i].softmax(-1),
    "index_select": lambda w, i: w.index_select(0, i).softmax(-1),
    "gather": lambda w, i: w.gather(0, i[:, None].expand(-1, WIDTH)).softmax(-1),
}


def what_happens(function: Any, w: Any, index: Any) -> Any:
    """The result, or what is raised instead of one."""
    try:
        return function(w, index)
    except (IndexError, RuntimeError) as error:
        return type(error), str(error)


@pytest.mark.parametrize("outside", [ROWS, -1, -ROWS - 1, 2**32 + 1, -(2**32)])
@pytest.mark.parametrize("name", LOOKUPS)
def test_what_is_outside_is_told_as_pytorch_tells_it(name: str, outside: int) -> None:
    function, w = LOOKUPS[name], table()
    made, report = compiled(function)
    torch.testing.assert_close(made(w, words(2)), function(w, words(2)), check_stride=False, rtol=1, atol=1)
    assert report.taken
    assert not report.left
    told, said = (what_happens(each, w, torch.tensor([1, outside])) for each in (made, function))
    if isinstance(said, torch.Tensor):
        torch.testing.assert_close(told, said)
    else:
        assert told == said


def test_positions_are_those_along_the_dimension() -> None:
    index = torch.tensor([[0, -1], [4, -5]])
    assert entries(index, 5, "index").tolist() == [[0, 4], [4, 0]]
    assert entries(index, 5, "index").dtype == torch.int32
    for how in ("index_select", "gather"):
        with pytest.raises((IndexError, RuntimeError)):
            entries(index, 5, how)
        assert entries(index.abs() % 5, 5, how).tolist() == [[0, 1], [4, 0]]
    with pytest.raises(IndexError):
        entries(torch.tensor([3]), 3, "index")  # of a dimension that is shorter than one before


def test_an_index_that_the_program_computes_is_computed_first() -> None:
    report = check_with_left(lambda w, i: w[(i * 2) % 7].softmax(-1), table(), words(3, 7))
    assert any("index" in " ".join(each.operations) for each in report.taken)


def check_with_left(function: Any, *given: Any, bound: float = 1e-5) -> Report:
    made, report = compiled(function)
    with torch.no_grad():
        torch.testing.assert_close(made(*given), function(*given), atol=bound, rtol=bound)
    return report


def test_indices_apart_stay_with_pytorch() -> None:
    w = table(4, 5, 6)
    first, last = words(3, below=4), words(3, below=6)
    report = check_with_left(lambda w: w[first, :, last].softmax(-1), w)
    assert [(left.operation, left.reason[:8]) for left in report.left] == [("index.Tensor", "an index")]


# -- sizes, gradients ----------------------------------------------------------------------------


def test_lengths_that_change() -> None:
    function = FORMS["two tables"][0]
    made, report = compiled(function, dynamic=True)
    w, p = table(), table(40, 32)
    for length in (7, 9, 16, 30, 11):
        given = w, p, words(3, length), words(3, length, below=40)
        torch.testing.assert_close(made(*given), function(*given), atol=1e-5, rtol=1e-5)
    assert report.taken
    assert not report.left
    with pytest.raises(IndexError):
        made(w, p, words(3, 9), words(3, 9, below=40) + 40)


@pytest.mark.parametrize("training", [False, True])
def test_gradients(training: bool) -> None:
    w, i = table().requires_grad_(), words(3, 7)
    gain = torch.rand(32).requires_grad_()

    def function(w: Any, gain: Any) -> Any:
        return F.rms_norm(F.embedding(i, w), [32], gain).square().sum() + w[i[0]].exp().sum()

    made, report = compiled(function, training=training)
    found, wanted = (torch.autograd.grad(each(w, gain), (w, gain)) for each in (made, function))
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)
    assert lookups(report)


# -- caches, experts -----------------------------------------------------------------------------

PAGES, PAGE, HEADS, HEAD = 12, 16, 2, 32


def paged(q: Any, keys: Any, values: Any, pages: Any, keep: Any = None) -> Any:
    """As it is written where a cache lies in pages: these are selected, and looked at as one array."""
    k, v = (each.index_select(0, pages.view(-1)).view(len(pages), -1, HEADS, HEAD) for each in (keys, values))
    return F.scaled_dot_product_attention(q, k.transpose(1, 2), v.transpose(1, 2), attn_mask=keep)


def a_cache(queries: int = 5) -> tuple[Any, ...]:
    keys, values = (torch.randn(PAGES, PAGE, HEADS, HEAD).half() for _ in range(2))
    return torch.randn(2, HEADS, queries, HEAD).half(), keys, values, torch.randperm(PAGES)[:8].view(2, 4)


def up_to_lengths(q: Any, keys: Any, values: Any, pages: Any, length: Any) -> Any:
    keep = torch.arange(pages.shape[1] * PAGE) < length[:, None]
    return paged(q, keys, values, pages, keep[:, None, None])


def masked(q: Any, keys: Any, values: Any, pages: Any, keep: Any) -> Any:
    return paged(q, keys, values, pages, keep[:, None, None])


CACHES = {
    "all": (paged, lambda: a_cache()),
    "one query": (paged, lambda: a_cache(1)),
    "lengths": (up_to_lengths, lambda: (*a_cache(), torch.tensor([40, 64], dtype=torch.int32))),
    "a mask": (masked, lambda: (*a_cache(), torch.rand(2, 64) > 0.5)),
}


@pytest.mark.parametrize("name", CACHES)
def test_a_cache_in_pages_is_read_where_it_lies(name: str) -> None:
    """One kernel with one stream: pages of 16 keys, one after another, are an axis of keys."""
    function, given = CACHES[name]
    report = check(function, *given(), bound=2e-3)
    (each,) = report.taken
    assert each.kernel.estimate.kernels == 1
    assert each.kernel.hierarchy.count("hierarchy.stream") == 1
    assert lookups(report) == 2
    copied = [step.subject for step in each.kernel.derivation if step.rewrite == "coalescing"]
    assert sum("// 16], " in subject for subject in copied) == 2


def test_weights_of_experts_are_read_where_they_lie() -> None:
    from transformers.models.mixtral.configuration_mixtral import MixtralConfig
    from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock

    config = MixtralConfig(hidden_size=256, intermediate_size=512, num_local_experts=4, num_experts_per_tok=2)
    config._experts_implementation = "batched_mm"
    experts = MixtralSparseMoeBlock(config).eval().half()
    for parameter in experts.parameters():
        nn.init.normal_(parameter, std=0.05)
    report = check_with_left(experts, torch.randn(2, 8, 256).half(), bound=4e-3)
    (found,) = [each for each in report.taken if "index.Tensor" in each.operations]
    assert found.operations.count("bmm.default") == 2
    assert found.kernel.estimate.kernels == 3
    weights = 3 * 512 * 256 * 2 * 4  # bytes, of all experts: gates, values and what leads back
    assert found.kernel.estimate.device_bytes < 1.5 * weights  # each once, none saved anew


def test_what_is_chosen_goes_with_what_reads_it() -> None:
    """Values of a cache are looked up beside the product that reads them, wherever the graph is cut."""
    report = treadle.explain(paged, a_cache())
    (each,) = report.taken
    names = [name.removesuffix(".default") for name in each.operations]
    assert names == ["index_select", "bmm", "mul.Tensor", "_softmax", "index_select", "bmm"]
