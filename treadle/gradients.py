"""The gradient of a program, as a program."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from treadle.derive import module_of
from treadle.untraced import untraced

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp


@untraced
def differentiate(program: str | os.PathLike[str] | ModuleOp, of: Sequence[str] | None = None) -> ModuleOp:
    """The gradient of a program, which `compile` takes as one: it is given the arguments, the results and the
    cotangents of the results, and gives the gradients of the arguments named in `of`, or of all that hold floats.

    The program is the path of a file, the text of one (it has a newline), or a module, which is left as it is.
    TreadleError says what cannot be differentiated, and where."""
    from treadle.compiler.gradient import gradient_of

    return gradient_of(module_of(program), () if of is None else tuple(of))
