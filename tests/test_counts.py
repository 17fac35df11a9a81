"""Counts equal predictions, exactly: for every example, at sizes that divide and at odd ones, at every level that a
program moves data through explicitly, in values and in bytes, in the interpreter and in the emulator."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from math import prod
from pathlib import Path

import pytest
from xdsl.dialects.builtin import ModuleOp

from treadle.compiler.cost import LEVELS, Plan, plan_of, sizes_of_kernel, transfer_expression, transfers_at
from treadle.compiler.cost.kernel.issue import SHARED_BYTES
from treadle.compiler.cost.levels.copies import copies_of_arrays
from treadle.compiler.gates.traffic import traffic_of
from treadle.compiler.pipeline import LAST_HIERARCHY_PASS, Options, run_pipeline
from treadle.compiler.source import load_module
from treadle.dialects import cuda
from treadle.dialects.hierarchy import KernelOp
from treadle.runtime.inputs import axis_sizes
from treadle.runtime.interpreter import entry_function, run_function

from roads import Road, compiled  # isort: skip

EXAMPLES = sorted((Path(__file__).resolve().parents[1] / "examples").glob("*.mlir"))
COMPILER = os.environ.get("CXX") or next(filter(shutil.which, ("g++", "clang++", "c++")), "")

LARGE = {"dividing": 256, "odd": 67}
SMALL = {"dividing": 2, "odd": 3}
"""Of an axis of which each group has one index: batches and heads."""
INTO_SHARED = ("copy_async", "store_shared")
"""What stands in a line of C that moves data on from device memory to shared memory."""
ON_THE_WAY = "_staged"
"""What stands there if shared memory is but the way to registers."""


@cache
def explicit(path: Path) -> ModuleOp:
    module = load_module(path)
    run_pipeline(module, Options(), last=LAST_HIERARCHY_PASS)
    return module


@cache
def road(path: Path) -> Road:
    return compiled(path.read_text(encoding="utf-8"))


def plans(path: Path) -> list[Plan]:
    return [plan_of(op) for op in explicit(path).walk() if isinstance(op, KernelOp)]


def sizes(path: Path, kind: str) -> dict[str, int]:
    """A size of that kind for every symbolic axis, with batches and heads small."""
    cut = [pieces for plan in plans(path) for pieces in plan.groups]
    single = {pieces.axis for pieces in cut} - {pieces.axis for pieces in cut if pieces.size > 1}
    return {axis: (SMALL if axis in single else LARGE)[kind] for axis in road(path).symbolic}


def predictions(
    path: Path, given: Mapping[str, int], copies: Sequence[Mapping[str, int]] = ()
) -> Iterator[dict[str, Counter[str]]]:
    """What each kernel loads and saves, at each level: values and bytes. `copies` says for each kernel how many threads
    load each value of an array."""
    function = entry_function(explicit(path))
    known = axis_sizes(entry_function(road(path).algorithm), given)
    kernels = (op for op in explicit(path).walk() if isinstance(op, KernelOp))
    for i, (kernel, plan) in enumerate(zip(kernels, plans(path), strict=True)):
        times = copies[i] if copies else {}
        at = sizes_of_kernel(kernel, function, known)
        found: dict[str, Counter[str]] = {}
        for what in ("loaded", "saved"):
            for level in LEVELS:
                moved = [t for t in transfers_at(plan, level) if t.saves == (what == "saved")]
                values = [t.values(at) * (1 if t.saves else times.get(t.array, 1)) for t in moved]
                found.setdefault(f"{what} values", Counter())[level] = sum(values)
                found.setdefault(f"{what} bytes", Counter())[level] = sum(
                    count * t.width for count, t in zip(values, moved, strict=True)
                )
        yield found


def predicted_instructions(path: Path, given: Mapping[str, int]) -> Iterator[Counter[str]]:
    """What the warps of each kernel issue between shared memory and registers: matrix reads and products."""
    function = entry_function(explicit(path))
    known = axis_sizes(entry_function(road(path).algorithm), given)
    kernels = (op for op in explicit(path).walk() if isinstance(op, KernelOp))
    for kernel, plan in zip(kernels, plans(path), strict=True):
        at = sizes_of_kernel(kernel, function, known)
        issued = Counter[str]()
        for issue in plan.issues:
            times = plan.blocks(at) * plan.warp_count * prod(pieces.mean(at) for pieces in issue.streams)
            issued[issue.kind.split()[0]] += round(times * round(issue.count))
        yield issued


def with_device(near: Mapping[str, int]) -> Counter[str]:
    """Everything that crosses has device memory at its far end."""
    return Counter({**near, "device": sum(near.values())})


@pytest.mark.sample(15, each=False)
@pytest.mark.parametrize("kind", ["dividing", "odd"])
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_interpreter_counts_what_is_predicted(path: Path, kind: str):
    given = sizes(path, kind)
    inputs = road(path).inputs(given)
    known = axis_sizes(entry_function(road(path).algorithm), given)
    execution = run_function(explicit(path), inputs, sizes=known)
    counted = [
        {
            "loaded values": with_device(each.loaded),
            "loaded bytes": with_device(each.loaded_bytes),
            "saved values": with_device(each.saved),
            "saved bytes": with_device(each.saved_bytes),
        }
        for each in execution.transfers
    ]
    assert counted
    for found, plan, wanted in zip(counted, plans(path), predictions(path, given), strict=True):
        if plan.is_at_most:
            assert all(found[what][level] <= wanted[what][level] for what in wanted for level in wanted[what])
        else:
            assert found == wanted


@pytest.mark.skipif(not COMPILER, reason="no C++ compiler is installed")
@pytest.mark.parametrize("kind", ["dividing", "odd"])
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
@pytest.mark.sample(20, each=False)
def test_emulator_counts_what_is_predicted(path: Path, kind: str):
    """Of the printed C, each line says where its data goes. Every thread that holds a value asks for it by itself."""
    given = sizes(path, kind)
    made = road(path)
    backend = made.backend()
    backend.reports.clear()
    backend.variants.clear()
    made.run(made.inputs(given))
    of_name = {cuda.variant_name(each, to): (each, to) for each in made.kernels for to in cuda.alignments(each)}
    wanted = list(predictions(path, given, [copies_of_arrays(*of_name[name]) for name in backend.variants]))
    assert len(backend.reports) == len(wanted)
    for report, prediction, plan in zip(backend.reports, wanted, plans(path), strict=True):
        loaded, saved = Counter[str](), Counter[str]()
        for each in traffic_of(made.text, [report]):
            if each.kind in ("load_global", "copy_async"):
                stays = any(word in each.text for word in INTO_SHARED) and ON_THE_WAY not in each.text
                near = "shared" if stays else "register"
                loaded[near] += each.bytes
            elif each.kind in ("store_global", "add_global"):
                saved["register"] += each.bytes
        if plan.is_at_most:  # by how much, only the data know
            assert all(loaded[level] <= prediction["loaded bytes"][level] for level in ("shared", "register"))
        else:
            assert with_device(loaded) == prediction["loaded bytes"]
        if any(transfer.added for transfer in plan.transfers):  # what lies outside is added to nothing
            assert 0 < saved["register"] <= prediction["saved bytes"]["register"]
        else:
            assert with_device(saved) == prediction["saved bytes"]
        assert (report.bytes_loaded, report.bytes_stored) == (sum(loaded.values()), sum(saved.values()))
    for report, issued, plan in zip(backend.reports, predicted_instructions(path, given), plans(path), strict=True):
        if plan.is_at_most:
            continue
        read = sum(each.bytes for each in report.operations if each.kind == "load_matrix")
        products = sum(each.requests for each in report.operations if each.kind == "mma")
        assert read == issued["ldmatrix"] * SHARED_BYTES["ldmatrix"]
        assert products == issued["products"]


WHERE_DATA_DECIDE = ["attention_lengths", "attention_packed", "attention_prefix", "attention_segments"]


@pytest.mark.skipif(not COMPILER, reason="no C++ compiler is installed")
@pytest.mark.parametrize("size", [1, 33])
@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("name", WHERE_DATA_DECIDE)
@pytest.mark.sample(4)
def test_no_more_is_loaded_than_at_most(name: str, machine: str, size: int):
    """However few elements there are: bounds that lanes, warps and roles each load for themselves count, too."""
    path = EXAMPLES[0].parent / f"{name}.mlir"
    made = compiled(path.read_text(encoding="utf-8"), machine=machine)
    module = load_module(path)
    run_pipeline(module, Options(machine=machine), last=LAST_HIERARCHY_PASS)
    (kernel,) = (op for op in module.walk() if isinstance(op, KernelOp))
    given = dict.fromkeys(made.symbolic, size) | {axis: SMALL["odd"] for axis in ("b", "h") if axis in made.symbolic}
    backend = made.backend()
    made.run(made.inputs(given))
    (report,), (variant,) = backend.reports, backend.variants
    of_name = {cuda.variant_name(each, to): (each, to) for each in made.kernels for to in cuda.alignments(each)}
    copies, plan = copies_of_arrays(*of_name[variant]), plan_of(kernel)
    at = sizes_of_kernel(kernel, entry_function(module), axis_sizes(entry_function(made.algorithm), given))
    loads = [each for each in transfers_at(plan, "device") if not each.saves]
    assert plan.is_at_most
    assert 0 < report.bytes_loaded <= sum(t.values(at) * t.width * copies.get(t.array, 1) for t in loads)


PROGRAMS = Path(__file__).resolve().parent / "programs"


def loads_of(path: Path, machine: str, given: Mapping[str, int]) -> Iterator[tuple[Plan, Counter[str], int]]:
    """Of each kernel its plan, the predicted bytes of each array that it loads, and those that the emulator counts."""
    made = compiled(path.read_text(encoding="utf-8"), machine=machine)
    module = load_module(path)
    run_pipeline(module, Options(machine=machine), last=LAST_HIERARCHY_PASS)
    known = axis_sizes(entry_function(made.algorithm), given)
    backend = made.backend()
    made.run(made.inputs(given))
    of_name = {cuda.variant_name(each, to): (each, to) for each in made.kernels for to in cuda.alignments(each)}
    kernels = (op for op in module.walk() if isinstance(op, KernelOp))
    for kernel, variant, report in zip(kernels, backend.variants, backend.reports, strict=True):
        plan, copies = plan_of(kernel), copies_of_arrays(*of_name[variant])
        at = sizes_of_kernel(kernel, entry_function(module), known)
        loads = Counter[str]()
        for each in transfers_at(plan, "device"):
            if not each.saves:
                loads[each.array] += each.values(at) * each.width * copies.get(each.array, 1)
        yield plan, loads, report.bytes_loaded


@pytest.mark.skipif(not COMPILER, reason="no C++ compiler is installed")
@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_what_conditions_leave_of_an_axis_that_groups_hold_is_at_most(machine: str):
    """Keys are read as far as queries are there along d: the prediction is all of them, and says that it is a bound."""
    given = {"b": 3, "h": 3, "q": 67, "x": 67}
    ((plan, loads, counted),) = loads_of(PROGRAMS / "part_of_the_width.mlir", machine, given)
    assert {each.array for each in plan.transfers if each.is_at_most} == {"K"}
    assert transfer_expression(plan, "shared").startswith("at most ")
    assert not transfer_expression(plan, "register").startswith("at most ")
    assert loads.total() - loads["K"] < counted < loads.total()


@pytest.mark.skipif(not COMPILER, reason="no C++ compiler is installed")
@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("k", [48, 40, 36, 34, 37, 136])
def test_bytes_of_each_way_that_rows_are_loaded(machine: str, k: int):
    """An entry for each alignment: by lanes as they hold rows, through shared memory, or element by element."""
    given = {"t": 19, "k": k, "n": k + 24}
    for plan, loads, counted in loads_of(PROGRAMS / "rms_gain_product.mlir", machine, given):
        assert not plan.is_at_most
        assert counted == loads.total()
