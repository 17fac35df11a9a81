"""The GPU path's own logic, which needs no GPU: packing, strides, options, cache. What needs a device is skipped."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from treadle.compiler import main as cli
from treadle.runtime import gpu, nvcc
from treadle.runtime.backend import BACKENDS, BackendUnavailable, choose_backend
from treadle.runtime.gpu import DeviceArray, arch_for, extent_of, misalignment_of, missing_for_gpu, pack_arguments

KERNEL = """
extern "C" __global__ void scale(float* out, long long n, float by, int add, const float* x) {
  for (long long i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (long long)gridDim.x * blockDim.x)
    out[i] = x[i] * by + add;
}
"""

needs_nvcc = pytest.mark.skipif(nvcc.find_nvcc() is None, reason="there is no nvcc")
needs_gpu = pytest.mark.skipif(missing_for_gpu() is not None, reason=f"{missing_for_gpu()}")


def device_array(pointer: int) -> DeviceArray:
    return DeviceArray(pointer, (1,), (4,), np.dtype(np.float32), None)


class Parameters(ctypes.Structure):
    """What the C compiler makes of `(float*, int, int64_t, float, double, bool, float*)`."""

    _fields_ = [
        ("a", ctypes.c_void_p),
        ("b", ctypes.c_int32),
        ("c", ctypes.c_int64),
        ("d", ctypes.c_float),
        ("e", ctypes.c_double),
        ("f", ctypes.c_bool),
        ("g", ctypes.c_void_p),
    ]


def test_arguments_are_packed_as_c_lays_out_a_structure() -> None:
    packed = pack_arguments(
        [
            device_array(0x7F00_1234_5678_9A00),
            ctypes.c_int32(-2),
            ctypes.c_int64(-(2**40)),
            ctypes.c_float(0.1),
            ctypes.c_double(0.1),
            ctypes.c_bool(True),
            device_array(2**48 - 256),
        ]
    )
    read = Parameters.from_buffer_copy(packed)
    assert (read.a, read.b, read.c) == (0x7F00_1234_5678_9A00, -2, -(2**40))
    assert (read.d, read.e, read.f) == (np.float32(0.1), 0.1, True)
    assert read.g == 2**48 - 256
    assert len(packed) == ctypes.sizeof(Parameters)


def test_nothing_is_packed_that_is_no_argument() -> None:
    assert pack_arguments([]) == b""
    for wrong in (3, 0.5, np.float32(1), np.zeros(3), None):
        with pytest.raises(TypeError, match="argument 1 is a"):
            pack_arguments([ctypes.c_int32(0), wrong])


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.int32])
def test_the_extent_of_a_view_is_what_its_elements_span(dtype: type) -> None:
    base = np.arange(4 * 6 * 8).astype(dtype).reshape(4, 6, 8)
    views = [base, base[1:3, ::2, 2:5], base[::-1], base.transpose(1, 0, 2), base[2, 3], base[:, :, :0]]
    views.append(np.broadcast_to(base[0, 0], (5, 8)))
    for view in views:
        extent = extent_of(view)
        # The copy that a device would hold, read back with the same strides, is the same array.
        raw = (ctypes.c_uint8 * extent.nbytes).from_address(extent.address)
        copy = np.ndarray(view.shape, view.dtype, bytes(raw) if extent.nbytes else b"\0", extent.offset, view.strides)
        assert np.array_equal(copy.astype(np.float64), view.astype(np.float64))


def test_a_misaligned_view_stays_misaligned() -> None:
    base = np.zeros(1000, np.float16)
    assert misalignment_of(base) == 0
    assert misalignment_of(base[1:]) == 2
    assert misalignment_of(base[3:][2:].reshape(5, -1)) == 10
    assert misalignment_of(base[128:]) == 0


@pytest.mark.parametrize(
    ("arch", "capability", "target"),
    [
        ("sm_80", (8, 0), "sm_80"),
        ("sm_80", (9, 0), "sm_90"),
        ("sm_80", (7, 5), None),
        ("sm_90a", (9, 0), "sm_90a"),
        ("sm_90a", (10, 0), None),
        ("sm_90a", (8, 0), None),
        ("sm_80", (12, 0), "sm_120"),
    ],
)
def test_which_architecture_a_device_gets(arch: str, capability: tuple[int, int], target: str | None) -> None:
    assert arch_for(arch, capability) == target


def test_the_cache_tells_apart_what_could_differ() -> None:
    keys = {
        nvcc.cache_key(source, options, version)
        for source in ("a", "b")
        for options in (["-arch=sm_80"], ["-arch=sm_90a"], ["-arch=", "sm_80"])
        for version in ("13.0", "13.1")
    }
    assert len(keys) == 12


def test_what_ptxas_says() -> None:
    log = """ptxas info    : Compiling entry function 'attention' for 'sm_80'
ptxas info    : Function properties for attention
    8 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads
ptxas info    : Used 168 registers, used 1 barriers, 400 bytes smem, 424 bytes cmem[0]
ptxas info    : Compiling entry function 'merge' for 'sm_80'
ptxas info    : Function properties for merge
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 24 registers, 380 bytes cmem[0]
"""
    first, second = nvcc.parse_resources(log)
    assert (first.kernel, first.registers, first.spilled_bytes, first.shared_bytes) == ("attention", 168, 28, 400)
    assert (second.kernel, second.registers, second.spilled_bytes, second.shared_bytes) == ("merge", 24, 0, 0)


@needs_nvcc
def test_compiling_and_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREADLE_CACHE", str(tmp_path / "cache"))
    cubin = nvcc.compile_cubin(KERNEL, "sm_80")
    assert cubin.image.startswith(b"\x7fELF")
    assert [resources.kernel for resources in cubin.resources] == ["scale"]

    def unexpected(*_: object) -> str:
        raise AssertionError("compiled again")

    monkeypatch.setattr(nvcc, "_run", unexpected)
    again = nvcc.compile_cubin(KERNEL, "sm_80")
    assert again == cubin
    with pytest.raises(AssertionError, match="compiled again"):
        nvcc.compile_cubin(KERNEL, "sm_90a")
    kept = sorted(path.suffix for path in (tmp_path / "cache" / "cubin").iterdir())
    assert kept == [".cubin", ".log", ".sha256"]


@needs_nvcc
def test_what_nvcc_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREADLE_CACHE", str(tmp_path / "cache"))
    with pytest.raises(nvcc.NvccFailure, match="error"):
        nvcc.compile_cubin("__global__ void f() { nothing(); }", "sm_80")
    assert not list((tmp_path / "cache" / "cubin").iterdir())


OLD_NVCC = """#!/bin/sh
case "$*" in
  *--version*) echo "nvcc: NVIDIA (R) Cuda compiler driver"; echo "Cuda compilation tools, release 11.5, V11.5.119" ;;
  *) echo "nvcc fatal   : {said}" >&2; exit 1 ;;
esac
"""


@pytest.mark.parametrize(
    "said",
    ["Value 'sm_90a' is not defined for option 'gpu-architecture'", "Unsupported gpu architecture 'compute_90a'"],
)
def test_a_toolkit_that_does_not_know_the_architecture(
    said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is wrong with what was printed: it is for the user to take another nvcc."""
    (tmp_path / "nvcc").write_text(OLD_NVCC.format(said=said))
    (tmp_path / "nvcc").chmod(0o755)
    monkeypatch.setenv("CUDACXX", str(tmp_path / "nvcc"))
    monkeypatch.setenv("TREADLE_CACHE", str(tmp_path / "cache"))
    softmax = str(Path(__file__).parents[1] / "examples" / "softmax.mlir")
    asked = ["compile", softmax, "--arch", "sm_90a", "-o", str(tmp_path / "out.cu")]
    assert cli.main([*asked, "--cubin", str(tmp_path / "out.cubin")]) == 2
    why = "nvcc of CUDA 11.5 makes no code for sm_90a, CUDA 12.0 or newer does"
    assert why in capsys.readouterr().err
    assert cli.main([*asked, "--report"]) == 0
    assert why in capsys.readouterr().out


def test_an_architecture_is_no_place_for_options() -> None:
    with pytest.raises(ValueError, match="not an architecture"):
        nvcc.compile_cubin(KERNEL, "sm_80 -o /etc/passwd")


def test_without_nvcc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvcc, "find_nvcc", lambda: None)
    with pytest.raises(nvcc.NvccUnavailable, match="install the CUDA toolkit"):
        nvcc.compile_cubin(KERNEL, "sm_80")


def test_auto_takes_the_best_that_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "missing_for_gpu", lambda: None)
    assert choose_backend("auto").backend == "gpu"
    monkeypatch.setattr(gpu, "missing_for_gpu", lambda: "no GPU: none")
    monkeypatch.setattr("treadle.runtime.backend.has_host_compiler", lambda: True)
    assert choose_backend("auto").backend == "emulator"
    monkeypatch.setattr("treadle.runtime.backend.has_host_compiler", lambda: False)
    choice = choose_backend("auto")
    assert choice.backend == "interpreter"
    assert choice.reason == "no GPU: none; no C++ compiler for the emulator"
    assert choose_backend("interpreter").backend == "interpreter"
    for wanted in ("gpu", "emulator", "tpu"):
        with pytest.raises(BackendUnavailable):
            choose_backend(wanted)
    assert BACKENDS[0] == "auto"


def test_asking_for_a_device_imports_no_pycuda() -> None:
    script = "import sys, treadle.runtime.gpu as g; g.missing_for_gpu(); assert 'pycuda' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


@needs_gpu
def test_a_kernel_on_the_device() -> None:
    backend = gpu.GpuBackend(KERNEL, ["scale"], "sm_80")
    x = np.arange(1000, dtype=np.float32)[1:]
    given, out = backend.upload(x), backend.allocate((999,), np.dtype(np.float32))
    arguments = [out, ctypes.c_int64(999), ctypes.c_float(2), ctypes.c_int32(3), given]
    backend.launch("scale", (4, 1, 1), (128, 1, 1), 0, arguments)
    assert np.array_equal(backend.download(out), x * 2 + 3)


@needs_gpu
def test_strided_arrays_there_and_back() -> None:
    backend = gpu.GpuBackend(KERNEL, ["scale"], "sm_80")
    base = np.arange(240, dtype=np.float32).reshape(4, 6, 10)
    for view in (base, base[1:, ::2, 3:7], base.transpose(1, 0, 2), base[:0]):
        assert np.array_equal(backend.download(backend.upload(view)), view)


def test_every_place_to_run_offers_what_a_host_function_asks() -> None:
    """The executor of host functions calls no other method; what a class lacks would show only on a device."""
    from treadle.runtime.backend import Backend
    from treadle.runtime.emulator.backend import EmulatorBackend
    from treadle.runtime.torch_gpu import TorchBackend

    wanted = {name for name in vars(Backend) if not name.startswith("_")} | {"name"}
    assert {"tensor_map", "has_tensor_maps", "view", "launch"} <= wanted
    for backend in (gpu.GpuBackend, EmulatorBackend, TorchBackend):
        assert [name for name in sorted(wanted) if not hasattr(backend, name)] == [], backend
