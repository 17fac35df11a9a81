"""Blocks of one consumer warpgroup that share a multiprocessor: their producers give registers to the consumers, and
they take pieces in turns."""

from __future__ import annotations

import re
import shutil
from functools import cache
from pathlib import Path

import pytest
from test_persistent import execute, made, needs_compiler, predicted
from xdsl.dialects.builtin import IntAttr, ModuleOp
from xdsl.utils.exceptions import VerifyException

from benchmarking import benchmark
from roads import main_entry
from treadle.compiler.derivation.record import Recorder
from treadle.compiler.derivation.replay import read_derivation, read_overrides
from treadle.compiler.errors import TreadleError
from treadle.compiler.explain import explain
from treadle.compiler.gates import codes_of_cubin, report_kernels
from treadle.compiler.machines import load_machine
from treadle.compiler.pipeline import LAST_DECORATING_PASS, Options, print_cuda, run_pipeline
from treadle.compiler.source import parse_module
from treadle.dialects import cuda
from treadle.dialects.cuda.kernel import blocks_that_share, turns_of
from treadle.dialects.hierarchy.schedule import derivation_of
from treadle.passes.warps.laws import OF_PRODUCER, shares_of_blocks
from treadle.runtime.emulator import EmulationError
from treadle.runtime.interpreter import entry_function
from treadle.runtime.nvcc import compile_cubin

programs = benchmark("programs")
H100 = load_machine("h100")
MANY = {"b": 32, "h": 32, "q": 512, "x": 512}
CAUSAL = programs.attention(64, MANY, example="attention_causal")
EIGHT = {"b": 8, "h": 32}
SEVERAL = [
    pytest.param(CAUSAL, 3, id="causal"),
    pytest.param(programs.attention(64, {**EIGHT, "q": 256, "x": 256}, example="attention_soft_cap"), 3, id="soft-cap"),
    pytest.param(programs.example("attention_mixed", {**EIGHT, "q": 256, "x": 256}), 3, id="mixed"),
    pytest.param(programs.example("attention_f8", {**EIGHT, "q": 256, "x": 256}), 3, id="f8"),
]


@cache
def compiled(text: str, machine: str = "h100") -> ModuleOp:
    module = parse_module(text)
    run_pipeline(module, Options(machine=machine))
    return module


def kernels_of(module: ModuleOp) -> list[cuda.KernelOp]:
    return [op for op in module.body.block.ops if isinstance(op, cuda.KernelOp)]


def sharing_kernel(module: ModuleOp) -> cuda.KernelOp:
    return next(kernel for kernel in kernels_of(module) if kernel.sym_name.data.endswith("_specialised"))


@pytest.mark.parametrize(("text", "resident"), SEVERAL)
def test_blocks_share_what_a_multiprocessor_has(text: str, resident: int) -> None:
    module = compiled(text)
    kernel = sharing_kernel(module)
    roles = cuda.roles_of(kernel)
    assert roles is not None
    assert (blocks_that_share(kernel), kernel.resident) == (resident, IntAttr(resident))
    assert roles.registers == shares_of_blocks(resident)
    assert resident * (kernel.shared_bytes.data + H100.limits.shared_reserved) <= H100.levels["shared"].capacity
    assert 2 * 128 * resident * sum(roles.registers) // 2 <= H100.limits.registers_per_sm
    assert f"__launch_bounds__(256, {resident}) {kernel.sym_name.data}(" in print_cuda(module)
    (grid,) = (step for step in derivation_of(entry_function(module).attributes) if step.rewrite.data == "cuda-persist")
    assert grid.reason.data.startswith(f"{132 * resident} blocks for ")


@pytest.mark.parametrize("length", [512, 4096])
def test_what_a_block_takes_of_shared_memory_is_told_exactly(length: int) -> None:
    """Also how many barriers its places have: what a piece holds has fewer of them than what is streamed."""
    text = programs.attention(64, {**MANY, "q": length, "x": length}, example="attention_causal")
    decided = parse_module(text)
    run_pipeline(decided, Options(machine="h100"), last=LAST_DECORATING_PASS)
    (told,) = explain(decided, H100).kernels
    assert told.shared_bytes == sharing_kernel(compiled(text)).shared_bytes.data


def test_lanes_that_copy_keep_their_registers() -> None:
    others = [kernel for kernel in kernels_of(compiled(CAUSAL)) if kernel.sym_name.data.endswith("_by_lanes")]
    assert others
    for kernel in others:
        roles = cuda.roles_of(kernel)
        assert roles is not None
        assert (blocks_that_share(kernel), roles.registers) == (1, (0, 0))


@pytest.mark.parametrize("blocks", OF_PRODUCER)
def test_roles_share_out_all_registers(blocks: int) -> None:
    given, taken = shares_of_blocks(blocks)
    assert given % 8 == taken % 8 == 0
    assert H100.limits.registers_per_sm - 128 * blocks * (given + taken) < 2 * 128 * blocks * 8


def test_more_registers_than_the_blocks_begin_with_are_refused() -> None:
    module = compiled(CAUSAL).clone()
    kernel = sharing_kernel(module)
    kernel.verify()
    kernel.resident = IntAttr(4)
    with pytest.raises(
        VerifyException, match=r"registers 32 \+ 1 x 128 are more than the 2 x 64 that the block begins"
    ):
        kernel.verify()
    kernel.resident = None
    with pytest.raises(VerifyException, match="consumers take registers: of 248 each"):
        kernel.verify()


def test_few_pieces_share_nothing() -> None:
    """Where each processor has a block or two, shared memory is better spent on more stages."""
    module = compiled(programs.attention(64, {**MANY, "b": 1, "h": 16}, example="attention_causal"))
    assert all(blocks_that_share(kernel) == 1 for kernel in kernels_of(module))


@pytest.mark.parametrize("name", ["attention_lengths", "attention_alibi", "attention_sink", "attention_segments"])
def test_producers_that_do_more_than_copy_keep_their_registers(name: str) -> None:
    """Lines to copy, entries and limits to load: the model knows of them when it chooses sizes."""
    module = compiled(programs.attention(64, {**MANY, "b": 4}, example=name))
    assert all(blocks_that_share(kernel) == 1 for kernel in kernels_of(module))
    assert blocks_told(module) == 1


@pytest.mark.parametrize("name", ["attention_causal", "attention_gqa", "attention_prefix", "attention_soft_cap"])
@pytest.mark.parametrize("length", [256, 512, 1024])
def test_what_the_model_shares_is_made_so(name: str, length: int) -> None:
    module = compiled(programs.attention(64, {"b": 8, "h": 32, "q": length, "x": length}, example=name))
    assert blocks_told(module) == max(blocks_that_share(kernel) for kernel in kernels_of(module))


def blocks_told(module: ModuleOp) -> int:
    """By the reason for the sizes."""
    steps = derivation_of(entry_function(module).attributes)
    (reason,) = (each.reason.data for each in steps if each.rewrite.data == "choose sizes")
    told = re.search(r"which (\d) blocks on each of", reason)
    return int(told[1]) if told else 1


@pytest.mark.parametrize("length", [512, 4096])
def test_a_derivation_says_how_blocks_take_pieces(length: int, tmp_path: Path) -> None:
    """Replayed at other sizes, for which other blocks would be chosen, it gives the same kernel."""
    first = programs.attention(64, {"b": 4, "h": 32, "q": length, "x": length}, example="attention_causal")
    own, recorder = parse_module(first), Recorder({}, compares=False)
    run_pipeline(own, Options(machine="h100"), recorder)
    path, text = tmp_path / "saved.derivation", recorder.text("a derivation")
    path.write_text(text, encoding="utf-8")
    passes = read_derivation(str(path))
    assert f" turns={3 if length == 512 else 1}" in text
    other = 512 + 4096 - length
    again = parse_module(programs.attention(64, {"b": 4, "h": 32, "q": other, "x": other}, example="attention_causal"))
    alone = again.clone()
    run_pipeline(again, Options(passes=passes))
    run_pipeline(alone, Options(machine="h100"))
    assert shape_of(sharing_kernel(again)) == shape_of(sharing_kernel(own)) != shape_of(sharing_kernel(alone))


def shape_of(kernel: cuda.KernelOp) -> tuple[object, ...]:
    return kernel.threads, kernel.shared_bytes, kernel.resident, blocks_that_share(kernel)


@pytest.mark.parametrize(("turns", "blocks"), [(0, None), (1, 132), (3, 396)])
def test_how_blocks_take_pieces_may_be_stated(turns: int, blocks: int | None) -> None:
    module = parse_module(CAUSAL)
    run_pipeline(module, Options(machine="h100", overrides=read_overrides(f"hierarchy-choose-sizes{{turns={turns}}}")))
    kernel = sharing_kernel(module)
    assert turns_of(kernel) == turns
    grids = [step for step in derivation_of(entry_function(module).attributes) if step.rewrite.data == "cuda-persist"]
    assert [step.reason.data.startswith(f"{blocks} blocks for ") for step in grids] == [True] * (blocks is not None)
    assert blocks_told(module) == max(1, turns)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("turns=2", "no 2 blocks of @attention_causal can share a processor of h100: only 3 may; ask for turns=1, or"),
        ('group="q=128" turns=3', "no 3 blocks of @attention_causal can share .*: none of its pieces is for one"),
        ('group="q=64" stream="x=256" turns=3', "a thread has 128 registers then, and needs about"),
        ('group="q=128" warps="q=3"', "warps of @attention_causal cannot lie as q = 3 with these pieces: there may be"),
        ('cluster="d=16"', "blocks of a cluster cannot have 16 of axis 'd' each in @attention_causal: leave that"),
        ("turns=-1", "-1 blocks of a processor cannot take turns: use 0 or more"),
    ],
)
def test_what_is_stated_and_cannot_be_is_refused(options: str, message: str) -> None:
    overrides = read_overrides(f"hierarchy-choose-sizes{{{options}}}")
    with pytest.raises(TreadleError, match=message):
        run_pipeline(parse_module(CAUSAL), Options(machine="h100", overrides=overrides))


WIDE = programs.attention(256, {"b": 16, "h": 8, "q": 1024, "x": 1024})


def test_turns_are_refused_where_results_have_no_room() -> None:
    """128 x 80 with heads of 256 fill the shared memory; of smaller groups there is room."""
    asked = 'hierarchy-choose-sizes{{group="q={}" stream="x=80" turns=1}}'
    with pytest.raises(TreadleError, match="no block of @attention can take pieces one after another on h100: beside"):
        run_pipeline(parse_module(WIDE), Options(machine="h100", overrides=read_overrides(asked.format(128))))
    module = parse_module(WIDE)
    run_pipeline(module, Options(machine="h100", overrides=read_overrides(asked.format(64))))
    assert blocks_told(module) == 1
    assert turns_of(sharing_kernel(module)) == 1


def test_older_machines_share_nothing() -> None:
    assert all(blocks_that_share(kernel) == 1 for kernel in kernels_of(compiled(CAUSAL, "a100")))


@pytest.mark.parametrize("length", [512, 1024, 2048, 4096, 16384])
def test_blocks_share_where_that_is_faster_by_both_rates(length: int) -> None:
    """Short streams: what one block waits for others hide. Of long ones L2 is what bounds small blocks, by the rates
    that last."""
    sizes = {"b": 16384 // length, "h": 32, "q": length, "x": length}
    found, module = predicted(programs.attention(64, sizes, example="attention_causal"))
    resident = blocks_that_share(sharing_kernel(module))
    assert (resident > 1) == (length <= 1024)
    assert found.blocks_per_sm == found.footprint.resident == resident
    assert found.in_turns or resident == 1


@needs_compiler
@pytest.mark.parametrize(("q", "x"), [(512, 512), (300, 300), (65, 65), (1, 1), (64, 200)])
def test_pieces_of_blocks_that_share_are_right(q: int, x: int) -> None:
    assert execute(made(CAUSAL), {"b": 1, "h": 3, "q": q, "x": x})[1]


@needs_compiler
@pytest.mark.parametrize("seed", range(1, 6))
@pytest.mark.parametrize(("text", "resident"), SEVERAL)
def test_any_order_of_completion_is_right(text: str, resident: int, seed: int) -> None:
    assert execute(made(text), {"b": 1, "h": 2, "q": 200, "x": 208}, seed)[1]


@needs_compiler
@pytest.mark.parametrize(
    ("blocks", "told"), [(4, "deadlock|registers"), (1, "registers_take<128> of threads that have 248")]
)
def test_the_emulator_knows_with_how_many_registers_blocks_begin(blocks: int, told: str) -> None:
    """Of four blocks nobody can give consumers 128; of one they have more than that."""
    printed = made(CAUSAL)[2]
    other = re.sub(r"__launch_bounds__\(256, 3\)", f"__launch_bounds__(256, {blocks})", printed)
    assert other != printed
    with pytest.raises(EmulationError, match=told):
        execute(made(CAUSAL), {"b": 1, "h": 1, "q": 64, "x": 64}, printed=other)


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
@pytest.mark.parametrize(("text", "resident"), SEVERAL)
def test_ptxas_holds_as_many_blocks_and_spills_nothing(text: str, resident: int) -> None:
    module = compiled(text)
    cubin = compile_cubin(main_entry(print_cuda(module)), H100.arch)
    name = sharing_kernel(module).sym_name.data
    (found,) = (
        each for each in report_kernels(module, cubin.resources, codes_of_cubin(cubin.path)) if each.kernel == name
    )
    assert found.resources is not None
    assert (found.resources.spilled_bytes, found.resources.product_notes) == (0, 0)
    assert found.blocks_on_sm == resident
