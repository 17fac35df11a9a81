"""Words of which a group has one, or one for each row (slopes and sinks of heads, scales of rows, decays of queries):
they come once for the whole block, with what it meets for before its first product, and are read there once."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from xdsl.dialects import scf
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from roads import Road
from treadle.compiler.layouts.operations import strides_at, traffic_of
from treadle.compiler.pipeline import Options, print_cuda, run_pipeline
from treadle.compiler.source import parse_module
from treadle.dialects import cuda
from treadle.dialects.cuda import kernel_names
from treadle.dialects.cuda.tiles import is_line
from treadle.dialects.diagram.array import axes_of
from treadle.runtime.backend import has_host_compiler
from treadle.runtime.emulator import EmulationError
from treadle.runtime.emulator.backend import EmulatorBackend
from treadle.runtime.host import HostExecution
from treadle.runtime.inputs import axis_sizes, make_inputs
from treadle.runtime.interpreter import entry_function
from treadle.runtime.verify import verify

EXAMPLES = Path(__file__).parents[1] / "examples"
needs_compiler = pytest.mark.skipif(not has_host_compiler(), reason="no C++ compiler is installed")

BROUGHT = [
    ("attention_alibi", "slope"),
    ("attention_sink", "sink"),
    ("attention_forgetting", "c_q"),
    ("attention_int8_cache", "k_scale"),
    ("attention_int8_cache", "v_scale"),
    ("matmul_int8", "x_scale"),
    ("retention", "log_rate"),
    ("state_space", "a_q"),
]


@cache
def made(name: str, machine: str) -> tuple[ModuleOp, ModuleOp]:
    algorithm = parse_module((EXAMPLES / f"{name}.mlir").read_text(encoding="utf-8"))
    module = algorithm.clone()
    run_pipeline(module, Options(machine=machine))
    return algorithm, module


def with_products(module: ModuleOp) -> list[cuda.KernelOp]:
    products = cuda.ProductOp | cuda.ProductOfWarpgroupsOp
    kernels = [op for op in module.walk() if isinstance(op, cuda.KernelOp)]
    return [each for each in kernels if any(isinstance(op, products) for op in each.walk())]


def moving(kernel: cuda.KernelOp, name: str) -> list[cuda.CopyOp | cuda.LoadOp]:
    """What brings an array."""
    ops = [op for op in kernel.walk() if isinstance(op, cuda.CopyOp | cuda.LoadOp)]
    return [op for op in ops if op.source.name_hint == name]


def is_in_turn(op: Operation) -> bool:
    around = op.parent_op()
    while around is not None and not isinstance(around, scf.ForOp):
        around = around.parent_op()
    return around is not None


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize(("name", "line"), BROUGHT)
def test_no_sector_is_asked_for_twice(name: str, line: str, machine: str) -> None:
    kernels = [each for each in with_products(made(name, machine)[1]) if moving(each, line)]
    assert kernels
    for kernel in kernels:
        for op in moving(kernel, line):
            assert isinstance(op, cuda.CopyOp)
            assert is_line(op.tile.type)
            assert not is_in_turn(op)
            for alignment in cuda.alignments(kernel):
                strides, base = strides_at(op, alignment)
                assert traffic_of(op, cuda.working_threads(kernel), alignment, strides, base).is_fewest


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize(("name", "line"), [("attention_alibi", "slope"), ("attention_forgetting", "c_q")])
def test_what_all_steps_share_is_read_before_them(name: str, line: str, machine: str) -> None:
    """As what was loaded: beside products, a read each turn would take more instructions, and other registers."""
    for kernel in with_products(made(name, machine)[1]):
        if not moving(kernel, line):
            continue
        reads = [op for op in kernel.walk() if isinstance(op, cuda.ReadOp) and op.source.name_hint == f"{line}_shared"]
        assert [is_in_turn(op) for op in reads] == [False]


@pytest.mark.parametrize("name", ["attention_alibi", "retention"])
def test_the_block_meets_no_more_often(name: str) -> None:
    """Before the loop all wait for left operands, and meet. The line is there by then."""
    (kernel,) = with_products(made(name, "a100")[1])
    before = [op for op in kernel.body.block.ops if isinstance(op, cuda.BarrierOp | cuda.ReadOp | scf.ForOp)]
    first = next(i for i, op in enumerate(before) if isinstance(op, scf.ForOp))
    assert [type(op) for op in before[:first]] == [cuda.BarrierOp, cuda.ReadOp, cuda.ReadOp]


SIZES = {"b": 1, "h": 2, "q": 130, "x": 333}


def run(name: str, machine: str, seed: int, changed: str | None = None) -> bool:
    """Whether the results of printed kernels are right, with data that arrive as a seed says."""
    algorithm, module = made(name, machine)
    function = entry_function(algorithm)
    axes = {axis for value in function.body.block.args for axis in axes_of(value.type)}
    sizes = {axis: size for axis, size in SIZES.items() if axis in axes}
    inputs: list[Any] = list(make_inputs(function, axis_sizes(function, sizes), seed))
    backend = EmulatorBackend(changed or print_cuda(module), kernel_names(module), seed=seed)
    outputs = HostExecution(module, backend).run(entry_function(module), inputs)
    return all(verdict.ok for verdict in verify(algorithm, inputs, outputs, "emulator"))


@needs_compiler
@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("name", ["attention_alibi", "attention_sink"])
def test_any_order_of_completion(name: str, machine: str) -> None:
    """One number that steps read, and one that finishes sums."""
    assert all(run(name, machine, seed) for seed in range(4))


@needs_compiler
@pytest.mark.full
@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("name", ["attention_alibi", "attention_sink", "attention_forgetting"])
def test_any_order_of_completion_in_full(name: str, machine: str) -> None:
    assert all(run(name, machine, seed) for seed in range(20))


@needs_compiler
@pytest.mark.sample(4)
@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("attention_forgetting", {"h": 2, "q": 131, "x": 65}),
        ("matmul_int8", {"t": 77, "i": 48, "o": 33}),
        ("attention_int8_cache", {"h": 3, "q": 1, "x": 100}),
        ("attention_sink", {"b": 1, "h": 1, "q": 1, "x": 0}),
    ],
)
def test_at_any_size(name: str, sizes: dict[str, int], machine: str) -> None:
    algorithm, module = made(name, machine)
    Road(algorithm, module, print_cuda(module)).check(sizes)


# What is replaced in the printed kernel of a machine, and by what.
FAULTS = {
    "nobody waits for the number": ("h100", r"mbarrier_wait\(&slope_ring\[0\][^;]*;", ";"),
    "lanes arrive before their copies": ("h100", r"copy_async_arrive\(&slope_ring", "mbarrier_arrive(&slope_ring"),
    "a ring for one arrival": ("h100", r"(mbarrier_init\(&slope_ring\[stage\], )32", r"\g<1>1"),
    "too lax a wait before the loop": ("a100", r"copy_async_wait<1>", "copy_async_wait<2>"),
    "no meeting before it is read": (
        "a100",
        r"(?s)(copy_async_wait<1>\(\);[^\n]*\n\s*)barrier_block\(\);",
        r"\1;",
    ),
    "the next head": ("a100", r"&slope\[h0 \* slope_h\]", "&slope[(h0 ^ 1) * slope_h]"),
}


@needs_compiler
@pytest.mark.sample(4)
@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_is_caught(fault: str) -> None:
    machine, pattern, replacement = FAULTS[fault]
    changed, count = re.subn(pattern, replacement, print_cuda(made("attention_alibi", machine)[1]))
    assert count
    for seed in range(4):
        try:
            if not run("attention_alibi", machine, seed, changed):
                return
        except EmulationError:
            return
    raise AssertionError("nothing was noticed")
