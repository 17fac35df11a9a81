"""What every pass on diagrams needs: the functions of a module, names for derivations, dead operations."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from string import ascii_lowercase
from typing import TypeAlias, TypeVar

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, BlockArgument, Operation, SSAValue
from xdsl.traits import Pure

from treadle.compiler.errors import Refusal
from treadle.compiler.sizes import default_sizes
from treadle.dialects import cuda
from treadle.dialects.diagram import ReadOp
from treadle.dialects.diagram.array import DYNAMIC, axes_of, sizes_of
from treadle.dialects.diagram.operation import DiagramOperation
from treadle.dialects.diagram.read import with_fitting
from treadle.dialects.hierarchy import KernelOp
from treadle.dialects.hierarchy.schedule import StepAttr, derivation_of, record


def functions(module: ModuleOp) -> Iterator[func.FuncOp]:
    """The functions of a module that have a body."""
    for op in _inside(module, func.FuncOp):
        if not op.is_declaration:
            yield op


def diagrams(module: ModuleOp) -> Iterator[func.FuncOp]:
    """The functions of a module that are one diagram, of which no kernels are made yet."""
    return (each for each in functions(module) if len(each.body.blocks) == 1 and not kernels(each))


def stated_sizes(function: func.FuncOp) -> dict[str, int]:
    """The likely sizes of axes that are known only at launch, as far as a program states them."""
    return with_fitting(function.body.block, default_sizes(function))


def module_of(function: func.FuncOp) -> ModuleOp:
    """The module that a function stands in."""
    module = function.parent_op()
    assert isinstance(module, ModuleOp)
    return module


def kernels(function: func.FuncOp) -> list[KernelOp]:
    return list(_inside(function, KernelOp))


def kernels_named(module: ModuleOp, name: str) -> list[tuple[func.FuncOp, KernelOp]]:
    """The kernels, each with its function, or the one of that name (Refusal if there is none)."""
    found = [(function, kernel) for function in functions(module) for kernel in kernels(function)]
    named = [pair for pair in found if name in ("", pair[1].kernel_name.data)]
    if name and not named:
        raise Refusal(module, no_kernel(name, [kernel for _, kernel in found]))
    return named


def no_kernel(name: str, kernels: Iterable[KernelOp]) -> str:
    return f"there is no kernel @{name} (kernels are {names_of(kernels)})"


def names_of(kernels: Iterable[KernelOp]) -> str:
    return ", ".join(f"@{kernel.kernel_name.data}" for kernel in kernels) or "none: fusion makes them"


Kind = TypeVar("Kind", bound=Operation)


def _inside(around: Operation, kind: type[Kind]) -> Iterator[Kind]:
    """The operations of a kind, in order. No function stands in another one, nor a kernel: to look for them there would
    be to walk all of a program."""
    for region in around.regions:
        for block in region.blocks:
            for op in block.ops:
                if isinstance(op, kind):
                    yield op
                elif op.regions:
                    yield from _inside(op, kind)


def diagram_blocks(function: func.FuncOp) -> Iterator[Block]:
    """The blocks in which diagram operations of a function stand: its own, and those of its kernels."""
    yield from function.body.blocks
    for kernel in kernels(function):
        yield kernel.body.block


Watcher: TypeAlias = Callable[[func.FuncOp, StepAttr], None]
"""Called with a function and the step that its derivation has just got."""

_WATCHERS: ContextVar[tuple[Watcher, ...]] = ContextVar("watchers", default=())


@contextmanager
def watching(watcher: Watcher) -> Generator[None]:
    """Let `watcher` see each rewrite that is noted meanwhile, also those that passes try on a copy; they need not try
    what they tried before."""
    token = _WATCHERS.set((*_WATCHERS.get(), watcher))
    try:
        yield
    finally:
        _WATCHERS.reset(token)


def note(function: func.FuncOp, rewrite: str, subject: str, law: str, reason: str = "") -> None:
    """Append a step to the derivation of a function, unless it is there already.

    Called when the rewrite has been made, with the function whole: a watcher may draw it or run it."""
    step = StepAttr(rewrite, subject, law, reason)
    if step in derivation_of(function.attributes):
        return
    record(function.attributes, [step])
    for watcher in _WATCHERS.get():
        watcher(function, step)


def label(value: SSAValue) -> str:
    """How a derivation names a value."""
    if value.name_hint:
        return f"%{value.name_hint}"
    owner = value.owner
    return f"a result of {owner.name}" if isinstance(owner, Operation) else "an argument"


def fresh_hint(near: SSAValue, base: str | None, taken: set[str | None] | None = None) -> str | None:
    """A name hint that no value of the function around `near` has: `base`, or `base_b`, and so on (xDSL cuts
    a number off the end of a hint). `taken`: those that there are, found by `hints_around`, which the new one joins."""
    if base is None:
        return None
    taken = hints_around(near) if taken is None else taken
    names = (f"{base}_{letter * count}" for count in range(1, 99) for letter in ascii_lowercase[1:])
    found = base if base not in taken else next(name for name in names if name not in taken)
    taken.add(found)
    return found


def hints_around(near: SSAValue) -> set[str | None]:
    """The name hints of all values of the function around one."""
    return {value.name_hint for op in _outermost(near).walk() for value in _values(op)}


def derived_hint(value: SSAValue, what: str) -> str | None:
    """A name hint that no value of the function has for something made of `value`: `value_what`; none without one."""
    return fresh_hint(value, f"{value.name_hint}_{what}") if value.name_hint else None


def _outermost(value: SSAValue) -> Operation:
    owner = value.owner
    op = owner if isinstance(owner, Operation) else owner.parent_op()
    assert op is not None
    while not isinstance(op, func.FuncOp) and (parent := op.parent_op()) is not None:
        op = parent
    return op


def _values(op: Operation) -> Iterator[SSAValue]:
    yield from op.results
    for region in op.regions:
        for block in region.blocks:
            yield from block.args


def erase_dead(block: Block) -> None:
    """Erase diagram operations of a block whose results nobody uses, but reads that alone say how long an axis is."""
    for op in reversed(list(block.ops)):
        if not isinstance(op, DiagramOperation) or not op.has_trait(Pure) or any(result.uses for result in op.results):
            continue
        if gives_a_size(op):
            _read_argument(op)
        else:
            op.detach()
            op.erase()


def gives_a_size(op: Operation | Block) -> bool:
    """Whether it reads along a symbolic axis that no argument has, and another operation has."""
    if not isinstance(op, ReadOp) or op.parent is None:
        return False
    given = {axis for argument in op.parent.args for axis in axes_of(argument.type)}
    own = {axis for axis, size in sizes_of(op.result.type).items() if size == DYNAMIC and axis not in given}
    others = (result for other in op.parent.ops if other is not op for result in other.results)
    return any(own & set(axes_of(result.type)) for result in others)


def _read_argument(op: Operation) -> None:
    """Let a read that only says how long an axis is read an argument of the same type, if there is one: what it reads
    need not be made for that."""
    assert isinstance(op, ReadOp)
    assert op.parent is not None
    alike = next((each for each in op.parent.args if each.type == op.operand.type), None)
    if alike is not None and not isinstance(op.operand, BlockArgument):
        op.operands[0] = alike


def erase_unused(values: Iterable[SSAValue]) -> None:
    """Erase the diagram operations that give these values, where nobody uses them, and what only they used."""
    stack = list(values)
    while stack:
        op = stack.pop().owner
        if not isinstance(op, DiagramOperation) or not op.has_trait(Pure) or op.parent is None:
            continue
        if any(result.uses for result in op.results):
            continue
        stack += op.operands
        op.detach()
        op.erase()


def replace(op: Operation, new: list[Operation], *values: SSAValue) -> None:
    """Put `new` in the place of an operation, one value for each of its results, whose names go over to them."""
    block = op.parent_block()
    assert block is not None
    for item in new:
        block.insert_op_before(item, op)
    for old, value in zip(list(op.results), values, strict=True):
        if value.name_hint is None:
            value.name_hint = old.name_hint
        old.replace_all_uses_with(value)
    op.detach()
    op.erase()


def unite_equal(block: Block) -> None:
    """Common subexpressions: of operations that compute the same value the first one stays."""
    first: dict[object, Operation] = {}
    for op in list(block.ops):
        if not isinstance(op, DiagramOperation):
            continue
        known = first.setdefault(_key(op), op)
        if known is not op:
            for result, same in zip(op.results, known.results, strict=True):
                result.replace_all_uses_with(same)
            op.detach()
            op.erase()


def _key(op: Operation) -> object:
    """Equal for two operations that compute the same value from the same operands."""
    inner = tuple(_body_key(block) for region in op.regions for block in region.blocks)
    properties = frozenset((op.properties | op.attributes).items())
    return (op.name, tuple(op.operands), properties, tuple(op.result_types), inner)


def _body_key(block: Block) -> object:
    number: dict[SSAValue, int] = {arg: i for i, arg in enumerate(block.args)}
    lines: list[object] = []
    for op in block.ops:
        operands = tuple(number[operand] for operand in op.operands)
        lines.append((op.name, operands, frozenset((op.properties | op.attributes).items())))
        lines.append(tuple(op.result_types))
        # the maps of a recurrence's body, which know nothing of what is around them
        lines.append(tuple(_body_key(each) for region in op.regions for each in region.blocks))
        for result in op.results:
            number[result] = len(number)
    return tuple(lines)


def function_of(op: Operation | None) -> func.FuncOp:
    """The function around an operation."""
    while not isinstance(op, func.FuncOp):
        assert op is not None
        op = op.parent_op()
    return op


def launches_of_kernel(kernel: cuda.KernelOp) -> list[cuda.LaunchOp]:
    """Every launch of a kernel."""
    module, name = kernel.parent_op(), kernel.sym_name.data
    assert module is not None
    inside = (op for top in module.regions[0].blocks[0].ops if isinstance(top, func.FuncOp) for op in top.walk())
    return [op for op in inside if isinstance(op, cuda.LaunchOp) and op.kernel.root_reference.data == name]
