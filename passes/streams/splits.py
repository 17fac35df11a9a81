"""A kernel whose streamed axis x is cut into parts: one kernel makes the states of each part, another merges them.

The parts are an axis of their own, and so are the positions in a part: every operand that has x is read at
`length * part + inner`. Where x does not divide, the last part is the longer one, and in the others a condition
excludes what is beyond their length. The merge follows from the repairs of the plan: each part's accumulator is
repaired to the states of all of them, then combined along the parts. In a part a number stands for a guarded state
that is neutral at its end, as in a step: what the part adds is what the step adds, zero or (of a value that is no
number) none. Whether the row as a whole has a number, the merge tells."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerAttr, i32
from xdsl.ir import Attribute, Block, BlockArgument, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.utils.exceptions import VerifyException

from treadle.compiler.errors import Refusal
from treadle.dialects.diagram import ContractOp, ExtentOp, IndexOp, MapOp, ReadOp, ReduceOp, ScanOp, WhereOp
from treadle.dialects.diagram.absence import absent_with
from treadle.dialects.diagram.array import (
    DYNAMIC,
    array_type,
    axes_of,
    format_of,
    is_array,
    level_of,
    sizes_of,
    with_level,
)
from treadle.dialects.diagram.condition import Term, parsed, read_linear, spelled
from treadle.dialects.diagram.padding import scattered_read
from treadle.dialects.diagram.place import composed, divisors_in
from treadle.dialects.hierarchy import KernelOp, YieldOp
from treadle.passes._functions import erase_dead, erase_unused, gives_a_size, label, replace
from treadle.passes.expressions.reductions import combine, is_neutral, kind_of, operands_of, rebuilt
from treadle.passes.expressions.scalars import (
    Constant,
    Expression,
    Leaf,
    Node,
    build_map,
    number,
    substitute,
)
from treadle.passes.expressions.signs import is_nonnegative
from treadle.passes.streams.neutral import decided
from treadle.passes.streams.repairs import Moments, changes_at, hint_of, location_of, stood_in
from treadle.passes.streams.stages import StreamPlan, is_scanned_along
from treadle.passes.streams.undefined import axes_reduced, presence, told, undefined_with


@dataclass(frozen=True)
class Split:
    """How an axis is cut: `count` parts of `length`, the last one of `last`, which is at least `length`. Where the size
    of the axis is known only at launch, so are these two (`whole_steps`); an axis that is shorter is one part."""

    axis: str
    count: int
    length: int
    last: int
    part: str
    """The name of the axis of the parts."""
    inner: str
    """The name of the axis along a part."""
    parts: str = "parts"
    """What conditions call the number of parts, where only the launch tells."""

    @property
    def position(self) -> str:
        return f"({self.length} * {self.part} + {self.inner})"

    @property
    def exists(self) -> str | None:
        """Which positions of a part there are; None for all."""
        if self.last == self.length:
            return None
        last = f"{self.parts} - 1" if self.count == DYNAMIC else self.count - 1
        return f"{self.inner} < {self.length} or {last} <= {self.part}"

    def axes(self, axes: Iterable[str]) -> list[str]:
        return [self.inner if axis == self.axis else axis for axis in axes]

    def type(self, type: Attribute, has_part: bool) -> Attribute:
        """The type of an array where the axis is cut, for each part or for all alike; a scalar is alike for all."""
        if not is_array(type):
            return type
        sizes = {self.part: self.count} if has_part else {}
        for axis, size in sizes_of(type).items():
            sizes |= {self.inner: self.last} if axis == self.axis else {axis: size}
        return array_type(format_of(type), sizes, level_of(type))

    def in_condition(self, text: str) -> str:
        """A condition on positions along the axis, told by parts."""
        return ast.unparse(_Positions(self).visit(parsed(text)))


class _Positions(ast.NodeTransformer):
    """Puts a part and the position in it in the place of a position."""

    def __init__(self, split: Split):
        self.split = split

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return parsed(self.split.position) if node.id == self.split.axis else node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        places = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        names = [ast.unparse(place) for place in places]
        if self.split.axis not in names:
            return node
        names = [self.split.part, *self.split.axes(names)]
        return parsed(f"{ast.unparse(node.value)}[{', '.join(names)}]")


def is_at_quotients(value: SSAValue) -> bool:
    """Whether an array is a view of which an element stands for several neighbours."""
    read = value.owner
    return isinstance(read, ReadOp) and not read.is_scattered and bool(divisors_in(read.place.forms))


def _check_blocks(kernel: KernelOp, read: ReadOp) -> None:
    """Refuse parts of which no position tells where a scattered array has its elements."""
    try:
        scattered_read(read.result)
    except VerifyException as error:
        raise Refusal(kernel, f"{label(read.operand)} is read where data say: {error}") from error


def split_kernel(kernel: KernelOp, plan: StreamPlan, split: Split, name: str) -> tuple[KernelOp, KernelOp]:
    """Put two kernels in the place of one that streams `split.axis` once and saves no piece of it: one called `name`,
    for the parts, and one called as it was, which merges them."""
    merge = _Merge(kernel, plan, split)
    merge.write()
    parts = _Parts(kernel, plan, split, name)
    parts.write(list(merge.states))
    merging = merge.kernel(list(parts.made.outputs))
    given = list(kernel.inputs)
    reads = sorted(parts.reads, key=lambda read: read.is_padded)  # which has no sizes to give
    replace(kernel, [*reads, parts.made, *merge.extents.values(), merging], *merging.outputs)
    erase_unused(value for value in given if not gives_a_size(value.owner))
    return parts.made, merging


def inline_extent(kernel: KernelOp, axis: str, size: int) -> None:
    """Write the size of an axis into the maps that ask for it: where only the launch tells, as a number that the kernel
    is given."""
    extents = [op for op in kernel.body.block.ops if isinstance(op, ExtentOp) and op.axis.data == axis]
    if not extents:
        return
    if size == DYNAMIC:
        return _give_extent(kernel, extents)
    for op in kernel.body.block.ops:
        if isinstance(op, MapOp):
            _write_number(op, [each.result for each in extents], size)
    erase_dead(kernel.body.block)


def _write_number(op: MapOp, operands: Sequence[SSAValue], number: int) -> None:
    """A number in the place of some operands of a map; the others stay, whether they are read or only asked whether
    they have an element."""
    block = op.body.block
    for argument in [each for each in block.args if op.inputs[each.index] in operands]:
        constant = arith.ConstantOp(IntegerAttr(number, i32))
        constant.result.name_hint = argument.name_hint
        Rewriter.insert_op(constant, InsertPoint.at_start(block))
        argument.replace_all_uses_with(constant.result)
        op.operands = [each for i, each in enumerate(op.inputs) if i != argument.index]
        block.erase_arg(argument)


def _give_extent(kernel: KernelOp, extents: Sequence[ExtentOp]) -> None:
    extent = ExtentOp(extents[0].axis.data)
    extent.location = extents[0].location
    extent.result.name_hint = extents[0].result.name_hint
    Rewriter.insert_op(extent, InsertPoint.before(kernel))
    given = kernel.body.block.insert_arg(i32, len(kernel.body.block.args))
    given.name_hint = extent.result.name_hint
    kernel.operands = [*kernel.inputs, extent.result]
    for op in extents:
        op.result.replace_all_uses_with(given)
        Rewriter.erase_op(op)


@dataclass
class _Parts:
    """Writes the kernel that makes the states of each part."""

    old: KernelOp
    plan: StreamPlan
    split: Split
    name: str
    block: Block = field(default_factory=Block)
    inputs: list[SSAValue] = field(default_factory=list[SSAValue])
    reads: list[ReadOp] = field(default_factory=list[ReadOp])
    values: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])
    states: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])
    """Of each part, as they are saved; in `values` stands what is made from."""
    cut: set[SSAValue] = field(default_factory=set[SSAValue])
    """Values of the old kernel of which what is beyond the end of a part is absent."""

    def write(self, states: Sequence[SSAValue]) -> None:
        for op in self.plan.step_of(0):
            self._copy(op)
        made = [self.states[state] for state in states]
        self.block.add_op(YieldOp(*made))
        types = [with_level(value.type, None) for value in made]
        self.made = KernelOp(self.name, self.inputs, types, Region(self.block))
        self.made.location = self.old.location
        for state, result in zip(states, self.made.outputs, strict=True):
            result.name_hint = hint_of(state, "parts")

    def _copy(self, op: Operation) -> None:
        for operand in op.operands:
            self._find(operand)
        is_reduced = isinstance(op, ContractOp | ReduceOp) and self.split.axis in op.over_axes
        if isinstance(op, ContractOp | ReduceOp | ScanOp) and (is_reduced or is_scanned_along(op, self.split.axis)):
            self._exclude(operands_of(op))
        result = op.results[0]
        if isinstance(op, IndexOp) and op.axis == self.split.axis:
            self._positions(op)
        elif op in self.plan.asking:
            self._ask_states(op)
        elif (chosen := decided(op, self.plan.stood_in(op))) is not None:
            self._choose(op, chosen)
        else:
            self._for_each_part(op)
        if self.plan.is_state(result):
            self._stand_in(result)
        if not self.plan.is_piece(result):
            return
        if not self.cut.isdisjoint(absent_with(op)):
            self.cut.add(result)
        elif isinstance(op, ContractOp):
            self._exclude([result])

    def _ask_states(self, op: Operation) -> None:
        """What asks which elements a state is, of the state itself."""
        asked = [operand for operand in op.operands if self.plan.has_stand_in(operand, self.states)]
        instead = {operand: self.values[operand] for operand in asked}
        self.values |= {operand: self._itself(operand) for operand in asked}
        self._for_each_part(op)
        self.values |= instead

    def _itself(self, value: SSAValue) -> SSAValue:
        """A state, or what is made of such, though a number stands for it."""
        if self.plan.is_state(value):
            return self.states[value]
        assert isinstance(value.owner, Operation)
        known = self.values[value]
        self._ask_states(value.owner)
        made, self.values[value] = self.values[value], known
        return made

    def _choose(self, op: Operation, chosen: Expression) -> None:
        """What a map makes of states none of which is neutral."""
        (result,) = op.results
        here = substitute(chosen, lambda leaf: Leaf(self.values[leaf.value]))
        has_part = self.plan.is_piece(result) or any(self.split.part in axes_of(v.type) for v in self._read(op))
        if isinstance(here, Leaf) and here.value.type == self.split.type(result.type, has_part):
            self.values[result] = here.value
            return
        map = build_map(here, self.split.type(result.type, has_part), result.name_hint, op.location)
        self.block.add_op(map)
        self.values[result] = map.result

    def _read(self, op: Operation) -> list[SSAValue]:
        return [self.values[operand] for operand in op.operands]

    def _stand_in(self, state: SSAValue) -> None:
        """Save a state as it is, and let a number stand for it where it is neutral, if the states that follow it were
        no number otherwise."""
        self.states[state] = self.values[state]
        if state in self.plan.guarded:
            safe = stood_in(state, self.values[state])
            self.block.add_op(safe)
            self.values[state] = safe.result

    def _find(self, value: SSAValue) -> None:
        """Make a value of the old kernel known."""
        if value in self.values:
            return
        if isinstance(value, BlockArgument):
            self._take(value)
        elif isinstance(value.owner, Operation):
            self._copy(value.owner)

    def _take(self, argument: BlockArgument) -> None:
        source = self.old.inputs[argument.index]
        if self.plan.is_piece(argument):
            read = self._read_in_parts(source)
            read.location = self.old.location
            _check_blocks(self.old, read)
            read.result.name_hint = hint_of(source, "parts")
            self.reads.append(read)
            source = read.result
        self.inputs.append(source)
        type = self.split.type(argument.type, has_part=self.plan.is_piece(argument))
        self.values[argument] = new = self.block.insert_arg(type, len(self.block.args))
        new.name_hint = argument.name_hint

    def _read_in_parts(self, source: SSAValue) -> ReadOp:
        """An array where the axis is cut; if it is a view at quotients, what that is of."""
        split, type = self.split, self.split.type(source.type, has_part=True)
        view = source.owner
        if not isinstance(view, ReadOp) or not is_at_quotients(source):
            place = ", ".join(split.position if axis == split.axis else axis for axis in axes_of(source.type))
            return ReadOp(source, place, type)
        position = read_linear(parsed(split.position))
        try:
            forms = [composed(form, {split.axis: position}) for form in view.place.forms]
        except VerifyException as error:
            raise Refusal(self.old, f"{label(view.operand)} is read at quotients: {error}") from error
        return ReadOp(view.operand, ", ".join(map(spelled, forms)), type, padded=True)

    def _exclude(self, operands: Iterable[SSAValue]) -> None:
        """Let one of some arrays have no elements beyond the end of a part."""
        pieces = [value for value in operands if self.plan.is_piece(value)]
        if self.split.exists is None or not self.cut.isdisjoint(pieces):
            return
        there = self.values[pieces[0]]
        inputs: dict[str, SSAValue] = {}
        if self.split.count == DYNAMIC:
            extent = ExtentOp(self.split.part)
            extent.result.name_hint = self.split.parts
            self.block.add_op(extent)
            inputs[self.split.parts] = extent.result
        where = WhereOp(there, self.split.exists, inputs, with_level(there.type, "register"))
        where.location = self.old.location
        where.result.name_hint = there.name_hint
        self.block.add_op(where)
        self.values[pieces[0]] = where.result
        self.cut.add(pieces[0])

    def _for_each_part(self, op: Operation) -> None:
        operands = self._read(op)
        # A piece that is made of constants has no operand with parts, and still ends where its part does.
        is_piece = self.plan.is_piece(op.results[0])
        has_part = is_piece or any(self.split.part in axes_of(operand.type) for operand in operands)
        type = self.split.type(op.results[0].type, has_part)
        if isinstance(op, ContractOp | ReduceOp):
            new: Operation = rebuilt(op, operands, type)
            new.properties["over"] = _over(op, self.split)
        elif is_scanned_along(op, self.split.axis):
            scanned, total = operands
            new = op.along(self.split.inner, scanned, total, type)
        elif isinstance(op, WhereOp):
            names = [name.data for name in op.names]
            inputs = dict(zip(names, operands[1:], strict=True))
            told = {name: each.text.data for name, each in op.told.items()}
            if self.plan.is_piece(op.operand):
                told = {name: self.split.in_condition(text) for name, text in told.items()}
            try:
                new = WhereOp(operands[0], inputs=inputs, result_type=type, **told)
            except VerifyException as error:
                raise Refusal(op, f"by parts of '{self.split.axis}', {error}") from error
        else:
            new = op.clone(self.values)
            if type != op.results[0].type:
                Rewriter.replace_value_with_new_type(new.results[0], type)
        new.location = op.location
        new.results[0].name_hint = op.results[0].name_hint
        self.block.add_op(new)
        self.values[op.results[0]] = new.results[0]

    def _positions(self, op: IndexOp) -> None:
        """Positions along the whole axis."""
        level = level_of(op.result.type)
        part = IndexOp(array_type(i32, {self.split.part: self.split.count}, level))
        inner = IndexOp(array_type(i32, {self.split.inner: self.split.last}, level))
        begin = Node(arith.MuliOp, (Leaf(part.result), Constant(IntegerAttr(self.split.length, i32))), i32)
        position = Node(arith.AddiOp, (begin, Leaf(inner.result)), i32)
        map = build_map(position, self.split.type(op.result.type, True), op.result.name_hint, op.location)
        self.block.add_ops([part, inner, map])
        self.values[op.result] = map.result


def _over(op: ContractOp | ReduceOp, split: Split) -> Attribute:
    named = ReduceOp("add", op.operands[0], split.axes(op.over_axes), op.result.type)
    over = named.over
    named.erase()
    return over


@dataclass
class _Merge:
    """Writes the kernel that merges the states of the parts, and finishes."""

    old: KernelOp
    plan: StreamPlan
    split: Split
    block: Block = field(default_factory=Block)
    states: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])
    """For each state that is needed: its values in all parts."""
    others: list[SSAValue] = field(default_factory=list[SSAValue])
    """What else the kernel is given, as the function knows it."""
    extents: dict[str, ExtentOp] = field(default_factory=dict[str, ExtentOp])
    """Sizes that the function finds for it."""
    values: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])
    merged: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])
    """States of the whole axis; in `values` stands what they are told to be at its end."""
    safe: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])
    """What stands for guarded ones."""
    added: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])
    """By sum, what the parts after each add to it."""

    def __post_init__(self) -> None:
        self.undefined = undefined_with(self.plan, 0)

    def write(self) -> None:
        terminator = self.old.body.block.last_op
        assert terminator is not None
        given = [self._find(value) for value in terminator.operands]
        self.block.add_op(YieldOp(*given))

    def kernel(self, states: Sequence[SSAValue]) -> KernelOp:
        """The kernel, given the states of the parts."""
        types = [output.type for output in self.old.outputs]
        inputs: Mapping[SSAValue, SSAValue] = dict(zip(self.states.values(), states, strict=True))
        rest = iter(self.others)
        operands = [inputs[argument] if argument in inputs else next(rest) for argument in self.block.args]
        kernel = KernelOp(self.old.kernel_name.data, operands, types, Region(self.block))
        kernel.location = self.old.location
        return kernel

    def _find(self, value: SSAValue) -> SSAValue:
        """What a value of the old kernel that is no piece is here."""
        if value not in self.values:
            self.values[value] = self._made(value)
            self.values[value].name_hint = value.name_hint
        return self.values[value]

    def _made(self, value: SSAValue) -> SSAValue:
        if isinstance(value, BlockArgument):
            self.others.append(self.old.inputs[value.index])
            return self.block.insert_arg(value.type, len(self.block.args))
        if self.plan.is_state(value):
            return self._told(value)
        assert isinstance(value.owner, Operation)
        for operand in value.owner.operands:
            self._find(operand)
        new = value.owner.clone(self.values)
        self.block.add_op(new)
        return new.results[0]

    def _merged(self, state: SSAValue) -> SSAValue:
        if state not in self.merged:
            merged = ReduceOp(kind_of(state), self._repaired(state), [self.split.part], state.type)
            merged.location = location_of(state)
            merged.result.name_hint = state.name_hint
            self.block.add_op(merged)
            self.merged[state] = merged.result
        return self.merged[state]

    def _repaired(self, state: SSAValue) -> SSAValue:
        """A state of each part, as it would be, had those that it follows been as they are at the end."""
        repair, parts = self.plan.verdicts[state].repair, self._parts_of(state)
        if repair is None:
            return parts
        whole: Expression = Leaf(parts)
        moments = Moments(self._parts_of, self._after, self._itself, self._added)
        for apply, change in changes_at(state, repair, self.plan, moments):
            whole = apply(whole, change)
        map = build_map(whole, with_level(parts.type, "register"), hint_of(state, "repaired"), location_of(state))
        self.block.add_op(map)
        return map.result

    def _after(self, value: SSAValue) -> SSAValue:
        """What a state is at the end, or what stands for it, and all else."""
        if not self.plan.is_state(value):
            return self._find(value)
        merged = self._merged(value)
        if value not in self.plan.guarded:
            return merged
        if value not in self.safe:
            safe = stood_in(value, merged)
            self.block.add_op(safe)
            self.safe[value] = safe.result
        return self.safe[value]

    def _itself(self, value: SSAValue) -> SSAValue:
        return self._merged(value) if self.plan.is_state(value) else self._find(value)

    def _added(self, total: SSAValue) -> SSAValue:
        """What the parts after each add to a sum, by which what was scanned in reverse has grown: a scan in reverse
        again, along the parts. All of it has one sign, which a kernel that is given it does not see."""
        if total not in self.added:
            parts = Leaf(self._parts_of(total))
            scanned = total.owner.operands[0] if isinstance(total.owner, Operation) else total
            side = "max" if is_nonnegative(Leaf(scanned)) else "min"
            type = with_level(parts.value.type, "register")
            signed = build_map(combine(side, parts, number(0, parts.type)), type, hint_of(total, "parts"))
            whole = ReduceOp("add", signed.result, [self.split.part], total.type)
            scan = ScanOp("add", signed.result, self.split.part, type, whole, exclusive=True, reverse=True)
            for op in (signed, whole, scan):
                op.location = location_of(total)
                self.block.add_op(op)
            whole.result.name_hint = hint_of(total, "all")
            scan.result.name_hint = hint_of(total, "added")
            self.added[total] = scan.result
        return self.added[total]

    def _told(self, state: SSAValue) -> SSAValue:
        """A state at the end, which is no number where the row has none (`streams.undefined`)."""
        merged, guards = self._merged(state), self.undefined.get(state, ())
        if not guards:
            return merged
        neutral = [is_neutral(guard, Leaf(self._merged(guard))) for guard in guards]
        whole = told(Leaf(merged), neutral, list(self._presence(state, guards)))
        map = build_map(whole, state.type, hint_of(state, "told"), location_of(state))
        self.block.add_op(map)
        return map.result

    def _presence(self, state: SSAValue, guards: Sequence[SSAValue]) -> Iterator[Expression]:
        def size_of(axis: str) -> Expression:
            size = sizes[axis]
            return Leaf(self._extent(axis)) if size == DYNAMIC else number(size, i32)

        def resolve(term: Term) -> Expression:
            if isinstance(term, SSAValue):
                return Leaf(self._find(term))
            assert isinstance(term, str)
            index = IndexOp(array_type(i32, {term: sizes_of(state.type)[term]}, level_of(state.type)))
            index.location = location_of(state)
            self.block.add_op(index)
            return Leaf(index.result)

        sizes = axes_reduced(state, guards)
        return presence(self.plan, state, sizes, size_of, resolve)

    def _extent(self, axis: str) -> SSAValue:
        """The size of an axis, which no array of the kernel has any more."""
        if axis not in self.extents:
            self.extents[axis] = extent = ExtentOp(axis)
            extent.location = self.old.location
            extent.result.name_hint = f"extent_{axis}"
            self.others.append(extent.result)
            self.values[extent.result] = self.block.insert_arg(i32, len(self.block.args))
            self.values[extent.result].name_hint = extent.result.name_hint
        return self.values[self.extents[axis].result]

    def _parts_of(self, state: SSAValue) -> SSAValue:
        if state not in self.states:
            type = with_level(self.split.type(state.type, has_part=True), "device")
            argument = self.block.insert_arg(type, len(self.block.args))
            argument.name_hint = hint_of(state, "parts")
            self.states[state] = argument
        return self.states[state]
