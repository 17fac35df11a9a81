"""A module is verified again when anything that a verifier sees is another, and only then."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, StringAttr, f32, i32
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation
from xdsl.rewriter import Rewriter

from treadle.compiler.source import parse_module
from treadle.compiler.verified import Verified

TEXT = """func.func @f(%a: i32, %b: i32, %yes: i1) -> i32 {
  %c = arith.constant 1 : i32
  %s = arith.addi %a, %c : i32
  scf.if %yes {
    %t = arith.constant 2 : i32
  }
  func.return %s : i32
}
"""


def named(module: ModuleOp, name: str) -> Operation:
    return next(op for op in module.walk() if op.results and op.results[0].name_hint == name)


def function(module: ModuleOp) -> FuncOp:
    return next(op for op in module.walk() if isinstance(op, FuncOp))


def another_operand(module: ModuleOp) -> None:
    named(module, "s").operands[1] = function(module).body.block.args[1]


def another_property(module: ModuleOp) -> None:
    named(module, "c").properties["value"] = IntegerAttr(2, i32)


def another_attribute(module: ModuleOp) -> None:
    named(module, "c").attributes["note"] = StringAttr("new")


def an_attribute_of_the_module(module: ModuleOp) -> None:
    module.attributes["note"] = StringAttr("new")


def an_operation_more(module: ModuleOp) -> None:
    function(module).body.block.insert_op_before(arith.ConstantOp(IntegerAttr(3, i32)), named(module, "s"))


def an_operation_less(module: ModuleOp) -> None:
    named(module, "t").detach()


def an_operation_elsewhere(module: ModuleOp) -> None:
    """In the same place of a walk."""
    inner, branch = named(module, "t"), named(module, "t").parent_op()
    assert branch is not None
    inner.detach()
    function(module).body.block.insert_op_after(inner, branch)


def another_type(module: ModuleOp) -> None:
    Rewriter.replace_value_with_new_type(function(module).body.block.args[1], f32)


CHANGES: tuple[Callable[[ModuleOp], None], ...] = (
    *(another_operand, another_property, another_attribute, an_attribute_of_the_module),
    *(an_operation_more, an_operation_less, an_operation_elsewhere, another_type),
)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_what_changed_is_verified(change: Callable[[ModuleOp], None], monkeypatch: pytest.MonkeyPatch) -> None:
    module, verified = parse_module(TEXT), Verified()
    times: list[ModuleOp] = []
    monkeypatch.setattr(ModuleOp, "verify", lambda module: times.append(module))
    verified.verify(module)
    verified.verify(module)
    assert len(times) == 1
    change(module)
    verified.verify(module)
    assert len(times) == 2
