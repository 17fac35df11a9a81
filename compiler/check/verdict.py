"""Trying the claims of a law, and, where one fails, finding the region that is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from hypothesis import HealthCheck, Phase, settings
from hypothesis import find as find_case
from hypothesis.errors import NoSuchExample
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Region

from treadle.compiler.check.cases import Case, cases
from treadle.compiler.check.claims import Claim, Mismatch, in_pieces, merged, mismatch, one_piece
from treadle.compiler.counting import counting
from treadle.dialects.diagram import LawOp
from treadle.dialects.diagram.law import STREAM_PARTS
from treadle.runtime.interpreter.exact import NotRational


@dataclass(frozen=True)
class Verdict:
    law: str
    tried: int
    """Cases, each of the claims."""
    exact: bool
    """Whether all was computed over the rationals."""
    wrong: str = ""
    """The region that is wrong, in words; empty if the law holds."""
    found: Mismatch | None = None


@dataclass(frozen=True)
class Trial:
    """A law, and how hard it is tried."""

    module: ModuleOp
    law: LawOp
    cases: int
    seed: int

    def verdict(self, derived: Sequence[LawOp] = ()) -> Verdict:
        """Whether the law holds; `derived` is what the compiler makes of the same meaning, if anything."""
        name, exact = self.law.sym_name.data, self.is_exact()
        for claim in self.claims():
            if (found := self.counterexample(claim, exact)) is not None:
                return Verdict(name, self.cases, exact, self._wrong_region(claim, exact, found.case, derived), found)
        return Verdict(name, self.cases, exact)

    def claims(self) -> Iterator[Claim]:
        yield one_piece
        yield in_pieces
        if "merge" in self.law.parts:
            yield merged

    def is_exact(self) -> bool:
        """Whether every operation of the law stays within the rational numbers, on the simplest case."""
        simplest = find_case(cases(self.law, 1), lambda case: True, settings=_quick(1), random=Random(self.seed))
        try:
            for claim in self.claims():
                mismatch(self.module, self.law, claim, simplest, True)
        except NotRational:
            return False
        return True

    def counterexample(self, claim: Claim, exact: bool, shortest: int = 0) -> Mismatch | None:
        """The simplest case found in which a claim fails."""
        tried = 0

        def fails(case: Case) -> bool:
            nonlocal tried
            tried += 1
            return self._fails(claim, case, exact)

        try:
            with counting("cases", self.cases, lambda: tried):
                case = find_case(
                    cases(self.law, shortest), fails, settings=_quick(self.cases), random=Random(self.seed)
                )
        except NoSuchExample:
            return None
        return mismatch(self.module, self.law, claim, case, exact)

    def _fails(self, claim: Claim, case: Case, exact: bool) -> bool:
        return mismatch(self.module, self.law, claim, case, exact) is not None

    def _wrong_region(self, claim: Claim, exact: bool, case: Case, derived: Sequence[LawOp]) -> str:
        if (part := self._by_exchange(claim, exact, case, derived)) is not None:
            return f"'{part}': with the derived one in its place the law holds"
        if claim is merged:
            return "'merge': fed in pieces one after another, the law holds"
        if claim is in_pieces:
            return "'step': in one piece the law holds, but the state does not follow from piece to piece"
        if self.counterexample(claim, exact, shortest=1) is None:
            return "'initialise' or 'finish': the law holds as soon as the axis has an element"
        return "'initialise', 'step' or 'finish': the law fails in one piece already"

    def _by_exchange(self, claim: Claim, exact: bool, case: Case, derived: Sequence[LawOp]) -> str | None:
        """The region whose exchange for the derived one makes the law hold, where the states are the same."""
        if len(derived) != 1 or _state(derived[0]) != _state(self.law) or derived[0].inputs != self.law.inputs:
            return None
        for part in self.law.parts:
            other = Trial(self.module, _with_part(self.law, part, derived[0].parts[part]), self.cases, self.seed)
            if other._fails(claim, case, exact):
                continue
            if all(other.counterexample(claim, exact) is None for claim in other.claims()):
                return part
        return None


def _state(law: LawOp) -> list[object]:
    terminator = law.parts["initialise"].block.last_op
    assert terminator is not None
    return [operand.type for operand in terminator.operands]


def _with_part(law: LawOp, part: str, region: Region) -> LawOp:
    """The law with another region in the place of one of its own."""
    parts = {**law.parts, part: region}
    stream = [parts[name].clone() for name in STREAM_PARTS if name in parts]
    gradient = None if law.gradient is None else law.gradient.string_value()
    return LawOp(law.sym_name.data, law.over_axes, law.outputs, law.body.clone(), stream, gradient)


def _quick(count: int) -> settings:
    return settings(
        max_examples=count,
        database=None,
        deadline=None,
        suppress_health_check=(HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example),
        phases=(Phase.generate, Phase.shrink),
    )
