"""Kernels that somebody has edited: what no longer waits where it must is refused, with its place, before it is printed
or run. What passes make has no problem."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from commands import refused
from xdsl.dialects.builtin import IntAttr, ModuleOp
from xdsl.ir import Operation
from xdsl.rewriter import InsertPoint, Rewriter

import treadle
from treadle.compiler import opt_main
from treadle.compiler.derivation.replay import read_overrides
from treadle.compiler.errors import TreadleError
from treadle.compiler.meetings import meeting_problems
from treadle.compiler.pipeline import Options, run_pipeline
from treadle.compiler.source import load_module, parse_module
from treadle.compiler.synchronised import check_synchronised
from treadle.dialects import cuda

EXAMPLES = Path(__file__).parents[1] / "examples"
ADVICE = "put it right, or make the kernel again from the hierarchy level"


@cache
def made(name: str, machine: str) -> ModuleOp:
    module = load_module(EXAMPLES / f"{name}.mlir")
    run_pipeline(module, Options(machine=machine))
    return module


def kernels(module: ModuleOp) -> list[cuda.KernelOp]:
    return [op for op in module.body.block.ops if isinstance(op, cuda.KernelOp)]


def problem(module: ModuleOp) -> str:
    """What is wrong with the first of its kernels."""
    return next(iter(meeting_problems(kernels(module)[0])), "")


@pytest.mark.sample(4)
@pytest.mark.parametrize("machine", ["a100", "l40s", "h100"])
@pytest.mark.parametrize(
    "name", ["softmax_matmul", "layer_norm", "split_k", "attention_segments", "matmul_int8_nn", "mlp"]
)
def test_what_passes_make_has_no_problem(name: str, machine: str) -> None:
    check_synchronised(made(name, machine))


@pytest.mark.parametrize(("name", "machine"), [("softmax_matmul", "a100"), ("layer_norm", "a100"), ("matmul", "h100")])
def test_no_barrier_may_be_left_out(name: str, machine: str) -> None:
    """None at all: each stands where threads would otherwise read too soon, or write too soon."""
    count = sum(isinstance(op, cuda.BarrierOp) for op in kernels(made(name, machine))[0].walk())
    assert count
    for i in range(count):
        module = made(name, machine).clone()
        barriers = [op for op in kernels(module)[0].walk() if isinstance(op, cuda.BarrierOp)]
        Rewriter.erase_op(barriers[i])
        assert "no barrier stands behind what other threads" in problem(module) or "others know" in problem(module)


def first(module: ModuleOp, kind: type[Operation], name: str = "") -> Operation:
    found = kernels(module)[0].walk()
    return next(
        op for op in found if isinstance(op, kind) and (not name or name in [each.name_hint for each in op.results])
    )


def no_wait(module: ModuleOp) -> None:
    Rewriter.erase_op(first(module, cuda.WaitOp))


def waits_for_less(module: ModuleOp) -> None:
    wait = first(module, cuda.WaitOp)
    assert isinstance(wait, cuda.WaitOp)
    wait.pending = IntAttr(wait.pending.data + 1)


def other_stage(module: ModuleOp) -> None:
    now, ahead = (first(module, cuda.StageOp, name) for name in ("W_now", "W_ahead"))
    now.operands[1] = ahead.operands[1]


def fewer_stages(module: ModuleOp) -> None:
    tile = first(module, cuda.SharedOp, "W_shared")
    assert isinstance(tile, cuda.SharedOp)
    tile.stages = IntAttr(1)


def on_top_of_each_other(module: ModuleOp) -> None:
    tile = first(module, cuda.SharedOp, "P16_shared")
    assert isinstance(tile, cuda.SharedOp)
    tile.offset = IntAttr(0)


def never_written(module: ModuleOp) -> None:
    Rewriter.erase_op(first(module, cuda.WriteOp))


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (no_wait, "before its copy was waited for"),
        (waits_for_less, "before its copy was waited for"),
        (other_stage, "reads %W_shared (stage 0)"),
        (fewer_stages, "'cuda.copy' takes %W_shared (stage 1), which is not there"),
        (on_top_of_each_other, "which does not hold what was written there"),
        (never_written, "'cuda.read' reads %repair_shared, which does not hold what was written there"),
    ],
)
def test_an_edit_that_breaks_the_order_is_refused(edit: Callable[[ModuleOp], None], told: str) -> None:
    module = made("softmax_matmul", "a100").clone()
    edit(module)
    with pytest.raises(TreadleError, match=re.escape(told)) as refusal:
        check_synchronised(module)
    assert ADVICE in str(refusal.value)


def no_drain(kernel: cuda.KernelOp) -> None:
    Rewriter.erase_op(next(op for op in kernel.walk() if isinstance(op, cuda.WarpgroupDrainOp)))


def drains_less(kernel: cuda.KernelOp) -> None:
    drain = next(op for op in kernel.walk() if isinstance(op, cuda.WarpgroupDrainOp))
    drain.pending = IntAttr(drain.pending.data + 1)


def not_ready(kernel: cuda.KernelOp) -> None:
    Rewriter.erase_op(next(op for op in kernel.walk() if isinstance(op, cuda.ReadyOp)))


def more_consumers(kernel: cuda.KernelOp) -> None:
    ring = next(op for op in kernel.walk() if isinstance(op, cuda.RingOp))
    ring.consumers = IntAttr(ring.consumers.data + 1)


def ring_on_a_tile(kernel: cuda.KernelOp) -> None:
    next(op for op in kernel.walk() if isinstance(op, cuda.RingOp)).offset = IntAttr(1024)


def move(op: Operation, behind: Operation) -> None:
    op.detach()
    Rewriter.insert_op(op, InsertPoint.after(behind))


def awaits_later(kernel: cuda.KernelOp) -> None:
    """In the loop, behind the product that reads what is awaited."""
    product = next(op for op in kernel.walk() if isinstance(op, cuda.WarpgroupDrainOp)).prev_op
    assert isinstance(product, cuda.WarpgroupProductOp)
    block = product.parent_block()
    assert block is not None
    move(next(op for op in block.ops if isinstance(op, cuda.AwaitOp)), product)


def arrives_first(kernel: cuda.KernelOp) -> None:
    arrive = next(op for op in kernel.walk() if isinstance(op, cuda.ArriveOp))
    assert arrive.prev_op is not None
    move(arrive.prev_op, arrive)


SPECIALISED, BY_LANES = 0, 1


@pytest.mark.parametrize(
    ("which", "edit", "told"),
    [
        (SPECIALISED, no_drain, "'cuda.release' gives back %A_shared (stage 0) while a product may still read it"),
        (SPECIALISED, drains_less, "gives back %A_shared (stage 0) while a product may still read it"),
        (SPECIALISED, not_ready, "%A_ring is used and no 'cuda.ready' names it"),
        (SPECIALISED, more_consumers, "%A_ring is for 2 consumers, and there are 1"),
        (SPECIALISED, ring_on_a_tile, "%A_ring lies where %A_shared lies"),
        (SPECIALISED, awaits_later, "reads %A_shared (stage 1), which is not awaited, or given back"),
        (BY_LANES, arrives_first, "'cuda.arrive' of %A_ring does not stand right behind what"),
    ],
)
def test_an_edit_of_roles_that_breaks_the_order_is_refused(
    which: int, edit: Callable[[cuda.KernelOp], None], told: str
) -> None:
    module = made("matmul", "h100").clone()
    edit(kernels(module)[which])
    with pytest.raises(TreadleError, match=re.escape(told)):
        check_synchronised(module)


@pytest.fixture
def without_arrivals(tmp_path: Path) -> str:
    """A file that nobody can take from a kernel that was derived: lanes never say that their copies are there."""
    module = made("matmul", "h100").clone()
    for kernel in kernels(module):
        for op in [op for op in kernel.walk() if isinstance(op, cuda.ArriveOp)]:
            Rewriter.erase_op(op)
    path = tmp_path / "edited.mlir"
    path.write_text(str(module))
    return str(path)


def test_every_door_is_guarded(without_arrivals: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The optimizer, which prints what it is given, the command line and Python."""
    told, output = "'cuda.await' of turn 0 of %A_ring wait for ever", tmp_path / "out.cu"
    assert opt_main.main([without_arrivals, "-t", "cuda-c", "-o", str(output)]) == 2
    assert told in (said := capsys.readouterr().err)
    assert re.match(r"treadle-opt: \S+/edited\.mlir:\d+:3: 'cuda\.kernel' @matmul_kernel_by_lanes: ", said)
    for command in ("compile", "run"):
        assert told in refused(capsys, command, without_arrivals)
    with pytest.raises(TreadleError, match="wait for ever"):
        treadle.compile(without_arrivals)
    assert not output.exists()


def test_what_was_not_edited_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "same.mlir"
    path.write_text(str(made("matmul", "h100")))
    assert opt_main.main([str(path), "-t", "cuda-c"]) == 0
    assert "__global__" in capsys.readouterr().out


def test_a_loop_that_depends_on_what_is_unknown_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its turns cannot be counted, so that nothing is known of its barriers."""
    text = str(made("layer_norm", "a100"))
    loop = re.search(r"scf\.for %\w+ = %\w+ to (%\w+) ", text)
    assert loop is not None
    edited = text.replace(loop[0], loop[0].replace(loop[1], "%unknown"), 1)
    before = edited.rindex("\n", 0, edited.index("%unknown"))
    edited = f'{edited[:before]}\n%unknown = "test.op"() : () -> index{edited[before:]}'
    path = tmp_path / "edited.mlir"
    path.write_text(edited)
    assert opt_main.main([str(path), "--allow-unregistered-dialect", "-t", "cuda-c"]) == 2
    assert "depends on %unknown, which is not told from sizes" in capsys.readouterr().err


def test_passes_in_an_order_of_the_users_own_are_asked_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """What they leave is looked at, whichever they are: here they leave lanes that release nothing."""
    module = made("matmul", "h100").clone()
    Rewriter.erase_op(next(op for op in kernels(module)[1].walk() if isinstance(op, cuda.ReleaseOp)))
    monkeypatch.setattr("treadle.compiler.pipeline.run_passes", lambda *_, **__: [])
    run_pipeline(module, Options(machine="h100"))
    with pytest.raises(TreadleError, match=re.escape(ADVICE)):
        run_pipeline(module, Options(machine="h100", overrides=read_overrides("coalescing{max-bytes=8}")))


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (r" widths \[8, 2, 1\]", " widths [8, 3, 1]", "widths [8, 3, 1]: they are powers of two, at most 8"),
        (r" widths \[8, 2, 1\]", " widths [16, 1]", "widths [16, 1]: they are powers of two, at most 8"),
        (r" widths \[8, 2, 1\]", " widths [2, 8, 1]", "the widest first"),
        (r"(scf\.yield) %\w+, %\w+, %\w+ : [^\n]*", "", "of 3 values yields others, or not as many"),
        (r"(?s)(\n *%is_there = [^\n]*)(.*?\n    )}\n", r"\2}\1" + "\n", "%is_there is used before it is defined"),
    ],
)
def test_what_no_verifier_of_xdsl_asks(old: str, new: str, told: str) -> None:
    text = str(made("softmax_matmul", "a100"))
    edited = re.sub(old, new, text, count=1)
    assert edited != text
    with pytest.raises(TreadleError, match=re.escape(told)):
        parse_module(edited)
