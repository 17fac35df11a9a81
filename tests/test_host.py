"""The host function of a module is executed as it stands: sizes, alignment, grids, arguments; a stranger's arrays are
refused in words. No device and no emulator is needed for that."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from xdsl.dialects.builtin import bf16, f16, f32, f64, i32

from roads import Road, attention, compiled, matmul
from treadle.dialects import cuda
from treadle.runtime.arguments import HostError, alignment, pack
from treadle.runtime.emulator import backend as emulator
from treadle.runtime.emulator.backend import HostArray
from treadle.runtime.emulator.module import EmulatedModule, compile_source
from treadle.runtime.host import execute, start


class Recorder:
    """A backend that keeps what it is asked for, and runs nothing."""

    name = "recorder"

    def __init__(self) -> None:
        self.launches: list[tuple[str, tuple[int, int, int], tuple[int, int, int], int, list[Any]]] = []
        self.allocated: list[tuple[tuple[int, ...], np.dtype[Any]]] = []

    def allocate(self, shape: Sequence[int], dtype: np.dtype[Any]) -> HostArray:
        self.allocated.append((tuple(shape), dtype))
        return HostArray(np.zeros(tuple(shape), dtype), writable=True)

    def upload(self, array: NDArray[Any]) -> HostArray:
        return HostArray(array, writable=False)

    def download(self, array: HostArray) -> NDArray[Any]:
        return array.data

    def launch(
        self,
        kernel: str,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared_bytes: int,
        arguments: Sequence[Any],
    ) -> None:
        self.launches.append((kernel, grid, block, shared_bytes, list(arguments)))


@cache
def product() -> Road:
    return compiled(matmul("mk", "kn", "f16"))


def half(*shape: int) -> NDArray[Any]:
    return np.zeros(shape, np.float16)


def test_a_launch_is_what_the_host_function_says() -> None:
    recorder = Recorder()
    a, b = half(200, 64), half(64, 136)
    (out,) = execute(product().module, (a, b), recorder)
    (kernel,) = product().kernels
    (launch,) = recorder.launches
    name, grid, block, shared, arguments = launch
    assert (name, block, shared) == (
        cuda.variant_name(kernel, 16),
        (kernel.threads.data, 1, 1),
        kernel.shared_bytes.data,
    )
    assert grid[0] > 1
    assert grid[1:] == (1, 1)
    assert recorder.allocated == [((200, 136), np.dtype(np.float32))]
    assert out.shape == (200, 136)
    scalars = [argument.value for argument in arguments if not isinstance(argument, HostArray)]
    assert scalars == [64, 136, 136, 200, 64, 136]


def test_no_block_is_launched_for_an_empty_result() -> None:
    recorder = Recorder()
    (out,) = execute(product().module, (half(0, 8), half(8, 5)), recorder)
    assert out.shape == (0, 5)
    assert not recorder.launches


def test_rows_that_are_less_aligned_take_another_variant() -> None:
    kernel = product().kernels[0]
    for shift, width in ((0, 32), (8, 16), (4, 8), (2, 4), (1, 0)):
        recorder = Recorder()
        a = half(4 * 64 + shift)[shift:].reshape(4, 64)
        execute(product().module, (a, half(64, 16)), recorder)
        assert recorder.launches[0][0] == cuda.variant_name(kernel, width)


@pytest.mark.parametrize(
    ("view", "bytes"),
    [
        (lambda a: a, 32),
        (lambda a: a[:, 1:], 2),
        (lambda a: a[:, 4:], 8),
        (lambda a: a[:, 8:], 16),
        (lambda a: a[:, :8], 32),
        (lambda a: a[:, :6], 4),
        (lambda a: a[:1, :64], 32),
        (lambda a: a[::-1], 32),
        (lambda a: np.broadcast_to(a[0], (5, 64)), 32),
        (lambda a: a[0, 0], 2),
        (lambda a: a[:, ::2], 0),
        (lambda a: a[:, ::-1], 0),
        (lambda a: a.T, 0),
        (lambda a: np.broadcast_to(a[:, :1], (8, 64)), 0),
        (lambda a: a[:, ::64], 2),
    ],
)
def test_the_alignment_of_rows(view: Any, bytes: int) -> None:
    """Of arrays as the emulator places them: what owns the memory begins with a sector."""
    whole = np.zeros((8, 64), np.float16)
    assert alignment(HostArray(np.asarray(view(whole)), writable=False)) == bytes


def test_arguments_in_the_order_of_the_printed_parameters() -> None:
    array = HostArray(half(3, 4, 8), writable=False)
    packed = pack(array, product().module.body.block.first_op.body.block.args[0].type)  # type: ignore[union-attr]
    assert packed[0] is array
    assert [value.value for value in packed[1:]] == [32, 8]
    turned = HostArray(half(8, 4, 3).T[:, ::-1], writable=False)
    packed = pack(turned, product().module.body.block.first_op.body.block.args[0].type, any_strides=True)  # type: ignore[union-attr]
    assert [value.value for value in packed[1:]] == [1, -3, 12]
    assert isinstance(pack(1.5, f32)[0], ctypes.c_float)
    assert isinstance(pack(-1, i32)[0], ctypes.c_int32)
    assert pack(1.5, f16)[0].value == 0x3E00
    assert pack(-2.0, bf16)[0].value == 0xC000
    with pytest.raises(HostError, match="takes no argument of type f64"):
        pack(1.0, f64)


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (2.5, "'count' is 2.5: expected a whole number"),
        (2**31, "'count' is 2147483648, which i32 does not hold"),
        ("x", "'count' is 'x': expected a whole number"),
        (np.ones(2), "expected a whole number"),
    ],
)
def test_a_number_that_would_be_cut_off_is_refused(number: Any, message: str) -> None:
    text = """func.func @f(%x: tensor<?xf32, #diagram.array<[i]>>, %count: i32) -> tensor<?xf32, #diagram.array<[i]>> {
  %y = diagram.map (%a = %x : tensor<?xf32, #diagram.array<[i]>>, %n = %count : i32)
      -> tensor<?xf32, #diagram.array<[i]>> {
    %f = arith.sitofp %n : i32 to f32
    %b = arith.addf %a, %f : f32
    diagram.yield %b : f32
  }
  func.return %y : tensor<?xf32, #diagram.array<[i]>>
}
"""
    module = compiled(text).module
    with pytest.raises(HostError, match=message):
        execute(module, (np.ones(3, np.float32), number), Recorder())
    recorder = Recorder()
    execute(module, (np.ones(3, np.float32), np.int32(7)), recorder)
    assert 7 in [argument.value for argument in recorder.launches[0][4] if isinstance(argument, ctypes.c_int32)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((half(4, 4),), "1 arguments for a function of 2"),
        ((half(4, 4), half(4, 4).astype(np.float32)), "argument 'B' has elements float32, expected float16"),
        ((half(4, 4), half(4)), "argument 'B' has 1 dimensions: expected 2, axes \\[k, n\\]"),
        ((half(4, 4), half(5, 4)), "axis 'k' has 4 elements in argument 'A', but 5 in 'B'"),
    ],
)
def test_arrays_that_do_not_fit(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(HostError, match=message):
        execute(product().module, arguments, Recorder())


def test_a_static_size_is_checked() -> None:
    module = compiled(attention(16, 16, "f16")).module
    with pytest.raises(HostError, match="axis 'd' of argument 'Q' has 24 elements: it is 16 in the program"):
        execute(module, (half(3, 24), half(4, 16), half(4, 16)), Recorder())


def test_more_blocks_than_a_grid_has() -> None:
    module = compiled(matmul("bmk", "bkn", "f16", "bmn", m=1, n=1, k=1)).module
    one = np.broadcast_to(half(1), (2**31, 1, 1))
    with pytest.raises(HostError, match=r"would take 2147483648 blocks; a grid has at most 2147483647"):
        HugeResults().check(module, (one, one))


class HugeResults(Recorder):
    """Allocates no memory for a result, however large."""

    def allocate(self, shape: Sequence[int], dtype: np.dtype[Any]) -> HostArray:
        return HostArray(np.broadcast_to(np.zeros((), dtype), tuple(shape)), writable=True)

    def check(self, module: Any, arguments: Sequence[Any]) -> None:
        execute(module, arguments, self)


def test_an_unknown_function() -> None:
    with pytest.raises(HostError, match="the module has no function 'other'"):
        start(product().module, Recorder(), "other")


def test_kernels_of_one_run_are_compiled_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for a run, and again only for what no run has launched before."""
    text = (Path(__file__).parent.parent / "examples" / "two_kernels.mlir").read_text(encoding="utf-8")
    road = compiled(text)
    made: list[list[str]] = []

    def compile(source: str, kernels: Sequence[str], **options: Any) -> EmulatedModule:
        made.append(list(kernels))
        return compile_source(source, kernels, **options)

    monkeypatch.setattr(emulator, "compile_source", compile)
    inputs = road.inputs(dict.fromkeys(road.symbolic, 5))
    road.run(inputs)
    first, *others = made
    launched = road.backend().variants
    assert not others
    assert first == launched
    assert len(first) == len(road.kernels) > 1
    assert len(road.backend().reports) == len(launched)  # the rehearsal launches nothing
    road.run(inputs)
    assert made == [first]
    road.run(road.inputs(dict.fromkeys(road.symbolic, 64)))  # rows are aligned: other variants
    _, aligned = made
    assert len(aligned) == len(first)
    assert not set(aligned) & set(first)
