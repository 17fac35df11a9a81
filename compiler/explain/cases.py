"""A program side by side: on several machines, at several sizes, as it is written, without fusion and in f8."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from treadle.compiler.cost import Sketch, choose, sizes_of_kernel, sketch_of
from treadle.compiler.cost.choice.formats import as_f8
from treadle.compiler.errors import TreadleError
from treadle.compiler.explain.costs import Explanation, explain, kernel_cost
from treadle.compiler.machines import Machine, load_machine, machine_of
from treadle.compiler.numerals import whole_number
from treadle.compiler.pipeline import LAST_DECORATING_PASS, LAST_HIERARCHY_PASS, Options, run_pipeline
from treadle.compiler.sizes import check_sizes, parse_sizes, set_default_sizes
from treadle.dialects.diagram.array import LARGEST_SIZE
from treadle.dialects.hierarchy import KernelOp

AS_WRITTEN, UNFUSED, F8 = "as written", "unfused", "f8"
VARIANTS = (UNFUSED, F8)
MOST_CASES = 200


@dataclass(frozen=True)
class Case:
    """What to explain; `sizes` are those that were given."""

    machine: str
    sizes: Mapping[str, int]
    variant: str = AS_WRITTEN
    sustained: bool = False
    """Whether times are those of the rates that were measured to last, not of the datasheet's."""

    @property
    def rates(self) -> Machine:
        """The machine with the rates to estimate with (TreadleError)."""
        machine = load_machine(self.machine)
        return machine.as_sustained() if self.sustained else machine


@dataclass(frozen=True)
class Row:
    case: Case
    explanation: Explanation
    limit_us: float = 0.0
    """Of the program as it is written: what is split into kernels can do no better than what is one."""

    @property
    def share_of_limit(self) -> float | None:
        time = self.explanation.time_us
        return (self.limit_us or self.explanation.limit_us) / time if time else None

    def as_dict(self) -> dict[str, Any]:
        """One entry of `cases` in the JSON."""
        given = {"variant": self.case.variant, "given": dict(self.case.sizes)}
        return given | self.explanation.as_dict() | {"share_of_limit": self.share_of_limit}


def cases(
    machines: Sequence[str], sizes: Sequence[Mapping[str, int]], against: Sequence[str], sustained: bool = False
) -> list[Case]:
    """Every machine at every set of sizes in every variant (TreadleError if there are too many)."""
    variants = (AS_WRITTEN, *dict.fromkeys(against))
    found = [Case(*each, sustained) for each in product(dict.fromkeys(machines), sizes, variants)]
    if len(found) > MOST_CASES:
        raise TreadleError(f"{len(found)} cases to compare: at most {MOST_CASES}; ask for fewer sizes")
    return found


def parse_ranges(texts: Sequence[str]) -> list[dict[str, int]]:
    """`["q=200", "x=1024:4096:2x"]` as every combination of sizes (TreadleError). `2x` multiplies, `+512` adds."""
    options = [_range(text) if ":" in text else [text] for text in texts]
    return [parse_sizes(each) for each in product(*options)]


def _range(text: str) -> list[str]:
    axis, _, spread = text.partition("=")
    first, *rest = spread.split(":")
    if len(rest) != 2:
        raise TreadleError(f"--size {text}: write a range as axis=first:last:step, for example x=1024:131072:2x")
    last, step = rest
    start, end = whole_number(first), whole_number(last)
    if start is None or end is None:
        raise TreadleError(f"--size {text}: '{first}' and '{last}' must be whole numbers, to {LARGEST_SIZE} at most")
    if not 0 < start <= end <= LARGEST_SIZE:
        raise TreadleError(f"--size {text}: a range goes up from a size above 0, to {LARGEST_SIZE} at most")
    factor = whole_number(step[:-1]) if step.endswith("x") else None
    if factor is not None and factor > 1:
        return [f"{axis}={size}" for size in _multiplied(start, end, factor)]
    addend = whole_number(step.removeprefix("+"))
    if addend is not None and addend > 0 and (end - start) // addend < MOST_CASES:
        return [f"{axis}={size}" for size in range(start, end + 1, addend)]
    raise TreadleError(
        f"--size {text}: '{step}' is not a step: write 2x to double, +512 to add 512 (at most {MOST_CASES} sizes)"
    )


def _multiplied(start: int, end: int, factor: int) -> Iterator[int]:
    size = start
    while size <= end:
        yield size
        size *= factor


def row(algorithm: ModuleOp, case: Case, asked: Options | None = None) -> Row:
    """Compile a copy of the program for one case, as far as its costs need it, and otherwise as it was `asked`
    (TreadleError)."""
    module = algorithm.clone()
    function = next(op for op in module.walk() if isinstance(op, FuncOp) and op.body.blocks)
    check_sizes(function, case.sizes)
    set_default_sizes(function, case.sizes)
    options = replace(asked or Options(), machine=case.machine, fusion=case.variant != UNFUSED)
    run_pipeline(module, options, last=LAST_DECORATING_PASS if case.variant == F8 else LAST_HIERARCHY_PASS)
    machine = machine_of(module)  # with the architecture that was asked for
    machine = machine.as_sustained() if case.sustained else machine
    made = _in_f8 if case.variant == F8 else explain
    return Row(case, made(module, machine, case.sizes))


def under_one_limit(rows: Sequence[Row]) -> list[Row]:
    """Rows without fusion are held against the limit of the program with it."""
    written = {
        (each.case.machine, tuple(each.case.sizes.items())): each.explanation.limit_us
        for each in rows
        if each.case.variant == AS_WRITTEN
    }
    return [
        replace(each, limit_us=written.get((each.case.machine, tuple(each.case.sizes.items())), 0.0))
        if each.case.variant == UNFUSED
        else each
        for each in rows
    ]


def _in_f8(module: ModuleOp, machine: Machine, given: Mapping[str, int]) -> Explanation:
    """Every kernel with its 16-bit numbers in f8, with sizes of its own: what the model says, no code."""
    if "f8" not in machine.rates.tensor:
        raise TreadleError(f"{machine.name} multiplies no f8: compare on a machine that does, as --machine h100")
    kernels = [op for op in module.walk() if isinstance(op, KernelOp)]
    if explicit := [kernel.kernel_name.data for kernel in kernels if kernel.is_expanded]:
        raise TreadleError(
            f"the streams of @{explicit[0]} are explicit, and f8 chooses sizes anew: compare the program before "
            "hierarchy-expand-streams"
        )
    found = [_kernel_in_f8(kernel, machine, given) for kernel in kernels]
    return Explanation(machine.name, found, machine.launch)


def _kernel_in_f8(kernel: KernelOp, machine: Machine, given: Mapping[str, int]) -> Any:
    assert kernel.schedule is not None
    sketch: Sketch = sketch_of(kernel, kernel.schedule)
    narrow = as_f8(sketch) or sketch
    function = kernel.parent_op()
    sizes = sizes_of_kernel(kernel, function if isinstance(function, FuncOp) else None, given)
    choice = choose(narrow, machine, {axis: max(size, 1) for axis, size in sizes.items()}, {})
    plan = narrow.plan(choice.candidate.tiles, choice.candidate.warps, rereads=choice.candidate.rereads)
    return kernel_cost(plan, machine, sizes, why=choice.reason)
