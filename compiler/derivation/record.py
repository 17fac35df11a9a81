"""Writing the derivation of a program while passes run."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from textwrap import fill

from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.arg_spec import ArgSpec, ParameterListType

from treadle.compiler.derivation.costs import moved_bytes
from treadle.compiler.derivation.story import REFUSALS
from treadle.compiler.pipeline import Observer, PassRun
from treadle.dialects import cuda
from treadle.dialects.hierarchy import KernelOp
from treadle.dialects.hierarchy.schedule import StepAttr, derivation_of
from treadle.passes._functions import functions

WIDTH = 118
WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


@dataclass(frozen=True)
class Entry:
    """One line of a derivation: a pass with its decisions, and what it did."""

    spec: str
    steps: tuple[StepAttr, ...]
    before: int | None
    after: int | None
    """Bytes that cross the border of device memory; None where that is not known."""


@dataclass
class Recorder(Observer):
    """Notes each pass with the decisions that it made, the laws that it used, and the cost before and after."""

    sizes: Mapping[str, int]
    compares: bool = True
    entries: list[Entry] = field(default_factory=list[Entry])
    _known: set[StepAttr] = field(default_factory=set[StepAttr])
    _before: int | None = None

    def before_pass(self, spec: ArgSpec, module: ModuleOp) -> None:
        self._before = _cost(module, self.sizes)

    def after_pass(self, run: PassRun, module: ModuleOp) -> None:
        steps = [step for function in functions(module) for step in derivation_of(function.attributes)]
        new = tuple(step for step in steps if step not in self._known)
        self._known |= set(new)
        after = _cost(module, self.sizes)
        *first, last = _decided(run, module)
        self.entries += [Entry(spec, (), None, None) for spec in first]
        self.entries.append(Entry(last, new, self._before, after))

    def text(self, title: str) -> str:
        """The derivation as a file, which `replay` reads."""
        return "\n".join(_lines(title, self.sizes, self.entries)) + "\n"


def _cost(module: ModuleOp, sizes: Mapping[str, int]) -> int | None:
    lowered = any(op.dialect_name() == "cuda" for op in module.walk())
    return None if lowered else moved_bytes(module, sizes)


def _kernels(module: ModuleOp) -> list[KernelOp | cuda.KernelOp]:
    return [op for op in module.walk() if isinstance(op, KernelOp | cuda.KernelOp)]


def _decided(run: PassRun, module: ModuleOp) -> list[str]:
    """The pass with what it has decided as options, beside those that it was given. The kernel is named only where
    there are several, so that a derivation fits other programs with the same axes: of a lowered program, where the pass
    has decided differently of them. A pass that runs before there are kernels decides for the whole program."""
    options = [decision.options for decision in run.decisions]
    if not options:
        return [str(run.spec)]
    kernels = _kernels(module)
    is_several = sum(isinstance(op, KernelOp) for op in kernels) > 1
    named = bool(kernels) and (is_several or any(each != options[0] for each in options))
    given = _but(run.spec.normalize_parameter_names().parameters, () if len(kernels) > 1 else ("kernel",))
    lines = [
        _spelt(run.name, ({"kernel": (each.kernel,)} if named else {}) | dict(each.options) | _but(given, each.options))
        for each in run.decisions
    ]
    return list(dict.fromkeys(lines))


def _but(given: Mapping[str, ParameterListType], decided: Collection[str]) -> dict[str, ParameterListType]:
    return {name: values for name, values in given.items() if name not in decided}


def _spelt(name: str, options: Mapping[str, ParameterListType]) -> str:
    """`streaming{axis=x}`"""
    told = " ".join(
        f"{key.replace('_', '-')}={','.join(map(_value, values))}" if values else key.replace("_", "-")
        for key, values in options.items()
    )
    return f"{name}{{{told}}}" if told else name


def _value(value: str | int | float | bool) -> str:
    """A text in quotes, unless it is a word, which no number or truth is."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str) and (value in ("true", "false") or not WORD.fullmatch(value)):
        return f'"{value}"'
    return str(value)


def _lines(title: str, sizes: Mapping[str, int], entries: list[Entry]) -> Iterator[str]:
    yield f"# {title}"
    at = ", ".join(f"{axis} = {size}" for axis, size in sizes.items())
    if all(entry.after is None for entry in entries):
        yield "# no costs, which are for sizes of the axes: give them, as in --size q=1000"
    else:
        yield f"# costs: bytes over the border of device memory{f' at {at}' if at else ''}"
    for entry in entries:
        yield ""
        yield entry.spec
        for step in entry.steps:
            rewrite, subject, law, reason = step.texts()
            refused = next((f"{word} " for word in REFUSALS if rewrite.startswith(word)), "")
            said = f"{refused}{subject}: {law}" if law else f"{refused}{subject}"
            yield fill(
                f"{said}; {reason}" if reason else said,
                WIDTH,
                initial_indent="#   ",
                subsequent_indent="#     ",
                break_on_hyphens=False,
                break_long_words=False,
            )
        if entry.after is not None:
            change = "" if entry.before == entry.after else f"{entry.before or 0:,} -> "
            yield f"#   cost {change}{entry.after:,}"
