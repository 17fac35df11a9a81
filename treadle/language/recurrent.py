"""States that are taken along an axis, from position to position (`recurrence`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from xdsl.ir import SSAValue

from treadle.compiler.errors import TreadleError
from treadle.dialects.diagram.array import axes_of, format_of
from treadle.language.array import Array, graph_of, names_of, traced
from treadle.language.graph import Graph, is_number, plain

State: TypeAlias = "Array | str | tuple[str, float | int]"


def recurrence(
    step: Callable[..., Any],
    over: str,
    states: State | Sequence[State],
    inputs: Array | Sequence[Array],
    reverse: bool = False,
) -> tuple[Array, ...]:
    """States that a function takes from position to position along the axis `over`, from the first one on:
    `step(*states, *inputs)` is given the states as they are before a position, and the arrays as they are there,
    without the axis (those that lack it are the same everywhere). It returns the states after the position, as many as
    there are, and then any arrays that it makes of the position. The result is the states after the last position, then
    each of these arrays along the axis. With `reverse` it begins with the last position, and ends with the first.

    A state is an array that it begins with; or axes, as in "h d e", along which it begins with zeros; or these and a
    number, as in ("h d", 1.0). States are kept in f32, or in i32 of integers. The step may compute, reduce, contract
    and take shares, and read an array under other names of its axes, as in `read(h, "b, k")` of what has [b, c]; it
    uses its own arguments alone.

    ```
    def step(S, k, v, rate):
        wrong = v - tl.contract(k, S, over="d")
        S = S + k * (rate * wrong)
        return S, tl.contract(k, S, over="d")


    last, O = tl.recurrence(step, over="t", states="h d e", inputs=[K, V, rate])
    ```

    TreadleError for what is no step, and for states that change their axes."""
    axes = names_of(over)
    if len(axes) != 1:
        raise TreadleError(f"recurrence over '{' '.join(axes)}': it is along one axis, as in over='t'")
    given: list[Any] = [inputs] if isinstance(inputs, Array) else list(inputs)
    if not any(isinstance(each, Array) and axes[0] in each.axes for each in given):
        raise TreadleError(f"recurrence over '{axes[0]}', which no array of 'inputs' has")
    begun: list[Any] = [states] if isinstance(states, Array | str) or _is_filled(states) else list(states)
    graph = graph_of("recurrence", [*given, *(each for each in begun if isinstance(each, Array))])
    before = [_begun(graph, each) for each in begun]
    values = [traced("recurrence", each).value for each in given]
    return tuple(
        Array(graph, value) for value in graph.recurrence(axes[0], before, values, _traced(step, axes[0]), reverse)
    )


def _is_filled(state: Any) -> bool:
    """Whether it is axes and a number."""
    if not isinstance(state, tuple):
        return False
    parts: list[Any] = [*state]
    return len(parts) == 2 and isinstance(parts[0], str) and is_number(plain(parts[1]))


def _begun(graph: Graph, state: Any) -> SSAValue:
    """What a state is before the first position (TreadleError)."""
    if isinstance(state, Array):
        return graph.computed(state.value)
    text, number = state if _is_filled(state) else (state, 0.0)
    if not isinstance(text, str):
        raise TreadleError(f"a state of a recurrence is an array, or axes as in 'h d', not {type(state).__name__}")
    axes = names_of(text)
    if unknown := [axis for axis in axes if axis not in graph.sizes]:
        raise TreadleError(f"a state along '{unknown[0]}', which no argument has")
    return graph.fill(plain(number), axes)


def _traced(step: Callable[..., Any], axis: str) -> Callable[[Graph, Sequence[SSAValue], Sequence[SSAValue]], Any]:
    """What writes down a step in the graph of its body, and gives the values that it returns."""

    def body(graph: Graph, states: Sequence[SSAValue], inputs: Sequence[SSAValue]) -> list[SSAValue]:
        made: Any = step(*(Array(graph, value) for value in (*states, *inputs)))
        returned: list[Any] = [*made] if isinstance(made, tuple | list) else [made]
        if len(returned) < len(states):
            raise TreadleError(f"the step of a recurrence returns {len(returned)} arrays, it has {len(states)} states")
        for each in returned:
            if not isinstance(each, Array) or each.graph is not graph:
                raise TreadleError(
                    f"the step of a recurrence over '{axis}' returns {type(each).__name__} that is no array made of "
                    "its arguments: add it to one, as in 0 * x + 1"
                )
        values: list[SSAValue] = [each.value for each in returned]
        for i, (before, after) in enumerate(zip(states, values, strict=False)):
            if {*axes_of(before.type)} != {*axes_of(after.type)}:
                raise TreadleError(
                    f"state {i} of a recurrence has axes [{', '.join(axes_of(before.type))}] before a step, "
                    f"[{', '.join(axes_of(after.type))}] after it"
                )
            values[i] = graph.cast(after, format_of(before.type), axes_of(before.type))
        return values

    return body


__all__ = ["recurrence"]
