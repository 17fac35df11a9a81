"""The before and after of every pass on diagrams and kernels is what the pass does."""

from __future__ import annotations

import re
from textwrap import dedent

import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.utils.arg_spec import ArgSpec

from treadle.compiler.pipeline import make_pass
from treadle.compiler.source import make_context, parse_module
from treadle.compiler.universe import PASSES, loader

NAMES = (
    "diagram-differentiate",
    "diagram-expand-laws",
    "diagram-chunk-recurrences",
    "diagram-raise-scans",
    "diagram-raise-swaps",
    "diagram-raise-masks",
    "diagram-raise-scatters",
    "diagram-merge-axes",
    "diagram-hoist-factors",
    "diagram-bubble-up-reads",
    "diagram-compose-maps",
    "diagram-copy-operands",
    "diagram-distribute-products",
    "diagram-split-depths",
    "diagram-merge-free-axes",
    "diagram-merge-depths",
    "diagram-repeat-operands",
    "diagram-merge-reduced-axes",
    "diagram-tile-windows",
    "diagram-find-ranges",
    "diagram-allow-approximations",
    "diagram-transpose-operands",
    "diagram-widen-operands",
    "diagram-recompute",
    "fusion",
    "streaming",
    "tiling",
    "hierarchy-join-sums",
    "hierarchy-expand-streams",
    "diagram-expand-approximations",
    "diagram-exp-to-exp2",
    "diagram-fuse-multiply-adds",
    "hierarchy-split-streams",
    "cuda-cluster",
)

OPTIONS: dict[str, dict[str, tuple[int | str, ...]]] = {
    "hierarchy-split-streams": {"parts": (2,)},
    "cuda-cluster": {"size": (2,)},
    "diagram-chunk-recurrences": {"recurrences": ("S",), "length": (64,)},
    "diagram-copy-operands": {"axes": ("a", "b", "k"), "operands": ("A",)},
    "diagram-distribute-products": {"products": ("O",)},
    "diagram-merge-depths": {"axes": ("b", "k")},
    "diagram-repeat-operands": {"axes": ("i", "t")},
    "diagram-merge-reduced-axes": {"axes": ("x", "y")},
    "diagram-tile-windows": {"axes": ("x", "y"), "rows": (4,)},
    "diagram-merge-free-axes": {"axes": ("b", "t")},
    "diagram-split-depths": {"products": ("S",)},
    "diagram-bubble-up-reads": {"arrays": ("P",)},
    "diagram-raise-swaps": {"products": ("P",)},
    "diagram-find-ranges": {"axes": ("x",)},
    "diagram-raise-scans": {"sums": ("C",)},
    "diagram-raise-scatters": {"sums": ("S",)},
    "diagram-transpose-operands": {"operands": ("W",)},
}
"""What the docstring's example is made with."""


def blocks(name: str) -> list[str]:
    text = dedent(loader(PASSES[name])().__doc__ or "")
    return re.findall(r"```\n(.*?)```", dedent("    " + text), flags=re.S)


def without_derivation(module: ModuleOp) -> ModuleOp:
    for op in module.walk():
        if isinstance(op, FuncOp):
            op.attributes.pop("derivation", None)
    return module


@pytest.mark.parametrize("name", NAMES)
def test_before_becomes_after(name: str) -> None:
    before, after = (parse_module(dedent(block), f"{name}.mlir") for block in blocks(name))
    make_pass(ArgSpec(name, OPTIONS.get(name, {}))).apply(make_context(), before)
    before.verify()
    assert without_derivation(before).is_structurally_equivalent(after), str(before)


@pytest.mark.parametrize("name", NAMES)
def test_the_name_is_spelled_alike(name: str) -> None:
    module, _, cls = PASSES[name].partition(":")
    assert module == f"treadle.passes.{name.replace('-', '_')}"
    assert cls == "".join(part.capitalize() for part in name.split("-")) + "Pass"
    assert loader(PASSES[name])().name == name
