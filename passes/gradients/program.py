"""A function and the function of its gradient."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from string import ascii_lowercase

from xdsl.dialects import func, tensor
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, FunctionType, StringAttr
from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from treadle.compiler.errors import Refusal
from treadle.compiler.sizes import axes_of_function, default_sizes
from treadle.dialects.diagram import ApplyOp, ContractOp, LawOp, MapOp, ReduceOp, WhereOp
from treadle.dialects.diagram.array import SizesAttr, sizes_of
from treadle.dialects.diagram.operation import DiagramOperation
from treadle.dialects.diagram.read import with_fitting
from treadle.passes._functions import erase_dead, erase_unused, label, note, unite_equal
from treadle.passes.diagram_expand_laws import expand_laws
from treadle.passes.gradients.backward import Backward, cotangent_type
from treadle.passes.gradients.exchange import LAW, exchange_sums
from treadle.passes.gradients.given import given_values, take_given
from treadle.passes.gradients.into import take_out_beginnings
from treadle.passes.gradients.laws import gradient_of, is_float, is_plain_law, law_of, why_no_gradient
from treadle.passes.gradients.presence import Asked, conditions_of
from treadle.passes.gradients.rules import differentiate
from treadle.passes.gradients.shifts import EXTREMA, makes_no_difference

PASS = "diagram-differentiate"


def to_gradient(function: func.FuncOp, of: Sequence[str], laws: Mapping[str, LawOp]) -> None:
    """Turn a function into that of its gradient, in place (Refusal)."""
    terminator = _check(function)
    wanted = _wanted(function, of)
    expand_laws(function, laws, lambda apply: not _has_gradient(apply, laws))
    block = function.body.block
    take_out_beginnings(block)
    results = list(terminator.operands)
    terminator.detach()
    terminator.erase()
    own = list(block.args)
    given = [_argument(block, result, name(result)) for result in results]
    unit = _other("unit", axes_of_function(function))
    idle = _idle(block, results)
    backward = Backward(
        block, laws, _depending(block, wanted).difference(idle), unit, with_fitting(block, default_sizes(function))
    )
    for value in idle:
        backward.note(value, "what makes no difference has no gradient", "each result is the same for any")
    for result in results:
        if is_float(result.type):
            backward.add(result, _argument(block, result, f"d{name(result)}"))
    for op in reversed(list(block.ops)):
        differentiate(op, backward)
    block.add_op(func.ReturnOp(*[_gradient(argument, backward) for argument in wanted]))
    _declare(function, own, wanted)
    lengths = with_fitting(block, default_sizes(function))
    for subject, law, reason in backward.steps:
        note(function, PASS, subject, law, reason)
    _simplify(function, given_values(results, given), laws)
    _name_results(block, [backward.hint(argument) for argument in wanted])
    _set_defaults(function, lengths)


# -- what is asked for ----------------------------------------------------------------------------


MERGED = "it merges dimensions of a result: return the result as it is, and merge them outside"


def _merges(op: Operation) -> bool:
    """Whether dimensions of an array are merged by an operation, or of what it converts."""
    uses = [use.operation for result in op.results for use in result.uses]
    return any(isinstance(each, tensor.CollapseShapeOp) for each in (op, *uses))


def _check(function: func.FuncOp) -> func.ReturnOp:
    """How a function of a diagram ends (Refusal where it is none)."""
    for op in function.body.block.ops:
        if isinstance(op, func.ReturnOp):
            return op
        if not isinstance(op, DiagramOperation):
            advice = MERGED if _merges(op) else "differentiate it before fusion"
            raise Refusal(op, f"the gradient of a diagram is made of diagram operations: {advice}")
    raise Refusal(function, "it returns nothing")


def _wanted(function: func.FuncOp, of: Sequence[str]) -> list[SSAValue]:
    """The arguments whose gradients are asked for: all floats, if none is named."""
    arguments = {name(argument): argument for argument in function.body.block.args}
    for each in of:
        if each not in arguments:
            known = ", ".join(f"%{known}" for known in arguments) or "none"
            raise Refusal(function, f"there is no argument %{each} to differentiate by (arguments: {known})")
        if not is_float(arguments[each].type):
            raise Refusal(function, f"argument %{each} holds integers, which have no gradient")
    wanted = [argument for argument in arguments.values() if is_float(argument.type)]
    wanted = [argument for argument in wanted if not of or name(argument) in of]
    if not wanted:
        raise Refusal(function, "it has no argument of floats to differentiate by")
    return list(wanted)


def name(value: SSAValue) -> str:
    """What a value is called in the signature."""
    if value.name_hint:
        return value.name_hint
    return f"argument{value.index}" if isinstance(value, BlockArgument) else "y"


def _has_gradient(apply: ApplyOp, laws: Mapping[str, LawOp]) -> bool:
    """Whether the law that is applied states a gradient (Refusal where what it states is none)."""
    law = law_of(apply, laws)
    if law is None or law.gradient is None or not is_plain_law(law):
        return False
    gradient = gradient_of(law, laws)
    if gradient is None:
        raise Refusal(apply, f"law @{law.sym_name.data} names @{law.gradient.string_value()}, which is no law")
    if (problem := law.why_not(apply) or why_no_gradient(law, gradient)) is not None:
        raise Refusal(apply, problem)
    return True


def _depending(block: Block, wanted: Iterable[SSAValue]) -> set[SSAValue]:
    """The floats that depend on arguments."""
    found = set(wanted)
    for op in block.ops:
        if any(operand in found for operand in op.operands):
            found |= {result for result in op.results if is_float(result.type)}
    return found


def _idle(block: Block, results: Sequence[SSAValue]) -> list[SSAValue]:
    """Extrema that no result depends on, though powers are taken of distances from them."""
    extrema = [op.results[0] for op in block.ops if _is_extremum(op)]
    return [value for value in extrema if makes_no_difference(value, block, results)]


def _is_extremum(op: Operation) -> bool:
    """Whether an operation takes maxima or minima, of elements along an axis or of what stands at one place."""
    if isinstance(op, ReduceOp):
        return op.kind.data in ("max", "min")
    return isinstance(op, MapOp) and any(isinstance(each, EXTREMA) for each in op.body.block.ops)


# -- what is given back ---------------------------------------------------------------------------


def _argument(block: Block, like: SSAValue, hint: str) -> SSAValue:
    taken = {argument.name_hint for argument in block.args}
    argument = block.insert_arg(cotangent_type(like.type), len(block.args))
    argument.name_hint = _other(hint, taken)
    return argument


def _other(hint: str, taken: Collection[str | None]) -> str:
    """A name that is not taken: the hint, or with a letter behind it (xDSL cuts a number off the end of one)."""
    names = (f"{hint}_{letter * count}" for count in range(1, 99) for letter in ascii_lowercase[1:])
    return hint if hint not in taken else next(each for each in names if each not in taken)


def _gradient(argument: SSAValue, backward: Backward) -> SSAValue:
    cotangent = backward.cotangent(argument)
    if cotangent is None:
        return backward.zeros(argument)
    whole = backward.spread(cotangent, argument)
    result = backward.as_type(whole, cotangent_type(argument.type), backward.hint(argument))
    if result is whole and not isinstance(result, BlockArgument) and result.name_hint is None:
        result.name_hint = backward.hint(argument)
    return result


def _name_results(block: Block, names: Sequence[str | None]) -> None:
    """Call each gradient by its argument, also where it is that of something else (of `a - m` by `a`, say), and by all
    of them where it is that of several; not what is given."""
    assert block.last_op is not None
    together: dict[SSAValue, list[str]] = {}
    for value, hint in zip(block.last_op.operands, names, strict=True):
        if isinstance(value.owner, Operation) and hint is not None:
            together.setdefault(value, []).append(hint)
    for value, hints in together.items():
        value.name_hint = "_".join(hints)


def _declare(function: func.FuncOp, own: Sequence[SSAValue], wanted: Sequence[SSAValue]) -> None:
    """The name and the types of the gradient; what was said of arguments stays said."""
    arguments = function.body.block.args
    types = [cotangent_type(argument.type) for argument in wanted]
    function.properties["function_type"] = FunctionType.from_lists([each.type for each in arguments], types)
    function.properties["sym_name"] = StringAttr(f"{function.sym_name.data}_gradient")
    if function.arg_attrs is not None:
        more = [DictionaryAttr({})] * (len(arguments) - len(own))
        function.properties["arg_attrs"] = ArrayAttr([*function.arg_attrs.data, *more])
    function.properties.pop("res_attrs", None)


def _set_defaults(function: func.FuncOp, lengths: Mapping[str, int]) -> None:
    """Axes that only a read had are now axes of arguments: where no read is left that says how long they are, they
    begin with the lengths that it gave them. Of axes that are gone, nothing is said."""
    there = axes_of_function(function)
    defaults = {axis: size for axis, size in default_sizes(function).items() if axis in there}
    known = with_fitting(function.body.block, defaults)
    symbolic = {axis for each in function.body.block.args for axis, size in sizes_of(each.type).items() if size < 0}
    more = {axis: lengths[axis] for axis in sorted(symbolic - known.keys()) if axis in lengths}
    function.attributes.pop("sizes", None)
    if defaults or more:
        function.attributes["sizes"] = SizesAttr({**defaults, **more})


# -- what is known of the whole -------------------------------------------------------------------


def _simplify(function: func.FuncOp, given: Mapping[SSAValue, SSAValue], laws: Mapping[str, LawOp]) -> None:
    """Expand the gradients of laws, exchange sums, take what is given, and drop what is not used."""
    block = function.body.block
    gradients = {law.gradient.string_value() for law in _applied(block, laws) if law.gradient is not None}
    expand_laws(function, laws, lambda apply: apply.law.string_value() in gradients)
    unite_equal(block)
    erase_dead(block)
    _drop_conditions(block, laws)
    for subject, reason in exchange_sums(block, given):
        erase_dead(block)
        note(function, PASS, subject, LAW, reason)
    for value in take_given(given, laws):
        note(function, PASS, f"{label(value)} is not computed", "a result is given")
    unite_equal(block)
    erase_dead(block)


def _applied(block: Block, laws: Mapping[str, LawOp]) -> Iterable[LawOp]:
    for op in block.ops:
        if isinstance(op, ApplyOp) and (law := law_of(op, laws)) is not None:
            yield law


def _drop_conditions(block: Block, laws: Mapping[str, LawOp]) -> None:
    """A condition need not be asked of one factor, or operand of a map, if it is asked of another: what either makes of
    an absent element is absent, or counts for nothing."""
    for op in reversed([op for op in block.ops if isinstance(op, WhereOp)]):
        asked = Asked.by(op)
        for use in list(op.result.uses):
            others = _beside(use.operation, op.result)
            if asked in conditions_of(others, laws):
                use.operation.operands[use.index] = op.operand
        erase_unused([op.result])


def _beside(op: Operation, value: SSAValue) -> list[SSAValue]:
    """What makes absent what a value makes absent."""
    if isinstance(op, ContractOp):
        return [factor for factor in (op.lhs, op.rhs) if factor is not value]
    return [operand for operand in op.operands if operand is not value] if isinstance(op, MapOp) else []
