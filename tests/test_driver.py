"""Launches through cuda-bindings itself, to the end, on a driver that refuses what NVIDIA's would: sizes, tensor maps,
parameters, shared memory, registers and clusters, by what the cubin says of its kernels. It computes nothing itself;
where results are wanted, the PTX machine does."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from treadle.runtime.cuda_driver import is_installed
from treadle.runtime.nvcc import find_nvcc, release_of

DRIVER = Path(__file__).parent / "driver"
ROOT = DRIVER.parents[1]

pytestmark = pytest.mark.skipif(
    find_nvcc() is None or shutil.which("g++") is None or not is_installed() or sys.platform != "linux",
    reason="there is no nvcc, no g++, or no cuda-bindings",
)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """That in which the driver is found."""
    folder = tmp_path_factory.mktemp("driver")
    nvcc, library = find_nvcc(), folder / "libcuda.so.1"
    options = ["-std=c++17", "-O1", "-shared", "--cudart=none", "-Xcompiler=-fPIC,-fvisibility=hidden"]
    subprocess.run([str(nvcc), *options, str(DRIVER / "libcuda.cpp"), "-o", str(library)], check=True)
    found = os.environ.get("LD_LIBRARY_PATH")
    return {
        **os.environ,
        "LD_LIBRARY_PATH": f"{folder}:{found}" if found else str(folder),
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "DRIVER_LOG": str(folder / "log"),
    }


def started(environment: dict[str, str], *command: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """What a command said, and what the driver wrote down."""
    log = Path(environment["DRIVER_LOG"])
    log.unlink(missing_ok=True)
    done = subprocess.run(
        [sys.executable, *command], env=environment, cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done, log.read_text(encoding="utf-8").splitlines() if log.exists() else []


def test_kernels_are_launched_and_wrong_launches_refused(environment: dict[str, str]) -> None:
    done, told = started(environment, str(DRIVER / "launch.py"))
    assert done.returncode == 0, done.stderr
    launched = [line for line in told if line.startswith("launched")]
    assert launched[0] == launched[1]
    assert launched[0].startswith("launched softmax_rows_kernel")
    assert launched[2] == launched[3]
    assert "matmul_kernel_specialised_clusters: 128 blocks of 256 threads" in launched[2]
    assert "clusters of 2" in launched[2]
    assert launched[2].endswith("7 parameters map map")
    assert len(launched) == 4
    refused = [line for line in told if line.startswith("refused")]
    for line, why in zip(
        refused,
        (
            "232449 bytes of dynamic shared memory",
            "512 threads, compiled for 256",
            "a cluster of 4, compiled for 2",
            "tensor map",
            "past its allocation",
        ),
        strict=True,
    ):
        assert why in line


def test_the_command_line_runs_on_it_and_sees_that_nothing_was_computed(environment: dict[str, str]) -> None:
    """From `treadle run` to the verdict: arrays are copied there and back."""
    command = ("-m", "treadle.compiler.main", "run", "examples/softmax.mlir", "--backend", "gpu", "--machine", "h100")
    done, told = started(environment, *command)
    assert done.returncode == 1, done.stderr
    assert "WRONG (gpu): " in done.stdout + done.stderr
    assert [line.split(":")[0] for line in told] == ["launched softmax_rows_kernel"]


@pytest.mark.parametrize("example", ["softmax", "attention"])
def test_kernels_that_it_computes_are_right(environment: dict[str, str], example: str) -> None:
    """From `treadle run` to the verdict, where the PTX machine computes what is launched, from the parameters and the
    tensor maps and in the memory that the driver was given."""
    command = (str(DRIVER / "computing.py"), "run", f"examples/{example}.mlir", "--backend", "gpu", "--machine", "h100")
    done, told = started(environment, *command)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("verified (gpu): ")
    assert [line.partition(" ")[0] for line in told] == ["launched"]


def test_other_ways_are_measured(environment: dict[str, str], tmp_path: Path) -> None:
    """`treadle tune`, from the file to the derivation: each way is compiled, launched and timed."""
    path = tmp_path / "softmax.derivation"
    given = ["examples/softmax.mlir", "--machine", "h100", "--size", "row=64", "--size", "x=64", "--count", "2"]
    done, told = started(environment, "-m", "treadle.compiler.main", "tune", *given, "-o", str(path))
    assert done.returncode == 0, done.stderr
    own, first, second, *_ = done.stdout.splitlines()
    assert own.endswith("us  as the model chooses")
    assert first != second
    assert all("@softmax_rows with row = " in line for line in (first, second))
    assert "# the fastest of these on NVIDIA H100" in path.read_text(encoding="utf-8")
    shapes = {line.partition(":")[2].partition(",")[0] for line in told if "softmax_rows_kernel" in line}
    assert len(shapes) > 1, told[:5]


@pytest.mark.parametrize("of", ["products on a100", "products on h100", "rows"])
def test_calls_on_arrays_of_numpy_are_repeated(environment: dict[str, str], of: str) -> None:
    """Allocated once for each call, copied, launched and copied back, without asking the program."""
    done, told = started(environment, str(DRIVER / "again.py"), *of.split())
    assert done.returncode == 0, done.stdout + done.stderr
    assert {line.partition(" ")[0] for line in told} == {"launched"}


QUESTION = """
import sys
sys.path.insert(0, "benchmarks")
import questions, tries
from speed import cases
ways = questions.without("cuda-speculate") | {"again": questions.Changes()}
asked = questions.Question("How fast?", cases.attention_backward(1, 1, 64, 64), ways, ("PyTorch eager",))
tries.questions = lambda: iter([asked])
if __name__ == "__main__":
    sys.exit(tries.main(sys.argv[1:]))
"""


def test_questions_are_answered(environment: dict[str, str], tmp_path: Path) -> None:
    """`benchmarks/tries.py`, from the question to its answer: three results are compared, and launches timed."""
    script, results = tmp_path / "question.py", tmp_path / "results"
    script.write_text(QUESTION, encoding="utf-8")
    done, told = started({**environment, "TREADLE_RESULTS": str(results)}, str(script), "--workers", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = results.glob("tries-nvidia-h100-*.json")
    (found,) = json.loads(path.read_text(encoding="utf-8"))["cases"].values()
    own, *others = found["ways"].values()
    assert own["seconds"]["runs"] == 9
    assert "no CUDA" in others[-1]["not measured"]
    assert found["refused"]["again"] == "it prints the same as 'as the pipeline makes it'"
    assert {line.split()[1].rstrip(":") for line in told if line.startswith("launched")} >= {*own["launched"]}


PREPARE = """
import sys
sys.path.insert(0, "benchmarks")
import carried, preparing
from pathlib import Path
rows = [each for each in preparing.programs_of(("sanitizer",), ["h100"]) if "@softmax_rows" in each.text]
if __name__ == "__main__":
    sys.exit(preparing.prepare((9, 0), 1, rows, Path(sys.argv[1])))
"""


def test_what_was_prepared_is_not_compiled_again(environment: dict[str, str], tmp_path: Path) -> None:
    """Compiled and packed by one process, unpacked and launched by others, whose nvcc tells its version and no more."""
    nvcc, archive, script = str(find_nvcc()), tmp_path / "prepared.tar.xz", tmp_path / "prepare.py"
    script.write_text(PREPARE, encoding="utf-8")
    here = {**environment, "TREADLE_CACHE": str(tmp_path / "here"), "PYTHONHASHSEED": "1"}
    done, _ = started(here, str(script), str(archive))
    assert done.returncode == 0, done.stdout + done.stderr
    only = tmp_path / "nvcc"
    only.write_text(f'#!/bin/sh\n[ "$1" = --version ] && exec {nvcc} --version\necho "error: it is asked"\nexit 1\n')
    only.chmod(0o755)
    there = {**environment, "TREADLE_CACHE": str(tmp_path / "there"), "CUDACXX": str(only), "PYTHONHASHSEED": "2"}
    run = ("-m", "treadle.compiler.main", "run", "examples/softmax.mlir", "--backend", "gpu", "--machine", "h100")
    done, told = started(there, *run)
    assert "it is asked" in done.stderr, "nothing is there yet"
    assert not told
    unpack = "import sys; sys.path.insert(0, 'benchmarks'); import carried, pathlib; carried.unpack(pathlib.Path({!r}))"
    done, _ = started(there, "-c", unpack.format(str(archive)))
    assert done.returncode == 0, done.stderr
    done, told = started(there, *run)
    assert [line.partition(":")[0] for line in told] == ["launched softmax_rows_kernel"], done.stderr


@pytest.mark.parametrize("example", ["softmax", "attention"])
def test_a_driver_that_is_older_than_the_toolkit(environment: dict[str, str], example: str) -> None:
    """It loads no machine code of a later major version of CUDA: one message, which names both."""
    command = (
        "-m",
        "treadle.compiler.main",
        "run",
        f"examples/{example}.mlir",
        "--backend",
        "gpu",
        "--machine",
        "h100",
    )
    done, told = started({**environment, "DRIVER_CUDA": "11080"}, *command)
    assert done.returncode == 2, done.stdout + done.stderr
    (said,) = done.stderr.splitlines()
    assert "the driver does not load the kernels: " in said
    assert f"; it is of CUDA 11.8, and nvcc of CUDA {release_of(str(find_nvcc()))}: update the driver" in said
    assert len(told) == 1


def test_rows_that_blocks_share_are_launched_in_clusters(environment: dict[str, str], tmp_path: Path) -> None:
    """Without tensor maps: the cluster is all that a plain launch lacks."""
    text = (ROOT / "examples" / "softmax.mlir").read_text(encoding="utf-8")
    program = tmp_path / "rows.mlir"
    program.write_text(text.replace("?x?x", "?x65536x").replace("row = 77, x = 1000", "row = 512"), encoding="utf-8")
    command = ("-m", "treadle.compiler.main", "run", str(program), "--backend", "gpu", "--machine", "h100")
    done, told = started(environment, *command, "--size", "row=3")
    assert done.returncode == 1, done.stdout + done.stderr
    (launched,) = told
    assert launched.startswith("launched softmax_rows_kernel: 24 blocks of 512 threads")
    assert "clusters of 8" in launched
