# pyright: standard
"""`pytest --device cuda` and `--part`: what they run, what they refuse, and that tolerances are of exact products."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from devices import exact_products, missing_for, skipped_without_transformers
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.backends import cudnn
from torch.fx.experimental.proxy_tensor import make_fx

from treadle.torch.compiled_graph import pieces_of
from treadle.torch.decompositions import decompositions
from treadle.torch.options import Options

TESTS = Path(__file__).parent


def test_a_device_that_is_not_there_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    assert missing_for("cpu") is None
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    assert missing_for("cuda") == f"PyTorch {torch.__version__} finds no GPU"
    monkeypatch.setattr(torch.version, "cuda", None)
    assert missing_for("cuda") == f"PyTorch {torch.__version__} was built without CUDA"
    monkeypatch.setitem(sys.modules, "torch", None)
    assert missing_for("cuda") == "PyTorch is not installed"


def test_kernels_of_another_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (8, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA A100")
    assert missing_for("cuda", "h100") == "kernels for h100 do not run on NVIDIA A100"
    monkeypatch.setattr("treadle.runtime.gpu.missing_for_gpu", lambda: "no nvcc")
    assert missing_for("cuda", "a100") == "no nvcc"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        pytest.param(
            ("--device", "cuda"),
            f"--device cuda: {missing_for('cuda')}",
            marks=pytest.mark.skipif(missing_for("cuda") is None, reason="a GPU is here"),
        ),
        (("--part", "3/2"), "--part: one of N parts is K/N"),
        (("--budget", "-1"), "--budget: seconds that a test has"),
        (("--part", "half"), "--part: one of N parts is K/N"),
    ],
)
def test_options_are_refused_before_anything_runs(given: tuple[str, ...], said: str) -> None:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "tests/test_torch_modules.py", *given]
    done = subprocess.run(command, cwd=TESTS.parent, capture_output=True, text=True)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert said in done.stderr


def kept(pytestconfig: pytest.Config, count: int, **options: Any) -> list[int]:
    """Of so many tests, of which those of even numbers take the fixture `device`."""
    plugin: Any = pytestconfig.pluginmanager.get_plugin(str(TESTS / "conftest.py"))
    given = {"--all": True, "--device": "cpu", "--movable": False, "--part": "1/1", "--budget": 0, **options}
    left_out: list[Any] = []
    hook = SimpleNamespace(pytest_deselected=lambda items: left_out.extend(items))
    config = SimpleNamespace(getoption=given.__getitem__, hook=hook)
    items = [Item(number) for number in range(count)]
    every = set(items)
    plugin.pytest_collection_modifyitems(config, items)
    assert every == {*items, *left_out}
    return [each.number for each in items]


class Item:
    def __init__(self, number: int):
        self.number = number
        self.fixturenames = ["device"] if number % 2 == 0 else []


def test_on_a_device_only_what_moves_there_runs(pytestconfig: pytest.Config) -> None:
    assert kept(pytestconfig, 6) == [0, 1, 2, 3, 4, 5]
    assert kept(pytestconfig, 6, **{"--device": "cuda"}) == [0, 2, 4]
    assert kept(pytestconfig, 6, **{"--movable": True}) == [0, 2, 4]


def test_parts_are_the_whole(pytestconfig: pytest.Config) -> None:
    parts = [kept(pytestconfig, 14, **{"--device": "cuda", "--part": f"{part}/3"}) for part in (1, 2, 3)]
    assert parts == [[0, 6, 12], [2, 8], [4, 10]]


def test_eager_convolutions_are_exact_on_a_device() -> None:
    before = cudnn.allow_tf32
    with exact_products("cuda"):
        assert not cudnn.allow_tf32
    assert cudnn.allow_tf32 == before
    with exact_products("cpu"):
        assert cudnn.allow_tf32 == before


def test_without_transformers_a_device_does_the_rest() -> None:
    missing = ModuleNotFoundError("No module named 'transformers'", name="transformers")
    with (
        pytest.raises(pytest.skip.Exception, match="transformers is not installed"),
        skipped_without_transformers("cuda"),
    ):
        raise missing
    for device, error in (("cpu", missing), ("cuda", ModuleNotFoundError("other", name="transformers.models.new"))):
        with pytest.raises(ModuleNotFoundError), skipped_without_transformers(device):
            raise error


def explicit(q: torch.Tensor) -> torch.Tensor:
    return torch.softmax(q @ q.transpose(-1, -2) / 4, -1) @ q


def causal(x: torch.Tensor) -> torch.Tensor:
    later = torch.ones(x.size(0), x.size(0), device=x.device, dtype=torch.bool).triu(1)
    return torch.softmax((x @ x.t()).masked_fill(later, float("-inf")), -1) @ x


@pytest.mark.parametrize(
    ("function", "shape"),
    [(explicit, (2, 3, 19, 16)), (causal, (9, 16)), (lambda x: torch.nn.functional.group_norm(x, 4), (5, 24))],
)
def test_what_lies_on_a_device_becomes_the_same_programs(function: Any, shape: tuple[int, ...]) -> None:
    """As PyTorch traces tensors of a GPU where there is none: nothing runs."""
    told: list[Any] = []
    for where in ("cpu", "cuda"):
        with FakeTensorMode(), torch.no_grad():
            x = torch.empty(shape, device=where, dtype=torch.float16)
            made = make_fx(function, decomposition_table=decompositions(), tracing_mode="fake")(x)
        made.graph.eliminate_dead_code()
        left, pieces = pieces_of(made.graph, Options(), trains=False)
        nodes = [str(node.target) for node in made.graph.nodes if node.op == "call_function"]
        told.append(
            (nodes, [(len(each.nodes), str(each.made and each.made.module)) for each in pieces], [*left.values()])
        )
    on_cpu, on_gpu = told
    assert on_cpu == on_gpu
    assert on_cpu[1]
