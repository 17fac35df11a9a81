"""What the cost model counts for the arithmetic of one element, and what ptxas makes of the printed text."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.arg_spec import ArgSpec

from treadle.compiler.cost.kernel.work import FUNCTIONS, labours_of
from treadle.compiler.pipeline import run_passes
from treadle.compiler.primitives import source
from treadle.compiler.printer.scalars import ScalarPrinter
from treadle.compiler.sass.tools import disassemble, find_disassembler
from treadle.compiler.source import parse_module
from treadle.dialects.diagram import MapOp
from treadle.runtime.nvcc import OPTIONS

pytestmark = [
    pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed"),
    pytest.mark.skipif(find_disassembler() is None, reason="no disassembler is installed"),
]

BINARY = ("powf", "atan2", "quotient")
BRANCHES = ("asinh", "acosh", "atanh", "log1p")
"""What they do in a branch is common, not rare, and counted."""
RARE = ("sin", "cos", "tan", "sqrt", "powf", "atan2")
"""ptxas has more of them, for rare arguments."""

TEXTS = {
    **{
        name: f"%r = math.{name} %x{', %y' if name in BINARY else ''} : f32"
        for name in (each.removeprefix("math.") for each in FUNCTIONS)
    },
    "sum": "%r = arith.addf %x, %y : f32",
    "sum of a row": "%r = arith.addf %x, %z : f32",
    "floor": "%r = math.floor %x : f32",
    "exp": "%r = math.exp %x : f32",
    "quotient": "%r = arith.divf %x, %y : f32",
    "quotient of a row": "%r = arith.divf %x, %z : f32",
    "quotient by a constant": "%c = arith.constant 127.0 : f32\n %r = arith.divf %x, %c : f32",
    "reciprocal": "%c = arith.constant 1.0 : f32\n %r = arith.divf %c, %x : f32",
}

NEGATIVE = (
    "%o = arith.constant 1.0 : f32\n %n = arith.negf %x : f32\n %e = math.exp %n : f32\n %d = arith.addf %o, %e : f32"
)
SHORTER = {
    "sigmoid": f"{NEGATIVE}\n %r = arith.divf %o, %d : f32",
    "gate": f"{NEGATIVE}\n %r = arith.divf %x, %d : f32",
    "gate of a row": f"{NEGATIVE}\n %r = arith.divf %z, %d : f32",
    "share of a row": "%o = arith.constant 1.0 : f32\n %s = arith.mulf %z, %z : f32\n %d = arith.addf %o, %s : f32\n"
    "%r = arith.divf %x, %d : f32",
    "one plus tanh": "%o = arith.constant 1.0 : f32\n %t = math.tanh %x : f32\n %g = arith.addf %o, %t : f32\n"
    "%r = arith.mulf %x, %g : f32",
    "power of a cap": "%c = arith.constant 30.0 : f32\n %t = math.tanh %x : f32\n %m = arith.mulf %c, %t : f32\n"
    "%r = math.exp %m : f32",
}
"""What `diagram-allow-approximations` has a shorter form for, and what is printed of it then."""
SHORTENING = ("diagram-allow-approximations",)
PASSES = ("diagram-expand-approximations", "diagram-exp-to-exp2", "diagram-fuse-multiply-adds")

PROGRAM = """
!X = tensor<?x?xf32, #diagram.array<[a, b]>>
!Z = tensor<?xf32, #diagram.array<[a]>>
func.func @f(%X: !X, %Y: !X, %Z: !Z) -> !X {{
  %R = diagram.map (%x = %X : !X, %y = %Y : !X, %z = %Z : !Z) -> !X {{
    {text}
    diagram.yield %r : f32
  }}
  func.return %R : !X
}}
"""

KERNEL = """
extern "C" __global__ void {name}(const float* X, const float* Y, const float* Z, float* R) {{
  float x[{count}], y[{count}];
  const float z = Z[threadIdx.x];
  #pragma unroll
  for (int i = 0; i < {count}; ++i) {{ x[i] = X[threadIdx.x + i * 128]; y[i] = Y[threadIdx.x + i * 128]; }}
  #pragma unroll
  for (int i = 0; i < {count}; ++i) x[i] = {text};
  #pragma unroll
  for (int i = 0; i < {count}; ++i) R[threadIdx.x + i * 128] = x[i];
}}
"""


READ = {"X": "x[i]", "Y": "y[i]", "Z": "z"}
"""How a kernel reads an element of each argument."""


def _map(module: ModuleOp) -> MapOp:
    (found,) = (op for op in module.walk() if isinstance(op, MapOp))
    return found


def _made(text: str, *passes: str) -> MapOp:
    module = parse_module(PROGRAM.format(text=text))
    run_passes(module, [ArgSpec(name, {}) for name in passes])
    return _map(module)


def _predicted(op: MapOp) -> float:
    return sum(labour.factor for labour in labours_of(op) if "b" in labour.axes)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    """Instructions of an element: what four more of them take, less what a sum takes beyond its addition."""
    uses = set[str]()
    text = ""
    for name, body in (TEXTS | SHORTER).items():
        op = _made(body, *(SHORTENING + PASSES if name in SHORTER else ()))
        block = op.body.block
        given = [READ[str(operand.name_hint)] for operand in op.inputs]
        printed = ScalarPrinter(uses, lambda *_: "").body(block, dict(zip(block.args, given, strict=True)))
        for count in (4, 8):
            text += KERNEL.format(name=f"k{count}_{name.replace(' ', '_')}", count=count, text=printed)
    folder = tmp_path_factory.mktemp("functions")
    (folder / "functions.cu").write_text(source(uses) + text)
    cubin = folder / "functions.cubin"
    subprocess.run(
        ["nvcc", *OPTIONS, "-arch=sm_90a", "-o", str(cubin), "functions.cu"],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    counts = {function.name: len(function.instructions) for function in disassemble(cubin)}
    grown = {
        name: (counts[f"k8_{name.replace(' ', '_')}"] - counts[f"k4_{name.replace(' ', '_')}"]) / 4
        for name in TEXTS | SHORTER
    }
    return {
        name: each - grown["sum" if name in ("sum", *BINARY) else "sum of a row"] + 1 for name, each in grown.items()
    }


@pytest.mark.parametrize("name", TEXTS)
def test_instructions_of_an_element(measured: dict[str, float], name: str) -> None:
    predicted = _predicted(_map(parse_module(PROGRAM.format(text=TEXTS[name]))))
    if name in RARE:
        assert predicted <= measured[name] + 3
    else:
        assert predicted == pytest.approx(measured[name], rel=0.1, abs=1)


@pytest.mark.parametrize("name", SHORTER)
def test_instructions_of_shorter_forms(measured: dict[str, float], name: str) -> None:
    """As the choice of sizes sees them, which are flagged, and as they are printed."""
    for passes in (SHORTENING, SHORTENING + PASSES):
        assert _predicted(_made(SHORTER[name], *passes)) == pytest.approx(measured[name], rel=0.1, abs=1)


@pytest.mark.parametrize("name", ["sigmoid", "gate", "one plus tanh", "power of a cap"])
def test_shorter_forms_are_shorter(measured: dict[str, float], name: str) -> None:
    """By what the formula takes."""
    assert measured[name] <= 0.6 * _predicted(_made(SHORTER[name]))
