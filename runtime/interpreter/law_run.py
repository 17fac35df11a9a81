"""Running a law: its meaning, and the parts of its stream, on pieces of the axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias, cast

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.interpreter import Interpreter
from xdsl.ir import Region

from treadle.compiler.errors import TreadleError
from treadle.dialects.diagram import LawOp
from treadle.dialects.diagram.array import axes_of, is_array
from treadle.runtime.interpreter.arrays import AnyArray, Array, Numbers, array_of
from treadle.runtime.interpreter.exact import NotRational
from treadle.runtime.interpreter.run import Trace, explained, make_interpreter
from treadle.runtime.interpreter.scope import Scope
from treadle.runtime.interpreter.session import Session

State: TypeAlias = "tuple[Array | Numbers, ...]"


@dataclass(frozen=True)
class LawRun:
    """A law on one set of inputs: arrays of float64, or of fractions if `exact`. `sizes` gives all axes."""

    module: ModuleOp
    law: LawOp
    inputs: Sequence[AnyArray]
    sizes: Mapping[str, int]
    exact: bool = False

    @property
    def axis(self) -> str:
        return self.law.over_axes[0]

    @cached_property
    def _machinery(self) -> tuple[Session, Interpreter, Trace]:
        session = Session(exact=self.exact)
        return session, *make_interpreter(self.module, session)

    def meaning(self) -> tuple[AnyArray, ...]:
        """The results by the plain meaning (TreadleError, NotRational)."""
        return _values(self._run(self.law.body, self._given(slice(0, self.sizes[self.axis])), {}))

    def initialise(self) -> State:
        return self._run(self.law.parts["initialise"], (), {})

    def step(self, state: State, piece: slice) -> tuple[State, tuple[AnyArray, ...]]:
        """The state after a piece of the axis, and the pieces of the results that have the axis."""
        part = self.law.parts["step"]
        results = self._run(part, (*state, *self._given(piece)), {self.axis: piece})
        return results[: len(state)], _values(results[len(state) :])

    def finish(self, state: State) -> tuple[AnyArray, ...]:
        return _values(self._run(self.law.parts["finish"], (*state, *self._still()), {}))

    def merge(self, first: State, second: State) -> State:
        return self._run(self.law.parts["merge"], (*first, *second, *self._still()), {})

    def _given(self, piece: slice) -> State:
        """The arguments, cut to a piece of the axis."""
        given: list[Array | Numbers] = []
        for type, value in zip(self.law.inputs, self.inputs, strict=True):
            axes = axes_of(type)
            cut = tuple(piece if axis == self.axis else slice(None) for axis in axes)
            numbers = Numbers(np.asarray(value[cut], value.dtype))
            given.append(Array(axes, numbers) if is_array(type) else numbers)
        return tuple(given)

    def _still(self) -> State:
        """The arguments that lack the axis."""
        pairs = zip(self._given(slice(None)), self.law.inputs, strict=True)
        return tuple(value for value, type in pairs if self.axis not in axes_of(type))

    def _run(self, region: Region, given: State, pieces: Mapping[str, slice]) -> State:
        session, interpreter, trace = self._machinery
        session.scope = Scope(dict(self.sizes), dict(pieces))
        try:
            return cast(State, interpreter.run_ssacfg_region(region, given, self.law.sym_name.data))
        except TreadleError:
            raise
        except Exception as exception:
            if (inexact := _cause(exception)) is not None:
                raise inexact from exception
            raise explained(exception, trace.running, self.law) from exception


def _cause(exception: BaseException | None) -> NotRational | None:
    while exception is not None and not isinstance(exception, NotRational):
        exception = exception.__cause__ or exception.__context__
    return exception


def _values(results: State) -> tuple[AnyArray, ...]:
    return tuple(array_of(result).numbers.value for result in results)
