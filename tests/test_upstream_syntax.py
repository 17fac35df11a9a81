"""Files in the syntax of current upstream MLIR, in tests/linalg, parse, are raised, and compute what NumPy does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import treadle
from treadle.compiler import main as cli
from treadle.compiler.errors import TreadleError
from treadle.compiler.opt_main import main as opt
from treadle.compiler.raised import raised
from treadle.compiler.source import load_module, parse_module
from treadle.runtime.interpreter import entry_function, run_function

ROOT = Path(__file__).parents[1]
FILES = ROOT / "tests" / "linalg"
Numbers = NDArray[Any]


EPSILON = float(np.float32(1e-5))


def softmax(s: Numbers) -> Numbers:
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def layer_norm(x: Numbers, epsilon: float) -> Numbers:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + epsilon)


def attend_in_groups(q: Numbers, k: Numbers, v: Numbers) -> Numbers:
    """Two groups of two heads, which are left merged with their width."""
    grouped = q.reshape(*q.shape[:2], 2, 2, 16)
    shares = softmax(np.einsum("btnrd,bsnd->bnrts", grouped, k))
    return np.einsum("bnrts,bsnd->btnrd", shares, v).reshape(*q.shape[:2], 64)


MEANINGS: dict[str, Callable[..., Numbers]] = {
    "batch_matmul": lambda a, b, c: c + a @ b,
    "broadcast": lambda a, b: (a + b).T,
    "cast": np.exp,
    "contract": lambda a, b, c: c + a @ b.T,
    "dense": lambda a: a / 4,
    "elementwise": lambda a, b: np.exp(a) + b,
    "expand": lambda a: np.exp(a).reshape(4, 2, 4),
    "loc": lambda a: 1 / (1 + np.exp(-a)),
    "map": lambda a, b: a + b,
    "map_region": lambda a, b: a * b,
    "maps": lambda a, b: a @ b,
    "matmul_maps": lambda a, b, c: c + a.T @ b,
    "merged": lambda x, w: np.abs(x).reshape(-1, 12) @ w,
    "merged_result": attend_in_groups,
    "mixed": lambda a, b, c: c + a @ b,
    "named": lambda a, b: np.tanh(a / b) ** 2,
    "reduce": lambda a, c: c + a.sum(1),
    "reduce_region": lambda a, c: np.maximum(c, a.max(1)),
    "slice": lambda a: np.exp(a[:, 2:6]),
    "softmax": softmax,
    "torch_attention": lambda q, k, v: softmax(q @ k.swapaxes(-1, -2) / 4) @ v,
    "torch_half": lambda x, w, b: layer_norm(x, float(np.float16(1e-5))) * w + b,
    "torch_layer_norm": lambda x, w, b: layer_norm(x, EPSILON) * w + b,
    "torch_rms_norm": lambda x, w: x / np.sqrt((x**2).mean(-1, keepdims=True) + EPSILON) * w,
    "torch_sizes": lambda x, y: x / (1 + np.exp(-x)) * y,
    "torch_softmax": softmax,
    "trunc": lambda a: a,
}


MERGE = ["builtin.unrealized_conversion_cast", "tensor.collapse_shape", "builtin.unrealized_conversion_cast"]
"""What stays of merged dimensions of a result: a view of an array, as an array."""


def test_every_file_has_a_meaning() -> None:
    assert sorted(path.stem for path in FILES.iterdir()) == sorted(MEANINGS)


def inputs_of(types: list[Any]) -> list[Numbers]:
    random = np.random.default_rng(3)
    return [random.normal(size=[5 if size < 0 else size for size in type.get_shape()]) for type in types]


@pytest.mark.parametrize("name", MEANINGS)
def test_a_file_computes_what_it_says(name: str) -> None:
    module = load_module(FILES / f"{name}.mlir")
    arguments = inputs_of(entry_function(module).body.block.arg_types)
    raised(module).verify()
    stayed = [op.name for op in module.walk() if op.name.startswith(("linalg.", "tensor.", "builtin.unrealized"))]
    assert stayed == (MERGE if name == "merged_result" else [])
    (result,) = run_function(module, arguments).results
    np.testing.assert_allclose(result, MEANINGS[name](*arguments), rtol=1e-12)


@pytest.mark.parametrize("name", ["mixed", "expand", "softmax", "cast", "torch_half", "torch_rms_norm"])
def test_a_file_runs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As CUDA C, too."""
    assert cli.main(["run", str(FILES / f"{name}.mlir")]) == 0
    assert "verified" in capsys.readouterr().out


def test_attention_is_one_kernel(capsys: pytest.CaptureFixture[str]) -> None:
    file = str(ROOT / "examples" / "linalg" / "attention.mlir")
    assert cli.main(["run", file, "--size", "d1=7", "--size", "d3=33", "--verbose"]) == 0
    said = capsys.readouterr().out
    assert "%O_sum of @attention along d3: cascade" in said
    assert "verified" in said


def test_weights_of_merged_dimensions_are_split(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", str(FILES / "merged.mlir"), "--size", "d0=37"]) == 0
    assert "verified" in capsys.readouterr().out


def test_merged_heads_do_not_cut_attention(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", str(FILES / "torch_attention.mlir"), "--verbose"]) == 0
    said = capsys.readouterr().out
    assert "@attention along d4 and 1 more: cascade" in said
    assert "@attention_1" not in said
    assert "verified" in said


@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_a_result_with_merged_dimensions_is_a_view(machine: str) -> None:
    """One kernel writes it, at any length; it is the caller's own, and read and written as any other."""
    kernel = treadle.compile(FILES / "merged_result.mlir", machine=machine)
    assert kernel.host.count("cuda.launch ") == 1
    assert kernel.results[0].axes == {"d0": 2, "d1": None, "d5_d7_d6": 64}
    random = np.random.default_rng(5)
    for t, s in ((7, 33), (1, 1), (0, 5)):
        q, k, v = (random.normal(size=(2, n, h, 16)).astype(np.float32) for n, h in ((t, 4), (s, 2), (s, 2)))
        wanted = attend_in_groups(*(each.astype(np.float64) for each in (q, k, v)))
        for backend in ("emulator", "interpreter"):
            made = kernel.run(q, k, v, backend=backend, checks=backend == "emulator")
            np.testing.assert_allclose(made, wanted, atol=1e-5)
            assert made.flags.writeable
    assert all(verdict.ok for verdict in kernel.verify(q, k, v))


@pytest.mark.parametrize("name", ["softmax", "contract", "maps", "torch_softmax"])
def test_printed_and_read_again(name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert opt([str(FILES / f"{name}.mlir")]) == 0
    once = capsys.readouterr().out
    for option in ([], ["--print-op-generic"]):
        (tmp_path / "once.mlir").write_text(once)
        assert opt([str(tmp_path / "once.mlir"), *option]) == 0
        (tmp_path / "again.mlir").write_text(capsys.readouterr().out)
        if name == "softmax" and option:
            continue  # xDSL knows no softmax in generic form
        assert opt([str(tmp_path / "again.mlir")]) == 0
        assert capsys.readouterr().out == once


def one(line: str, arguments: str = "%a: tensor<4x8xf32>", type: str = "tensor<4x8xf32>") -> str:
    return f"""func.func @f({arguments}) -> {type} {{
  %e = tensor.empty() : tensor<4x8xf32>
  {line}
  func.return %r : {type}
}}"""


REFUSED = {
    "elements are f64": """func.func @f(%a: tensor<4xf64>) -> tensor<4xf64> {
  %0 = tensor.empty() : tensor<4xf64>
  %1 = linalg.exp ins(%a : tensor<4xf64>) outs(%0 : tensor<4xf64>) -> tensor<4xf64>
  return %1 : tensor<4xf64>
}""",
    "'tensor.collapse_shape' %r: it cannot be raised to a diagram": one(
        "%r = tensor.collapse_shape %a [[0, 1]] : tensor<4x8xf32> into tensor<32xf32>", type="tensor<32xf32>"
    ),
    "is data: make it an argument": one(
        "%c = arith.constant dense<[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]> : tensor<8xf32>\n"
        "%b = linalg.broadcast ins(%c : tensor<8xf32>) outs(%e : tensor<4x8xf32>) dimensions = [0]\n"
        "%r = linalg.add ins(%a, %b : tensor<4x8xf32>, tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) -> tensor<4x8xf32>"
    ),
    "elementwise kind 'sinh' is none of": one(
        "%r = linalg.elementwise kind=#linalg.elementwise_kind<sinh> ins(%a : tensor<4x8xf32>) "
        "outs(%e : tensor<4x8xf32>) -> tensor<4x8xf32>"
    ),
    "linalg.contract needs indexing_maps": one(
        "%r = linalg.contract ins(%a, %a : tensor<4x8xf32>, tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) "
        "-> tensor<4x8xf32>"
    ),
    "2 indexing maps for 3 operands": one(
        "%r = linalg.contract indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>] "
        "ins(%a, %a : tensor<4x8xf32>, tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) -> tensor<4x8xf32>"
    ),
    "dimension 2 of a tensor of 2 dimensions": one(
        "%r = linalg.softmax dimension(2) ins(%a : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) -> tensor<4x8xf32>"
    ),
    "it has several blocks: a program is one block": """func.func @f(%a: tensor<4xf32>) -> tensor<4xf32> {
  cf.br ^bb1
^bb1:
  return %a : tensor<4xf32>
}""",
    "%r: it cannot be raised to a diagram: it merges dimensions of an array that is not computed here": one(
        "%b = linalg.exp ins(%a : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) -> tensor<4x8xf32>\n"
        "%r = tensor.collapse_shape %a [[0, 1]] : tensor<4x8xf32> into tensor<32xf32>",
        type="tensor<32xf32>",
    ),
    "'tensor.concat' %r: it cannot be raised to a diagram": one(
        "%f = tensor.extract_slice %a[0, 0] [4, 4] [1, 1] : tensor<4x8xf32> to tensor<4x4xf32>\n"
        "%s = tensor.extract_slice %a[0, 4] [4, 4] [1, 1] : tensor<4x8xf32> to tensor<4x4xf32>\n"
        "%t = linalg.exp ins(%s : tensor<4x4xf32>) outs(%s : tensor<4x4xf32>) -> tensor<4x4xf32>\n"
        "%r = tensor.concat dim(1) %t, %f : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x8xf32>"
    ),
    "'cf.assert': it cannot be raised to a diagram": one(
        "%c0 = arith.constant 0 : index\n%c1 = arith.constant 1 : index\n"
        "%m = tensor.dim %b, %c0 : tensor<?x?xf32>\n%n = tensor.dim %b, %c1 : tensor<?x?xf32>\n"
        '%same = arith.cmpi eq, %m, %n : index\ncf.assert %same, "a square"\n'
        "%r = linalg.exp ins(%a : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) -> tensor<4x8xf32>",
        arguments="%a: tensor<4x8xf32>, %b: tensor<?x?xf32>",
    ),
    "arith.addf does not compute one element from 1": one(
        "%r = linalg.map { arith.addf } ins(%a : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>)"
    ),
    "unknown operation 'arith.add'": one(
        "%r = linalg.map { arith.add } ins(%a, %a : tensor<4x8xf32>, tensor<4x8xf32>) outs(%e : tensor<4x8xf32>)"
    ),
    "has no operation 'linalg.winograd'": one("%r = linalg.winograd ins(%a : tensor<4x8xf32>) -> tensor<4x8xf32>"),
    "a name must follow at once": "module { # }",
    "and 'int' is none: a program is MLIR": "int main() { return 0; }",
    "must follow at once: a program is MLIR": "// of a project\n\n# A README\n",
    "or the end of the file: a program is MLIR": '{"a": 1}',
}


@pytest.mark.parametrize("why", REFUSED)
def test_one_clear_message(why: str) -> None:
    with pytest.raises(TreadleError) as caught:
        raised(parse_module(REFUSED[why], "foreign.mlir"))
    assert why in str(caught.value)
    assert str(caught.value).startswith("foreign.mlir:")
    assert caught.type is TreadleError
