"""Python looks for no cycles while kernels are derived, and as before afterwards."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from treadle import estimated
from treadle.compiler.uncollected import uncollected
from treadle.derive import module_of


@pytest.fixture(autouse=True)
def collecting() -> Iterator[None]:
    gc.enable()
    yield
    gc.enable()


def test_it_is_off_inside_and_on_after() -> None:
    with uncollected():
        assert not gc.isenabled()
        with uncollected():
            assert not gc.isenabled()
        assert not gc.isenabled(), "the inner one has turned nothing off"
    assert gc.isenabled()


def test_an_error_leaves_it_on() -> None:
    with pytest.raises(ZeroDivisionError), uncollected():
        raise ZeroDivisionError
    assert gc.isenabled()


def test_what_somebody_turned_off_stays_off() -> None:
    gc.disable()
    with uncollected():
        assert not gc.isenabled()
    assert not gc.isenabled()


def test_estimates_are_found_without(monkeypatch: pytest.MonkeyPatch) -> None:
    program = module_of("examples/softmax.mlir")
    seen: list[bool] = []

    def known(_: str) -> None:
        seen.append(gc.isenabled())

    monkeypatch.setattr("treadle.store.kept_estimate", known)
    monkeypatch.setattr(estimated, "_PROGRAMS", {})
    estimated.estimate(program)
    assert seen == [False]
    assert gc.isenabled()
