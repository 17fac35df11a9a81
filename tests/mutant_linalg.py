"""Takes programs to `linalg` and back with one mistake on the way, in a process of its own:
`python mutant_linalg.py NAME`.

Exits with 1 at the first program that computes something else afterwards or does not come back whole, else with 0."""

from __future__ import annotations

import sys

from mutated import ROOT, mutate
from mutations_linalg import MUTATIONS

PROGRAMS: dict[str, dict[str, int]] = {
    "tests/programs/to_linalg.mlir": {},
    "tests/programs/to_linalg_where.mlir": {},
    "examples/attention_bias.mlir": {"b": 1, "h": 2, "q": 5, "x": 7},
    "examples/rms_norm_matmul.mlir": {},
    "examples/swiglu.mlir": {},
}
LARGEST = 12
"""Of the symbolic axes, where nothing is said."""
CLOSE = 1e-5


def survives() -> bool:
    import numpy as np

    from treadle.compiler.sizes import default_sizes
    from treadle.compiler.source import load_module, make_context, parse_module
    from treadle.dialects.diagram.operation import DiagramOperation
    from treadle.passes.convert_diagram_to_linalg import ConvertDiagramToLinalgPass
    from treadle.passes.convert_linalg_to_diagram import ConvertLinalgToDiagramPass
    from treadle.runtime.inputs import make_inputs
    from treadle.runtime.interpreter import entry_function, run_function

    for path, given in PROGRAMS.items():
        module = load_module(ROOT / path)
        function = entry_function(module)
        sizes = {axis: min(size, LARGEST) for axis, size in default_sizes(function).items()} | given
        inputs = [
            each if each.dtype == np.int32 else each.astype(np.float64) for each in make_inputs(function, sizes, 0)
        ]
        cases = [inputs, [-each for each in inputs]]
        wanted = [run_function(module, case, sizes=sizes).results for case in cases]
        ConvertDiagramToLinalgPass().apply(make_context(), module)
        if any(isinstance(op, DiagramOperation) for op in module.walk()):
            print(f"{path}: not all of it is linalg")
            return False
        module = parse_module(str(module), "linalg.mlir")
        ConvertLinalgToDiagramPass().apply(make_context(), module)
        module.verify()
        if any(op.name.startswith("linalg.") for op in module.walk()):
            print(f"{path}: not all of it came back")
            return False
        for case, results in zip(cases, wanted, strict=True):
            for one, other in zip(results, run_function(module, case).results, strict=True):
                scale = np.abs(np.where(np.isfinite(one), one, 0)).max(initial=1e-3)
                if np.shape(one) != np.shape(other) or not np.allclose(
                    one, other, rtol=0, atol=CLOSE * scale, equal_nan=True
                ):
                    print(f"{path}: differs")
                    return False
    return True


if __name__ == "__main__":
    mutate(MUTATIONS, sys.argv[1:])
    sys.exit(0 if survives() else 1)
