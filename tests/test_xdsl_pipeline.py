"""Another compiler (examples/xdsl_pipeline) uses treadle's passes on its module, beside a dialect of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from foreign_package import EXAMPLE, ROOT, install
from treadle.compiler.errors import TreadleError
from treadle.compiler.pipeline import LAST_HIERARCHY_PASS, Options, run_pipeline
from treadle.compiler.source import parse_module
from treadle.runtime.arguments import HostError
from treadle.runtime.interpreter import run_function, run_with_bounds

MODEL = (EXAMPLE / "model.mlir").read_text(encoding="utf-8")

TWICE = """
func.func @twice(%ids: tensor<?xi32>, %again: tensor<?xi32>, %table: tensor<100x64xf16>) -> tensor<?x64xf16> {
  %x = net.embed %ids from %table : (tensor<?xi32>, tensor<100x64xf16>) -> tensor<?x64xf16>
  %y = net.attend %x, %table, %table scale 0.125
      : (tensor<?x64xf16>, tensor<100x64xf16>, tensor<100x64xf16>) -> tensor<?x64xf16>
  %z = net.embed %again from %y : (tensor<?xi32>, tensor<?x64xf16>) -> tensor<?x64xf16>
  %w = net.attend %z, %y, %y scale 0.25 : (tensor<?x64xf16>, tensor<?x64xf16>, tensor<?x64xf16>) -> tensor<?x64xf16>
  func.return %w : tensor<?x64xf16>
}
"""
"""One of the foreign operations stands between two kernels, and reads what the first one wrote."""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(tmp_path_factory.mktemp("net"))


@pytest.fixture(scope="module")
def net(installed: Path) -> Iterator[ModuleType]:
    sys.path.insert(0, str(installed))
    from net_compiler import run

    yield run
    sys.path.remove(str(installed))
    for name in [name for name in sys.modules if name.partition(".")[0] == "net_compiler"]:
        del sys.modules[name]


def attend(q: NDArray[Any], k: NDArray[Any], v: NDArray[Any], scale: float) -> NDArray[Any]:
    s = scale * q.astype(float) @ k.astype(float).T
    e = np.exp(s - s.max(1, keepdims=True))
    return (e / e.sum(1, keepdims=True)) @ v.astype(float)


def inputs(words: int, rows: int) -> tuple[NDArray[Any], ...]:
    random = np.random.default_rng(words)
    table, memory = (random.normal(size=(n, 64)).astype(np.float16) for n in (100, rows))
    return random.integers(0, 100, words).astype(np.int32), table, memory


@pytest.mark.parametrize(("words", "rows"), [(17, 33), (1, 1), (64, 200)])
def test_the_pipeline_computes_what_it_should_at_every_level(net: ModuleType, words: int, rows: int) -> None:
    ids, table, memory = inputs(words, rows)
    wanted = attend(table[ids], memory, memory, 0.125)
    (y,) = net.run(net.compiled(MODEL), ids, table, memory)
    np.testing.assert_allclose(y.astype(float), wanted, atol=3e-3)

    from net_compiler.convert_net_to_diagram import ConvertNetToDiagramPass

    module = parse_module(MODEL, "model.mlir", net.context())
    ConvertNetToDiagramPass().apply(net.context(), module)
    for last in (None, LAST_HIERARCHY_PASS):
        if last is not None:
            run_pipeline(module, Options(), last=last)
        (y,) = run_function(module, (ids, table, memory), foreign=net.FOREIGN).results
        np.testing.assert_allclose(y, wanted, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_a_foreign_operation_between_two_kernels(net: ModuleType, machine: str) -> None:
    ids, table, _ = inputs(40, 1)
    again = np.arange(7, dtype=np.int32) * 5
    module = net.compiled(TWICE, machine)
    assert [op.name for op in module.walk()].count("cuda.launch") >= 2
    (w,) = net.run(module, ids, again, table)
    y = attend(table[ids], table, table, 0.125).astype(np.float16)
    np.testing.assert_allclose(w.astype(float), attend(y[again], y, y, 0.25), atol=6e-3)


def test_what_the_owner_must_say(net: ModuleType) -> None:
    """What a foreign operation computes; of the right shape; and of arrays of the right shape."""
    from net_compiler.convert_net_to_diagram import ConvertNetToDiagramPass
    from net_compiler.dialect import EmbedOp

    arguments = inputs(17, 33)
    ids, table, memory = arguments
    module = net.compiled(MODEL)
    backend = net.backend_of(module)
    with pytest.raises(HostError, match=r"net.embed stands between kernels: 'foreign' must say"):
        net.execute(module, arguments, backend)
    wrong = {EmbedOp: lambda op, ids, table: table[ids][:, :5]}
    with pytest.raises(HostError, match=r"gives an array of \[17, 5\], its type is tensor<\?x64xf16>"):
        net.execute(module, arguments, backend, foreign=wrong)
    several = {EmbedOp: lambda op, ids, table: (table, table)}
    with pytest.raises(HostError, match=r"gives 2 results, it has 1"):
        net.execute(module, arguments, backend, foreign=several)
    with pytest.raises(HostError, match=r"argument 'table' has the shape \[100, 32\]"):
        net.execute(module, (ids, table[:, :32], memory), backend, foreign=net.FOREIGN)
    with pytest.raises(HostError, match=r"argument 'ids' has elements int64, expected int32"):
        net.execute(module, (ids.astype(np.int64), table, memory), backend, foreign=net.FOREIGN)

    diagrams = parse_module(MODEL, "model.mlir", net.context())
    ConvertNetToDiagramPass().apply(net.context(), diagrams)
    with pytest.raises(TreadleError, match=r"the interpreter does not know 'net.embed'"):
        run_function(diagrams, arguments)
    with pytest.raises(TreadleError, match=r"expected tensor<100x64xf16>"):
        run_function(diagrams, (ids, table[:, :32], memory), foreign=net.FOREIGN)
    with pytest.raises(TreadleError, match=r"%table has 1 dimensions: expected tensor<100x64xf16>"):
        run_function(diagrams, (ids, table[0], memory), foreign=net.FOREIGN)


def test_a_foreign_operation_has_no_bound(net: ModuleType) -> None:
    from net_compiler.convert_net_to_diagram import ConvertNetToDiagramPass

    module = parse_module(MODEL, "model.mlir", net.context())
    ConvertNetToDiagramPass().apply(net.context(), module)
    with pytest.raises(TreadleError, match=r"does not know 'net.embed'"):
        run_with_bounds(module, inputs(3, 4))


def opt(installed: Path, *arguments: str, source: str = MODEL) -> str:
    """What the stock `xdsl-opt` of this environment prints."""
    paths = [str(installed), str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    program = "from xdsl.tools.xdsl_opt import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], input=source, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def seen(installed: Path) -> None:
    """The stock driver finds treadle by its entry point, where it is installed."""
    from importlib.metadata import entry_points

    if "treadle" not in entry_points(group="xdsl.universe").names:
        pytest.skip("treadle is not installed here")


@pytest.mark.usefixtures("seen")
def test_the_stock_driver_runs_both_compilers_passes(installed: Path) -> None:
    printed = opt(installed, "-p", 'net-to-cuda{machine="h100"}')
    assert "net.embed %ids from %table" in printed
    assert "cuda.launch @model_kernel" in printed
    assert "net.attend" not in printed
    steps = "convert-net-to-diagram,set-machine{name=a100},diagram-expand-laws,diagram-hoist-factors,fusion"
    printed = opt(installed, "-p", steps)
    assert "hierarchy.kernel @model" in printed
    assert "net.embed %ids from %table" in printed
    assert "__global__" in opt(installed, "-p", "net-to-cuda", "-t", "cuda-c")


@pytest.mark.usefixtures("seen")
def test_the_dialect_survives_printing(installed: Path) -> None:
    once = opt(installed, source=TWICE)
    assert opt(installed, source=once) == once
    assert opt(installed, source=opt(installed, "--print-op-generic", source=TWICE)) == once
