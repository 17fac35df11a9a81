"""The second call on a GPU: what the first did is done again, with other addresses only. All but the driver itself is
run here: memory is PyTorch's on the CPU, and what the driver would be given is read from where it would read it and
launched in the emulator."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.lib.stride_tricks import as_strided

import treadle
from benchmarking import benchmark
from treadle.compiler.errors import TreadleError
from treadle.dialects.cuda import kernel_names
from treadle.runtime import torch_replay
from treadle.runtime.emulator.arrays import Array, MappedArray
from treadle.runtime.emulator.backend import EmulatorBackend
from treadle.runtime.gpu import DeviceArray
from treadle.runtime.prepared import IMAGES, Prepared
from treadle.runtime.replay import Launch, Mapped, Place, Plan
from treadle.runtime.tensor_maps import BYTES, TensorMap
from treadle.runtime.torch_geometry import Recent, geometry
from treadle.runtime.torch_gpu import TorchBackend, device_array, traced
from treadle.runtime.torch_replay import GEOMETRIES, TRIES, Replay, Replays

EXAMPLES = Path(__file__).parents[1] / "examples"
CPU = torch.device("cpu")
programs = benchmark("programs")


def memory(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().numpy()


@dataclass
class Device:
    """A device whose memory are tensors on the CPU, and which runs kernels in the emulator."""

    kernel: treadle.Kernel
    maps: bool = False
    asked: list[int] = field(default_factory=list[int])
    """Streams of launches that were done again."""

    def __post_init__(self) -> None:
        self.emulator = EmulatorBackend(self.kernel.cuda, kernel_names(self.kernel.module), checks=True)
        self.has_tensor_maps = self.maps
        self.known: list[torch.Tensor] = []

    # -- what a `GpuBackend` offers ------------------------------------------------------------------

    def view(self, array: DeviceArray, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> DeviceArray:
        return DeviceArray(array.pointer + offset, shape, strides, array.dtype, array.allocation)

    def tensor_map(self, array: DeviceArray, box: Sequence[int], swizzle: int) -> MappedArray:
        return MappedArray(Array(self.seen(array.pointer), True), tuple(box), swizzle)

    # -- what the driver does ------------------------------------------------------------------------

    def seen(self, address: int) -> np.ndarray:
        """The memory from an address to the end of the tensor that holds it."""
        for tensor in self.known:
            start, held = tensor.data_ptr(), tensor.untyped_storage()
            if start <= address < held.data_ptr() + held.nbytes():
                whole = memory(tensor)
                if address == start:
                    return whole
                first = (address - start) // tensor.element_size()
                return as_strided(memory(tensor.reshape(-1)), (tensor.numel() - first,), (tensor.element_size(),))[
                    first:
                ]
        raise AssertionError(f"nothing lies at {address}")

    def prepared(self, launch: Launch) -> Prepared:
        def start(pointer: int, stream: int) -> None:
            self.asked.append(stream)
            places = (ctypes.c_void_p * len(launch.arguments)).from_address(pointer)
            given = [self._argument(each, place) for each, place in zip(launch.arguments, places, strict=True)]
            self.launch(launch, given)

        return Prepared(start, launch.arguments, TensorMap.record)

    def _argument(self, argument: Any, place: int) -> Any:
        if isinstance(argument, Place):
            return Array(self.seen(ctypes.c_uint64.from_address(place).value), True)
        if isinstance(argument, Mapped):
            image = ctypes.string_at(place, BYTES)
            data = self.seen(int.from_bytes(image[:8], "little"))
            assert (data.shape, data.strides) == (argument.shape, argument.strides)
            return MappedArray(Array(data, True), argument.box, argument.swizzle)
        return type(argument).from_address(place)

    def launch(self, launch: Launch, given: Sequence[Any]) -> None:
        module = self.emulator.module(launch.kernel)
        module.launch(launch.kernel, launch.grid, launch.block, launch.shared_bytes, given, cluster=launch.cluster)


class First(TorchBackend):
    """The first call, in the same memory."""

    kernels: Device

    def allocate(self, shape: Sequence[int], dtype: np.dtype[Any]) -> DeviceArray:
        made = super().allocate(shape, dtype)
        self.kernels.known.append(made.allocation)  # type: ignore[arg-type]
        return made

    def launch(
        self,
        kernel: str,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared_bytes: int,
        arguments: Sequence[Any],
        cluster: int = 1,
    ) -> None:
        given = [
            Array(self.kernels.seen(each.pointer), True) if isinstance(each, DeviceArray) else each
            for each in arguments
        ]
        self.kernels.launch(Launch(kernel, grid, block, shared_bytes, (), cluster), given)


class Copies:
    """Launches, each of which copies a tensor of 4 x 16 to a result."""

    def __init__(self, count: int) -> None:
        launches = [Launch("copy", (1, 1, 1), (32, 1, 1), 0, (Place(0), Place(1 + i))) for i in range(count)]
        made = ((4, 16), np.dtype(np.float32))
        self.plan = Plan((made,) * count, tuple(launches), tuple(range(1, 1 + count)), given=1)
        self.replay = Replay(self.plan, self.prepared, CPU, lambda: 0)
        self.meanwhile: Callable[[], Any] = lambda: None

    def prepared(self, launch: Launch) -> Prepared:
        def start(pointer: int, stream: int) -> None:
            self.meanwhile()
            given, made = (
                ctypes.c_uint64.from_address(each).value for each in (ctypes.c_uint64 * 2).from_address(pointer)
            )
            ctypes.memmove(made, given, 4 * 4 * 16)

        return Prepared(start, launch.arguments, TensorMap.record)

    def __call__(self, tensor: torch.Tensor) -> Any:
        return self.replay.again([tensor], geometry([tensor])[1])


def first_call(device: Device, tensors: Sequence[torch.Tensor]) -> tuple[tuple[torch.Tensor, ...], Plan]:
    device.known = list(tensors)
    results, plan = traced(device.kernel.module, First(device, CPU), [device_array(each) for each in tensors])
    assert plan is not None
    return results, plan


def again(device: Device, plan: Plan, tensors: Sequence[torch.Tensor], stream: int) -> torch.Tensor:
    """The same, done from what was written down."""
    made: list[torch.Tensor] = []

    def empty(shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        made.append(torch.empty_strided(shape, strides, dtype=dtype).fill_(torch.nan))
        device.known.append(made[-1])
        return made[-1]

    with pytest.MonkeyPatch.context() as patched:  # the device must know what lies in its memory
        patched.setattr(torch_replay, "_empty_on", lambda device: empty)
        replay = Replay(plan, device.prepared, CPU, lambda: stream)
    device.known = list(tensors)
    return replay.again(tensors, geometry(tensors)[1])


def tensors_for(kernel: treadle.Kernel, seed: int, **sizes: int) -> list[torch.Tensor]:
    dice = torch.Generator().manual_seed(seed)
    types = {"f16": torch.float16, "f32": torch.float32, "bf16": torch.bfloat16}
    return [
        torch.randn([size or sizes[axis] for axis, size in each.axes.items()], generator=dice).to(types[each.format])
        for each in kernel.arguments
    ]


@pytest.mark.parametrize(
    ("example", "machine", "maps", "sizes"),
    [
        ("matmul", "a100", False, {"m": 40, "n": 48, "k": 32}),
        ("softmax", "a100", False, {"row": 5, "x": 33}),
        ("attention_decode", "a100", False, {"b": 1, "h": 2, "x": 70}),
        ("matmul", "h100", True, {"m": 64, "n": 64, "k": 64}),
        ("matmul", "h100", False, {"m": 64, "n": 64, "k": 64}),
    ],
)
def test_what_was_done_is_done_again(example: str, machine: str, maps: bool, sizes: dict[str, int]) -> None:
    kernel = treadle.compile(EXAMPLES / f"{example}.mlir", machine=machine)
    device = Device(kernel, maps)
    before, after = tensors_for(kernel, 0, **sizes), tensors_for(kernel, 1, **sizes)
    results, plan = first_call(device, before)
    assert plan.launches
    assert any(isinstance(each, Mapped) for launch in plan.launches for each in launch.arguments) == maps
    wanted = kernel.run(*before, backend="emulator")
    torch.testing.assert_close(results[0], wanted, atol=0, rtol=0)
    for tensors in (after, before):
        got = again(device, plan, tensors, stream=7)
        torch.testing.assert_close(got, kernel.run(*tensors, backend="emulator"), atol=0, rtol=0)
    assert device.asked == [7] * len(plan.launches) * 2


def test_merged_dimensions_of_a_result_are_merged_again() -> None:
    """Nothing is copied: the result is what the kernel wrote, with the shape that the program gives it."""
    kernel = treadle.compile(Path(__file__).parent / "linalg" / "merged_result.mlir")
    device = Device(kernel)
    before, after = (tensors_for(kernel, seed, d1=7, d4=33) for seed in (0, 1))
    (first,), plan = first_call(device, before)
    got = again(device, plan, after, stream=7)
    for made, tensors in ((first, before), (got, after)):
        assert made.shape == (2, 7, 64)
        assert made.data_ptr() in [each.data_ptr() for each in device.known] or made is first
        torch.testing.assert_close(made, kernel.run(*tensors, backend="emulator"), atol=0, rtol=0)


def test_clusters_are_launched_again_as_clusters() -> None:
    """Products of 1024^3, two of whose pieces make a cluster."""
    shapes = {"m": 64, "n": 1024, "k": 64}
    kernel = treadle.compile(programs.matmul({"m": 1024, "n": 1024, "k": 1024}), machine="h100", sizes={"n": 1024})
    device = Device(kernel, maps=True)
    before, after = tensors_for(kernel, 0, **shapes), tensors_for(kernel, 1, **shapes)
    (first,), plan = first_call(device, before)
    assert [launch.cluster for launch in plan.launches] == [2]
    for tensors, known in ((after, None), (before, first)):
        got = again(device, plan, tensors, stream=7)
        wanted = tensors[0].float() @ tensors[1].float() if known is None else known
        torch.testing.assert_close(got, wanted, check_dtype=False)


def test_what_makes_another_geometry() -> None:
    base = torch.zeros(8, 16, dtype=torch.float16)
    keys = {
        geometry([each, 1.0])[0]
        for each in (base, base[:4], base.t(), base[:, 1:], base[:, :8], base.float(), base[:, 8:].t())
    }
    keys |= {geometry([base, number])[0] for number in (1, 2.0)}
    assert len(keys) == 9
    other = torch.zeros(9, 16, dtype=torch.float16)[1:]
    assert (geometry([base])[0] == geometry([other])[0]) == (not (base.data_ptr() ^ other.data_ptr()) & 31)


def test_a_call_is_repeated_where_nothing_is_to_be_asked() -> None:
    """What is done again is what was written down: here a plan that gives its first argument."""
    kernel = treadle.compile(EXAMPLES / "softmax.mlir")
    (tensor,) = tensors_for(kernel, 0, row=4, x=16)
    wanted = kernel.run(tensor)
    replay = Replay(Plan((), (), (0,)), Device(kernel).prepared, CPU, lambda: 0)
    kernel.keep(geometry([tensor])[0], replay)
    assert kernel.run(tensor) is tensor
    assert kernel.run(torch.nn.Parameter(tensor, requires_grad=False)) is not wanted
    assert kernel.run(tensor, backend="interpreter") is not tensor
    torch.testing.assert_close(kernel.run(tensor[:, 1:]), torch.softmax(tensor[:, 1:], -1), atol=1e-3, rtol=1e-3)
    negative = torch._neg_view(-tensor)
    torch.testing.assert_close(kernel.run(negative), wanted)
    with pytest.raises(TreadleError, match="requires a gradient"):
        kernel.run(tensor.clone().requires_grad_())
    with torch.no_grad():
        assert kernel.run(parameter := torch.nn.Parameter(tensor)) is parameter
    with pytest.raises(TreadleError, match=r"inside a transform of torch\.func"):
        torch.func.vmap(kernel.run)(tensor[None])


def met(given: Sequence[torch.Tensor]) -> Recent:
    recent = Recent()
    recent.add(given, geometry(given)[1], "what")
    return recent


def test_tensors_like_those_before_are_known_at_once() -> None:
    """And no others: each differs in what a kernel may ask of tensors, or in what a call refuses."""
    base = [torch.zeros(8, 16, dtype=torch.float16) for _ in range(2)]
    like, recent = torch.ones(8, 16, dtype=torch.float16), met(base)
    assert recent.of([like, base[1]]) == ("what", [like.data_ptr(), base[1].data_ptr()])
    room = torch.zeros(9 * 16 + 1, dtype=torch.float16)
    others: list[Any] = [like[:4], like.float(), like.bfloat16(), torch.ones(16, 8, dtype=torch.float16).t()]
    others += [room[1:129].view(8, 16), torch.zeros(8, 16, dtype=torch.float16, device="meta"), 1.0, like.numpy()]
    others += [like.clone().requires_grad_(), torch._neg_view(like), like[:, :1].expand(8, 16), None]
    assert [recent.of([base[0], other]) for other in others] == [None] * len(others)
    assert recent.of([*base, like]) is None
    assert recent.of(base[:1]) is None
    assert Recent().of(base) is None


def test_modes_of_pytorch_are_asked_of() -> None:
    base = [torch.zeros(8, 16) for _ in range(2)]
    recent = met(base)
    with torch.autograd.forward_ad.dual_level():
        assert recent.of([torch.autograd.forward_ad.make_dual(base[0], base[1]), base[1]]) is None
    seen: list[Any] = []
    torch.func.vmap(lambda each: (seen.append(recent.of(base)), each)[1])(torch.zeros(3))
    torch.func.grad(lambda each: (seen.append(recent.of(base)), each.sum())[1])(torch.zeros(3))
    assert seen == [None, None]
    assert recent.of(base) is not None
    with torch.no_grad():
        weights = [torch.nn.Parameter(each) for each in base]
        recent = met(weights)
        assert recent.of(weights) is not None
        assert recent.of(base) is None
    assert recent.of(weights) is None, "a gradient would be left out in silence"
    with torch.inference_mode():
        recent.add(base, geometry(base)[1], "in inference")
        found = recent.of(base)
        assert found is not None
        assert found[0] == "in inference"


def test_one_tensor_given_twice_is_looked_up() -> None:
    """PyTorch's check does not hold of it; nothing is tried for ever."""
    kernel = treadle.compile(EXAMPLES / "matmul.mlir")
    tensor = torch.zeros(16, 16, dtype=torch.float16)
    replay = Replay(Plan((), (), (0,)), Device(kernel).prepared, CPU, lambda: 0)
    kernel.keep(geometry([tensor, tensor])[0], replay)
    for _ in range(TRIES + 2):
        assert kernel.run(tensor, tensor) is tensor
    assert kernel.at_once([tensor, tensor]) is None
    assert replay.tries == TRIES


def test_an_argument_that_is_given_back_is_looked_up() -> None:
    """At once, only what a kernel has made is given: an operator of PyTorch may not return an argument."""
    kernel = treadle.compile(EXAMPLES / "softmax.mlir")
    (tensor,) = tensors_for(kernel, 0, row=4, x=16)
    plan = Plan((), (), (0,), given=1)
    kernel.keep(geometry([tensor])[0], Replay(plan, Device(kernel).prepared, CPU, lambda: 0))
    for _ in range(3):
        assert kernel.run(tensor) is tensor
        assert kernel.at_once([tensor]) is None
    assert [replace(plan, results=each).results_are_apart for each in ((1, 2), (1, 1), (2, 0))] == [True, False, False]


def test_what_one_launch_fills_is_made_anew() -> None:
    """One result or several, each call has its own, and threads that call at once each have theirs."""
    copied = Copies(count=1), Copies(count=2)
    assert [each.plan.fills_one for each in copied] == [True, False]
    for copies in copied:
        tensors = [torch.randn(4, 16) for _ in range(40)]
        with ThreadPoolExecutor(8) as pool:
            results = [*pool.map(copies, tensors)]
        flat = results if copies.plan.fills_one else [each for pair in results for each in pair]
        assert len({each.data_ptr() for each in flat}) == len(flat)
        for tensor, result in zip(tensors, results, strict=True):
            for each in [result] if copies.plan.fills_one else result:
                torch.testing.assert_close(each, tensor, atol=0, rtol=0)


@pytest.mark.parametrize("count", [1, 2])
def test_launches_at_the_same_time_have_parameters_of_their_own(count: int) -> None:
    """One begins while the driver has not read those of another, and one fails."""
    copies, (outer, inner) = Copies(count), torch.randn(2, 4, 16)
    found: list[Any] = []

    def begin() -> None:
        copies.meanwhile = lambda: None
        found.append(copies(inner))

    def fail() -> None:
        raise RuntimeError("no launch")

    copies.meanwhile = begin
    found.append(copies(outer))
    copies.meanwhile = fail
    with pytest.raises(RuntimeError, match="no launch"):
        copies(outer)
    copies.meanwhile = lambda: None
    found.append(copies(inner))
    for wanted, made in zip((inner, outer, inner), found, strict=True):
        for each in made if count > 1 else [made]:
            torch.testing.assert_close(each, wanted, atol=0, rtol=0)


def test_maps_are_encoded_once_for_an_address() -> None:
    """And the one that is launched with is that of the address."""
    array = Mapped(Place(0, 128), (8, 64), (128, 2), np.dtype(np.float16), (8, 64), 128)
    encoded: list[int] = []
    launched: list[tuple[int, int]] = []

    def image(map: TensorMap, address: int) -> bytes:
        encoded.append(address)
        return map.record(address)

    def start(pointer: int, stream: int) -> None:
        place, scalar = (ctypes.c_uint64 * 2).from_address(pointer)
        assert place % 128 == 0
        launched.append((ctypes.c_uint64.from_address(place).value, ctypes.c_int32.from_address(scalar).value))

    prepared = Prepared(start, [array, ctypes.c_int32(-3)], image)
    places = [4096 * (1 + i % 3) for i in range(9)] + [4096 * (4 + i) for i in range(IMAGES)] + [4096]
    for address in places:
        prepared.again([address], 0)
    assert launched == [(address + 128, -3) for address in places]
    assert len(encoded) == 3 + IMAGES + 1, "the one that was made first was given up for others, and made again"


def test_only_so_many_geometries_are_kept() -> None:
    replays = Replays("f")
    for number in range(GEOMETRIES + 1):
        replays.keep((number,), f"replay {number}")  # type: ignore[arg-type]
    assert replays.get((0,)) is None
    assert [replays.get((number,)) for number in (1, GEOMETRIES)] == ["replay 1", f"replay {GEOMETRIES}"]


def test_an_array_that_the_host_makes_is_not_followed() -> None:
    """What is uploaded in the middle of a call may be another at the next."""
    from treadle.runtime.replay import Tracer

    backend = First(Device(treadle.compile(EXAMPLES / "softmax.mlir")), CPU)
    given = device_array(torch.zeros(4))
    tracer = Tracer(backend, [given])
    tracer.download(tracer.upload(given))
    assert tracer.plan() == Plan((), (), (0,), given=1)
    tracer.upload(device_array(torch.zeros(4)))
    assert tracer.plan() is None


def test_numpy_beside_a_gpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from treadle.runtime.torch_gpu import call_on_gpu

    kernel = treadle.compile(EXAMPLES / "softmax.mlir")
    with pytest.raises(TreadleError, match="numpy array, and others are tensors on a GPU: move all to one place"):
        call_on_gpu(kernel, [torch.zeros(2, 3), np.zeros(3)], "auto")
    with pytest.raises(TreadleError, match=r"several devices \(cpu, meta\): use one"):
        call_on_gpu(kernel, [torch.zeros(2, 3), torch.zeros(2, 3, device="meta")], "auto")
    with pytest.raises(TreadleError, match="the backend is 'emulator': move them to the CPU first"):
        call_on_gpu(kernel, [torch.zeros(2, 3)], "emulator")
