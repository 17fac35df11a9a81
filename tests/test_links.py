"""What passes between each memory and the next, against the closed forms of section 4 of the theory: several levels,
results that stay in the children, and transfers across."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from math import prod, sqrt
from pathlib import Path

import pytest
from xdsl.dialects.func import FuncOp

from treadle.compiler.cost import Estimate, Plan, estimate, peak_memory, plan_of, sizes_of_kernel
from treadle.compiler.cost.levels.scaling import cached_memory, cross_transfer, several_levels
from treadle.compiler.cost.symbolic.costs import symbolic_costs
from treadle.compiler.cost.symbolic.leading import leading_terms
from treadle.compiler.cost.timing.clusters import ACROSS, Shape
from treadle.compiler.cost.timing.links import Link, links_of, with_least
from treadle.compiler.explain import explain
from treadle.compiler.machines import Machine, load_machine
from treadle.compiler.main import main
from treadle.compiler.pipeline import LAST_HIERARCHY_PASS, Options, run_pipeline
from treadle.compiler.source import load_module
from treadle.dialects.hierarchy import KernelOp

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.mlir"))
OF_NAME = {path.stem: path for path in EXAMPLES}


def small_l2(sms: int) -> Machine:
    """An A100 whose L2 holds no array of these tests, with so many processors."""
    a100 = load_machine("a100")
    l2 = replace(a100.levels["l2"], capacity=1 << 16)
    return replace(a100, sms=sms, levels={**a100.levels, "l2": l2})


def kernel_of(name: str, machine: str, sizes: Mapping[str, int]) -> tuple[KernelOp, Plan, dict[str, int], int]:
    module = load_module(OF_NAME[name])
    run_pipeline(module, Options(machine=machine, sizes=sizes), last=LAST_HIERARCHY_PASS)
    (kernel,) = (op for op in module.walk() if isinstance(op, KernelOp))
    function = kernel.parent_op()
    assert isinstance(function, FuncOp)
    near = peak_memory(kernel)
    return kernel, plan_of(kernel), sizes_of_kernel(kernel, function, {}), near["shared"].bytes + near["register"].bytes


def timed(plan: Plan, machine: Machine, sizes: Mapping[str, int]) -> Estimate:
    found = estimate(plan, machine, sizes)
    assert found is not None
    return found


def test_results_that_stay_in_the_children():
    """A product whose pieces at a time are a square of pieces: towards device memory it is one group that holds the
    results of all processors, towards L2 each piece is by itself."""
    _, plan, _, near = kernel_of("matmul", "a100", {"m": 4096, "n": 4096, "k": 4096})
    g = {pieces.axis: int(pieces.size) for pieces in plan.groups}
    assert g == {"m": 128, "n": 128}
    sizes = {"m": 8192, "n": 1024, "k": 4096}
    machine = small_l2(32)
    time = timed(plan, machine, sizes)
    assert (time.blocks_per_sm, time.in_turns) == (2, False)
    assert time.at_a_time == {"m": 8, "n": 8}
    far, near_link = links_of(plan, machine, sizes, time, near)
    a, b, c = sizes["m"], sizes["k"], sizes["n"]

    def closed(group: Mapping[str, int]) -> int:
        return 2 * (a * b * c // group["m"] + a * b * c // group["n"] + a * c)

    assert far.group == {"m": 1024, "n": 1024}
    assert far.bytes == closed(far.group)
    assert near_link.bytes == closed(g)
    assert far.memory_bytes == cached_memory(near, 64)
    # A square group of M values is the best there is: 2abc M^(-1/2) + ac, at the memory of the children together.
    of_children = cached_memory(g["m"] * g["n"], 64)
    assert far.bytes == 2 * (2 * a * b * c / sqrt(of_children) + a * c)
    moving = [far.bytes - 2 * a * c, near_link.bytes - 2 * a * c]
    of_levels = several_levels(
        2 * 2 * a * b * c, 0.5, [of_children, g["m"] * g["n"]], [link.bandwidth for link in (far, near_link)]
    )
    assert sum(count / link.bandwidth for count, link in zip(moving, (far, near_link), strict=True)) == pytest.approx(
        of_levels
    )


def test_attention_whose_queries_are_all_at_work():
    """Keys and values are fetched once for all pieces of queries that are worked on at a time."""
    _, plan, _, near = kernel_of("attention", "a100", {"q": 4096, "x": 4096})
    sizes = {"b": 1, "h": 1, "q": 8192, "x": 4096, "d": 64, "e": 64}
    machine = small_l2(8)
    time = timed(plan, machine, sizes)
    at_a_time = 8 * time.blocks_per_sm
    assert time.at_a_time["q"] == at_a_time
    far, near_link = links_of(plan, machine, sizes, time, near)
    g = next(int(pieces.size) for pieces in plan.groups if pieces.axis == "q")
    q, x, d = sizes["q"], sizes["x"], 64
    assert near_link.bytes == 2 * (2 * q * d + 2 * x * d * q // g)
    assert far.bytes == 2 * (2 * q * d + 2 * x * d * q // (g * at_a_time))


@pytest.mark.parametrize(
    ("name", "beta", "sides", "published"),
    [
        ("attention", 1.0, (("q", 2),), 0.812),
        ("attention", 1.0, (("q", 4),), 0.827),
        ("matmul", 0.5, (("m", 2), ("n", 2)), 0.885),
    ],
)
def test_transfers_across(name: str, beta: float, sides: tuple[tuple[str, int], ...], published: float):
    """What blocks of a cluster share costs, beside what each brings by itself, as the closed form says, where
    nothing is coalesced otherwise."""
    sizes = {"q": 4096, "x": 4096} if name == "attention" else {"m": 4096, "n": 4096, "k": 4096}
    _, plan, sizes, near = kernel_of(name, "h100", sizes)
    h100 = load_machine("h100")
    l2 = replace(h100.levels["l2"], coalesced=1)
    alone = replace(timed(plan, machine := replace(h100, levels={**h100.levels, "l2": l2}), sizes), cluster=None)
    cluster = Shape(sides)
    _, above = links_of(plan, machine, sizes, alone, near)
    _, from_l2, across = links_of(plan, machine, sizes, replace(alone, cluster=cluster), near)
    own = sum(
        each.values(sizes) * each.width for each in plan.transfers if cluster.together(each.axes) == 1 or each.saves
    )
    own_us = own / above.bandwidth * 1e6
    ratio = (from_l2.time_us + across.time_us - own_us) / (above.time_us - own_us)
    assert ratio == pytest.approx(cross_transfer(beta, cluster.blocks, 1.0, ACROSS[cluster.blocks]))
    assert ratio == pytest.approx(published, abs=5e-4)
    assert from_l2.bytes + across.bytes == above.bytes
    assert from_l2.memory_bytes == cluster.blocks * near


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
@pytest.mark.sample(12, each=False)
def test_links_are_what_keeps_the_memories_busy_and_no_less_than_least(path: Path, machine: str):
    module = load_module(path)
    run_pipeline(module, Options(machine=machine), last=LAST_HIERARCHY_PASS)
    for kernel in explain(module, load_machine(machine), expressions=True).kernels:
        far, near, *across = kernel.links
        assert far.time_us == pytest.approx(kernel.units_us["device memory"], rel=1e-6, abs=1e-6)
        assert near.time_us + sum(link.time_us for link in across) == pytest.approx(kernel.units_us["L2"], abs=1e-6)
        assert far.bytes <= near.bytes + sum(link.bytes for link in across)
        for link in kernel.links:
            assert link.least_bytes is None or 0 < link.least_bytes <= link.bytes
        assert len(across) == (kernel.cluster > 1)


def test_least_bytes_of_a_product():
    """Operands of two bytes, sums of four: 8kmn M^(-1/2) + 2mn, M in bytes."""
    kernel, plan, sizes, near = kernel_of("matmul", "h100", {"m": 8192, "n": 8192, "k": 8192})
    machine = load_machine("h100")
    bound = leading_terms(symbolic_costs(kernel), in_bytes=True)
    size = 8192
    assert bound.at(1 << 20, sizes) == pytest.approx(8 * size**3 / 1024 + 2 * size**2)
    links = links_of(plan, machine, sizes, timed(plan, machine, sizes), near)
    found: tuple[Link, ...] = with_least(links, plan, machine, sizes, bound)
    blocks = prod(found[1].at_a_time.values())
    of_cluster = blocks * (machine.levels["shared"].capacity + machine.levels["register"].capacity)
    assert found[1].least_bytes == int(8 * size**3 / sqrt(of_cluster) + 2 * size**2)
    of_sm = machine.levels["shared"].capacity + machine.levels["register"].capacity
    of_chip = machine.levels["l2"].capacity + machine.sms * of_sm
    assert found[0].least_bytes == int(8 * size**3 / sqrt(of_chip) + 2 * size**2)
    small = with_least(links, plan, machine, {"m": 2048, "n": 2048, "k": 2048}, bound)
    assert small[0].least_bytes == 3 * 2 * 2048**2  # every array once: the whole chip would do with less


def test_explain_tells_the_links(capsys: pytest.CaptureFixture[str]):
    asked = ["explain", str(OF_NAME["matmul"]), "--machine", "h100"]
    asked += ["--size", "m=4096", "--size", "n=4096", "--size", "k=4096"]
    assert main(asked) == 0
    text = capsys.readouterr().out
    assert "device memory, L2  " in text
    assert "at least" in text.partition("between ")[2].partition("\n")[0]
    assert "as one group of" in text
    assert main([*asked, "--json"]) == 0
    far, near = json.loads(capsys.readouterr().out)["kernels"][0]["links"]
    assert (far["source"], far["target"], near["source"], near["target"]) == ("device memory", "L2", "L2", "SM")
    assert far["group"]["m"] == 128 * far["at_a_time"]["m"]
    assert near["least_us"] == pytest.approx(near["least_bytes"] / near["bandwidth"] * 1e6)


def test_no_least_is_told_where_none_is_known(capsys: pytest.CaptureFixture[str]):
    """Conditions leave pieces out, so that the closed form is no bound."""
    assert main(["explain", str(OF_NAME["attention_causal"])]) == 0
    head = capsys.readouterr().out.partition("  between ")[2].partition("\n")[0]
    assert head.split() == ["bytes", "us", "near", "memory", "as", "one", "group", "of"]
