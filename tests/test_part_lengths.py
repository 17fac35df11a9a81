"""How long parts are: several lengths are tried, the fastest is taken, and none that costs a longer launch time."""

from __future__ import annotations

import re
from collections.abc import Callable
from math import gcd
from pathlib import Path

import pytest

from roads import compiled
from treadle.compiler.machines import load_machine
from treadle.compiler.pipeline import Options, run_pipeline
from treadle.compiler.source import parse_module
from treadle.dialects.hierarchy import KernelOp
from treadle.dialects.hierarchy.schedule import derivation_of
from treadle.passes.kernels.part_lengths import EVEN, WHOLE_PIECES, Lengths, Times, fastest, lengths_of, tried
from treadle.runtime.backend import has_host_compiler
from treadle.runtime.interpreter import entry_function

needs_compiler = pytest.mark.skipif(not has_host_compiler(), reason="no C++ compiler is installed")
EXAMPLES = Path(__file__).parents[1] / "examples"
PASS = "hierarchy-split-streams"
MACHINES = ("a100", "h100")


def steady(start: float, each: float, size: int) -> Callable[[int], Times]:
    """A clock: all positions take 100 us one after another, and a part costs `each` more; the last is the longest."""

    def clock(length: int) -> Times:
        stated = start + 100 * (length + size % length) / size + each * (size // length)
        return Times(stated, stated)

    return clock


def least_uneven(lengths: Lengths, most: int) -> int | None:
    """Of all lengths for at most so many parts that whose longest part is shortest; of equals the longest."""
    least = max(WHOLE_PIECES, lengths.size // (most + 1) + 1)
    all_of_them = [length for length in range(least, lengths.size // 2 + 1) if length % lengths.granule == 0]
    return min(all_of_them, key=lambda length: (length + lengths.size % length, -length), default=None)


@pytest.mark.parametrize("granule", [1, 8, 32, 64, 96])
def test_lengths_are_those_of_trying_all(granule: int) -> None:
    for size in (*range(128, 1400, 37), 4096, 9973):
        lengths = Lengths(size, granule)
        for most in range(2, lengths.most_parts + 1):
            assert lengths.of(most) is None or lengths.are_any
            assert lengths._least_uneven(most) == least_uneven(lengths, most)  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize("granule", [1, 32, 64, 2**30])
def test_the_longest_axes_are_searched_as_fast_as_short_ones(granule: int) -> None:
    """A prime number of positions has no even parts, and two billion of them are not tried one by one."""
    asked = [0]

    class Counted(Lengths):
        def _longest(self, length: int) -> int:
            asked[0] += 1
            return super()._longest(length)

    lengths = Counted(2**31 - 1, granule)
    for parts in (2, 100, 5000):
        found = tried(lengths, parts, steady(2.0, 0.3, lengths.size), Times(100.0, 100.0))
        assert all(length % granule == 0 for length in found)
        assert bool(found) == (granule < 2**30)
    assert asked[0] < 100_000


@pytest.mark.parametrize("parts", [2, 7, 27, 200])
@pytest.mark.parametrize("each", [0.01, 0.3])
@pytest.mark.parametrize("size", [4096, 1000, 999, 65536])
def test_the_search_finds_what_trying_all_counts_finds(size: int, each: float, parts: int) -> None:
    """Within steps of two in the number of parts, wherever it begins."""
    lengths, clock = lengths_of(size, is_known=True, has_neighbours=False), steady(2.0, each, size)
    alone = Times(100.0, 100.0)
    found = tried(lengths, parts, clock, alone)
    best = min((clock(length).stated for length in range(WHOLE_PIECES, size // 2 + 1)), default=0)
    length = fastest(found, alone)
    assert length is not None
    assert clock(length).stated <= 1.4 * best
    assert len(found) <= 10


@pytest.mark.parametrize("size", [128, 200, 333, 999, 1000, 1001, 4096, 32000, 1000003])
@pytest.mark.parametrize(("is_known", "has_neighbours"), [(False, False), (True, True), (True, False)])
def test_lengths_are_whole_pieces_and_keep_the_alignment(size: int, is_known: bool, has_neighbours: bool) -> None:
    lengths = lengths_of(size, is_known, has_neighbours)
    found = {most: lengths.of(most) for most in (2, 3, 8, 27, 108, size // WHOLE_PIECES, size)}
    assert found[size // WHOLE_PIECES] is not None
    assert found[size] is None
    for most, length in found.items():
        if length is None:
            continue
        assert length >= WHOLE_PIECES
        assert 2 <= size // length <= most
        if not is_known:
            assert length % WHOLE_PIECES == 0
        elif has_neighbours:
            assert length % gcd(size, EVEN) == 0


def test_parts_are_alike_where_that_takes_not_much_fewer() -> None:
    assert Lengths(4096, 32).of(18) == 256
    assert Lengths(1000, 1).of(12) == 100
    assert Lengths(1000, 1).of(15) == 66  # the last one 76
    assert Lengths(1009, 1).of(8) == 126  # of a prime number the last part has one more


def test_few_parts_that_are_slower_than_one_kernel_end_the_search() -> None:
    found = tried(Lengths(4096, 64), 16, lambda length: Times(7.0, 7.0), Times(6.0, 6.0))
    assert len(found) == 1
    assert fastest(found, Times(6.0, 6.0)) is None


def test_what_a_longer_launch_would_lose_is_not_taken() -> None:
    alone = Times(10.0, 100.0)
    assert fastest({64: Times(5.0, 113.0)}, alone) is None
    assert fastest({64: Times(5.0, 113.0), 128: Times(7.0, 90.0)}, alone) == 128
    assert fastest({64: Times(9.5, 50.0)}, alone) is None
    assert fastest({64: Times(5.0, 20.0), 128: Times(5.05, 20.0)}, alone) == 128  # as fast, and saves fewer states
    assert fastest({64: Times(5.0, 20.0), 128: Times(5.2, 18.0)}, alone) == 128  # nearly, and faster where longer
    assert fastest({64: Times(5.0, 20.0), 128: Times(6.0, 15.0)}, alone) == 64


def told(source: str, machine: str) -> list[tuple[str, str]]:
    module = parse_module(source)
    run_pipeline(module, Options(machine=machine), last=PASS)
    steps = derivation_of(entry_function(module).attributes)
    return [(step.rewrite.data, step.reason.data) for step in steps if PASS in step.rewrite.data]


CLASSES = """
!H = tensor<{t}x64xf16, #diagram.array<[t, d]>>
!W = tensor<{c}x64xf16, #diagram.array<[c, d]>>
!Z = tensor<{t}x{c}xf32, #diagram.array<[t, c]>>
!l = tensor<{t}xf32, #diagram.array<[t]>>
func.func @f(%H: !H, %W: !W) -> !l attributes {{sizes = #diagram.sizes<{sizes}>}} {{
  %Z = diagram.contract %H, %W over [d] accumulate f32 : !H, !W -> !Z
  %l = diagram.apply @log_sum_exp(%Z) over [c] : (!Z) -> !l
  func.return %l : !l
}}
"""
"""A product of few rows, and the logarithm of the sum of powers along its many columns."""


@pytest.mark.parametrize("machine", MACHINES)
def test_few_rows_take_more_than_two_parts_and_the_derivation_says_what_was_tried(machine: str) -> None:
    ((rewrite, reason),) = told(CLASSES.format(t=50, c=1000, sizes=""), machine)
    assert rewrite == PASS
    times = {int(length): float(time) for time, length in re.findall(r"(\S+) us in parts of (\d+)", reason)}
    (whole,) = re.findall(r"(\S+) us whole", reason)
    (chosen,) = re.findall(r"parts of (\d+):|parts of (\d+), the last", reason)
    length = int("".join(chosen))
    assert len(times) >= 2
    assert times[length] == min(times.values())
    assert times[length] <= 0.7 * float(whole)
    assert 1000 // length >= 8


@needs_compiler
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("c", [1000, 777, 1009])
def test_parts_of_odd_sizes_are_verified(c: int, machine: str) -> None:
    road = compiled(CLASSES.format(t="?", c="?", sizes=f"t = 50, c = {c}"), machine=machine)
    assert len(road.kernels) >= 2
    for t, size in ((50, c), (7, c + 130), (1, 65), (3, 1)):
        road.check({"t": t, "c": size})


def sized(name: str, **sizes: int) -> str:
    text = (EXAMPLES / f"{name}.mlir").read_text(encoding="utf-8")
    for axis, size in sizes.items():
        text = re.sub(rf"(sizes<[^>]*\b{axis} = )\d+", rf"\g<1>{size}", text)
    return text


@pytest.mark.parametrize("machine", MACHINES)
def test_groups_beyond_half_of_the_machine_are_cut_where_processors_hold_several(machine: str) -> None:
    """Of 64 groups, one on a processor: each is alone with its latencies, which warpgroups with a producer hide."""
    ((rewrite, _),) = told(sized("attention_decode", b=16, x=8192), machine)
    assert rewrite == (PASS if machine == "a100" else f"decline {PASS}")
    ((rewrite, _),) = told(sized("attention_decode", b=2, x=8192), machine)
    assert rewrite == PASS
    assert not told(sized("attention_decode", b=64, x=8192), "a100")  # device memory is busy all the time


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", ["attention_soft_cap", "attention_bf16", "attention_bias", "linear_attention"])
def test_scores_of_many_queries_are_not_cut_for_a_small_default(name: str, machine: str) -> None:
    """Each part saves a state for every query: what pays for some is a loss where there are more of them."""
    module = parse_module(sized(name))
    run_pipeline(module, Options(machine=machine), last=PASS)
    assert not any(op.kernel_name.data.endswith("_parts") for op in module.walk() if isinstance(op, KernelOp))


def test_a_launch_more_is_known_to_cost_without_a_trial() -> None:
    ((rewrite, reason),) = told(sized("log_sum_exp", row=8, x=1000), "h100")
    assert rewrite == f"decline {PASS}"
    assert reason.startswith("two kernels take at least")
    assert 2e6 * load_machine("h100").launch < float(reason.split("at least ")[1].split(" us")[0])
