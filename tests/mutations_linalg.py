"""Deliberate mistakes on the ways to `linalg` and back (`mutant_linalg.py`)."""

from __future__ import annotations

from mutated import Mutation

MUTATIONS: dict[str, Mutation] = {
    "to linalg: a maximum begins with zero": (
        "passes/linalg/of_diagram",
        "neutral_of(kind, ",
        'neutral_of("add" if kind == "max" else kind, ',
    ),
    "to linalg: a product of all begins with zero": (
        "passes/linalg/of_diagram",
        "neutral_of(kind, ",
        'neutral_of("add" if kind == "mul" else kind, ',
    ),
    "to linalg: a least is a largest": (
        "passes/linalg/scalars",
        '"min": (arith.MinimumfOp',
        '"min": (arith.MaximumfOp',
    ),
    "to linalg: a sum forgets what it begins with": (
        "passes/linalg/of_diagram",
        "if op.init is None else self._begun(op.init)\n        real",
        "if True else self._begun(op.init)\n        real",
    ),
    "to linalg: a rounded product forgets what it is added to": (
        "passes/linalg/of_diagram",
        "rest = [] if op.init is None else [op.init]",
        "rest: list[SSAValue] = []",
    ),
    "to linalg: a window is read without steps": (
        "passes/linalg/of_diagram",
        "AffineExpr.dimension(loops.index(str(axis))) * factor for",
        "AffineExpr.dimension(loops.index(str(axis))) for",
    ),
    "to linalg: the size of another axis": (
        "passes/linalg/of_diagram",
        "self.sources.setdefault(axis, (value, dimension))",
        "self.sources.setdefault(axis, (value, 0))",
    ),
    "to linalg: every position is the first": (
        "passes/linalg/scalars",
        "return arith.IndexCastOp(linalg.ops.IndexOp(loop), i32).result",
        "return arith.ConstantOp.from_int_and_width(0, 32).result",
    ),
    "to linalg: a reduced axis is kept": (
        "passes/linalg/of_diagram",
        "[IteratorTypeAttr.reduction()] * len(over)",
        "[IteratorTypeAttr.parallel()] * len(over)",
    ),
    "to linalg: absent elements count": (
        "passes/linalg/presence",
        "arith.SelectOp(holds, element, number.result)",
        "arith.SelectOp(holds, element, element)",
    ),
    "to linalg: the last condition alone": (
        "passes/linalg/presence",
        "holds = arith.AndIOp(holds, test).result",
        "holds = test",
    ),
    "to linalg: absent elements are saved as they are": (
        "passes/linalg/of_diagram",
        "if not presence.wheres:",
        "if True:",
    ),
    "to linalg: nothing is cut off": ("passes/linalg/of_diagram", "if not cut:", "if True:"),
    "from linalg: slices go to the end": ("passes/linalg/reading", "if number in apart:", "if False:"),
    "from linalg: a computed slice is all of it": (
        "passes/linalg/as_generic",
        "size == shape_of(source.type)[dim]",
        "True",
    ),
    "from linalg: positions along no axis": ("passes/linalg/reading", "told[number].root in given:", "False:"),
    "from linalg: forgets what a reduction begins with": (
        "passes/linalg/raising",
        "if constant is not None and neutral(kind, constant):",
        "if True:",
    ),
    "from linalg: zero changes nothing": (
        "passes/linalg/bodies",
        'return value == {"add": 0.0, "mul": 1.0, "max": float("-inf"), "min": float("inf")}[kind]',
        "return value == 0.0",
    ),
    "from linalg: a maximum of numbers is their least": (
        "passes/linalg/bodies",
        'arith.MaximumfOp: "max"',
        'arith.MaximumfOp: "min"',
    ),
    "from linalg: reads without steps": (
        "passes/linalg/raising",
        "_name(loops[loop]) if factor == 1 else",
        "_name(loops[loop]) if factor else",
    ),
    "from linalg: reads where it need not": (
        "passes/linalg/reading",
        "simple &= self.axes.unify(loops[place.loop], dimension)",
        "simple &= not self.axes.unify(loops[place.loop], dimension)",
    ),
    "from linalg: results on other axes": (
        "passes/linalg/raising",
        "if set(axes_of(array.type)) == set(axes_of(type)):",
        "if True:",
    ),
}
