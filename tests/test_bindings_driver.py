"""What stands in for PyCUDA: the same names, and what it asks of the driver; a stand-in answers for that."""

from __future__ import annotations

import ast
import ctypes
import inspect
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import treadle
from treadle.compiler.cli import report_code
from treadle.compiler.gates import Codes, codes_of_cubin
from treadle.compiler.main import main
from treadle.compiler.sass import find_disassembler
from treadle.runtime import bindings_driver, cuda_driver, gpu
from treadle.runtime.nvcc import Cubin, find_nvcc

ROOT = Path(gpu.__file__).resolve().parents[1]
CODES = {0: "CUDA_SUCCESS", 2: "CUDA_ERROR_OUT_OF_MEMORY", 700: "CUDA_ERROR_ILLEGAL_ADDRESS"}


class Status(int):
    @property
    def name(self) -> str:
        return CODES[self]


class Driver:
    """Functions of the driver that note what they are asked, and give what they are told to."""

    def __init__(self, **answers: Any):
        self.answers = answers
        self.asked: list[tuple[Any, ...]] = []
        names = ("MAJOR", "MINOR")
        self.CUfunction_attribute = SimpleNamespace()
        self.CUdevice_attribute = SimpleNamespace(
            **{f"CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_{name}": name for name in names}
        )

    def __getattr__(self, name: str) -> Any:
        def function(*arguments: Any) -> tuple[Any, ...]:
            self.asked.append((name, *arguments))
            answer = self.answers.get(name, ())
            answer = answer(*arguments) if callable(answer) else answer
            return answer if isinstance(answer, tuple) and answer else (Status(0), answer)

        return function


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver(
        cuMemAlloc=0x7000,
        cuCtxGetDevice=1,
        cuDeviceGet=lambda number: 40 + number,
        cuDeviceGetName=b"NVIDIA H100\0\0\0",
        cuDeviceGetAttribute=lambda kind, device: {"MAJOR": 9, "MINOR": 0}[kind],
        cuDeviceGetCount=2,
        cuEventElapsedTime=2.5,
    )
    monkeypatch.setattr(bindings_driver, "_bindings", lambda: made)
    return made


def test_a_device(driver: Driver) -> None:
    device = bindings_driver.Context.get_device()
    assert (device.name(), device.compute_capability()) == ("NVIDIA H100", (9, 0))
    assert [bindings_driver.Device(i) == device for i in range(bindings_driver.Device.count())] == [False, True]


def test_memory_is_given_back(driver: Driver) -> None:
    memory = bindings_driver.mem_alloc(512)
    assert int(memory) == 0x7000
    data = np.arange(8, dtype=np.uint8)
    bindings_driver.memcpy_htod(int(memory) + 256, data)
    bindings_driver.memcpy_dtoh(data, int(memory))
    assert driver.asked[1:] == [
        ("cuMemcpyHtoD", 0x7100, data.ctypes.data, 8),
        ("cuMemcpyDtoH", data.ctypes.data, 0x7000, 8),
    ]
    del memory
    assert driver.asked[-1] == ("cuMemFree", 0x7000)


def test_what_the_driver_refuses(driver: Driver) -> None:
    driver.answers |= {"cuMemAlloc": (Status(2), 0), "cuCtxSynchronize": (Status(700),)}
    with pytest.raises(bindings_driver.MemoryError, match="OUT_OF_MEMORY"):
        bindings_driver.mem_alloc(1 << 60)
    with pytest.raises(bindings_driver.Error, match="cuCtxSynchronize failed: CUDA_ERROR_ILLEGAL_ADDRESS"):
        bindings_driver.Context.synchronize()
    assert not any(name == "cuMemFree" for name, *_ in driver.asked)


def test_events(driver: Driver) -> None:
    begin, end = bindings_driver.Event(), bindings_driver.Event()
    begin.record()
    end.record()
    end.synchronize()
    assert begin.time_till(end) == 2.5
    assert [name for name, *_ in driver.asked[2:]] == [
        "cuEventRecord",
        "cuEventRecord",
        "cuEventSynchronize",
        "cuEventElapsedTime",
    ]


def test_its_functions_are_those_of_cuda_bindings() -> None:
    """Each function that is asked is there, and takes as many arguments."""
    real = pytest.importorskip("cuda.bindings.driver")
    calls = [
        node
        for node in ast.walk(ast.parse(inspect.getsource(bindings_driver)))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "_asked"
    ]
    assert len(calls) > 15
    for call in calls:
        name = call.args[0]
        assert isinstance(name, ast.Constant)
        assert isinstance(name.value, str)
        signature = str(getattr(real, name.value).__doc__).split("\n")[0]
        inside = signature[signature.index("(") + 1 : signature.rindex(")")]
        assert len(call.args) - 1 == (inside.count(",") + 1 if inside else 0), signature


def test_it_has_what_is_asked_of_pycuda() -> None:
    """Names behind the driver in the backend and the benchmarks, but for those of PyCUDA's own way to launch."""
    own = {"module_from_buffer", "function_attribute"}
    wanted: set[str] = set()
    for file in ("runtime/gpu.py", "compiler/bench/gpu.py", "benchmarks/speed/clock.py"):
        for node in ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("self._driver", "events"):
                wanted.add(node.attr)
    assert {"mem_alloc", "Context", "Event", "Error"} <= wanted
    assert [name for name in sorted(wanted - own) if not hasattr(bindings_driver, name)] == []


def test_a_launch_without_pycuda(driver: Driver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """From the arrays to what the driver is given: addresses of the arguments, and shared memory that was asked for."""
    given: list[tuple[Any, ...]] = []

    def launch(function: Any, *asked: Any) -> tuple[Status]:
        *shape, stream, parameters, extra = asked
        addresses = (ctypes.c_void_p * 2).from_address(parameters)
        given.append((function, shape, stream, extra, ctypes.c_uint64.from_address(addresses[0]).value))
        given.append((ctypes.c_int32.from_address(addresses[1]).value,))
        return (Status(0),)

    driver.answers |= {"cuLaunchKernel": launch, "cuModuleGetFunction": "function", "cuModuleLoadData": "module"}
    driver.CUfunction_attribute = SimpleNamespace(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES="most")
    (tmp_path / "some.cubin").write_bytes(b"code")
    monkeypatch.setattr(gpu, "missing_for_gpu", lambda: None)
    monkeypatch.setattr(gpu, "has_pycuda", lambda: False)
    monkeypatch.setattr(gpu, "compile_cubin", lambda source, target: Cubin(tmp_path / "some.cubin", target))
    monkeypatch.setattr(cuda_driver, "_driver", lambda: driver)
    monkeypatch.setattr(cuda_driver, "_launcher", lambda: None)
    monkeypatch.setattr(bindings_driver, "retain_primary_context", lambda: None)
    backend = gpu.GpuBackend("text", ["some"], "sm_90a")
    assert backend.device == 1
    out = backend.allocate((8,), np.dtype(np.float32))
    backend.launch("some", (2, 1, 1), (128, 1, 1), 50_000, [out, ctypes.c_int32(-3)])
    assert given == [("function", [2, 1, 1, 128, 1, 1, 50_000], 0, 0, 0x7000), (-3,)]
    assert ("cuFuncSetAttribute", "function", "most", 50_000) in driver.asked
    backend.launch("some", (0, 1, 1), (128, 1, 1), 0, [out, ctypes.c_int32(-3)])
    assert (len(given), backend.variants) == (2, ["some"])
    driver.answers["cuLaunchKernel"] = lambda *_: (Status(700),)
    with pytest.raises(gpu.GpuFailure, match="@some cannot be launched: the driver reports CUDA_ERROR_ILLEGAL_ADDRESS"):
        backend.launch("some", (2, 1, 1), (128, 1, 1), 0, [out, ctypes.c_int32(-3)])


@pytest.mark.skipif(find_nvcc() is None, reason="nvcc is not installed")
@pytest.mark.skipif(find_disassembler() is None, reason="neither cuobjdump nor nvdisasm is installed")
def test_what_is_gated_is_what_is_launched(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Byte for byte: the machine code that gates are about, that which is written, and that which the driver is given
    by `treadle run` and by a compiled kernel, which the driver here then refuses to launch."""
    gated: list[bytes] = []

    def read(cubin: Path) -> Codes:
        gated.append(cubin.read_bytes())
        return codes_of_cubin(cubin)

    monkeypatch.setattr(report_code, "codes_of_cubin", read)
    program, written = str(ROOT / "examples" / "matmul.mlir"), tmp_path / "out.cubin"
    command = [
        "compile",
        program,
        "--machine",
        "h100",
        "--report",
        "--cubin",
        str(written),
        "-o",
        str(tmp_path / "c.cu"),
    ]
    assert main(command) == 0
    assert "gates" in capsys.readouterr().out

    driver.answers |= {"cuModuleLoadData": "module", "cuModuleGetFunction": (Status(700), None)}
    driver.CUfunction_attribute = SimpleNamespace(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES="most")
    monkeypatch.setattr(gpu, "missing_for_gpu", lambda: None)
    monkeypatch.setattr(gpu, "has_pycuda", lambda: False)
    monkeypatch.setattr(gpu.GpuBackend, "has_tensor_maps", False)
    monkeypatch.setattr(cuda_driver, "_driver", lambda: driver)
    monkeypatch.setattr(cuda_driver, "_launcher", lambda: None)
    monkeypatch.setattr(bindings_driver, "retain_primary_context", lambda: None)
    assert main(["run", program, "--machine", "h100", "--backend", "gpu"]) != 0
    treadle.compile(program, machine="h100").backend("gpu", checks=False)
    loaded = [arguments[0] for name, *arguments in driver.asked if name == "cuModuleLoadData"]
    assert gated == [written.read_bytes()]
    assert loaded == 2 * gated


def test_who_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "device_count", lambda: (1, ""))
    monkeypatch.setattr(gpu, "find_nvcc", lambda: "nvcc")
    monkeypatch.setattr(gpu, "has_pycuda", lambda: False)
    monkeypatch.setattr(gpu, "is_installed", lambda: True)
    monkeypatch.setattr(bindings_driver, "retain_primary_context", lambda: None)
    assert gpu.missing_for_gpu() is None
    assert gpu.driver() is bindings_driver
    monkeypatch.setattr(gpu, "is_installed", lambda: False)
    assert "neither PyCUDA nor cuda-bindings" in str(gpu.missing_for_gpu())
