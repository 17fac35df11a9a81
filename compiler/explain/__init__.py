"""`treadle explain`: what the cost model says of a program, as a table, as JSON, side by side and as plots.

`costs.py` gathers the numbers, `symbols.py` the expressions, `text.py` prints; `cases.py` compares machines, sizes and
variants, `plots.py` draws. `docs/model.md` documents the JSON."""

from treadle.compiler.explain.costs import Explanation, KernelCost, LevelCost, explain, kernel_cost

__all__ = ["Explanation", "KernelCost", "LevelCost", "explain", "kernel_cost"]
