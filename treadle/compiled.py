"""A program, compiled: what Python holds in its hand.

`compile` derives the kernels of a program, or takes them from the cache on disk; the `Kernel` that it gives runs on
numpy arrays and torch tensors, shows its CUDA C and its derivation, and can be saved."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from treadle.compiler.errors import TreadleError
from treadle.compiler.uncollected import uncollected
from treadle.derive import check_numbers, derived, module_of, path_text
from treadle.texts import Estimate, Texts, from_json, to_json
from treadle.untraced import untraced

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp
    from xdsl.dialects.func import FuncOp

    from treadle.compiler.explain import Explanation
    from treadle.runtime.numpy_gpu import HostReplay
    from treadle.runtime.torch_replay import Replay, Replays


@dataclass(frozen=True)
class Argument:
    """An argument or a result of a program: its axes in order of memory, the size of each (None where it is chosen
    at each call), and its number format (`f8E4M3FN`, `f8E5M2`, `f16`, `bf16`, `f32`, `i32`)."""

    name: str
    axes: Mapping[str, int | None]
    format: str

    def __str__(self) -> str:
        sizes = ", ".join(axis if size is None else f"{axis} = {size}" for axis, size in self.axes.items())
        return f"{self.name}: {self.format}[{sizes}]"


@dataclass(frozen=True)
class Step:
    """One step of a derivation: the rewrite, what it was applied to, the law that allows it, and why it was done."""

    rewrite: str
    subject: str
    law: str
    reason: str

    def __str__(self) -> str:
        said = f"{self.subject}: {self.law}" if self.law else self.subject
        return f"{self.rewrite}  {said}; {self.reason}" if self.reason else f"{self.rewrite}  {said}"


class Kernel:
    """The kernels of one program, and the host function that launches them.

    Threads may share one: a run in the emulator waits for the one before it."""

    def __init__(self, texts: Texts, key: str | None = None, module: ModuleOp | None = None):
        self._texts = texts
        self._module = module
        """The module at `cuda` level, where it was just made."""
        self._key = key
        """Of its entry in the cache on disk, if it has one."""
        self._lock = threading.Lock()
        self._backends: dict[tuple[str, bool], Any] = {}
        self.replays: Replays | None = None
        """What calls on tensors of a GPU did; there is none before the first."""
        self.host_replays: dict[Any, HostReplay] = {}
        """What calls on numpy's arrays with a GPU did, by their geometry."""

    # -- what it is ------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """That of the program's function."""
        return self._function.sym_name.data

    @property
    def machine(self) -> str:
        """The name of the machine that it was optimised for."""
        return self._texts.machine

    @property
    def arch(self) -> str:
        """The architecture that its code is for, as `sm_90a`."""
        return self._texts.arch

    @property
    def diagram(self) -> str:
        """The program that was compiled, as IR."""
        return self._texts.diagram

    @property
    def hierarchy(self) -> str:
        """The program with its levels, groups and streams, as IR."""
        return self._texts.hierarchy

    @property
    def host(self) -> str:
        """The module at `cuda` level, with the host function, as IR."""
        return self._texts.host

    @property
    def cuda(self) -> str:
        """The CUDA C of all kernels; it compiles alone."""
        return self._texts.cuda

    @cached_property
    def derivation(self) -> tuple[Step, ...]:
        """Every rewrite that led to the kernels, in order."""
        return tuple(Step(*texts) for texts in self._texts.derivation)

    @cached_property
    def arguments(self) -> tuple[Argument, ...]:
        """What a call is given, in order."""
        from treadle.runtime.inputs import argument_name

        function = self._function
        types = function.function_type.inputs
        return tuple(_argument(argument_name(function, i).removeprefix("%"), type) for i, type in enumerate(types))

    @cached_property
    def results(self) -> tuple[Argument, ...]:
        """What a call gives, in order."""
        from treadle.runtime.inputs import output_names

        function = self._function
        return tuple(
            _argument(name, type)
            for name, type in zip(output_names(function), function.function_type.outputs, strict=True)
        )

    @cached_property
    def held_whole(self) -> frozenset[str]:
        """The axes of which kernels hold all elements at once, as only a known size lets them."""
        from treadle.compiler.source import parse_module
        from treadle.dialects.hierarchy import KernelOp

        kernels = [op for op in parse_module(self.hierarchy, "kernel.hierarchy").walk() if isinstance(op, KernelOp)]
        schedules = [kernel.schedule for kernel in kernels if kernel.schedule is not None]
        return frozenset(axis for schedule in schedules for axis in schedule.whole.as_dict())

    def cost(self, **sizes: int) -> Explanation:
        """Transfers, memory and an estimate of the time, at these sizes of the symbolic axes (TreadleError if one
        has neither a size nor a default, and for a size that the program does not leave open)."""
        check_numbers(sizes)
        return _explained(self._texts.diagram, self._texts.hierarchy, tuple(sizes.items()))

    @property
    def estimate(self) -> Estimate:
        """What `cost()` says at the sizes of the program, in short; worked out once, and kept on disk."""
        if len(self._texts.estimate) != len(fields(Estimate)):
            cost = self.cost()
            arrays = sum(level.memory_bytes for each in cost.kernels for level in each.levels if level.name == "device")
            self._texts = replace(self._texts, estimate=(len(cost.kernels), cost.time_us, arrays))
            if self._key is not None:
                from treadle.store import keep

                keep(self._key, self._texts)
        kernels, time_us, device_bytes = self._texts.estimate
        return Estimate(int(kernels or 0), time_us, device_bytes or 0.0)

    def __repr__(self) -> str:
        given = ", ".join(map(str, self.arguments))
        made = ", ".join(map(str, self.results))
        return f"<treadle kernel {self.name}({given}) -> {made}, for {self.machine} ({self.arch})>"

    # -- running ---------------------------------------------------------------------------------

    @untraced
    def run(self, *arrays: Any, backend: str = "auto", checks: bool = False, **named: Any) -> Any:
        """The result, or a tuple where the program has several.

        Arguments stand in the program's order or carry its names. A numpy array or torch tensor must have the format
        and the number of axes that the program says, and may have any strides; gaps along its last axis make accesses
        narrow. Tensors on a GPU are used where they lie, in PyTorch's current stream. `checks` lets the emulator watch
        memory. `backend` is one of `auto`, `gpu`, `emulator`, `ptx`,
        `interpreter`.

        TreadleError for arguments that do not fit, and where `backend` cannot be had."""
        if named:
            arrays = self._in_order(arrays, named)
        # As `at_once`, without another call: this is all that most calls do.
        if (
            (replays := self.replays) is not None
            and backend in ("auto", "gpu")
            and (known := replays.at_once(arrays)) is not None
        ):
            return known
        return _calls().call(self, arrays, backend, checks)

    __call__ = run

    def at_once(self, arrays: Sequence[Any], backend: str = "auto") -> Any:
        """What `run` gives for tensors on a GPU that are as those of a call before, but for their addresses; None where
        more is to be asked (TreadleError)."""
        if (replays := self.replays) is None or backend not in ("auto", "gpu"):
            return None
        return replays.at_once(arrays)

    @untraced
    def verify(self, *arrays: Any, backend: str = "auto", checks: bool = True, **named: Any) -> tuple[Any, ...]:
        """Run, and compare with the float64 reference: a `Verdict` for each result, whose `ok` says whether it is
        within the tolerance that the formats allow, and whose text is the line that `treadle run` prints."""
        from treadle.compiler.conditions import with_conditions

        given = self._in_order(arrays, named) if named else arrays
        return _calls().judge(self, given, backend, checks, with_conditions)

    def _in_order(self, arrays: Sequence[Any], named: Mapping[str, Any]) -> tuple[Any, ...]:
        return in_order(self.name, [argument.name for argument in self.arguments], arrays, named)

    def backend(self, name: str, checks: bool) -> Any:
        """The kernels, ready to launch at `gpu` or `emulator`; made once."""
        with self._lock:
            key = name, checks
            if key not in self._backends:
                self._backends[key] = self._made_backend(name, checks)
            return self._backends[key]

    def _made_backend(self, name: str, checks: bool) -> Any:
        from treadle.dialects.cuda import kernel_names
        from treadle.runtime.backend import make_backend

        return make_backend(name, self.cuda, kernel_names(self.module), self.arch, checks)

    def keep(self, key: Any, replay: Replay) -> None:
        """What a call on tensors of a GPU did, for the next ones of that geometry."""
        from treadle.runtime.torch_replay import Replays

        with self._lock:
            if self.replays is None:
                self.replays = Replays(self.name)
            self.replays.keep(key, replay)

    @property
    def lock(self) -> threading.Lock:
        """Held while the emulator runs, which runs one launch at a time."""
        return self._lock

    # -- files -----------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the kernel to a file that `treadle.load` reads (TreadleError if it cannot be written)."""
        from treadle.compiler.files import check_output, write_whole

        check_output(str(path))
        write_whole(str(path), to_json(self._texts))

    @cached_property
    def program(self) -> ModuleOp:
        """The diagram, parsed."""
        from treadle.compiler.source import parse_module

        return parse_module(self._texts.diagram, "kernel.diagram")

    @cached_property
    def module(self) -> ModuleOp:
        """The module at `cuda` level, parsed."""
        from treadle.compiler.source import parse_module

        return self._module or parse_module(self._texts.host, "kernel.host")

    @property
    def _function(self) -> FuncOp:
        from treadle.runtime.interpreter import entry_function

        return entry_function(self.program)


@untraced
@uncollected()
def compile(
    program: str | os.PathLike[str] | ModuleOp,
    *,
    machine: str | None = None,
    arch: str | None = None,
    sizes: Mapping[str, int] | None = None,
    replay: str | os.PathLike[str] | None = None,
    passes: str | Sequence[str] = (),
    cache: bool = True,
) -> Kernel:
    """Derive the kernels of a program: the path of a file, the text of one (it has a newline), or a module, which is
    left as it is.

    `machine` is the name of one that ships with treadle (`a100`, `h100`, ...) or the path of a file; `arch` asks for
    code of that architecture (`sm_80`); `sizes` makes axes static; `replay` is the path of a derivation, as `treadle
    tune` and `treadle explain --derivation` write it, in place of the pipeline's own; `passes` gives single passes
    other options, as `["coalescing{minimize=sectors}"]`. With `cache`, a compilation that was done before is taken from
    disk. TreadleError says what is wrong with the program, and where."""
    from treadle.compiler.derivation.replay import read_derivation, read_overrides
    from treadle.compiler.pipeline import Options
    from treadle.store import keep, kept, key_of

    check_numbers(sizes or {})
    module = module_of(program)
    text = str(module)
    named = None if machine is None else path_text("machine", machine)
    replayed = () if replay is None else read_derivation(path_text("replay", replay))
    options = Options(named, arch, dict(sizes or {}), passes=replayed, overrides=read_overrides(passes))
    key = key_of(text, options)
    if cache and (found := kept(key)) is not None:
        return Kernel(found, key)
    texts = derived(module, text, options)
    if cache:
        keep(key, texts)
    return Kernel(texts, key if cache else None, module)


@untraced
def load(path: str | os.PathLike[str]) -> Kernel:
    """A kernel that was saved (TreadleError if the file is none, or of another version)."""
    from treadle.compiler.source import read_text

    return Kernel(from_json(read_text(Path(path)), str(path)))


def in_order(kernel: str, names: Sequence[str], arrays: Sequence[Any], named: Mapping[str, Any]) -> tuple[Any, ...]:
    """Arguments by place and by name, in the order of the names (TreadleError)."""
    for name in named:
        if name not in names:
            raise TreadleError(f"{kernel} has no argument '{name}' (it has {', '.join(names)})")
        if name in names[: len(arrays)]:
            raise TreadleError(f"{kernel} is given '{name}' twice, by place and by name")
    rest = names[len(arrays) :]
    if missing := [name for name in rest if name not in named]:
        raise TreadleError(f"{kernel} needs {', '.join(missing)}, too")
    return (*arrays, *(named[name] for name in rest))


@cache
def _calls() -> Any:
    """What runs kernels; an import in a function would be asked for at each call."""
    from treadle.runtime import call

    return call


@lru_cache(maxsize=512)
def _explained(diagram: str, hierarchy: str, sizes: tuple[tuple[str, int], ...]) -> Explanation:
    from treadle.compiler.explain import explain
    from treadle.compiler.machines import machine_of
    from treadle.compiler.source import parse_module

    if sizes:
        _check_open(diagram, dict(sizes))
    module = parse_module(hierarchy, "kernel.hierarchy")
    return explain(module, machine_of(module), dict(sizes))


def _check_open(diagram: str, sizes: Mapping[str, int]) -> None:
    """(TreadleError for a size that a program does not leave open)"""
    from treadle.compiler.errors import Refusal, describe
    from treadle.compiler.sizes import check_sizes, default_sizes
    from treadle.compiler.source import parse_module
    from treadle.compiler.told_sizes import check_told
    from treadle.runtime.interpreter import entry_function

    module = parse_module(diagram, "kernel.diagram")
    try:
        function = entry_function(module)
        check_sizes(function, sizes)
        check_told(function, sizes, default_sizes(function))
    except Refusal as error:
        raise describe(error, module) from error


def _argument(name: str, type: Any) -> Argument:
    from treadle.dialects.diagram.array import DYNAMIC, format_of, sizes_of

    axes = {axis: None if size == DYNAMIC else size for axis, size in sizes_of(type).items()}
    return Argument(name, axes, str(format_of(type)))


__all__ = ["Argument", "Kernel", "Step", "compile", "load"]
