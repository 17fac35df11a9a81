"""Whether a kernel's products can be those of warpgroups, which alone reach the whole rate of the tensor cores from
sm_90 on: as `passes/warp_specialization.py` decides it from the lowered kernel."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from xdsl.ir import Operation, SSAValue

from treadle.compiler.amounts import Amount, ceil_div, choice, least, most, rounded
from treadle.compiler.cost.kernel.issue import depth_of_instruction
from treadle.compiler.cost.kernel.operands import left_operand, stays_in_registers
from treadle.compiler.cost.kernel.plan import Plan
from treadle.compiler.cost.kernel.roles import contractions_of
from treadle.compiler.cost.kernel.work import multiply_format
from treadle.compiler.machines import Machine
from treadle.compiler.machines.machine import WARP
from treadle.dialects.cuda.roles import MOST_REGISTERS, register_cap
from treadle.dialects.cuda.warpgroups import MOST_COLUMNS, columns_of_products
from treadle.dialects.diagram import ContractOp
from treadle.dialects.diagram.array import axes_of, format_of, sizes_of
from treadle.dialects.diagram.condition import Linear
from treadle.dialects.diagram.padding import padding_of, scattered_read
from treadle.dialects.diagram.place import axes_of_forms
from treadle.dialects.hierarchy import KernelOp, LoadOp, given_for
from treadle.dialects.hierarchy.bounded import loaded_factor, users_of_factor
from treadle.passes.speculation.registers import OTHER_REGISTERS
from treadle.passes.warps.laws import AT_LAUNCH, BY_LANES, OF_PRODUCER, REGISTERS, most_columns, shares_of_blocks

IN_ORDER_FROM = 90
"""The first capability whose tensor cores leave no time for what is computed beside them."""
WARPGROUP = 4
"""Warps."""
MOST_GROUPS = 3
"""Warpgroups of a block that compute; one more brings tiles."""
ROWS = 16
"""Of a warp of a warpgroup."""
FORMATS = ("f8", "i8", "f16", "bf16")


def can_be_of_warpgroups(kernel: KernelOp, row: str | None) -> bool:
    """Whatever the sizes of the pieces: operands are narrow tiles that only products read, or left operands that are in
    registers already; and no subloop walks them, as warps that load their own operands do."""
    products = contractions_of(kernel)
    walked = kernel.schedule is not None and bool(kernel.schedule.subloop.as_dict())
    return (
        row is not None
        and not walked
        and bool(products)
        and all(_has_columns(kernel, op, row) for op in products)
        and all(_serves(op, operand, row) for op in products for operand in (op.lhs, op.rhs))
    )


def keeps_a_rest(products: Iterable[tuple[ContractOp, str]]) -> bool:
    """Whether a product would keep its left operand (`kept`, beside it) in registers though its depth is no multiple of
    what one instruction takes: the rest of a tile is zeros, that of registers is not known."""
    return any(
        where == "kept" and any(sizes_of(op.rhs.type)[axis] % depth_of_instruction(op) for axis in op.over_axes)
        for op, where in products
    )


def _has_columns(kernel: KernelOp, op: ContractOp, row: str) -> bool:
    """Whether products have the columns that a group holds whole; pieces of others are multiples of 16. More than one
    has several warpgroups share."""
    whole = {} if kernel.schedule is None else kernel.schedule.whole.as_dict()
    known = columns_of_products(str(format_of(op.rhs.type)))
    columns = {axis: size for axis, size in sizes_of(op.result.type).items() if axis != row and axis in whole}
    return all(size in known or _is_shared(size, known) for size in columns.values() if size > 1)


def _is_shared(size: int, known: Container[int]) -> bool:
    """Whether several warpgroups can share so many columns, more than one can have."""
    return size > MOST_COLUMNS and any(
        size % groups == 0 and size // groups in known for groups in range(2, MOST_GROUPS + 1)
    )


def _serves(op: ContractOp, operand: SSAValue, row: str) -> bool:
    if multiply_format(op) not in FORMATS:
        return False
    operand = loaded_factor(operand)
    array = operand.owner.source if isinstance(operand.owner, LoadOp) else operand
    given = given_for(array)
    if given is not None and padding_of(given):
        placed = scattered_read(given)
        if placed is not None and not _has_rows(placed.forms, operand):
            return False  # neither tensor copies nor lanes bring it
    if isinstance(operand.owner, Operation) and not isinstance(operand.owner, LoadOp):
        return left_operand(op, row) is operand and stays_in_registers(op, operand, row)
    return all(isinstance(each, ContractOp) for each in users_of_factor(operand))


def _has_rows(forms: Sequence[Linear], operand: SSAValue) -> bool:
    """Whether the elements of rows that lie where data say are neighbours in the array."""
    *_, columns = axes_of(operand.type)
    *outer, last = forms
    return last == Linear({columns: 1}) and columns not in axes_of_forms(outer)


def are_of_warpgroups(plan: Plan, machine: Machine) -> Amount:
    """Whether they are: a loop brings tiles, one to three warpgroups have 64 rows each, and a thread has the
    accumulators of a product when it starts."""
    if not machine.has_warpgroups or plan.row is None or not plan.suits_warpgroups:
        return False
    if not any(tile.role == "staged" for tile in plan.tiles):
        return False
    warps = plan.warps.get(plan.row, 1)
    (rows,) = (pieces.size for pieces in plan.groups if pieces.axis == plan.row)
    whole = (warps % WARPGROUP == 0) & (plan.warp_count <= MOST_GROUPS * WARPGROUP)
    sums = (tile for tile in plan.tiles if tile.role in ("carried", "passing") and tile.width == 4)
    across = 1 if plan.across is None else plan.warps[plan.across]
    columns = most(0, *(tile.elements * tile.repeats for tile in sums)) / (rows * across)
    few = sum((plan.warp_count == WARPGROUP * groups) * (columns <= most_columns(groups)) for groups in REGISTERS) > 0
    few = few & (columns <= MOST_COLUMNS)
    return whole & (plan.warp_count == warps * across) & (rows == ROWS * warps) & few


def computes_in_order(plan: Plan, machine: Machine) -> bool:
    """Whether special functions of a step hide little of its other instructions: where a step computes what it
    multiplies next, on a machine whose tensor cores leave no time for that. A warp has the maxima of all scores before
    the first power, and sums and conversions after; what other warps of its quarter do meanwhile is the same, or
    products. Published speeds on an H100 say so (`tests/test_published.py`). Of older machines, where products take
    longer than all that is computed beside them, none is known here."""
    return machine.capability >= IN_ORDER_FROM and plan.has_scores


def one_after_another(special: Amount, others: Amount) -> Amount:
    """Clocks of special functions and of all other instructions that are no products, where they are done in order."""
    return special + others


def takes_powers_first(plan: Plan, machine: Machine, shared_bytes: Amount) -> Amount:
    """Whether turns take their powers before they know a maximum that may lag: warpgroups do, where a thread has room
    for scores and powers of a turn beside those of the turn before, which are multiplied meanwhile, and where this
    leaves as many blocks of so much shared memory (`passes/speculation/registers.py`, which counts rows one by one)."""
    if not plan.delays or not any(issue.kind == "lagging" for issue in plan.issues):
        return False
    before: Amount = OTHER_REGISTERS + STEERING_REGISTERS
    again: Amount = 0
    for tile in plan.tiles:
        if tile.role in ("carried", "kept", "passing"):
            words = tile.elements * tile.width * tile.repeats / (4 * WARP * plan.warp_count)
            before = before + words
            again = again + (words if tile.role == "passing" and tile.width < 4 else 0)
    held = before + again
    alone = (plan.warp_count == WARPGROUP) & (shared_by(plan) == 1)  # else roles share out all registers
    warps = plan.warp_count + WARPGROUP
    without = machine.blocks_on_sm(warps, rounded(before), shared_bytes)
    as_many = machine.blocks_on_sm(warps, rounded(held), shared_bytes) >= without
    return are_of_warpgroups(plan, machine) & (held <= granted_registers(plan, machine)) & choice(alone, as_many, True)


STEERING_REGISTERS = 10
"""Of two rows: the maximum, the sum so far and that of the turn, the slope and the offset of powers."""

SCORES_LATENCY = 50
"""Clocks of a step that computes scores for which its warp waits, from the product to the operands of the next: until
the first maximum is known to all lanes of a row, the first power is there, and the last conversion. Fitted, with what
follows, to attention on an H100 (heads of 64): a step of 128, 160 and 192 keys took two warpgroups 145, 196 and 288
clocks longer, each, than all that they issue and their special functions."""

FLOAT_LATENCY = 4
"""Clocks from an f32 instruction to one that needs its result."""

ROWS_OF_LANE = 2
"""Whose reductions a lane of a fragment does side by side."""

LANES_OF_ROW = 4
"""Of a fragment."""


def waited_in_scores(reductions: Amount, columns: Amount) -> Amount:
    """Clocks of a step for which a warp has nothing that it can issue, where it reduces scores of so many columns so
    often: each maximum and each sum needs the one before."""
    return SCORES_LATENCY + reductions * ceil_div(columns, LANES_OF_ROW) * (FLOAT_LATENCY - ROWS_OF_LANE)


def computing(groups: Amount, issued: Amount, waited: Amount) -> Amount:
    """Clocks from one warpgroup's scores to the next one's. While products of one of them run the others compute, a
    warp of each on each scheduler: with two of them it waits alone, with three another one fills in."""
    return most(issued, (issued + waited) / most(groups - 1, 1))


def granted_registers(plan: Plan, machine: Machine) -> Amount:
    """Registers that a thread of so many warpgroups may have; fewer where lanes of the producer copy."""
    groups = plan.warp_count // WARPGROUP
    shares = {**REGISTERS, **BY_LANES} if any(issue.kind == "lanes" for issue in plan.issues) else REGISTERS
    granted = sum((groups == count) * (consumer or MOST_REGISTERS) for count, (_, consumer) in shares.items())
    for blocks in OF_PRODUCER:
        granted = choice(shared_by(plan) == blocks, shares_of_blocks(blocks)[1], granted)
    return least(granted, machine.limits.registers_per_thread)


def registers_at_launch(plan: Plan) -> Amount:
    """Of any thread when the block starts, where its roles then share them out: all that a machine has, of several
    warpgroups or of several blocks."""
    groups = plan.warp_count // WARPGROUP
    found = sum((groups == count) * registers for count, registers in AT_LAUNCH.items())
    for blocks in OF_PRODUCER:
        found = choice(shared_by(plan) == blocks, register_cap(2 * WARPGROUP * WARP, blocks), found)
    return found


def shared_by(plan: Plan) -> Amount:
    """How many blocks share an SM since their roles move registers; 1 where that is not so, or not decided."""
    return 1 if plan.resident is None else plan.resident
