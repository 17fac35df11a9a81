"""Axes near 2^31: what would be asked of every turn or of every group is asked of some, which stand for the others."""

from __future__ import annotations

from collections import Counter

import pytest

from treadle.compiler.amounts import Amount
from treadle.compiler.cost.kernel.plan import Pieces
from treadle.compiler.cost.reading import fed
from treadle.compiler.cost.reading.fed import Fed, Places, Shares
from treadle.compiler.execution import MOST_TURNS, counted, executed
from treadle.compiler.pipeline import Options, print_cuda, run_pipeline
from treadle.compiler.source import parse_module
from treadle.dialects.diagram.array import LARGEST_SIZE
from treadle.passes.grids.sharing import MOST_TOLD, _interpolated  # pyright: ignore[reportPrivateUsage]
from treadle.runtime.interpreter import entry_function

PRIME = 2147483629

LOOPS = """func.func @turns() {{
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %two = arith.constant 2 : index
  %last = arith.constant {last} : index
  %turns = arith.constant {turns} : index
  scf.for %i = %zero to %turns step %one {{
    scf.for %j = %zero to %two step %one {{
      %inner = arith.addi %i, %j : index
    }}
    %is_first = arith.cmpi ult, %i, %two : index
    scf.if %is_first {{
      %first = arith.muli %i, %i : index
    }}
    %is_last = arith.cmpi eq, %i, %last : index
    scf.if %is_last {{
      %end = arith.subi %i, %i : index
    }}
  }}
  func.return
}}"""


def counts(turns: int, every: bool) -> dict[str, int]:
    """How many times each operation is executed, by its name."""
    block = entry_function(parse_module(LOOPS.format(turns=turns, last=turns - 1))).body.block
    found: Counter[str] = Counter()
    for op, times in ((op, 1) for op in executed(block, {})) if every else counted(block, {}):
        found[op.name] += times
    return dict(found)


@pytest.mark.parametrize("turns", [1, MOST_TURNS - 1, MOST_TURNS, MOST_TURNS + 1, 5 * MOST_TURNS])
def test_turns_that_are_not_looked_at_count(turns: int) -> None:
    assert counts(turns, every=False) == counts(turns, every=True)


def test_of_a_long_loop_the_first_and_the_last_turns_are_looked_at() -> None:
    found = counts(PRIME, every=False)
    assert (found["arith.addi"], found["arith.muli"], found["arith.subi"]) == (2 * PRIME, 2, 1)


def causal(length: int) -> tuple[Fed, dict[str, int]]:
    """Keys up to each query."""
    stream, queries = Pieces("x", 64), Pieces("q", 64)
    return Fed(stream, (queries,), (_nothing, _end), None, by_data=False), {"x": length, "q": length}


def _nothing(_: Places) -> Amount:
    return None


def _end(places: Places) -> Amount:
    return places["q"][1]


def shares(length: int) -> Shares:
    found, sizes = causal(length)
    return found.shares(sizes)


def test_some_groups_stand_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    length = 64 * 1000
    exact = shares(length)
    monkeypatch.setattr(fed, "MOST_ASKED", 100)
    about = shares(length)
    assert exact.groups == (1000,)
    assert exact.in_all(exact.steps) == 1000 * 1001 // 2
    # Every sixteenth group is asked from the first one on, so that they stand for groups that are fed up to 15 more.
    assert about.groups == (63,)
    assert about.in_all(about.steps) == pytest.approx(exact.in_all(exact.steps), rel=16 / 1000)
    assert about.mean_steps == pytest.approx(exact.mean_steps, rel=16 / 1000)


def test_groups_of_the_longest_axis_are_about_half_fed() -> None:
    found = shares(LARGEST_SIZE)
    assert found.groups[0] <= fed.MOST_ASKED
    assert found.mean_steps == pytest.approx(LARGEST_SIZE / 64 / 2, rel=1e-4)


def test_of_a_long_row_some_pieces_are_told_apart() -> None:
    short, long = (_interpolated(lambda number: 10 * number, count) for count in (MOST_TOLD, PRIME))
    assert short == tuple(10 * number for number in range(MOST_TOLD))
    assert len(long) == MOST_TOLD
    assert (long[0], long[-1]) == (0, 10 * (PRIME - 1))


@pytest.mark.parametrize("size", [PRIME, LARGEST_SIZE])
def test_a_product_with_a_long_side_compiles(size: int) -> None:
    text = f"""func.func @f(%A: tensor<{size}x16xf16, #diagram.array<[m, k]>>,
        %B: tensor<16x16xf16, #diagram.array<[k, n]>>) -> tensor<{size}x16xf32, #diagram.array<[m, n]>> {{
      %C = diagram.contract %A, %B over [k] accumulate f32 : tensor<{size}x16xf16, #diagram.array<[m, k]>>,
        tensor<16x16xf16, #diagram.array<[k, n]>> -> tensor<{size}x16xf32, #diagram.array<[m, n]>>
      func.return %C : tensor<{size}x16xf32, #diagram.array<[m, n]>>
    }}"""
    module = parse_module(text)
    run_pipeline(module, Options("h100"))
    assert f"{size}" in print_cuda(module)
