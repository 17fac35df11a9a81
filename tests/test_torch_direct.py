# pyright: standard
"""An operator's kernel called without PyTorch's dispatcher, or without another round through it: only where that has
nothing to say. What a GPU would do again is done here by a stand-in on the CPU, which copies the first argument to the
result."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import treadle
from treadle.language.function import NamedKernel
from treadle.runtime.prepared import Prepared
from treadle.runtime.replay import Launch, Place, Plan
from treadle.runtime.tensor_maps import TensorMap
from treadle.runtime.torch_dispatch import goes_straight
from treadle.runtime.torch_geometry import geometry
from treadle.runtime.torch_replay import Replay
from treadle.torch import operator
from treadle.torch.direct import at_once, called

A, B = torch.randn(4, 16), torch.randn(4, 16)


@treadle.kernel("a b, a b -> a b")
def added(A: Any, B: Any) -> Any:
    return A + B


@treadle.kernel("a b -> a b")
def given_back(A: Any) -> Any:
    return A


OPERATOR = operator("treadle_tests::added", added, lambda A, B: A + B)
CAST = operator("treadle_tests::cast", added, lambda A, B: A + B)
CAST.register_autocast("cpu", torch.bfloat16)
GIVEN_BACK = operator("treadle_tests::given_back", given_back, lambda A: A)


class Watching(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.fixture
def copies() -> Iterator[list[int]]:
    """The streams of launches, once the kernel was called on tensors like A and B."""
    streams: list[int] = []

    def prepared(launch: Launch) -> Prepared:
        def start(pointer: int, stream: int) -> None:
            places = (ctypes.c_uint64 * 2).from_address(pointer)
            source, target = (ctypes.c_uint64.from_address(each).value for each in places)
            ctypes.memmove(target, source, A.nbytes)
            streams.append(stream)

        return Prepared(start, launch.arguments, TensorMap.record)

    compiled = added.compiled(A, B)
    launch = Launch("copy", (1, 1, 1), (32, 1, 1), 0, (Place(0), Place(2)))
    plan = Plan((((4, 16), np.dtype(np.float32)),), (launch,), (2,), given=2)
    compiled.keep(geometry([A, B])[0], Replay(plan, prepared, torch.device("cpu"), lambda: 7))
    yield streams
    compiled.replays = None


def test_what_was_called_before_is_called_at_once(copies: list[int]) -> None:
    assert at_once(added, [A, B]) is None
    for _ in range(3):
        torch.testing.assert_close(OPERATOR(A, B), A, atol=0, rtol=0)
    assert copies == [7] * 3
    torch.testing.assert_close(at_once(added, [B, A]), B, atol=0, rtol=0)
    torch.testing.assert_close(OPERATOR(A[:2], B[:2]), A[:2] + B[:2])  # another geometry


class WatchingFunctions(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


def known_before() -> None:
    for _ in range(3):
        OPERATOR(A, B)


def straight(*tensors: Any) -> Any:
    """What the operator gives without PyTorch's dispatcher."""
    assert added.replays is not None
    return added.replays.straight(tensors)


def test_what_was_called_before_needs_no_dispatcher(copies: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    known_before()
    dispatched: list[Any] = []
    monkeypatch.setattr(OPERATOR, "_opoverload", lambda *tensors, **named: dispatched.append((tensors, named)))
    torch.testing.assert_close(OPERATOR(B, A), B, atol=0, rtol=0)
    with torch.no_grad():
        torch.testing.assert_close(OPERATOR(A, B), A, atol=0, rtol=0)
    assert not dispatched
    others: list[Any] = [A[:2], A.double(), torch.nn.Parameter(A), torch._neg_view(A), A.t().contiguous().t(), 1.0]
    others += [A.clone().requires_grad_(), torch.zeros(65)[1:].view(4, 16), A.as_subclass(Alike)]
    for other in others:
        OPERATOR(other, B)
    OPERATOR(A)
    OPERATOR(A, B=B)
    assert len(dispatched) == len(others) + 2


class Alike(torch.Tensor):
    pass


def test_modes_and_profilers_see_what_was_called_before(copies: list[int]) -> None:
    known_before()
    with WatchingFunctions() as watching:
        OPERATOR(A, B)
    assert watching.seen == ["treadle_tests.added.default"]
    with torch.profiler.profile() as profile:
        OPERATOR(A, B)
    assert "treadle_tests::added" in [each.name for each in profile.events()]
    with torch.autograd.forward_ad.dual_level():
        made = OPERATOR(torch.autograd.forward_ad.make_dual(A, B), B)
        torch.testing.assert_close(torch.autograd.forward_ad.unpack_dual(made).tangent, B)
    traced = torch.jit.trace(lambda a: OPERATOR(a, B), (A,), check_trace=False)
    assert "treadle_tests::added" in str(traced.graph)
    graph = torch.fx.symbolic_trace(Adding()).graph
    assert any("added" in str(node.target) for node in graph.nodes)


def test_autocast_casts_what_was_called_before(copies: list[int]) -> None:
    """Also where the kernel by itself, which autocast is nothing to, was called under it."""
    for _ in range(3):
        torch.testing.assert_close(CAST(A, B), A, atol=0, rtol=0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for _ in range(3):
            torch.testing.assert_close(added(A, B), A, atol=0, rtol=0)
            assert straight(A, B) is None
        assert CAST(A, B).dtype == torch.bfloat16
    added(A, B)  # run last once more
    assert straight(A, B) is not None


def test_in_inference_the_kernel_is_next(copies: list[int]) -> None:
    known_before()
    with torch.inference_mode():
        assert straight(A, B) is None
        known_before()
        torch.testing.assert_close(straight(A, B), A, atol=0, rtol=0)
    torch.testing.assert_close(straight(A, B), A, atol=0, rtol=0)


def test_what_a_mode_saw_is_not_known_without_it(copies: list[int]) -> None:
    with Watching():
        for _ in range(3):
            added(A, B)
    assert straight(A, B) is None


def within(context: AbstractContextManager[Any]) -> bool:
    with context:
        return goes_straight([A, B], lambda *tensors: False)


@pytest.mark.parametrize(
    ("context", "wanted"),
    [
        (nullcontext, True),
        (torch.no_grad, True),
        (torch.inference_mode, True),
        (lambda: torch.autocast("cpu", dtype=torch.bfloat16), False),
        (Watching, False),
    ],
)
def test_what_the_dispatcher_would_do(context: Callable[[], AbstractContextManager[Any]], wanted: bool) -> None:
    assert within(context()) is wanted
    seen: list[bool] = []
    torch.func.vmap(lambda each: (seen.append(goes_straight([A, B], lambda *tensors: False)), each)[1])(A)
    assert seen == [False]
    assert not goes_straight([A, torch._neg_view(B)], lambda *tensors: False)
    assert not goes_straight([A, A.to_sparse()], lambda *tensors: False)
    assert not goes_straight([A, torch._efficientzerotensor(4, 16)], lambda *tensors: False)
    assert not goes_straight([A, B], lambda *tensors: True), "a check that compares no keys"


def test_a_mode_sees_the_operator(copies: list[int]) -> None:
    for _ in range(2):
        OPERATOR(A, B)
    for _ in range(3):
        with Watching() as watching:
            assert at_once(added, [A, B]) is None
            assert called(added, [A, B]) is None
            OPERATOR(A, B)
        assert watching.seen == ["treadle_tests.added.default"]


def test_gradients_are_recorded_and_tensors_asked_what_they_are(copies: list[int]) -> None:
    for _ in range(2):
        OPERATOR(A, B)
    leaf = A.clone().requires_grad_()
    for _ in range(2):
        (gradient,) = torch.autograd.grad(OPERATOR(leaf, B).sum(), leaf)
        torch.testing.assert_close(gradient, torch.ones_like(A))
    negative = torch._neg_view(A)
    assert called(added, [negative, B]) is None
    torch.testing.assert_close(OPERATOR(negative, B), -A, atol=0, rtol=0)
    tangents = torch.func.jvp(OPERATOR, (A, B), (B, B))[1]
    torch.testing.assert_close(tangents, B + B)
    torch.testing.assert_close(
        torch.vmap(torch.func.grad(lambda a: OPERATOR(a, B).sum()))(A[None]), torch.ones(1, 4, 16)
    )


def test_compiled_functions_and_modes_of_pytorch(copies: list[int]) -> None:
    compiled = torch.compile(lambda a, b: OPERATOR(a, b) * 2, backend="eager", fullgraph=True)
    for mode in (torch.no_grad, torch.inference_mode, torch.enable_grad):
        with mode():
            for _ in range(2):
                torch.testing.assert_close(OPERATOR(A, B), A, atol=0, rtol=0)
                torch.testing.assert_close(compiled(A, B), A * 2, atol=0, rtol=0)
    exported = torch.export.export(Adding(), (A, B))
    assert [node.target for node in exported.graph.nodes if node.op == "call_function"] == [
        torch.ops.treadle_tests.added.default
    ]


class Adding(torch.nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return OPERATOR(a, b)


@pytest.mark.parametrize("results", [lambda a: a, lambda a: (a * 2,) * 2, lambda a: a[:2]])
def test_results_that_share_memory_are_left_to_pytorch(results: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NamedKernel, "__call__", lambda self, a: results(a))
    assert called(given_back, [A]) is None
    monkeypatch.setattr(NamedKernel, "__call__", lambda self, a: a)
    with pytest.raises(RuntimeError, match="alias"):
        GIVEN_BACK(A)
