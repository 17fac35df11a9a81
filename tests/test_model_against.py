"""The model beside times on record: the page says what comes out, and what comes out is within the goal."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import pytest

from benchmarking import benchmark
from treadle.compiler.bench.predict import SHARE, Row

model_against = benchmark("model_against")
PAGE = (Path(__file__).resolve().parents[1] / "docs" / "predictions.md").read_text(encoding="utf-8")


@lru_cache(maxsize=1)
def rows() -> list[Row]:
    return model_against.rows("sustained")


def test_every_kernel_on_record_is_there_once():
    names = [each.name for each in model_against.measured()]
    assert len(names) == len(set(names)) == 27
    assert set(names) == set(model_against.kernels_then())


def test_the_page_says_what_comes_out():
    head, *cells = model_against.table(rows())
    assert model_against.markdown(head, cells) in PAGE
    hits = sum(row.is_hit for row in rows())
    assert f"**{hits} of {len(rows())} are within 15 %**" in PAGE


def test_predictions_are_within_the_goal():
    assert sum(row.is_hit for row in rows()) >= SHARE * len(rows())


def test_what_was_predicted_beforehand_is_on_the_page():
    """Of the later run, each kernel with the sizes that it had then."""
    found = model_against.rows("sustained", run="later")
    head, *cells = model_against.table(found)
    assert model_against.markdown(head, cells) in PAGE
    hits = sum(row.is_hit for row in found)
    assert f"The second time: {hits} of {len(found)}" in PAGE
    assert hits >= SHARE * len(found)


def test_what_was_predicted_last_is_on_the_page():
    """Fewer than the goal: the page says which, and what may be the reason."""
    found = model_against.rows("sustained", run="third")
    head, *cells = model_against.table(found)
    assert model_against.markdown(head, cells) in PAGE
    assert f"The third time: {sum(row.is_hit for row in found)} of {len(found)}" in PAGE


def test_a_run_that_measured_no_rates_has_none():
    with pytest.raises(ValueError, match="the later run measured no rates"):
        model_against.rows("run", run="later")


def test_device_memory_moves_what_was_counted_and_what_is_written_later():
    """Of what L2 has at the end of a kernel the counters did not see the way to device memory."""
    capacity = 52_428_800
    for row in rows():
        if row.program.startswith("softmax") and row.measured_bytes is not None:
            moved, counted = row.predicted_bytes["device"], row.measured_bytes["device"]
            assert counted * 0.98 <= moved <= counted + capacity, row.program


@pytest.mark.parametrize("name", ["causal attention b 1, h 16, q 16384, x 16384, d 128"])
def test_a_kernel_is_estimated_as_it_was_made(name: str):
    """In sections of two rows, where the model would take other ones now."""
    (measured,) = (each for each in model_against.measured() if each.name == name)
    kernel = model_against.kernels_then()[name]
    machine = model_against.load_machine(model_against.MODEL)
    then = model_against.row(measured, kernel, machine)
    even = model_against.row(measured, {**kernel, "section": 16}, machine)
    assert then.predicted_us > 1.15 * even.predicted_us
    assert model_against.row(measured, kernel, machine, True).predicted_us < then.predicted_us
