# pyright: standard
"""Graphs with symbolic sizes: kernels are derived once for a class of sizes, and every result is eager PyTorch's."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import sympy
import torch
import torch.nn.functional as F
from torch import nn

import treadle.compiled
import treadle.runtime.emulator.backend as emulator
from treadle.torch import Report, compiled_graph
from treadle.torch.axes import Axis, Mismatch, unify
from treadle.torch.backend import make_backend
from treadle.torch.options import Options
from treadle.torch.symbols import Size, Symbols, class_of, likely, quotient, same

LENGTHS = (7, 33, 64, 100, 129)
"""Odd, a whole class, and one more than that."""

Function = Callable[..., torch.Tensor]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


class Counted:
    """How often kernels are asked for, and how often the emulator's compiler."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.kernels = self.compiled = 0
        compile, compile_source = treadle.compiled.compile, emulator.compile_source

        def counted(*args: Any, **options: Any) -> Any:
            self.kernels += 1
            return compile(*args, **options)

        def counted_source(*args: Any, **options: Any) -> Any:
            self.compiled += 1
            return compile_source(*args, **options)

        monkeypatch.setattr(compiled_graph, "_KERNELS", OrderedDict())  # what other tests left there
        monkeypatch.setattr(treadle.compiled, "compile", counted)
        monkeypatch.setattr(emulator, "compile_source", counted_source)

    def since(self) -> tuple[int, int]:
        found = self.kernels, self.compiled
        self.kernels = self.compiled = 0
        return found


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(monkeypatch)


def compiled(function: Function, dynamic: bool | None = True, **options: Any) -> tuple[Any, Report]:
    report = Report()
    given = Options.of({"backend": "interpreter", **options})
    return torch.compile(function, backend=make_backend(given, report.graphs.append), dynamic=dynamic), report


def check(made: Any, function: Function, given: Sequence[torch.Tensor], digits: float = 1e-5) -> None:
    with torch.no_grad():
        got, want = made(*given), function(*given)
    assert (got.dtype, got.shape, got.stride()) == (want.dtype, want.shape, want.stride())
    torch.testing.assert_close(got, want, atol=digits, rtol=digits)


class Attention(nn.Module):
    """Grouped heads, causal, with a norm before."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.LayerNorm(32)
        self.q, self.kv, self.out = nn.Linear(32, 32), nn.Linear(32, 32), nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        normal = self.first(x)
        q = self.q(normal).view(batch, length, 4, 8).transpose(1, 2)
        k, v = (part.view(batch, length, 2, 8).transpose(1, 2) for part in self.kv(normal).chunk(2, -1))
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return x + self.out(seen.transpose(1, 2).reshape(batch, length, 32))


class Block(Attention):
    """And another half, as transformers have it."""

    def __init__(self) -> None:
        super().__init__()
        self.second = nn.RMSNorm(32)
        self.up, self.down = nn.Linear(32, 48), nn.Linear(48, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = super().forward(x)
        return x + self.down(F.gelu(self.up(self.second(x))))


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, v)


def masked(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(x, x, x, attn_mask=mask)


# -- what is compiled --------------------------------------------------------------------------------


MODULES = [Attention, pytest.param(Block, marks=pytest.mark.full)]
"""Of the block kernels are derived for half a minute: on an ordinary day its first half has to do."""


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("how", ["dynamic", "automatic", "marked"])
def test_many_lengths(how: str, module: Callable[[], nn.Module], counted: Counted) -> None:
    """Kernels are asked for at the first length of each class, and never again."""
    block = module().eval()
    made, report = compiled(block, True if how == "dynamic" else None)
    seen: set[Any] = set()
    lengths = (17, 18, 25, 31, 32, 40, 64, 33)
    for number, length in enumerate(lengths):
        x = torch.randn(3, length, 32)
        if how == "marked":
            torch._dynamo.mark_dynamic(x, 1)
        check(made, block, (x,))
        first = class_of(length) not in seen
        # Automatic sizes are known for what they are at the second length, and the first is a graph without any.
        expected = first or (how == "automatic" and number == 1)
        assert bool(counted.since()[0]) == expected, length
        seen.add(class_of(length))
    assert len(seen) == 2
    assert len(report.graphs) == (2 if how == "automatic" else 1)
    assert not report.anew
    assert report.taken


@pytest.mark.parametrize("module", MODULES)
def test_symbolic_batches(module: Callable[[], nn.Module], counted: Counted) -> None:
    block = module().eval()
    made, _ = compiled(block)
    counts: list[int] = []
    for batch, length in ((3, 19), (4, 32), (5, 21), (8, 17)):
        check(made, block, (torch.randn(batch, length, 32),))
        counts.append(counted.since()[0])
    assert [bool(count) for count in counts] == [True, False, True, False]


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_kernels_of_a_class_run_at_all_its_lengths(machine: str, dtype: torch.dtype, counted: Counted) -> None:
    """In the emulator, whose compiler has nothing to do at another length, either."""
    made, _ = compiled(attend, backend="emulator", machine=machine)
    for number, (q, x) in enumerate(((17, 40), (32, 64), (31, 33), (20, 63))):
        given = [torch.randn(3, n, 8, dtype=dtype) for n in (q, x, x)]
        check(made, attend, given, 1e-5 if dtype == torch.float32 else 2e-3)
        kernels, sources = counted.since()
        assert (kernels > 0, sources > 0) == (number == 0, number == 0)


@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_numbers_and_lengths_in_the_emulator(machine: str) -> None:
    """A number of elements, positions behind an offset, and a result along an axis that no argument has."""

    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        rows = torch.arange(y.shape[0], y.shape[0] + x.shape[0])
        return torch.softmax(x / x.shape[1], 1).amax((1, 2)) + rows * 2.0

    made, report = compiled(function, backend="emulator", machine=machine)
    for n, m in ((5, 9), (7, 13), (8, 16)):
        check(made, function, (torch.randn(n, m, 2), torch.randn(m, 1)), 1e-4)
    assert report.taken
    assert {left.operation for left in report.anew} == {"a last dimension"}  # of two


# -- numbers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["bool", "float"])
def test_masks(kind: str, counted: Counted) -> None:
    made, _ = compiled(masked)
    for number, length in enumerate((33, 64, 50)):
        mask = torch.rand(3, length, length) > 0.3
        given = mask if kind == "bool" else torch.randn(3, length, length)
        check(made, masked, (torch.randn(3, length, 8), given), 1e-4)
        assert (counted.since()[0] > 0) == (number == 0)


@pytest.mark.parametrize("length", LENGTHS)
def test_equal_by_chance(length: int) -> None:
    """Queries and keys have two lengths, which happen to be one at first."""
    made, _ = compiled(attend)
    for q, x in ((length, length + 1), (length + 1, length + 1), (length + 1, length)):
        check(made, attend, [torch.randn(3, n, 8) for n in (q, x, x)])


def test_numbers_that_are_sizes() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        far = torch.arange(length).clamp(max=length - 2)
        return x.sum(1) / (length - 1) + x.mean(1) + x.var(1) + (x * far[None, :, None]).sum(1) + batch

    made, report = compiled(function)
    for batch, length in ((3, 9), (4, 16), (3, 12), (3, 100), (5, 2)):
        check(made, function, (torch.randn(batch, length, 8),), 1e-3)
    assert {left.operation for left in report.anew} == {"a last dimension"}  # of eight


def test_embeddings_and_rows() -> None:
    table = torch.randn(50, 16)

    def function(words: torch.Tensor) -> torch.Tensor:
        return torch.softmax(table[words] @ table.T, -1)

    made, _ = compiled(function)
    for batch, length in ((3, 7), (4, 8), (4, 33)):
        check(made, function, (torch.randint(0, 50, (batch, length)),))


def test_what_is_compiled_anew_says_why() -> None:
    conv = nn.Conv1d(8, 8, 3, padding=1)
    made, report = compiled(lambda x: torch.relu(conv(x)))
    for length in (20, 31, 17, 18, 19, 21):
        check(made, lambda x: torch.relu(conv(x)), (torch.randn(3, 8, length),), 1e-4)
    assert {left.operation for left in report.anew} >= {"a last dimension", "convolution.default"}
    assert all(left.reason for left in report.anew)
    assert "compiled anew for each size" in str(report)


def test_a_width_has_kernels_of_its_own() -> None:
    """Every size is a symbol, and the width is not a length: attention stays one kernel."""
    made, report = compiled(attend)
    for width in (8, 16):
        check(made, attend, [torch.randn(3, 4, 20, width) for _ in range(3)])
    assert [len(each.kernel.arguments) for each in report.taken] == [3, 3]
    assert [[*each.kernel.arguments[0].axes.values()][-1] for each in report.taken] == [8, 16]


# -- sizes -------------------------------------------------------------------------------------------

n, m = (sympy.Symbol(name, integer=True, positive=True) for name in "nm")


def sizes(**values: int) -> tuple[Symbols, Any, Any]:
    symbols = Symbols({n: values["n"], m: values["m"]})
    return symbols, symbols.size(n), symbols.size(m)


def test_classes() -> None:
    assert [class_of(size) for size in (0, 1, 2, 3, 4, 5, 1000, 1024, 1025)] == [
        *((0, 0), (1, 1), (2, 2), (3, 4), (3, 4), (5, 8)),
        *((513, 1024), (513, 1024), (1025, 2048)),
    ]


def test_equal_values_are_no_equal_sizes() -> None:
    symbols, a, b = sizes(n=12, m=12)
    assert not same(a, b)
    assert not same(a, 12)
    assert quotient(a, 4) is None
    assert quotient(a * 4, 4) == a
    assert quotient(a * b, b) == a
    with pytest.raises(Mismatch):
        unify([Axis(a)], [Axis(b)])
    with pytest.raises(Mismatch):
        unify([Axis(a)], [Axis(4), Axis(3)])
    assert not symbols.found


def test_what_the_range_of_a_class_says() -> None:
    symbols, a, b = sizes(n=12, m=100)
    with symbols.recording():
        assert a > 8
        assert not a > 16
        assert a < b
        assert a * b - b > 0
        assert a != 1
        assert (likely(a), likely(a * b), likely(5)) == (16, 16 * 128, 5)
        assert not symbols.found


def test_what_is_asked_of_values_is_a_condition() -> None:
    symbols, a, _ = sizes(n=12, m=100)
    with symbols.recording():
        assert a > 10
        symbols.required |= dict.fromkeys(symbols.found)
    assert symbols.are_met({n: 11, m: 128})
    assert not symbols.are_met({n: 10, m: 100})
    assert not symbols.are_met({n: 17, m: 100})


def test_a_size_that_becomes_a_number_is_fixed() -> None:
    symbols, a, b = sizes(n=12, m=12)
    with symbols.recording():
        assert int(a) == 12
        assert same(a, 12)
        assert not same(b, 12)
        symbols.required |= dict.fromkeys(symbols.found)
        assert symbols.why_fixed
    assert symbols.are_met({n: 12, m: 9})
    assert not symbols.are_met({n: 11, m: 12})
    assert not same(a, 12)


@pytest.mark.parametrize("values", [{"n": 7, "m": 3}, {"n": 64, "m": 2}])
def test_arithmetic(values: dict[str, int]) -> None:
    _, a, b = sizes(**values)
    x, y = values["n"], values["m"]
    at = {n: x, m: y}
    for got, want in (
        *((a + b, x + y), (a - 1, x - 1), (1 - a, 1 - x), (3 * a * b, 3 * x * y), (-a, -x)),
        *((a // 2, x // 2), (a * 6 // 3, x * 2), (a % 4, x % 4), (abs(b - a), abs(y - x))),
    ):
        assert isinstance(got, Size | int)
        assert (got.at(at) if isinstance(got, Size) else got) == want
