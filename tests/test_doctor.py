"""`treadle doctor` tells what is here, whatever is missing, and what follows; nvcc from PyPI is found and compiles."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from treadle import __version__
from treadle.compiler import main as cli
from treadle.compiler.cli import doctor
from treadle.runtime import gpu_facts, nvcc, nvidia_packages
from treadle.runtime.gpu_facts import Driver, Gpu

NAMES = ["Python", "xdsl", "C++ compiler", "nvcc", "GPU driver", "GPU", "PyCUDA", "cuda-bindings", "PyTorch", "cache"]


def told(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """What doctor says of each thing, its lines joined by blanks; the last line under its own words."""
    assert cli.main(["doctor"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    found: dict[str, str] = {}
    name = ""
    for line in captured.out.splitlines()[1:]:
        if line.startswith("programs run in "):
            name, rest = "programs run in", line.removeprefix("programs run in ")
        else:
            name, rest = line[:17].strip() or name, line[17:]
        found[name] = f"{found.get(name, '')} {rest.strip()}".strip()
    return found


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No program on the path, no toolkit, no packages of NVIDIA."""
    for name in ("CXX", "CUDACXX", "CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(nvcc, "program_of_package", lambda name: None)
    monkeypatch.setenv("TREADLE_CACHE", str(tmp_path / "cache"))


def test_what_is_here(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TREADLE_CACHE", str(tmp_path / "cache"))
    found = told(capsys)
    assert list(found) == [*NAMES, "programs run in"]
    assert found["Python"].startswith(platform.python_version())
    assert found["xdsl"].startswith("0.74.")
    assert found["cache"].startswith(f"{tmp_path / 'cache'}: 0 bytes of at most ")
    assert all(len(text) > 3 for text in found.values())


def test_nothing_is_here(capsys: pytest.CaptureFixture[str], bare: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "driver_facts", lambda: None)
    monkeypatch.setattr(doctor, "device_count", lambda: (0, "no GPU: there is no driver"))
    monkeypatch.setattr("treadle.runtime.gpu.device_count", lambda: (0, "no GPU: there is no driver"))

    def missing(name: str) -> str:
        if name == "xdsl":
            return "0.74.0"
        raise doctor.PackageNotFoundError(name)

    monkeypatch.setattr(doctor, "version", missing)
    found = told(capsys)
    for name in ("C++ compiler", "nvcc", "GPU driver", "PyCUDA", "cuda-bindings", "PyTorch"):
        assert found[name].startswith("none"), found[name]
        assert " -> " in found[name]
    assert "pip install 'treadle[nvcc]'" in found["nvcc"]
    assert "no emulator" in found["C++ compiler"]
    assert found["programs run in"].startswith("the interpreter (no GPU: there is no driver; no C++ compiler")


def test_what_was_chosen_wrongly(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treadle.runtime.gpu.missing_for_gpu", lambda: "no GPU: none")
    for name, value in (("CXX", "no-such-c++"), ("CUDACXX", "no-such-nvcc"), ("TREADLE_CACHE", "/dev/null")):
        monkeypatch.setenv(name, value)
    found = told(capsys)
    assert "$CXX = 'no-such-c++'" in found["C++ compiler"]
    assert "none: $CUDACXX = 'no-such-nvcc' was not found" in found["nvcc"]
    assert "cannot be used" in found["cache"]
    assert "it is no folder" in found["cache"]
    assert found["programs run in"].startswith("no place until the C++ compiler works")


def test_compilers_that_do_not_compile(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for variable, says in (("CXX", "mine 1.0"), ("CUDACXX", "Cuda compilation tools, release 13.0, V13.0.1")):
        program = tmp_path / variable
        program.write_text(
            f'#!/bin/sh\nif [ "$1" = --version ]; then echo "{says}"; else echo "error: no headers" >&2; exit 1; fi\n'
        )
        program.chmod(0o755)
        monkeypatch.setenv(variable, str(program))
    found = told(capsys)
    assert "mine 1.0, but it does not work: error: no headers -> no emulator" in found["C++ compiler"]
    assert "but it does not work: error: no headers -> CUDA C is printed" in found["nvcc"]


def test_devices(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Through the driver's own functions, as a driver of CUDA 12.4 with two devices answers."""
    source = tmp_path / "driver.cpp"
    source.write_text(DRIVER)
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    library = tmp_path / "libcuda.so"
    subprocess.run([compiler, "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    (tmp_path / "version").write_text("550.54.15\n")
    monkeypatch.setattr(gpu_facts, "_library", lambda: gpu_facts.ctypes.CDLL(str(library)))
    monkeypatch.setattr(gpu_facts, "RELEASE", tmp_path / "version")
    for module in (gpu_facts, doctor):
        monkeypatch.setattr(module, "device_count", lambda: (2, ""))
    assert gpu_facts.driver_facts() == Driver((12, 4), "550.54.15")
    assert gpu_facts.gpus() == (Gpu("Device 0", (9, 0), 80 * 2**30), Gpu("Device 1", (7, 5), 16 * 2**30))
    assert cli.main(["doctor"]) == 0
    said = capsys.readouterr().out
    assert "550.54.15, CUDA 12.4" in said
    assert "Device 0, compute capability 9.0, 80 GiB\n" in said
    assert "-> it is too old: treadle's kernels need 8.0" in said
    assert doctor._too_new("13.0.88").startswith("the driver is of CUDA 12.4")
    assert doctor._too_new("12.9.1") == ""


DRIVER = """
#include <cstddef>
#include <cstring>
extern "C" int cuDriverGetVersion(int *v) { *v = 12040; return 0; }
extern "C" int cuDeviceGet(int *d, int i) { *d = i; return 0; }
extern "C" int cuDeviceGetName(char *n, int, int d) { std::strcpy(n, d ? "Device 1" : "Device 0"); return 0; }
extern "C" int cuDeviceTotalMem_v2(size_t *m, int d) { *m = (d ? 16ull : 80ull) << 30; return 0; }
extern "C" int cuDeviceGetAttribute(int *v, int a, int d) { *v = a == 75 ? (d ? 7 : 9) : (d ? 5 : 0); return 0; }
"""


def test_a_package_that_cannot_be_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_here.py").write_text("raise OSError('libmissing.so: cannot open')")
    monkeypatch.syspath_prepend(tmp_path)
    finding = doctor._package("Broken", "xdsl", "broken_here", "nothing works")
    assert finding.found.endswith("but it cannot be imported: libmissing.so: cannot open")
    assert finding.means == "nothing works"


def test_doctor_of_a_fresh_process() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "treadle.compiler.main", "doctor"], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0
    assert result.stdout.startswith(f"treadle {__version__}\n")
    assert result.stderr == ""


# -- nvcc from PyPI ----------------------------------------------------------------------------------


def program(folder: Path, mode: int = 0o755) -> Path:
    path = folder / "bin" / "nvcc"
    path.parent.mkdir(parents=True)
    path.write_text("#!/bin/sh\necho 'release 13.5, V13.5.37'\n")
    path.chmod(mode)
    return path


def test_nvcc_of_a_package_comes_last(bare: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(nvcc, "program_of_package", lambda name: f"/packages/{name}")
    assert nvcc.find_nvcc() == "/packages/nvcc"
    monkeypatch.setattr(shutil, "which", lambda name: f"/path/{Path(name).name}")
    assert nvcc.find_nvcc() == "/path/nvcc"
    monkeypatch.setenv("CUDACXX", "mine")
    assert nvcc.find_nvcc() == "/path/mine"


def test_the_newest_toolkit_of_the_packages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(nvidia_packages, "find_spec", lambda name: None)
    monkeypatch.setattr(nvidia_packages.sysconfig, "get_path", lambda name: str(tmp_path))
    assert nvidia_packages.program_of_package("nvcc") is None
    program(tmp_path / "nvidia" / "cu20", mode=0o644)  # cannot be executed
    for name in ("cuda_nvcc", "cu9", "cu13"):
        program(tmp_path / "nvidia" / name)
    assert nvidia_packages.program_of_package("nvcc") == str(tmp_path / "nvidia" / "cu13" / "bin" / "nvcc")


@pytest.mark.full
def test_the_extra_nvcc_compiles_attention(tmp_path: Path) -> None:
    """NVIDIA's packages in an environment of their own, without any toolkit on the path: needs PyPI."""
    import tomllib

    root = Path(__file__).parents[1]
    wanted = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]["nvcc"]
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    pip = [str(tmp_path / "venv" / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
    installed = subprocess.run([*pip, *wanted], capture_output=True, text=True, check=False)
    if installed.returncode != 0:
        pytest.skip(f"NVIDIA's packages cannot be had: {installed.stderr.strip().splitlines()[-1]}")
    (packages,) = (tmp_path / "venv").glob("lib/python3*/site-packages")
    environment = {name: text for name, text in os.environ.items() if not name.startswith("CUDA")}
    environment |= {
        "CUDACXX": str(next(packages.glob("nvidia/*/bin/nvcc"))),
        "TREADLE_CACHE": str(tmp_path / "cache"),
    }
    for arch in ("sm_80", "sm_90a"):
        cubin = tmp_path / f"{arch}.cubin"
        arguments = ["compile", "examples/attention.mlir", "--arch", arch, "--cubin", str(cubin), "-o", os.devnull]
        command = [sys.executable, "-m", "treadle.compiler.main", *arguments]
        done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert cubin.read_bytes().startswith(b"\x7fELF")
