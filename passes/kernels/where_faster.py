"""What passes share that rewrite what they are asked to, or else what saves time by the model.

Such a pass finds candidates in a function of diagrams, and tries to rewrite them on a copy. It keeps those with which
all kernels of the function take less time, and the derivation says so, or why there are none. What a pass looks for,
the rewrite, and the words are its own."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ClassVar, Generic, Protocol, TypeVar

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, SSAValue
from xdsl.passes import ModulePass

from treadle.compiler.errors import Refusal
from treadle.passes._decisions import decide
from treadle.passes._functions import diagrams, fresh_hint, label, module_of, note
from treadle.passes._later import run_later
from treadle.passes.kernels.function_trial import FunctionTrial
from treadle.passes.kernels.some_of import Times, fastest_of

NONE = "none"
"""In place of names: what a derivation says where nothing is rewritten."""


class Named(Protocol):
    """A candidate that is called as one of its values is."""

    @property
    def value(self) -> SSAValue: ...


T = TypeVar("T")
N = TypeVar("N", bound=Named)


class WhereFaster(ModulePass, Generic[T]):
    """A pass with one option, which names what to rewrite whatever the model says; `none` names nothing."""

    option: ClassVar[str]
    then: ClassVar[tuple[str, ...]] = ()
    """The passes between this one and kernels on which the time of a rewrite depends."""
    wanted: ClassVar[str] = "a tenth must be saved"
    """What a step says that declines: what must be saved, or the law."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        asked: tuple[str, ...] = getattr(self, self.option)
        known = set[str]()
        for function in diagrams(op):
            found = self.found_in(function)
            known.update(name for each in found for name in self.names(each))
            if asked:
                self.rewrite(function, [each for each in found if {*self.names(each)} <= {*asked}], "asked for")
            elif found:
                self._where_it_pays(op, function, found)
        if missing := [name for name in asked if name not in known and name != NONE]:
            raise Refusal(op, self.why_not(op, missing[0], sorted(known)))

    @abstractmethod
    def found_in(self, function: func.FuncOp) -> Sequence[T]:
        """What may be rewritten, in order."""

    @abstractmethod
    def names(self, each: T) -> Sequence[str]:
        """What the option calls a candidate; it is asked for where all of these are."""

    @abstractmethod
    def rewrite(self, function: func.FuncOp, chosen: Sequence[T], why: str) -> None:
        """Rewrite some, and say so in the derivation."""

    @abstractmethod
    def subject(self, found: Sequence[T]) -> str:
        """What the derivation calls these, where none of them are rewritten."""

    @abstractmethod
    def why_not(self, module: ModuleOp, name: str, known: Sequence[str]) -> str:
        """Why nothing of a name is rewritten, of which `known` are all that can be."""

    def in_copy(self, each: T, values: Mapping[SSAValue, SSAValue]) -> T:
        """A candidate in a copy of its function; what the values are there. (It is the same where it is found by
        name.)"""
        return each

    def fastest(self, trial: FunctionTrial, found: Sequence[T]) -> tuple[Sequence[T], str]:
        """Which to rewrite, none where that does not pay, and the times."""
        return fastest_of(found, lambda chosen: self.times(trial, chosen), trial.longer)

    def times(
        self,
        trial: FunctionTrial,
        chosen: Sequence[T],
        longer: Mapping[str, int] | None = None,
        is_meant: Callable[[ModuleOp], bool] | None = None,
    ) -> Times:
        """Of all kernels of a function in which these are rewritten, as `FunctionTrial.times` finds them."""

        def rewritten(copy: func.FuncOp, values: Mapping[SSAValue, SSAValue]) -> None:
            self.rewrite(copy, [self.in_copy(each, values) for each in chosen], "")
            run_later(module_of(copy), *self.then)

        return trial.times(rewritten, longer, is_meant)

    def _where_it_pays(self, module: ModuleOp, function: func.FuncOp, found: Sequence[T]) -> None:
        chosen, why = self.fastest(FunctionTrial(module, function), found)
        names = tuple(dict.fromkeys(name for each in chosen for name in self.names(each)))
        if not chosen:
            note(function, f"decline {self.name}", self.subject(found), self.wanted, why)
        self.rewrite(function, chosen, why)
        decide(function, **{self.option: names or (NONE,)})


class ValuesWhereFaster(WhereFaster[N]):
    """Such a pass whose candidates are called as their values are."""

    kind: ClassVar[str]
    """What values without a name are called."""
    described: ClassVar[str]
    """What a name is refused for not being that of."""

    @abstractmethod
    def candidates(self, block: Block) -> Sequence[N]:
        """What may be rewritten, in order."""

    @abstractmethod
    def make(self, function: func.FuncOp, each: N, why: str) -> None:
        """Rewrite one, and say so in the derivation."""

    def found_in(self, function: func.FuncOp) -> Sequence[N]:
        found = self.candidates(function.body.block)
        for each in found:  # a derivation says which by name
            each.value.name_hint = each.value.name_hint or fresh_hint(each.value, self.kind)
        return found

    def names(self, each: N) -> Sequence[str]:
        return (each.value.name_hint or "",)

    def rewrite(self, function: func.FuncOp, chosen: Sequence[N], why: str) -> None:
        """By name, each found anew: one may be made of what another one made."""
        for name in [name for each in chosen for name in self.names(each)]:
            for each in [each for each in self.candidates(function.body.block) if each.value.name_hint == name]:
                self.make(function, each, why)

    def subject(self, found: Sequence[N]) -> str:
        return ", ".join(label(each.value) for each in found)

    def why_not(self, module: ModuleOp, name: str, known: Sequence[str]) -> str:
        return f"%{name} is no {self.described}: {such_are(f'%{each}' for each in known)}"


def such_are(known: Iterable[str]) -> str:
    """What there is in place of what was asked for."""
    names = ", ".join(known)
    return f"such are {names}" if names else "there are none"


__all__ = ["NONE", "ValuesWhereFaster", "WhereFaster", "such_are"]
