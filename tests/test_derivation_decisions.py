"""What passes decide by the sizes of a program is in its derivation: replayed at other sizes, it makes the same
kernels, to the byte."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.arg_spec import ArgSpec

import treadle
from treadle.compiler.derivation.record import Recorder
from treadle.compiler.derivation.replay import read_derivation
from treadle.compiler.errors import TreadleError
from treadle.compiler.pipeline import Observer, Options, PassRun, print_cuda, run_passes, run_pipeline
from treadle.compiler.sizes import default_sizes, set_default_sizes
from treadle.compiler.source import load_module, parse_module
from treadle.dialects import cuda
from treadle.passes._decisions import Decision
from treadle.runtime.interpreter import entry_function

EXAMPLES = Path(__file__).parents[1] / "examples"


def program(name: str, times: int) -> ModuleOp:
    """An example whose symbolic axes are so many times as long as it says."""
    module = load_module(EXAMPLES / f"{name}.mlir")
    function = entry_function(module)
    set_default_sizes(function, {axis: times * size for axis, size in default_sizes(function).items()})
    return module


def derived(module: ModuleOp, options: Options) -> str:
    recorder = Recorder({}, compares=False)
    run_pipeline(module, options, recorder)
    return recorder.text("a derivation")


def replayed(module: ModuleOp, text: str, folder: Path) -> ModuleOp:
    path = folder / "saved.derivation"
    path.write_text(text, encoding="utf-8")
    run_pipeline(module, Options(passes=read_derivation(str(path))))
    return module


def code(module: ModuleOp) -> list[str]:
    """What is printed, without comments: they tell how sizes were chosen."""
    return [line for line in print_cuda(module).splitlines() if not line.lstrip().startswith("//")]


@pytest.mark.parametrize(
    ("name", "machine", "times", "line"),
    [
        ("attention_causal", "h100", (1, 16), "\ncuda-order-blocks{section=1 longest=none}\n"),
        ("attention_causal", "h100", (16, 1), "\ncuda-persist{section=9 longest=last}\n"),
        ("attention_causal", "h100", (64, 16), "\ncuda-persist{section=4 longest=last}\n"),
        ("attention_causal", "h100", (16, 64), "\ncuda-ping-pong{turns=true}\n"),
        ("attention_causal", "a100", (1, 16), "\ncuda-order-blocks{section=1 longest=none}\n"),
        ("matmul", "h100", (64, 16), "\ncuda-persist{section=4 longest=none}\n"),
        ("attention_decode", "h100", (1, 16), "\nhierarchy-split-streams{kernel=attention_decode length=128}\n"),
        ("attention_decode", "h100", (16, 1), "\nhierarchy-split-streams{parts=1}\n"),
        ("attention_decode", "a100", (2, 16), "\nhierarchy-split-streams{kernel=attention_decode length="),
    ],
)
def test_a_replay_at_other_sizes_makes_the_same_kernels(
    name: str, machine: str, times: tuple[int, int], line: str, tmp_path: Path
) -> None:
    module = program(name, times[0])
    text = derived(module, Options(machine))
    assert line in text
    assert code(replayed(program(name, times[1]), text, tmp_path)) == code(module)


def test_it_is_by_what_is_recorded(tmp_path: Path) -> None:
    """Without the options of these passes, another kernel is made at other sizes."""
    module = program("attention_causal", 16)
    text = derived(module, Options("h100"))
    without = text.replace("cuda-persist{section=9 longest=last}", "cuda-persist")
    assert code(replayed(program("attention_causal", 64), without, tmp_path)) != code(module)


def test_kernels_that_were_decided_differently_are_named(tmp_path: Path) -> None:
    module = program("linear_attention_causal", 16)
    text = derived(module, Options("a100"))
    names = [op.sym_name.data for op in module.body.block.ops if isinstance(op, cuda.KernelOp)]
    named = [name for name in names if f"\ncuda-order-blocks{{kernel={name} section=" in text]
    assert len(named) > 1
    assert code(replayed(program("linear_attention_causal", 16), text, tmp_path)) == code(module)


STATIC = {"m": 1024, "n": 1024, "k": 1024}


def test_clusters_are_recorded_with_their_axes(tmp_path: Path) -> None:
    """Also for a program whose sizes are known at launch only: its launch finds out whether they divide the pieces."""
    module = load_module(EXAMPLES / "matmul.mlir")
    text = derived(module, Options("h100", sizes=STATIC))
    (line,) = (line for line in text.splitlines() if line.startswith("cuda-cluster"))
    (kernel,) = (op for op in module.body.block.ops if isinstance(op, cuda.KernelOp) and op.cluster > 1)
    assert line == f"cuda-cluster{{size={kernel.cluster} along={kernel.attributes['along'].data}}}"  # pyright: ignore
    assert code(replayed(load_module(EXAMPLES / "matmul.mlir"), text, tmp_path)) == code(module)
    symbolic = "\n".join(line for line in text.splitlines() if not line.startswith("diagram-set-sizes"))
    again = replayed(load_module(EXAMPLES / "matmul.mlir"), symbolic, tmp_path)
    made = [op.sym_name.data for op in again.body.block.ops if isinstance(op, cuda.KernelOp) and op.cluster > 1]
    assert made == ["matmul_kernel_specialised_clusters"]
    alone = load_module(EXAMPLES / "matmul.mlir")
    assert "\ncuda-cluster{size=1}\n" in derived(alone, Options("h100"))


def test_what_was_decided_against_is_not_asked_for_again(tmp_path: Path) -> None:
    """Where all is known at launch only there are no clusters, and none at sizes that are known."""
    text = derived(load_module(EXAMPLES / "matmul.mlir"), Options("h100"))
    path = tmp_path / "saved.derivation"
    path.write_text(text, encoding="utf-8")
    module = load_module(EXAMPLES / "matmul.mlir")
    run_pipeline(module, Options(sizes=STATIC, passes=read_derivation(str(path))))
    assert all(op.cluster == 1 for op in module.body.block.ops if isinstance(op, cuda.KernelOp))


class Decisions(Observer):
    """What each pass has decided."""

    def __init__(self) -> None:
        self.of: dict[str, list[Decision]] = {}

    def after_pass(self, run: PassRun, module: ModuleOp) -> None:
        self.of[run.name] = list(run.decisions)


def test_what_a_pass_tries_on_a_copy_is_not_decided() -> None:
    """Fusion and the passes beside it try streams and sizes of kernels that are never made."""
    module, found = program("attention", 1), Decisions()
    run_pipeline(module, Options("a100"), found)
    assert [each.options for each in found.of["streaming"]] == [{"axis": ("x",)}]
    assert len(found.of["hierarchy-choose-sizes"]) == 1
    assert [each.options for each in found.of["hierarchy-split-streams"]] == [{"parts": (1,)}]
    decided = {"hierarchy-split-streams", "streaming", "hierarchy-choose-sizes"}
    assert {name for name, each in found.of.items() if each} == decided


def test_how_many_pieces_there_are_need_not_be_known() -> None:
    """Where it is not known, each has a block of its own, which the derivation says; asked for, blocks take several."""
    text = (EXAMPLES / "attention_causal.mlir").read_text(encoding="utf-8")
    text = text.replace(text[text.index(" attributes {sizes") : text.index("}", text.index("{sizes")) + 1], "")
    kernel = treadle.compile(text, machine="h100", cache=False, passes="cuda-persist{turns=true}")
    alone = treadle.compile(text, machine="h100", cache=False)
    assert " blocks for all pieces" in kernel.cuda
    assert "how many pieces there are is not known" in alone.cuda
    assert kernel.cuda != alone.cuda


@pytest.mark.parametrize("options", ["section=1 longest=last", "section=3 longest=last", "section=2 longest=first"])
def test_blocks_in_any_order_that_is_asked_for(options: str) -> None:
    path = EXAMPLES / "attention_causal.mlir"
    kernel = treadle.compile(path, machine="a100", cache=False, passes=f"cuda-order-blocks{{{options}}}")
    generator = np.random.default_rng(0)
    sizes = {"b": 1, "h": 3, "q": 150, "x": 150}
    arrays = [
        generator.standard_normal([sizes.get(axis, size) for axis, size in each.axes.items()]).astype(np.float16)
        for each in kernel.arguments
    ]
    assert re.search(r"cuda-order-blocks @attention_causal_kernel: .* in sections of [1-3] rows", kernel.cuda)
    assert all(verdict.ok for verdict in kernel.verify(*arrays, backend="emulator"))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("cuda-persist{section=0}", "section is 0; a section has 1 row of pieces or more"),
        ("cuda-order-blocks{section=-2}", "section is -2; a section has 1 row of pieces or more"),
        ("cuda-order-blocks{kernel=other}", "there is no kernel @other (kernels are @matmul_kernel)"),
        ("cuda-persist{kernel=other}", "there is no kernel @other (kernels are @matmul_kernel)"),
        ("cuda-cluster{kernel=other}", "there is no kernel @other (kernels are @matmul_kernel)"),
        ("cuda-ping-pong{kernel=other}", "there is no kernel @other (kernels are @matmul_kernel)"),
    ],
)
def test_what_cannot_be_asked_for(line: str, message: str) -> None:
    with pytest.raises(TreadleError) as raised:
        treadle.compile(EXAMPLES / "matmul.mlir", machine="a100", cache=False, passes=line)
    assert message in str(raised.value)


def test_options_that_were_given_stay_with_what_is_decided() -> None:
    recorder = Recorder({}, compares=False)
    module = load_module(EXAMPLES / "matmul.mlir")
    before = [ArgSpec("set-machine", {"name": ("a100",)}), ArgSpec("fusion", {})]
    limited = ArgSpec("streaming", {"whole_limit": (8,)})
    run_passes(module, [*before, limited], recorder)
    assert "\nstreaming{axis=k whole-limit=8}\n" in recorder.text("a derivation")


TOKENS = """
!X = tensor<?x?x512xf16, #diagram.array<[b, t, i]>>
!W = tensor<512x768xf16, #diagram.array<[i, o]>>
!Y = tensor<?x?x768xf32, #diagram.array<[b, t, o]>>
func.func @linear(%X: !X, %W: !W) -> !Y attributes {sizes = #diagram.sizes<b = 64, t = 1>} {
  %Y = diagram.contract %X, %W over [i] accumulate f32 : !X, !W -> !Y
  func.return %Y : !Y
}
"""
SENTENCES = TOKENS.replace("t = 1", "t = 4096")


def packed(keys: int) -> str:
    text = (EXAMPLES / "attention_packed.mlir").read_text(encoding="utf-8")
    return text.replace("b = 2, h = 3, q = 333, x = 333", f"b = 1, h = 16, q = {keys}, x = {keys}")


@pytest.mark.parametrize(
    ("made_for", "at", "line"),
    [
        (TOKENS, SENTENCES, "\ndiagram-merge-free-axes{axes=b,t}\n"),
        (SENTENCES, TOKENS, "\ndiagram-merge-free-axes{axes=none}\n"),
        (packed(4096), packed(8192), "\ndiagram-find-ranges{axes=x}\n"),
        (packed(333), packed(8192), "\ndiagram-find-ranges{axes=none}\n"),
    ],
)
def test_what_is_decided_of_a_function_is_in_a_derivation(made_for: str, at: str, line: str, tmp_path: Path) -> None:
    """Before there are kernels: what is decided for a function."""
    module = parse_module(made_for)
    text = derived(module, Options("h100"))
    assert line in text
    assert code(replayed(parse_module(at), text, tmp_path)) == code(module)
