"""`treadle tune`: what it tries, that each is right, what stays, and what it says where there is no GPU. The device is
made up: it runs each way in the emulator, and takes as long as a test says."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

import treadle
from treadle.compiler.derivation.replay import read_derivation
from treadle.compiler.errors import InternalError, TreadleError
from treadle.compiler.main import main
from treadle.compiler.pipeline import NEEDED, Options, pipeline, print_cuda, run_passes, run_pipeline
from treadle.compiler.sizes import set_default_sizes
from treadle.compiler.source import load_module, only_function
from treadle.compiler.tune import gpu as tune_gpu
from treadle.compiler.tune.alternatives import (
    Sizes,
    WithOption,
    Without,
    alternatives,
    optional,
    other_options,
    other_sizes,
    sized_kernels,
)
from treadle.compiler.tune.gpu import check_near
from treadle.compiler.tune.search import OWN, STATED, fastest, tune
from treadle.compiler.universe import PASSES
from treadle.dialects.cuda import kernel_names
from treadle.dialects.hierarchy import KernelOp
from treadle.runtime.emulator.backend import EmulatorBackend
from treadle.runtime.gpu import GpuFailure, missing_for_gpu
from treadle.runtime.host import execute
from treadle.runtime.inputs import axis_sizes, make_inputs
from treadle.runtime.interpreter import entry_function
from treadle.runtime.nvcc import NvccFailure
from treadle.runtime.verify import verify

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def program(name: str, sizes: Mapping[str, int]) -> ModuleOp:
    module = load_module(EXAMPLES / f"{name}.mlir")
    set_default_sizes(only_function(module, name), dict(sizes))
    return module


@dataclass
class Emulated:
    """A device that verifies each way, in the emulator with all its checks."""

    algorithm: ModuleOp
    sizes: Mapping[str, int]
    took: Callable[[int], float] = lambda count: 1.0
    ran: int = 0

    def seconds(self, module: ModuleOp) -> float:
        function = entry_function(self.algorithm)
        inputs = make_inputs(function, axis_sizes(function, self.sizes), 0)
        backend = EmulatorBackend(print_cuda(module), kernel_names(module))
        results = execute(module, [each if isinstance(each, np.ndarray) else each.item() for each in inputs], backend)
        for verdict in verify(self.algorithm, inputs, results, "emulator", sizes=self.sizes):
            assert verdict.ok, str(verdict)
        self.ran += 1
        return self.took(self.ran)


SMALL = {
    "matmul-h100": {"m": 130, "n": 72, "k": 200},
    "attention_causal-h100": {"b": 1, "h": 2, "q": 150, "x": 150},
}


@pytest.mark.parametrize("case", SMALL)
def test_every_way_computes_the_same(case: str) -> None:
    name, _, machine = case.partition("-")
    module = program(name, SMALL[case])
    device = Emulated(module, SMALL[case])
    tried = list(tune(module, pipeline(Options(machine)), device, count=1))
    assert device.ran == len(tried), [each.reason for each in tried if each.seconds is None]
    assert tried[0].what == OWN
    assert len({each.what for each in tried}) == len(tried) > 4
    assert [each.what for each in tried if each.stays] == [OWN]


@pytest.mark.sample(3, each=False)
@pytest.mark.parametrize("option", [str(each) for each in other_options(pipeline(Options("h100")))])
@pytest.mark.parametrize("case", SMALL)
def test_every_option_computes_the_same(case: str, option: str) -> None:
    """Or is refused."""
    name, _, machine = case.partition("-")
    module, passes = program(name, SMALL[case]), pipeline(Options(machine))
    (other,) = (each for each in other_options(passes) if str(each) == option)
    try:
        run_passes(lowered := module.clone(), other.applied(passes))
    except InternalError:
        raise
    except TreadleError:
        return
    Emulated(module, SMALL[case]).seconds(lowered)


@pytest.mark.parametrize("case", SMALL)
def test_products_that_are_not_delayed_compute_the_same(case: str) -> None:
    name, _, machine = case.partition("-")
    module, passes = program(name, SMALL[case]), pipeline(Options(machine))
    lowered = module.clone()
    run_passes(lowered, WithOption("pipelining", "delay", (False,)).applied(passes))
    assert "of a turn during the next turn" not in str(lowered)
    Emulated(module, SMALL[case]).seconds(lowered)


@dataclass
class Timed:
    """A device that runs nothing: each way takes as long as is said of the passes that made it, by `of`."""

    of: Callable[[ModuleOp], float]
    given: list[ModuleOp] = field(default_factory=list[ModuleOp])

    def seconds(self, module: ModuleOp) -> float:
        self.given.append(module)
        return self.of(module)


def test_what_is_faster_stays_and_the_next_is_tried_beside_it() -> None:
    """The first other sizes are faster here; the pass that is left out first by less than may be chance."""
    module = program("attention_causal", {"q": 333, "x": 333})
    passes = pipeline(Options("h100"))
    times = iter([1.0, 0.8, 0.9, 0.795])
    tried = list(tune(module, passes, Timed(lambda _: next(times, 2.0)), count=2))
    own, first, second, third, *_ = tried
    assert [each.stays for each in tried] == [True, True] + [False] * (len(tried) - 2)
    assert fastest(tried) is first
    changed = [each for each in first.passes if each not in passes]
    assert len(changed) == 1
    assert changed[0].name == "hierarchy-choose-sizes"
    # In place of the sizes that stayed, not beside them.
    assert len(second.passes) == len(first.passes) == len(own.passes) + 1
    assert third.what.startswith("without ")
    assert third.passes == tuple(each for each in first.passes if f"without {each.name}" != third.what)
    assert len(third.passes) < len(first.passes)


def test_what_cannot_be_run_is_told_and_the_search_goes_on() -> None:
    module = program("softmax", {})

    def of(_: ModuleOp) -> float:
        if len(device.given) == 2:
            raise TreadleError("the device is out of memory")
        return 1.0

    device = Timed(of)
    _, failed, *others = tune(module, pipeline(Options("a100")), device, count=2)
    assert (failed.seconds, failed.reason, failed.stays) == (None, "the device is out of memory", False)
    assert all(each.seconds is not None for each in others)


def test_nothing_is_begun_after_the_time() -> None:
    module = program("softmax", {})
    (own,) = tune(module, pipeline(Options("a100")), Timed(lambda _: 1.0), count=2, until=0.0)
    assert own.what == OWN


# -- what is tried -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "machine"), [("matmul", "h100"), ("two_kernels", "a100"), ("attention_causal", "a100")]
)
def test_other_sizes_are_those_that_the_model_likes_next(name: str, machine: str) -> None:
    module, passes = program(name, {}), pipeline(Options(machine))
    own = module.clone()
    run_pipeline(own, Options(machine), last="hierarchy-choose-sizes")
    chosen = {op.kernel_name.data: op.schedule for op in own.walk() if isinstance(op, KernelOp)}
    found = list(other_sizes(module, passes, 3))
    assert [each.kernel for each in found] == [kernel for kernel in chosen for _ in range(3)]
    for each in found:
        lowered = module.clone()
        run_pipeline(lowered, Options(machine, passes=each.applied(passes)), last="hierarchy-choose-sizes")
        schedules = {op.kernel_name.data: op.schedule for op in lowered.walk() if isinstance(op, KernelOp)}
        assert schedules.pop(each.kernel) != chosen[each.kernel]
        assert all(chosen[kernel] == schedule for kernel, schedule in schedules.items())


def test_sizes_of_one_kernel_stand_in_place_of_its_others() -> None:
    passes = pipeline(Options("h100"))
    first, second, other = (
        Sizes("a", {"m": 64}, {}, 1.0),
        Sizes("a", {"m": 32}, {"k": 16}, 2.0),
        Sizes("b", {}, {}, 3.0),
    )
    both = other.applied(second.applied(first.applied(passes)))
    names = [each.name for each in passes]
    told = [str(each) for each in both if each.name == "hierarchy-choose-sizes"]
    assert told == [
        'hierarchy-choose-sizes{kernel="b"}',
        'hierarchy-choose-sizes{group="m=32" stream="k=16" kernel="a"}',
        "hierarchy-choose-sizes",
    ]
    assert [each.name for each in both if each.name != "hierarchy-choose-sizes"] == [
        name for name in names if name != "hierarchy-choose-sizes"
    ]
    assert str(second) == "@a with m = 32, k = 16"


def test_what_is_needed_are_passes_of_the_pipeline() -> None:
    names = [each.name for each in pipeline(Options("h100"))]
    assert set(NEEDED) <= set(names) <= set(PASSES)


@pytest.mark.parametrize(("name", "machine"), [("matmul", "h100"), ("attention", "a100")])
def test_what_has_no_widths_is_not_printed(name: str, machine: str) -> None:
    """Nor does anything else go wrong before that is said."""
    module = program(name, {})
    run_passes(module, Without("coalescing").applied(pipeline(Options(machine))))
    with pytest.raises(TreadleError, match="without widths: run coalescing before printing"):
        print_cuda(module)


def test_a_pass_that_changes_nothing_is_not_left_out() -> None:
    module = program("softmax", {})
    passes = pipeline(Options("a100"))
    left_out = optional(module, passes)
    assert "cuda-ping-pong" not in left_out
    assert "diagram-exp-to-exp2" in left_out
    assert not set(left_out) & set(NEEDED)
    listed = list(alternatives(module, passes, 1))
    assert [str(each) for each in listed[1:]] == [f"without {name}" for name in reversed(left_out)]
    assert all(Without(name).applied(passes) != passes for name in left_out)


# -- the comparison ----------------------------------------------------------------------------------------------------


def test_results_that_differ_by_more_than_the_order_of_sums_are_wrong() -> None:
    one = np.array([1.0, -2.0, np.nan, np.inf], np.float32)
    check_near([one], [one * np.float32(1.001)])
    for other in ([1.0, -2.0, 0.0, np.inf], [1.0, -2.1, np.nan, np.inf], [1.0, -2.0, np.nan, 0.0]):
        with pytest.raises(TreadleError, match="WRONG: result 0 differs from"):
            check_near([np.array(other, np.float32)], [one])
    check_near([np.zeros((0, 3))], [np.zeros((0, 3))])


# -- the command -------------------------------------------------------------------------------------------------------


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A GPU that is made up, of which each way takes one of these."""
    found: list[float] = []

    class Gpu:
        name = "NVIDIA H100 80GB HBM3"

    class Runs:
        def __init__(self, *_: Any):
            self.times = iter(found)

        def seconds(self, module: ModuleOp) -> float:
            return next(self.times, 1.0)

    monkeypatch.setattr("treadle.runtime.gpu.missing_for_gpu", lambda: None)
    monkeypatch.setattr("treadle.compiler.bench.gpu.Gpu", Gpu)
    monkeypatch.setattr("treadle.compiler.tune.gpu.Runs", Runs)
    return found


SIZES = ["--size", "m=256", "--size", "n=256", "--size", "k=256"]


def test_the_fastest_is_written_and_can_be_replayed(
    times: list[float], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    times += [1e-3, 2e-3, 0.5e-3, 0.4e-3]
    path = tmp_path / "matmul.derivation"
    matmul = str(EXAMPLES / "matmul.mlir")
    assert main(["tune", matmul, *SIZES, "--count", "2", "-o", str(path)]) == 0
    own, slower, faster, without, *_, last, written = capsys.readouterr().out.splitlines()
    assert own == f"1.00  1000 us  {OWN}"
    assert slower.startswith("0.50  2000 us (model ")
    assert faster.startswith("2.00  500 us (model ")
    assert faster.endswith("; stays")
    left_out = without.removeprefix("2.50  400 us  without ").removesuffix("; stays")
    assert last == "the fastest takes 400 us, 2.50 times as fast"
    assert written == f"written to {path}: treadle compile FILE --replay matmul.derivation"
    passes = read_derivation(str(path))
    assert left_out not in {each.name for each in passes}
    sizes = faster.partition(" with ")[2].removesuffix("; stays").replace(" = ", "=").replace(", ", ",")
    choosing, *_ = (str(each) for each in passes if each.name == "hierarchy-choose-sizes")
    group, _, stream = sizes.rpartition(",")
    assert re.fullmatch(rf'hierarchy-choose-sizes{{group="{group}" stream="{stream}" warps="m=\d+,n=\d+"}}', choosing)
    assert "# the fastest of these on NVIDIA H100" in path.read_text(encoding="utf-8")
    # What is replayed is what was measured, by the command line and in Python.
    assert main(["compile", matmul, *SIZES, "--replay", str(path)]) == 0
    cuda = capsys.readouterr().out
    kernel = treadle.compile(matmul, sizes={"m": 256, "n": 256, "k": 256}, replay=path, cache=False)
    assert kernel.cuda == cuda
    assert (
        kernel.cuda != treadle.compile(matmul, machine="h100", sizes={"m": 256, "n": 256, "k": 256}, cache=False).cuda
    )


def test_as_json(times: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    import json

    times += [1e-3, 0.5e-3]
    assert main(["tune", str(EXAMPLES / "matmul.mlir"), *SIZES, "--count", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["machine"], found["model"]) == ("NVIDIA H100 80GB HBM3", "h100")
    own, other, *_ = found["tried"]
    assert (own["measured_us"], other["measured_us"], other["stays"]) == (1000.0, 500.0, True)
    assert other["model_us"] > 0
    assert any("kernel" in each for each in found["passes"])


def test_nothing_faster(times: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", str(EXAMPLES / "softmax.mlir"), "--count", "1"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"nothing was faster than the first, {OWN}"


@pytest.mark.parametrize("asks", ["--replay", "--pass"])
def test_the_first_is_called_what_it_is(
    asks: str, times: list[float], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A derivation, or options, that a user gives is measured first, and is not the model's choice."""
    path, written = tmp_path / "own.derivation", tmp_path / "fastest.derivation"
    softmax = str(EXAMPLES / "softmax.mlir")
    assert main(["explain", softmax, "--machine", "h100", "--derivation"]) == 0
    path.write_text(capsys.readouterr().out, encoding="utf-8")
    given = {"--replay": str(path), "--pass": "coalescing{max-bytes=8}"}[asks]
    assert main(["tune", softmax, "--count", "1", asks, given, "-o", str(written)]) == 0
    own, *_, last, _ = capsys.readouterr().out.splitlines()
    assert own == f"1.00  1e+06 us  {STATED}"
    assert last == f"nothing was faster than the first, {STATED}"
    assert f"{OWN}" not in written.read_text(encoding="utf-8")


LISTED = ["tune", str(EXAMPLES / "matmul.mlir"), "--machine", "h100", *SIZES, "--count", "2", "--list"]


def estimated(derivation: str) -> tuple[str, str]:
    """The chosen sizes of a derivation, and what the model says of them."""
    (told,) = re.findall(r"cost model; (.*) in \d+ warps.*estimated ([0-9.]+) us", " ".join(derivation.split()))
    return told


def test_what_would_be_tried_is_listed_without_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(LISTED) == 0
    head, own, first, second, *others = capsys.readouterr().out.splitlines()
    assert head.split() == ["way", "model", "us"]
    for line in (own, first, second):
        assert line.startswith("@matmul with m = ")
        assert float(line.split()[-1]) >= float(own.split()[-1]) > 0
    assert [OWN in line for line in (own, first, second)] == [True, False, False]
    assert others
    assert all(line.startswith("without ") for line in others)


def test_the_model_s_choice_is_listed_with_its_estimate(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(LISTED) == 0
    own = capsys.readouterr().out.splitlines()[1]
    assert main(["explain", *LISTED[1:4], *SIZES, "--derivation"]) == 0
    sizes, time_us = estimated(re.sub("#", "", capsys.readouterr().out))
    listed, _, said = own.partition(f"; {OWN}")
    assert listed == f"@matmul with {sizes}"
    assert f"{float(said):.3g}" == time_us


@pytest.mark.parametrize("name", ["two_kernels", "attention_causal"])
def test_each_kernel_s_own_sizes_are_those_that_the_model_likes_best(name: str) -> None:
    module, passes = program(name, {}), pipeline(Options("a100"))
    own = module.clone()
    run_pipeline(own, Options("a100"), last="hierarchy-choose-sizes")
    chosen = {op.kernel_name.data: op.schedule for op in own.walk() if isinstance(op, KernelOp)}
    found = list(sized_kernels(module, passes, 2))
    assert [each.own.kernel for each in found] == list(chosen)
    for each in found:
        schedule, times = chosen[each.own.kernel], [way.model_us or 0.0 for way in (each.own, *each.others)]
        assert schedule is not None
        assert each.is_model
        assert (each.own.group, each.own.stream) == (schedule.group.as_dict(), schedule.stream.as_dict())
        assert times == sorted(times)
        assert times[0] > 0
        assert len(each.others) == 2


def test_of_stated_sizes_the_model_s_choice_is_tried(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(LISTED) == 0
    _, chosen, second, *_ = capsys.readouterr().out.splitlines()
    path = tmp_path / "own.derivation"
    assert main(["explain", *LISTED[1:4], *SIZES, "--derivation"]) == 0
    derivation = capsys.readouterr().out
    path.write_text(derivation, encoding="utf-8")
    assert main([*LISTED, "--replay", str(path)]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == chosen.split()  # the same, all of it stated
    stated = re.sub(r"(hierarchy-choose-sizes)\{.*\}", r'\1{group="m=32,n=32" stream="k=64"}', derivation)
    path.write_text(stated, encoding="utf-8")
    assert main([*LISTED, "--replay", str(path)]) == 0
    _, own, first, other, *_ = capsys.readouterr().out.splitlines()
    assert own.startswith(f"@matmul with m = 32, n = 32, k = 64; {STATED} ")
    assert first.split() == chosen.replace(f"; {OWN}", "").split()
    assert other.split() == second.split()
    module, passes = program("matmul", {}), pipeline(Options(passes=read_derivation(str(path))))
    (kernel,) = sized_kernels(module, passes, 1)
    changed = Options(passes=kernel.others[0].applied(passes))
    run_pipeline(module, changed, last="hierarchy-choose-sizes")
    (schedule,) = (op.schedule for op in module.walk() if isinstance(op, KernelOp))
    assert schedule is not None
    assert schedule.group.as_dict() == kernel.others[0].group


@pytest.mark.skipif(missing_for_gpu() is None, reason="a GPU is here")
def test_without_a_gpu_nothing_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", str(EXAMPLES / "matmul.mlir"), "-o", str(tmp_path / "out.derivation")]) == 2
    assert "nothing was measured (--list tells what would be)" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--minutes", "0"], "--minutes is 0: give a positive number"),
        (["--size", "z=4"], "axis 'z'"),
        (["-o", "nowhere/out.derivation"], "there is no folder nowhere"),
        (["-o", str(EXAMPLES / "matmul.mlir")], "it is the program itself too"),
    ],
)
def test_what_is_refused(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", str(EXAMPLES / "matmul.mlir"), *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_replayed_derivation_is_tuned(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "own.derivation"
    assert main(["explain", str(EXAMPLES / "matmul.mlir"), "--machine", "h100", "--derivation"]) == 0
    path.write_text(capsys.readouterr().out, encoding="utf-8")
    assert main(["tune", str(EXAMPLES / "matmul.mlir"), "--replay", str(path), "--list"]) == 0
    assert "without warp-specialization" in capsys.readouterr().out


def test_what_a_device_cannot_do_is_told_as_the_search_expects(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all that may go wrong below the compiler."""
    found = tune_gpu.Runs.__new__(tune_gpu.Runs)
    found._known = {}
    module = program("softmax", {})
    run_pipeline(module, Options("a100"))
    for error, kind in ((GpuFailure("no bytes left"), TreadleError), (NvccFailure("no such register"), InternalError)):

        def raises(*_: Any, error: Exception = error) -> None:
            raise error

        monkeypatch.setattr(tune_gpu.Runs, "_measured", raises)
        with pytest.raises(TreadleError, match=str(error)) as told:
            found.seconds(module)
        assert type(told.value) is kind
