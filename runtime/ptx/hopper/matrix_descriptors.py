"""Matrix descriptors: what wgmma knows of an operand in shared memory, and where that puts each element.

PTX ISA 9.7.15.5.1.2. An operand is a matrix of so many rows of A, or columns of B ("lines" here), and a depth, the
elements along k. K-major, the elements of a line are neighbours; else those of one place along k are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from treadle.runtime.ptx.errors import PtxFault
from treadle.runtime.ptx.hopper.swizzles import swizzled

_SPANS = (0, 128, 64, 32)
"""By swizzle mode, bits 62 and 63."""

_RESERVED = 0x3FF1_C000_C000_C000
"""Bits 14, 15, 30, 31, 46 to 48 and 52 to 61, which no field has."""

UNIT = 16
"""Bytes: what is contiguous in every layout."""


class DescriptorFault(PtxFault):
    """The ISA gives a descriptor no meaning, or one that this machine does not know."""


@dataclass(frozen=True)
class MatrixDescriptor:
    """Bytes all: the start, an address of shared memory; the two distances; what the swizzle spans."""

    start: int
    leading: int
    stride: int
    span: int

    def addresses(self, lines: int, depth: int, element_bytes: int, *, k_major: bool) -> NDArray[np.int64]:
        """Of the first byte of each element, (lines, depth); DescriptorFault where it begins within a pattern."""
        if not k_major and element_bytes != 2:
            raise DescriptorFault("only operands of 16 bits may be transposed")
        line, k = np.arange(lines)[:, None], np.arange(depth)[None, :]
        if k_major:
            self._check_start(depth * element_bytes)
            offsets = self._k_major(line, k * element_bytes)
        else:
            self._check_start(max(self.span, UNIT))
            offsets = self._other_major(line, k)
        return swizzled(self.start + offsets, self.span)

    def _k_major(self, line: NDArray[np.int64], at: NDArray[np.int64]) -> NDArray[np.int64]:
        """Groups of 8 lines, `stride` apart. Without a swizzle, 16 bytes of the depth are a core matrix of 8 rows, and
        the next ones lie `leading` further; with one, a line of the pattern has them all, and `leading` is not used."""
        if self.span:
            return line // 8 * self.stride + line % 8 * self.span + at
        return line // 8 * self.stride + line % 8 * UNIT + at // UNIT * self.leading + at % UNIT

    def _other_major(self, line: NDArray[np.int64], k: NDArray[np.int64]) -> NDArray[np.int64]:
        """Rows of one k each, as wide as the swizzle, in groups of 8: from chunk to chunk of the lines it is `leading`
        and from group to group of k `stride`; without a swizzle the two change places."""
        wide = max(self.span, UNIT) // 2
        within = k % 8 * max(self.span, UNIT) + line % wide * 2
        chunks, groups = (self.leading, self.stride) if self.span else (self.stride, self.leading)
        return within + line // wide * chunks + k // 8 * groups

    def _check_start(self, row_bytes: int) -> None:
        """That rows of the pattern begin where the matrix does, in its first row; the ISA says nothing of others."""
        if self.span and self.start % (8 * self.span) + row_bytes > self.span:
            raise DescriptorFault(
                f"a matrix at {self.start:#x} does not begin in the first row of a pattern of {8 * self.span} bytes"
            )


def decode(word: int) -> MatrixDescriptor:
    """The fields of a descriptor (PTX ISA 9.7.15.5.1.2.2; DescriptorFault)."""
    if word & _RESERVED:
        raise DescriptorFault(f"{word:#018x} has bits set that no field of a matrix descriptor has")
    if word >> 49 & 7:
        raise DescriptorFault(f"{word:#018x} has a base offset: its pattern begins at no multiple of the pattern")
    return MatrixDescriptor(
        (word & 0x3FFF) << 4, (word >> 16 & 0x3FFF) << 4, (word >> 32 & 0x3FFF) << 4, _SPANS[word >> 62 & 3]
    )
