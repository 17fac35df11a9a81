"""The ways to make a program's kernels beside the pipeline's own: without each pass that may be left out, with each
option of a pass another way, and with other sizes. Which passes and options there are is asked of the pipeline; ways
that print the same code as one before are left out. Made once, and kept in the cache: to find out takes a minute."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

if TYPE_CHECKING:
    from speed.ahead import Lowered
    from speed.cases import Case
    from xdsl.dialects.builtin import ModuleOp

FOLDER = "ways"
"""Of the cache."""
OWN = "as the pipeline makes it"
OTHER_SIZES = 2
WITHOUT_MAPS = "without_maps"


@dataclass(frozen=True)
class Way:
    """One way to make the kernels of a case, or why there is none."""

    what: str
    refused: str = ""
    module: str = ""
    """The program at `cuda` level."""
    cuda: str = ""
    kernels: tuple[str, ...] = ()
    arch: str = ""
    model_us: float | None = None
    """None where the model does not tell this way from others, or it does not fit."""
    changes: str = ""
    """The pass that is left out or has another option."""

    @property
    def lowered(self) -> Lowered:
        from speed.ahead import Lowered

        return Lowered(self.module, self.cuda, self.kernels, self.arch)


def ways_of(case: Case, machine: str, others: int = OTHER_SIZES) -> list[Way]:
    """The pipeline's own first; from the cache if they were made before."""
    return kept_ways(path_of(case, machine, others), lambda: _made(case, machine, others))


def kept_ways(path: Path, make: Callable[[], Iterable[Way]]) -> list[Way]:
    """Those of a file of the cache, made if it is not there."""
    from treadle.runtime.cache import cached_file

    def write(path: Path) -> None:
        path.write_text(json.dumps([asdict(each) for each in make()]), encoding="utf-8")

    read: list[dict[str, Any]] = json.loads(cached_file(path, write).read_text(encoding="utf-8"))
    return [Way(**{**each, "kernels": tuple(each["kernels"])}) for each in read]


def path_of(case: Case, machine: str, others: int = OTHER_SIZES) -> Path:
    """Where the ways of a case are kept."""
    return kept_path(case, machine, str(others))


def kept_path(case: Case, machine: str, which: str) -> Path:
    """A file of the cache, known by the program, the passes, all files of treadle, and which ways it holds."""
    from treadle.compiler.machines import load_machine
    from treadle.runtime.cache import cache_directory
    from treadle.store import itself

    here = Path(__file__).read_text(encoding="utf-8")
    parts = (itself(), here, case.program, repr(sorted(case.open_sizes.items())), repr(load_machine(machine)))
    digest = hashlib.sha256("\n".join((*parts, which)).encode()).hexdigest()
    return cache_directory() / FOLDER / f"{digest[:32]}.json"


def _made(case: Case, machine: str, others: int) -> Iterator[Way]:
    from treadle.compiler.pipeline import Options, pipeline
    from treadle.compiler.source import parse_module
    from treadle.compiler.tune.alternatives import Without, optional, other_options, other_sizes

    passes = pipeline(Options(machine, sizes=case.open_sizes))
    module = parse_module(case.program)
    own = make_way(case, OWN, passes)
    yield own
    known = {own.cuda, what_runs(own)}
    left_out = [Without(name) for name in reversed(optional(module, passes))]
    for each in (*left_out, *other_options(passes), *other_sizes(module, passes, others)):
        changes = getattr(each, "left_out", getattr(each, "name", ""))
        made = make_way(case, str(each), each.applied(passes), changes)
        if made.refused or not known & {made.cuda, what_runs(made)}:
            known |= {made.cuda, what_runs(made)}
            yield made


def what_runs(way: Way) -> str:
    """The kernels and launches without those for arrays that tensor maps cannot describe, which no case here has."""
    from treadle.compiler.source import parse_module
    from treadle.dialects import cuda

    if way.refused:
        return ""
    module = parse_module(way.module)
    for op in [*module.body.block.ops]:
        if isinstance(op, cuda.KernelOp) and WITHOUT_MAPS in op.attributes:
            op.detach()
        op.attributes.pop("derivation", None)
    return str(module)


def make_way(case: Case, what: str, passes: Sequence[Any], changes: str = "") -> Way:
    """What these passes make of a case, or why they do not."""
    from treadle.compiler.machines import machine_of
    from treadle.compiler.pipeline import LAST_HIERARCHY_PASS, print_cuda, try_passes
    from treadle.compiler.source import parse_module
    from treadle.dialects.cuda import kernel_names

    module = parse_module(case.program)
    place = next(i for i, each in enumerate(passes) if each.name == LAST_HIERARCHY_PASS) + 1
    way = Way(what, changes=changes)
    try:
        try_passes(module, passes[:place])
        scheduled = module.clone()
        try_passes(module, passes[place:])
        module.verify()
        cuda = print_cuda(module)
    except Exception as error:  # some passes only pay together: what they refuse, or cannot, is told
        return replace(way, refused=reason(error))
    arch = machine_of(module).arch
    us = modelled_us(scheduled, what, changes)
    return replace(way, module=str(module), cuda=cuda, kernels=tuple(kernel_names(module)), arch=arch, model_us=us)


def reason(error: Exception) -> str:
    lines = str(error).removeprefix("<string>:").strip().splitlines()
    return lines[0] if lines else f"{type(error).__name__}: what others rest on is not made"


def modelled_us(module: ModuleOp, what: str, changes: str) -> float | None:
    """By the model, with the rates that last, of a program whose streams are expanded. Passes behind that are taken to
    be there, but for those that the model can do without; of others it says nothing."""
    from xdsl.dialects.func import FuncOp

    from treadle.compiler.cost import estimate, plan_of, sizes_of_kernel
    from treadle.compiler.cost.timing.turns import Made
    from treadle.compiler.machines import machine_of
    from treadle.compiler.pipeline import LAST_HIERARCHY_PASS, Options, pipeline
    from treadle.dialects.hierarchy import KernelOp

    names = [each.name for each in pipeline(Options())]
    behind = changes in names and names.index(changes) > names.index(LAST_HIERARCHY_PASS)
    without = next((each for key, each in NOT_MADE.items() if what in key), None)
    machine = machine_of(module).as_sustained()
    if behind and without is None:
        return None
    if without is SINGLE_WARPS:
        machine = replace(machine, arch=machine.arch.rstrip("a"))
    total = 0.0
    for function in (op for op in module.ops if isinstance(op, FuncOp)):
        for kernel in (op for op in function.walk() if isinstance(op, KernelOp)):
            plan, sizes = plan_of(kernel), sizes_of_kernel(kernel, function)
            found = estimate(plan, machine, sizes)
            if found is not None and isinstance(without, dict):
                found = estimate(plan, machine, sizes, Made(**{"in_turns": found.in_turns, **without}))
            if found is None:
                return None
            total += found.time_us + 1e6 * machine.launch
    return total


SINGLE_WARPS = "products of single warps"
NOT_MADE: dict[tuple[str, ...], Any] = {
    ("without warp-specialization",): SINGLE_WARPS,
    ("without cuda-persist",): {"in_turns": False, "pieces_overlap": False},
    ("without cuda-overlap-pieces", "cuda-overlap-pieces{apart=false}"): {"pieces_overlap": False},
    ("cuda-overlap-pieces{twice=false}",): {"twice": False},
    ("pipelining{carry=false}",): {"loops_carry": False},
    ("without cuda-cluster",): {"has_clusters": False},
    ("without cuda-speculate",): {"powers_first": False},
}
"""What of the passes behind the streams the model knows how to do without, as `cost.turns.Made` says it."""
