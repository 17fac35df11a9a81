"""What else a program's kernels could be: other sizes that the model finds nearly as good, the pipeline without one of
the passes that only make kernels faster, and a pass with another option. Each is a list of passes, as a derivation has
them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, Protocol, get_args, get_origin, get_type_hints

from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.arg_spec import ArgSpec

from treadle.compiler.machines import Machine, machine_of
from treadle.compiler.pipeline import CHOOSING_PASS, NEEDED, Observer, PassRun, make_pass, run_passes
from treadle.dialects.hierarchy import KernelOp
from treadle.passes.hierarchy_choose_sizes import nearest_for

Passes = tuple[ArgSpec, ...]


class Alternative(Protocol):
    """What may be done in another way."""

    @property
    def model_us(self) -> float | None:
        """What the model says of the kernel that it changes; None where it says nothing."""
        ...

    def applied(self, passes: Passes) -> Passes: ...


@dataclass(frozen=True)
class Sizes:
    """Other sizes of one kernel."""

    kernel: str
    group: Mapping[str, int]
    stream: Mapping[str, int]
    model_us: float | None

    def __str__(self) -> str:
        told = [f"{axis} = {size}" for axis, size in (*self.group.items(), *self.stream.items())]
        return f"@{self.kernel} with {', '.join(told)}"

    def has_sizes_of(self, other: Sizes) -> bool:
        return (self.group, self.stream) == (other.group, other.stream)

    def applied(self, passes: Passes) -> Passes:
        """The passes, with these sizes where they choose any."""
        options = {"group": self.group, "stream": self.stream}
        texts = {name: (_text(sizes),) for name, sizes in options.items() if sizes}
        spec = ArgSpec(CHOOSING_PASS, {**texts, "kernel": (self.kernel,)})
        others = [each for each in passes if not _is_choice_for(each, self.kernel)]
        place = _choosing(others)
        return (*others[:place], spec, *others[place:])


@dataclass(frozen=True)
class Without:
    """All passes but one, wherever it stands."""

    left_out: str
    model_us: float | None = None

    def __str__(self) -> str:
        return f"without {self.left_out}"

    def applied(self, passes: Passes) -> Passes:
        return tuple(each for each in passes if each.name != self.left_out)


@dataclass(frozen=True)
class WithOption:
    """A pass with one option other than it is."""

    name: str
    option: str
    values: tuple[str | int | bool, ...]
    model_us: float | None = None

    def __str__(self) -> str:
        return str(ArgSpec(self.name, {self.option: self.values}))

    def applied(self, passes: Passes) -> Passes:
        return tuple(
            replace(each, parameters={**each.parameters, self.option: self.values}) if each.name == self.name else each
            for each in passes
        )


SMALLEST_CLUSTER = 2


def other_options(passes: Passes) -> Iterator[WithOption]:
    """Of each pass, every option that it has by its type another value for: the other truth, another of a few words,
    half of a number that is stated and twice as much; of sizes that are the pass's to choose, the smallest. Of texts
    there is no telling. Many change nothing in a program, and some are refused."""
    for name in dict.fromkeys(each.name for each in passes):
        spec = next(each for each in passes if each.name == name)
        instance = make_pass(spec)
        hints = get_type_hints(type(instance))
        for each in fields(instance):
            if each.name != "name":
                values = _other_values(hints[each.name], getattr(instance, each.name))
                yield from (WithOption(name, each.name, value) for value in values)


def _other_values(kind: Any, now: Any) -> list[tuple[str | int | bool, ...]]:
    kinds = (kind, *get_args(kind))
    if bool in kinds:
        return [(value,) for value in (True, False) if value is not now]
    words = [word for each in kinds if get_origin(each) is Literal for word in get_args(each)]
    if words:
        return [(word,) for word in words if word != now]
    if kind is int and now > 1:
        return [(now // 2,), (2 * now,)]
    if get_origin(kind) is tuple and int in kinds and not now:
        return [(SMALLEST_CLUSTER,)]
    return []


def alternatives(module: ModuleOp, passes: Passes, count: int) -> Iterator[Alternative]:
    """So many other sizes of each kernel, and each pass that may be left out, those nearest to the code first
    (TreadleError)."""
    yield from other_sizes(module, passes, count)
    yield from left_out(module, passes)


def left_out(module: ModuleOp, passes: Passes) -> Iterator[Without]:
    """Each pass that may be left out, those nearest to the code first (TreadleError)."""
    return map(Without, reversed(optional(module, passes)))


def other_sizes(module: ModuleOp, passes: Passes, count: int) -> Iterator[Sizes]:
    """Of each kernel whose sizes these passes choose, so many other sizes, those that the model likes best first
    (TreadleError)."""
    for each in sized_kernels(module, passes, count):
        yield from each.others


@dataclass(frozen=True)
class SizedKernel:
    """A kernel whose sizes passes choose."""

    own: Sizes
    """Those that they choose."""
    is_model: bool
    """Whether these are the model's choice; else options of the passes state some."""
    others: tuple[Sizes, ...]


def sized_kernels(module: ModuleOp, passes: Passes, count: int) -> Iterator[SizedKernel]:
    """Each kernel whose sizes these passes choose, with so many other sizes, those that the model likes best first
    (TreadleError)."""
    decorated = module.clone()
    run_passes(decorated, passes[: _choosing(passes)])
    machine = machine_of(decorated)
    decided = _decided(decorated, [each for each in passes if each.name == CHOOSING_PASS])
    by_model = _decided(decorated, [ArgSpec(CHOOSING_PASS, {})])
    for name, kernel in _kernels(decorated).items():
        if kernel.schedule is None or kernel.schedule.is_decided:
            continue
        own = _sizes_of(decided[name], machine, 1)[0]
        others = [each for each in _sizes_of(kernel, machine, count + 1) if not each.has_sizes_of(own)]
        yield SizedKernel(own, decided[name].schedule == by_model[name].schedule, tuple(others[:count]))


def _decided(module: ModuleOp, choosing: Sequence[ArgSpec]) -> Mapping[str, KernelOp]:
    """The kernels of a copy, with the sizes that these passes choose."""
    copy = module.clone()
    run_passes(copy, choosing)
    return _kernels(copy)


def _kernels(module: ModuleOp) -> Mapping[str, KernelOp]:
    return {op.kernel_name.data: op for op in module.walk() if isinstance(op, KernelOp)}


def _sizes_of(kernel: KernelOp, machine: Machine, count: int) -> list[Sizes]:
    """So many sizes of a kernel, what its schedule states kept, those first that the model chooses (Refusal)."""
    streamed = () if kernel.schedule is None else kernel.schedule.stream.as_dict()
    found: list[Sizes] = []
    for sizes, time_us in nearest_for(kernel, machine, count):
        group = {axis: size for axis, size in sizes.items() if axis not in streamed}
        stream = {axis: size for axis, size in sizes.items() if axis in streamed}
        found.append(Sizes(kernel.kernel_name.data, group, stream, time_us))
    return found


def optional(module: ModuleOp, passes: Passes) -> Sequence[str]:
    """The passes that change this program and could be left out, in their order (TreadleError)."""
    changing = _Changing()
    run_passes(module.clone(), passes, changing)
    return [name for name in changing.names if name not in NEEDED]


class _Changing(Observer):
    """The names of the passes that change something."""

    compares = True

    def __init__(self) -> None:
        self.names: dict[str, None] = {}

    def after_pass(self, run: PassRun, module: ModuleOp) -> None:
        if run.changed:
            self.names[run.name] = None


def _choosing(passes: Sequence[ArgSpec]) -> int:
    """Where sizes are chosen first; behind the passes where none are."""
    return next((i for i, each in enumerate(passes) if each.name == CHOOSING_PASS), len(passes))


def _is_choice_for(spec: ArgSpec, kernel: str) -> bool:
    return spec.name == CHOOSING_PASS and spec.parameters.get("kernel") == (kernel,)


def _text(sizes: Mapping[str, int]) -> str:
    return ",".join(f"{axis}={size}" for axis, size in sizes.items())
