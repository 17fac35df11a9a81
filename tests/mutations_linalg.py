"""Deliberate mistakes on the ways to `linalg` and back (`mutant_linalg.py`)."""

from __future__ import annotations

from mutated import Mutation

MUTATIONS: dict[str, Mutation] = {
    "to linalg: a maximum begins with zero": (
        "_linalg_of",
        "neutral_of(kind, ",
        'neutral_of("add" if kind == "max" else kind, ',
    ),
    "to linalg: a product of all begins with zero": (
        "_linalg_of",
        "neutral_of(kind, ",
        'neutral_of("add" if kind == "mul" else kind, ',
    ),
    "to linalg: a least is a largest": ("_linalg_scalars", '"min": (arith.MinimumfOp', '"min": (arith.MaximumfOp'),
    "to linalg: a sum forgets what it begins with": (
        "_linalg_of",
        "if op.init is None else self._begun(op.init)\n        real",
        "if True else self._begun(op.init)\n        real",
    ),
    "to linalg: a rounded product forgets what it is added to": (
        "_linalg_of",
        "rest = [] if op.init is None else [op.init]",
        "rest: list[SSAValue] = []",
    ),
    "to linalg: a window is read without steps": (
        "_linalg_of",
        "AffineExpr.dimension(loops.index(str(axis))) * factor for",
        "AffineExpr.dimension(loops.index(str(axis))) for",
    ),
    "to linalg: the size of another axis": (
        "_linalg_of",
        "self.sources.setdefault(axis, (value, dimension))",
        "self.sources.setdefault(axis, (value, 0))",
    ),
    "to linalg: every position is the first": (
        "_linalg_scalars",
        "return arith.IndexCastOp(linalg.ops.IndexOp(loop), i32).result",
        "return arith.ConstantOp.from_int_and_width(0, 32).result",
    ),
    "to linalg: a reduced axis is kept": (
        "_linalg_of",
        "[IteratorTypeAttr.reduction()] * len(over)",
        "[IteratorTypeAttr.parallel()] * len(over)",
    ),
    "to linalg: absent elements count": (
        "_linalg_presence",
        "arith.SelectOp(holds, element, number.result)",
        "arith.SelectOp(holds, element, element)",
    ),
    "to linalg: the last condition alone": (
        "_linalg_presence",
        "holds = arith.AndIOp(holds, test).result",
        "holds = test",
    ),
    "to linalg: absent elements are saved as they are": ("_linalg_of", "if not presence.wheres:", "if True:"),
    "to linalg: nothing is cut off": ("_linalg_of", "if not cut:", "if True:"),
    "from linalg: slices go to the end": ("_reading", "if number in apart:", "if False:"),
    "from linalg: a computed slice is all of it": ("_as_generic", "size == shape_of(source.type)[dim]", "True"),
    "from linalg: positions along no axis": ("_reading", "told[number].root in given:", "False:"),
    "from linalg: forgets what a reduction begins with": (
        "_raising",
        "if constant is not None and neutral(kind, constant):",
        "if True:",
    ),
    "from linalg: zero changes nothing": (
        "_bodies",
        'return value == {"add": 0.0, "mul": 1.0, "max": float("-inf"), "min": float("inf")}[kind]',
        "return value == 0.0",
    ),
    "from linalg: a maximum of numbers is their least": (
        "_bodies",
        'arith.MaximumfOp: "max"',
        'arith.MaximumfOp: "min"',
    ),
    "from linalg: reads without steps": (
        "_raising",
        "_name(loops[loop]) if factor == 1 else",
        "_name(loops[loop]) if factor else",
    ),
    "from linalg: reads where it need not": (
        "_reading",
        "simple &= self.axes.unify(loops[place.loop], dimension)",
        "simple &= not self.axes.unify(loops[place.loop], dimension)",
    ),
    "from linalg: results on other axes": (
        "_raising",
        "if set(axes_of(array.type)) == set(axes_of(type)):",
        "if True:",
    ),
}
