"""Makes a program that shows a failure small: what can be left out is, as long as the failure stays."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from xdsl.dialects import func
from xdsl.dialects.builtin import FunctionType, ModuleOp
from xdsl.ir import Attribute, Block, Operation
from xdsl.rewriter import Rewriter
from xdsl.utils.exceptions import VerifyException

from treadle.compiler.errors import TreadleError
from treadle.compiler.source import parse_module
from treadle.dialects.diagram import MapOp

Change = Callable[[func.FuncOp], bool]
"""Makes a function smaller, in place; False where it does not apply."""
MOST_TRIALS = 400


def shrunk(text: str, fails: Callable[[str], bool], most: int = MOST_TRIALS) -> str:
    """A program that `fails` as the one in `text` does, as small as `most` trials make it."""
    trials, before = 0, ""
    while text != before:
        before, place = text, 0
        while trials < most and (smaller := _changed(text, place)) is not None:
            trials += 1
            if smaller and smaller != text and fails(smaller):
                text = smaller
            else:
                place += 1
    return text


def _changed(text: str, place: int) -> str | None:
    """The program with its change number `place`; empty where that leaves no program, None where there is none."""
    module = parse_module(text)
    function = _function_of(module)
    change = next((change for i, change in enumerate(_changes(function)) if i == place), None)
    if change is None:
        return None
    if not change(function):
        return ""
    _tidy(function)
    try:
        module.verify()
        smaller = str(module)
        parse_module(smaller)
    except (VerifyException, TreadleError):
        return ""
    return smaller


def _function_of(module: ModuleOp) -> func.FuncOp:
    return next(op for op in module.body.block.ops if isinstance(op, func.FuncOp))


def _changes(function: func.FuncOp) -> Iterator[Change]:
    """Every change there is, the greatest first."""
    ops = list(function.body.block.ops)[:-1]
    for i in range(len(function.function_type.outputs)):
        yield lambda f, i=i: _drop_result(f, i)
    for i in reversed(range(len(ops))):
        yield lambda f, i=i: _make_argument(f, i)
        for j in range(len(ops[i].operands)):
            yield lambda f, i=i, j=j: _skip(_block(f), i, j)
    for i, op in enumerate(ops):
        if isinstance(op, MapOp):
            for k in reversed(range(len(list(op.body.block.ops)) - 1)):
                inner = list(op.body.block.ops)[k]
                for j in range(len(inner.operands)):
                    yield lambda f, i=i, k=k, j=j: _skip(_body(f, i), k, j)


def _block(function: func.FuncOp) -> Block:
    return function.body.block


def _body(function: func.FuncOp, index: int) -> Block:
    op = list(function.body.block.ops)[index]
    assert isinstance(op, MapOp)
    return op.body.block


def _drop_result(function: func.FuncOp, index: int) -> bool:
    terminator = function.body.block.last_op
    assert terminator is not None
    if len(terminator.operands) == 1:
        return False
    terminator.operands = [operand for i, operand in enumerate(terminator.operands) if i != index]
    return True


def _make_argument(function: func.FuncOp, index: int) -> bool:
    """Give what an operation computes as an argument."""
    block = function.body.block
    op = list(block.ops)[index]
    result = op.results[0]
    if all(isinstance(use.operation, func.ReturnOp) for use in result.uses):
        return False
    argument = block.insert_arg(result.type, len(block.args))
    argument.name_hint = result.name_hint
    result.replace_all_uses_with(argument)
    return True


def _skip(block: Block, index: int, operand: int) -> bool:
    """Put an operand of an operation in the place of its result."""
    op = list(block.ops)[index]
    if op.results[0].type != op.operands[operand].type:
        return False
    op.results[0].replace_all_uses_with(op.operands[operand])
    return True


def _tidy(function: func.FuncOp) -> None:
    """Take away what nothing uses."""
    block = function.body.block
    for op in reversed(list(block.ops)):
        if isinstance(op, MapOp):
            _tidy_map(op)
        _erase_unused(op)
    kept: list[Attribute] = []
    attributes = list(function.arg_attrs or [])
    for argument, attribute in reversed(list(zip(list(block.args), _padded(attributes, len(block.args)), strict=True))):
        if argument.uses.get_length():
            kept.append(attribute)
        else:
            block.erase_arg(argument)
    terminator = block.last_op
    assert terminator is not None
    inputs, outputs = [argument.type for argument in block.args], [operand.type for operand in terminator.operands]
    function.function_type = FunctionType.from_lists(inputs, outputs)
    _set_attributes(function, list(reversed(kept)))


def _padded(attributes: list[Attribute], count: int) -> list[Attribute]:
    from xdsl.dialects.builtin import DictionaryAttr

    return [*attributes, *(DictionaryAttr({}) for _ in range(count - len(attributes)))]


def _set_attributes(function: func.FuncOp, attributes: list[Attribute]) -> None:
    from xdsl.dialects.builtin import ArrayAttr

    function.properties["arg_attrs"] = ArrayAttr(attributes)


def _tidy_map(op: MapOp) -> None:
    body = op.body.block
    for inner in reversed(list(body.ops)):
        _erase_unused(inner)
    used = [argument.uses.get_length() > 0 for argument in body.args]
    operands = [operand for operand, kept in zip(op.operands, used, strict=True) if kept]
    for argument, kept in reversed(list(zip(list(body.args), used, strict=True))):
        if not kept:
            body.erase_arg(argument)
    op.operands = operands


def _erase_unused(op: Operation) -> None:
    if op.results and not any(result.uses.get_length() for result in op.results):
        Rewriter.erase_op(op)
