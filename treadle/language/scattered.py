"""Elements that are added up where data say (`scatter`)."""

from __future__ import annotations

from typing import Any

from treadle.compiler.errors import TreadleError
from treadle.dialects.diagram.array import DYNAMIC
from treadle.language.array import Array, graph_of
from treadle.language.functions import check_inputs
from treadle.language.graph import check_axis
from treadle.language.places import axes_at, check_entries


def scatter(array: Array, axes: str, at: str, **inputs: Array) -> Array:
    """The sums of elements at positions that data say: an array with these `axes`, for each of which `at` says where an
    element of `array` is added, as the place of `read` does. It is the transpose of that read: what lies outside is
    added to nothing, and where nothing is added there is zero. In f32, or in i32 of integers; in no fixed order, so
    that sums in f32 may differ in their last digits from launch to launch.

    `scatter(dY, "v d", at="token[t], d", token=token)` is the gradient of the rows of an embedding, and
    `scatter(Y, "t d", at="token[g, r], d", token=token)` gives tokens what experts made of their copies. An axis that
    no argument has gets its size here: `scatter(ones, "bin=256", at="level[t]", level=level)` is a histogram.

    TreadleError for what is no place, for arrays that are not named, and axes without a size."""
    given: dict[str, Any] = dict(inputs)
    texts: Any = (axes, at)
    if not all(isinstance(text, str) for text in texts):
        raise TreadleError('scatter takes texts, as in scatter(X, "v d", at="token[t], d", token=token)')
    check_inputs(f"place '{at}'", given)
    graph, named = graph_of("scatter", [array, *given.values()]), {name: each.value for name, each in inputs.items()}
    if unknown := [axis for axis in axes_at(at) if axis not in array.axes]:
        raise TreadleError(f"place '{at}': '{unknown[0]}' is no axis of the array (it has {', '.join(array.axes)})")
    check_entries(at, {name: each.axes for name, each in inputs.items()})
    target = [_sized(array, word) for word in axes.split()]
    return Array(graph, graph.scatter(array.value, at, target, named))


def _sized(array: Array, word: str) -> str:
    """The axis that a word names, with its size if it says one (TreadleError)."""
    name, has_size, text = word.partition("=")
    sizes = array.graph.sizes
    if not has_size:
        if name not in sizes:
            raise TreadleError(f"scatter along '{name}', which no argument has: say its size, '{name}=256'")
        return name
    size = int(text) if text.isdecimal() else 0
    if not 0 < size < 2**31:
        raise TreadleError(f"scatter along '{word}': a size is a whole number above zero, as in '{name}=256'")
    known = sizes.setdefault(check_axis(name), size)
    if known != size:
        said = "several sizes" if known == DYNAMIC else f"{known} elements"
        raise TreadleError(f"scatter along '{word}', which has {said}: take another name for it")
    return name


__all__ = ["scatter"]
