"""Rows that the blocks of a cluster share: each holds its part, all put what is reduced together through each other's
shared memory, and nothing is loaded twice."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from test_rows import axes_of_example, kernels_of, needs_compiler, static

from roads import Road, compiled
from treadle.compiler.cost import plan_of
from treadle.compiler.cost.choice.candidates import candidates
from treadle.compiler.cost.levels.memory import footprint
from treadle.compiler.cost.levels.transfers import transfer_bytes, transfer_values
from treadle.compiler.cost.reading.sketch import sketch_of
from treadle.compiler.cost.timing.clusters import bytes_exchanged
from treadle.compiler.cost.timing.time import timing
from treadle.compiler.errors import TreadleError
from treadle.compiler.explain import explain
from treadle.compiler.machines import load_machine
from treadle.compiler.pipeline import LAST_DECORATING_PASS, LAST_HIERARCHY_PASS, Options, run_pipeline
from treadle.compiler.source import parse_module
from treadle.dialects import cuda
from treadle.dialects.hierarchy import KernelOp
from treadle.runtime.emulator.backend import EmulatorBackend
from treadle.runtime.emulator.errors import EmulationError
from treadle.runtime.host import HostExecution, execute
from treadle.runtime.interpreter import entry_function, run_function

LONG = ("softmax", "log_softmax", "rms_norm", "layer_norm")
SLOWER_SHARED = [("layer_norm", 131072)]
"""119 us where they are read twice, 133 us in clusters."""


LONGEST = [("softmax", 131073), ("log_softmax", 131073), ("rms_norm", 131073), ("layer_norm", 80001)]
"""Odd rows; of layer norms nearly the longest that are shared: of 81,921 elements reading twice is faster."""


def of_clusters(name: str, size: int) -> Road:
    found = compiled(static(name, size, 512), machine="h100")
    assert found.kernels[0].cluster > 1
    return found


# -- what is loaded ---------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [65536, 70001, 131072])
@pytest.mark.parametrize("name", LONG)
def test_rows_that_no_block_holds_are_loaded_once(name: str, size: int) -> None:
    """A cluster holds them: a row crosses once on its way in and once on its way out."""
    if (name, size) in SLOWER_SHARED:
        pytest.skip("a cluster would need 255 registers a thread: by the model reading rows twice is faster")
    (row, axis), _ = axes_of_example(name)
    (kernel,) = kernels_of(static(name, size), "h100")
    assert kernel.schedule is not None
    assert kernel.schedule.blocks > 1
    of_rows = [each for each in plan_of(kernel).transfers if set(each.axes) == {row, axis}]
    assert sorted(each.saves for each in of_rows) == [False, True]
    assert all(each.values({row: 512, axis: size}) == 512 * size for each in of_rows)


def test_without_clusters_such_rows_are_streamed() -> None:
    (kernel,) = kernels_of(static("softmax", 65536), "a100")
    assert kernel.schedule is not None
    assert list(kernel.schedule.stream.as_dict()) == ["x"]


def test_few_rows_are_spread_over_the_machine() -> None:
    """16 rows of a vocabulary keep 64 or 128 multiprocessors busy, where blocks alone would 16: both are as fast by the
    model."""
    (kernel,) = kernels_of(static("softmax", 32768, rows=16), "h100")
    assert kernel.schedule is not None
    assert kernel.schedule.blocks in (4, 8)


LENGTHS = """
!A = tensor<?x65536xf32, #diagram.array<[row, x]>>
!n = tensor<?xi32, #diagram.array<[row]>>
func.func @f(%A: !A, %n: !n) -> !A attributes {sizes = #diagram.sizes<row = 512>} {
  %M = diagram.where %A if "CONDITION" with (n = %n : !n) : !A
  %P = diagram.apply @softmax(%M) over [x] : (!A) -> !A
  func.return %P : !A
}
"""


def lengths(condition: str) -> str:
    return LENGTHS.replace("CONDITION", condition)


def test_what_every_block_needs_is_counted_for_each() -> None:
    """A number of each row is loaded by every block of the cluster: the interpreter counts what the model says."""
    module = parse_module(lengths("x < n[row]"), "lengths")
    run_pipeline(module, Options(machine="h100"), last=LAST_HIERARCHY_PASS)
    (kernel,) = (op for op in module.walk() if isinstance(op, KernelOp))
    assert kernel.schedule is not None
    rows, blocks, sizes = 3, kernel.schedule.blocks, {"row": 3, "x": 65536}
    given = [np.zeros((rows, 65536), np.float32), np.full(rows, 100, np.int32)]
    (counts,) = run_function(module, given).transfers
    plan, wanted = plan_of(kernel), 2 * rows * 65536 + rows * blocks
    assert transfer_values(plan, "device", sizes) == wanted
    assert transfer_bytes(plan, "device", sizes) == 4 * wanted
    assert sum(counts.loaded.values()) + sum(counts.saved.values()) == wanted
    assert sum(counts.loaded_bytes.values()) + sum(counts.saved_bytes.values()) == 4 * wanted


# -- results ----------------------------------------------------------------------------------------


@needs_compiler
@pytest.mark.sample(4)
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize(("name", "size"), [(name, size) for name in LONG for size in (65536, 65537, 70001)] + LONGEST)
def test_shared_rows_equal_the_reference(name: str, size: int, rows: int) -> None:
    (row, _), _ = axes_of_example(name)
    of_clusters(name, size).check({row: rows}, seed=size)


@needs_compiler
@pytest.mark.parametrize("condition", ["x < n[row]", "x >= n[row]", "x >= 20000 * row and x < 20000 * row + n[row]"])
def test_shared_rows_under_conditions_equal_the_reference(condition: str) -> None:
    found = compiled(lengths(condition), machine="h100")
    assert found.kernels[0].cluster > 1
    rows = np.random.default_rng(3).standard_normal((4, 65536)).astype(np.float32)
    for verdict in found.verdicts([rows, np.array([1, 20000, 65535, 40000], np.int32)], {"row": 4}):
        assert verdict.ok, verdict


@needs_compiler
def test_shared_rows_equal_pytorch() -> None:
    given = np.random.default_rng(5).standard_normal((2, 65537)).astype(np.float32) * 8
    (made,) = of_clusters("softmax", 65537).run([given])
    wanted = torch.softmax(torch.from_numpy(given).double(), -1).numpy()
    np.testing.assert_allclose(made, wanted, rtol=3e-6, atol=1e-9)


@needs_compiler
def test_all_blocks_put_the_parts_together_alike() -> None:
    """What is reduced is the same to the last bit in all blocks: of a row of equal numbers all shares are equal."""
    (made,) = of_clusters("softmax", 65536).run([np.full((2, 65536), 0.7, np.float32)])
    assert len(np.unique(made)) == 1


@needs_compiler
def test_integers_are_put_together_as_integers() -> None:
    text = """
    !A = tensor<?x65536xi32, #diagram.array<[row, x]>>
    !m = tensor<?xi32, #diagram.array<[row]>>
    func.func @f(%A: !A) -> !A attributes {sizes = #diagram.sizes<row = 512>} {
      %m = diagram.reduce KIND %A over [x] : !A -> !m
      %P = diagram.map (%a = %A : !A, %b = %m : !m) -> !A {
        %c = arith.subi %a, %b : i32
        diagram.yield %c : i32
      }
      func.return %P : !A
    }
    """
    given = np.random.default_rng(1).integers(-(2**24) - 9, 2**24 + 9, (2, 65536)).astype(np.int32)
    for kind, wanted in (("max", given.max(1)), ("min", given.min(1)), ("add", given.sum(1, dtype=np.int32))):
        found = compiled(text.replace("KIND", kind), machine="h100")
        assert found.kernels[0].cluster > 1
        (made,) = found.run([given])
        np.testing.assert_array_equal(np.asarray(made), given - wanted[:, None])


# -- the machine ------------------------------------------------------------------------------------


@needs_compiler
@pytest.mark.parametrize("meeting", [0, 1])
def test_a_missing_meeting_of_blocks_is_caught(meeting: int) -> None:
    found = of_clusters("softmax", 65536)
    both = re.compile(r"\n\s*barrier_cluster_arrive\(\);\n\s*barrier_cluster_wait\(\);")
    assert len(list(both.finditer(found.text))) == 2
    place = list(both.finditer(found.text))[meeting]
    with pytest.raises(EmulationError, match=r"race|poison"):
        run_text(found, found.text[: place.start()] + found.text[place.end() :])


@needs_compiler
def test_a_block_that_ends_while_others_read_its_memory_is_caught() -> None:
    found = of_clusters("softmax", 65536)
    arrive, wait = ("barrier_cluster_arrive();", "barrier_cluster_wait();")
    assert found.text.count(wait) == 3
    ends = [found.text.rindex(each) for each in (arrive, wait)]
    text = found.text[: ends[1]] + found.text[ends[1] + len(wait) :]
    text = text[: ends[0]] + text[ends[0] + len(arrive) :]
    with pytest.raises(EmulationError, match="may have returned"):
        run_text(found, text)


def run_text(found: Road, text: str) -> None:
    backend = EmulatorBackend(text, [kernel.sym_name.data for kernel in found.kernels])
    execute(found.module, [np.asarray(each) for each in found.inputs({"row": 2})], backend)


def test_no_tile_lies_over_what_other_blocks_read() -> None:
    """What goes through shared memory where rows are not aligned lies behind what others may still read."""
    found = of_clusters("softmax", 65537)
    (kernel,) = found.kernels
    ops = list(kernel.body.block.ops)
    read = [op.source.owner for op in ops if isinstance(op, cuda.ReadClusterOp)]
    ends = [op.offset.data + op.stage_bytes for op in read if isinstance(op, cuda.SharedOp)]
    staged = [op.staged for op in ops if isinstance(op, cuda.LoadOp | cuda.StoreOp) and op.staged is not None]
    assert ends
    assert staged
    assert all(each.at.data >= max(ends) for each in staged)


@pytest.mark.parametrize("size", [65536, 70001])
@pytest.mark.parametrize("name", LONG)
def test_shared_memory_is_what_the_model_says(name: str, size: int) -> None:
    (kernel,) = of_clusters(name, size).kernels
    (decorated,) = kernels_of(static(name, size, 512), "h100")
    assert footprint(plan_of(decorated), load_machine("h100")).shared_bytes == kernel.shared_bytes.data


@pytest.mark.parametrize("name", LONG)
def test_the_explicit_form_needs_what_the_decorated_one_does(name: str) -> None:
    text, machine = static(name, 70001, 512), load_machine("h100")
    (decorated,) = kernels_of(text, "h100")
    module = parse_module(text, name)
    run_pipeline(module, Options(machine="h100"), last=LAST_HIERARCHY_PASS)
    (explicit,) = (op for op in module.walk() if isinstance(op, KernelOp))
    plans = plan_of(decorated), plan_of(explicit)
    assert plans[0].cluster == plans[1].cluster > 1
    assert footprint(plans[0], machine) == footprint(plans[1], machine)
    sizes = dict(zip(axes_of_example(name)[0], (5, 70001), strict=True))
    assert plans[0].blocks(sizes) == plans[1].blocks(sizes) == 5 * plans[0].cluster


# -- bad input --------------------------------------------------------------------------------------


def with_parts(part: str, machine: str = "h100", text: str | None = None) -> None:
    """Compile rows of which the schedule says so; those of 4096 fit one block."""
    with_schedule(r"(schedule #hierarchy.schedule<.*?)>( \{|$)", rf"\1, cluster = [{part}]>\2", machine, text)


def with_schedule(old: str, new: str, machine: str = "h100", text: str | None = None) -> None:
    """Compile rows whose schedule is changed by hand."""
    module = parse_module(text or static("softmax", 4096, 512), "rows")
    run_pipeline(module, Options(machine=machine), last=LAST_DECORATING_PASS)
    printed, count = re.subn(old, new, str(module), count=1)
    assert count == 1
    run_pipeline(parse_module(printed, "rows"), Options(machine=machine))


def test_a_schedule_may_ask_for_shared_rows() -> None:
    with_parts("x = 1024")


@pytest.mark.parametrize(
    ("part", "machine", "message"),
    [
        ("x = 1024", "a100", "sm_80 has no clusters: sm_90 and newer have"),
        ("x = 256", "h100", "16 blocks of a cluster share axis 'x' of @softmax_rows: a cluster has at most 8"),
        ("x = 4096", "h100", "a piece of 4096 leaves nothing of the 4096 of 'x' to a second block"),
        ("row = 1", "h100", "blocks of a cluster share axis 'row', which is in 'group'"),
        ("y = 1", "h100", "blocks of a cluster share axis 'y', which is none of the schedule's"),
        ("x = ?", "h100", "what each block of a cluster holds of 'x' is not decided"),
    ],
)
def test_what_no_cluster_can_share_is_refused(part: str, machine: str, message: str) -> None:
    with pytest.raises(TreadleError, match=re.escape(message)):
        with_parts(part, machine)


@pytest.mark.parametrize("whole", [2048, 8192])
def test_rows_of_another_length_than_the_schedule_says_are_refused(whole: int) -> None:
    """The length says how many blocks share a row: with too few, the others' elements would be left out."""
    with pytest.raises(TreadleError, match=f"the schedule holds {whole} of axis 'x' whole, which has 4096"):
        with_schedule(r"whole = \[x = 4096\](.*)(>)( \{|$)", rf"whole = [x = {whole}]\1, cluster = [x = 1024]\2\3")


def test_more_warps_than_a_block_has_are_refused() -> None:
    with pytest.raises(TreadleError, match=r"a block of 64 warps \(row = 1, x = 64\): it has at most 32"):
        with_schedule(r"warps = \[[^\]]*\]", "warps = [row = 1, x = 64]")


def test_results_without_the_shared_axis_are_refused() -> None:
    text = """
    !A = tensor<?x4096xf32, #diagram.array<[row, x]>>
    !m = tensor<?xf32, #diagram.array<[row]>>
    func.func @f(%A: !A) -> (!A, !m) attributes {sizes = #diagram.sizes<row = 512>} {
      %m = diagram.reduce max %A over [x] : !A -> !m
      %P = diagram.map (%a = %A : !A, %b = %m : !m) -> !A {
        %c = arith.subf %a, %b : f32
        diagram.yield %c : f32
      }
      func.return %P, %m : !A, !m
    }
    """
    with pytest.raises(TreadleError, match="each of them would save all of %m, which lacks it"):
        with_parts("x = 1024", text=text)


@pytest.mark.parametrize("name", LONG)
def test_many_candidates_are_estimated_as_each_one_is(name: str) -> None:
    (kernel,), machine = kernels_of(static(name, 70001, 512), "h100"), load_machine("h100")
    assert kernel.schedule is not None
    sketch = sketch_of(kernel, kernel.schedule)
    sizes = dict(zip(axes_of_example(name)[0], (512, 70001), strict=True))
    found = candidates(sketch, sizes, {}, machine.most_in_cluster)
    plan = sketch.plan(found.tiles, found.warps, about=1.0)
    together = timing(plan, machine, sizes)
    assert set(plan.cluster) == {1, 2, 4, 8}
    for i in range(0, len(found), 7):
        one = found[i]
        alone = timing(sketch.plan(one.tiles, one.warps), machine, sizes)
        assert together.footprint.of(i) == alone.footprint
        assert np.broadcast_to(together.blocks, len(found))[i] == alone.blocks
        assert np.broadcast_to(together.time_us, len(found))[i] == pytest.approx(alone.time_us)


@needs_compiler
@pytest.mark.parametrize("rows", [1, 4, 5])
@pytest.mark.parametrize(("name", "size"), [("softmax", 65536), ("rms_norm", 65537), ("layer_norm", 65536)])
def test_emulator_counts_what_blocks_read_of_each_other(name: str, size: int, rows: int) -> None:
    """Layer norm has two rows a group: a thread reads the parts of both, of the mean and of the variance."""
    found = of_clusters(name, size)
    (decorated,) = kernels_of(static(name, size, 512), "h100")
    sizes = dict(zip(axes_of_example(name)[0], (rows, size), strict=True))
    execution = HostExecution(found.module, found.backend())
    execution.run(entry_function(found.module), [np.asarray(each) for each in found.inputs(sizes)])
    (launched,) = execution.launches
    assert 0 < launched.report.cluster_bytes == bytes_exchanged(plan_of(decorated), sizes)
    module = parse_module(static(name, size, 512), name)
    run_pipeline(module, Options(machine="h100"), last=LAST_HIERARCHY_PASS)
    (explicit,) = (op for op in module.walk() if isinstance(op, KernelOp))
    assert bytes_exchanged(plan_of(explicit), sizes) == launched.report.cluster_bytes
    (cost,) = explain(module, load_machine("h100"), sizes).kernels
    assert (cost.cluster, cost.cluster_bytes) == (found.kernels[0].cluster, launched.report.cluster_bytes)
    assert [link.bytes for link in cost.links][2:] == [launched.report.cluster_bytes]
