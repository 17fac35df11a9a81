"""`"b q d, b x d -> b q x"`: the axes of arguments and results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from treadle.compiler.errors import TreadleError
from treadle.language.graph import check_axis


@dataclass(frozen=True)
class Signature:
    """The axes of each argument and of each result, in order of memory (the last is contiguous). A result may have
    axes that no argument has, which the function makes."""

    inputs: tuple[tuple[str, ...], ...]
    outputs: tuple[tuple[str, ...], ...]

    @property
    def axes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(axis for axes in self.inputs for axis in axes))

    def sizes(self, names: Sequence[str], shapes: Sequence[Sequence[int]]) -> dict[str, int]:
        """The size of each axis, from the shapes of the arguments (TreadleError where they disagree)."""
        sizes: dict[str, int] = {}
        owners: dict[str, str] = {}
        for name, axes, shape in zip(names, self.inputs, shapes, strict=True):
            if len(shape) != len(axes):
                raise TreadleError(
                    f"argument '{name}' has {len(shape)} dimensions: the signature gives it the axes "
                    f"[{', '.join(axes)}]"
                )
            for axis, size in zip(axes, shape, strict=True):
                if sizes.setdefault(axis, size) != size:
                    raise TreadleError(
                        f"axis '{axis}' has {sizes[axis]} elements in argument '{owners[axis]}', but {size} in '{name}'"
                    )
                owners.setdefault(axis, name)
        return sizes


def parse_signature(text: str) -> Signature:
    """TreadleError for what is no signature."""
    given: Any = text
    left, arrow, right = text.partition("->") if isinstance(given, str) else ("", "", "")
    if not arrow or "->" in right:
        raise TreadleError(f"'{text}' is no signature: write 'm k, k n -> m n', axes of arguments -> axes of results")
    inputs, outputs = _arrays(left), _arrays(right)
    known = {axis for axes in inputs for axis in axes}
    for axes in (*inputs, *outputs):
        for axis in axes:
            check_axis(axis)
            if axes.count(axis) > 1:
                raise TreadleError(f"axis '{axis}' appears twice in '{' '.join(axes)}': each needs a name of its own")
    for axis in (axis for axes in outputs for axis in axes if axis not in known):
        if axis[1:] and {*axis} <= {*"".join(known)}:
            raise TreadleError(
                f"axis '{axis}' of a result is in no argument of '{text}': axes are separated by spaces, as in "
                f"'{' '.join(axis)}'"
            )
    return Signature(inputs, outputs)


def _arrays(text: str) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(part.split()) for part in text.split(","))
