"""The pipeline schedule, on stages whose timeline is plain."""

from __future__ import annotations

from itertools import pairwise

import pytest

from treadle.compiler.cost.timing.schedule import Stage, schedule

PRODUCT = Stage("product", "tensor", 4.0, (("exponentials", 1),))
EXPONENTIALS = Stage("exponentials", "special", 3.0, (("product", 0),))


def test_one_worker_does_one_after_the_other():
    timeline = schedule([PRODUCT, EXPONENTIALS], 1)
    assert timeline.clocks_of_step == pytest.approx(7)
    assert timeline.use == pytest.approx({"tensor": 4 / 7, "special": 3 / 7})


@pytest.mark.parametrize("workers", [2, 3, 5])
def test_several_workers_keep_the_slowest_unit_busy(workers: int):
    timeline = schedule([PRODUCT, EXPONENTIALS], workers)
    assert timeline.clocks_of_step == pytest.approx(4 * workers)
    assert timeline.use == pytest.approx({"tensor": 1, "special": 3 / 4})


def test_a_unit_does_one_stage_at_a_time_and_a_worker_waits_for_what_it_needs():
    timeline = schedule([PRODUCT, EXPONENTIALS], 3)
    of_unit = sorted((slot for slot in timeline.slots if slot.stage.unit == "tensor"), key=lambda slot: slot.start)
    assert all(one.end <= other.start for one, other in pairwise(of_unit))
    ends = {(slot.worker, slot.step, slot.stage.name): slot.end for slot in timeline.slots}
    for slot in timeline.slots:
        if slot.stage.name == "exponentials":
            assert slot.start >= ends[slot.worker, slot.step, "product"]


@pytest.mark.parametrize(
    ("after", "message"),
    [((("nothing", 0),), "comes after 'nothing', which is no stage"), ((("exponentials", 0),), "wait for each other")],
)
def test_stages_that_cannot_be(after: tuple[tuple[str, int], ...], message: str):
    with pytest.raises(ValueError, match=message):
        schedule([Stage("product", "tensor", 1.0, after), EXPONENTIALS], 1)
