"""The widths of vectors among which alignment chooses."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from xdsl.dialects.builtin import ArrayAttr, IntAttr

from treadle.compiler.layouts.operations import widest
from treadle.compiler.layouts.vectors import ladder
from treadle.dialects import cuda
from treadle.dialects.cuda.accesses import WIDEST_VECTOR, GlobalAccess
from treadle.dialects.cuda.tiles import format_bytes, is_boxed


def set_widths(access: GlobalAccess, max_bytes: int) -> None:
    """Give an access the vector widths among which alignment chooses, of so many bytes at most."""
    widths = ladder(widest(access, max_bytes), format_bytes(access.buffer_type), is_boxed(access.piece_type))
    access.widths = ArrayAttr(IntAttr(width) for width in widths)


@contextmanager
def planned_widths(kernel: cuda.KernelOp) -> Generator[None]:
    """All accesses of a kernel have their widths meanwhile, but are no wiser after."""
    every = [each for each in kernel.walk() if isinstance(each, GlobalAccess)]
    known = [each.widths for each in every]
    for each in every:
        set_widths(each, WIDEST_VECTOR)
    try:
        yield
    finally:
        for each, widths in zip(every, known, strict=True):
            each.widths = widths
