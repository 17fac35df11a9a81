"""Every pass keeps what a program computes: it is run after each pass, at sizes that divide nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.arg_spec import ArgSpec

from treadle.compiler.pipeline import make_pass
from treadle.compiler.source import load_module, make_context
from treadle.dialects.diagram.array import is_array, sizes_of
from treadle.dialects.hierarchy.ops import KernelOp
from treadle.dialects.hierarchy.schedule import UNDECIDED, ScheduleAttr, derivation_of
from treadle.runtime.interpreter import run_function
from treadle.runtime.interpreter.run import entry_function

ROOT = Path(__file__).parent.parent
PROGRAMS = {
    path.stem: path for path in sorted([*(ROOT / "examples").glob("*.mlir"), *(ROOT / "tests/programs").glob("*.mlir")])
}
RUNNABLE = [name for name in PROGRAMS if name != "around_a_boundary"]

PASSES = (
    "diagram-expand-laws",
    "diagram-hoist-factors",
    "diagram-compose-maps",
    "fusion",
    "streaming",
    "tiling",
    "decide",
    "hierarchy-expand-streams",
)


def apply(module: ModuleOp, name: str, **options: str) -> None:
    if name == "decide":
        decide(module)
    else:
        make_pass(ArgSpec(name, {key: (value,) for key, value in options.items()})).apply(make_context(), module)
    module.verify()


def kernels(module: ModuleOp) -> list[KernelOp]:
    return [op for op in module.walk() if isinstance(op, KernelOp)]


def decide(module: ModuleOp, group: int = 4, stream: int = 5) -> None:
    """Sizes that divide nothing, so that there are edges everywhere."""
    for kernel in kernels(module):
        old = kernel.schedule
        assert old is not None
        assert UNDECIDED not in old.whole.as_dict().values()
        kernel.properties["schedule"] = ScheduleAttr(
            dict.fromkeys(old.group.as_dict(), group), dict.fromkeys(old.stream.as_dict(), stream), old.whole.as_dict()
        )


def lowered(name: str, last: str = PASSES[-1], sizes: str = "") -> ModuleOp:
    module = load_module(PROGRAMS[name])
    if sizes:
        make_pass(ArgSpec("diagram-set-sizes", {"sizes": tuple(sizes.split(","))})).apply(make_context(), module)
    for step in PASSES[: PASSES.index(last) + 1]:
        apply(module, step)
    return module


def small(sizes: Mapping[str, int]) -> dict[str, int]:
    """Sizes of a program, small and odd."""
    return {axis: size if size < 40 else 13 + size % 12 for axis, size in sizes.items()}


def inputs(module: ModuleOp, sizes: Mapping[str, int], seed: int = 0) -> list[np.ndarray]:
    function = entry_function(module)
    random = np.random.default_rng(seed)
    given = []
    for argument in function.body.block.args:
        shape = [sizes[axis] if size < 0 else size for axis, size in sizes_of(argument.type).items()]
        given.append(random.standard_normal(shape) if is_array(argument.type) else np.float64(-0.7))
    return given


def default_sizes(module: ModuleOp) -> dict[str, int]:
    sizes = entry_function(module).attributes.get("sizes")
    return sizes.as_dict() if sizes is not None else {}


def steps(module: ModuleOp, rewrite: str = "") -> list[tuple[str, str, str, str]]:
    texts = [step.texts() for step in derivation_of(entry_function(module).attributes)]
    return [text for text in texts if rewrite in ("", text[0])]


def after_each_pass(name: str) -> Iterator[tuple[str, ModuleOp]]:
    module = load_module(PROGRAMS[name])
    yield "nothing", module
    for step in PASSES:
        apply(module, step)
        yield step, module


def check(name: str, sizes: Mapping[str, int], given: list[np.ndarray]) -> None:
    wanted = run_function(load_module(PROGRAMS[name]), given, sizes=sizes).results
    for step, module in after_each_pass(name):
        got = run_function(module, given, sizes=sizes).results
        for i, (one, other) in enumerate(zip(wanted, got, strict=True)):
            np.testing.assert_allclose(other, one, rtol=1e-9, atol=1e-9, err_msg=f"result {i} after {step}")


@pytest.mark.parametrize("name", RUNNABLE)
def test_every_pass_keeps_the_results(name: str) -> None:
    module = load_module(PROGRAMS[name])
    sizes = small(default_sizes(module))
    check(name, sizes, inputs(module, sizes))


@pytest.mark.parametrize("name", RUNNABLE)
def test_an_empty_axis(name: str) -> None:
    """Each symbolic axis in turn has no element."""
    module = load_module(PROGRAMS[name])
    for axis in default_sizes(module):
        sizes = {**small(default_sizes(module)), axis: 0}
        with np.errstate(all="ignore"):
            check(name, sizes, inputs(module, sizes))
