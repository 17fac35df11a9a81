"""What a machine sustains, measured: copies through device memory, products by `mma.sync`, exp2."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from treadle.compiler.machines import Machine, Sustained

SOURCE = Path(__file__).with_name("rates.cu")
KERNELS = ("copy", "product", "exp2_rate")

COPIED_BYTES = 1 << 30
"""Of the array that is copied: many times what L2 holds."""
TURNS = 4096
PRODUCTS, PRODUCT_FLOP = 8, 2 * 16 * 8 * 16
"""Of one turn of a warp, and of one of them."""
THREADS = 256
BLOCKS_PER_SM = 4
WARP = 32

Seconds = Callable[[str, tuple[int, int, int]], float]
"""How long a kernel of `rates.cu` takes on a grid, with the sizes above."""


@dataclass(frozen=True)
class Rates:
    """Measured, of the whole machine."""

    device: float
    """Bytes a second, reads and writes together."""
    tensor_f16: float
    """FLOP a second."""
    special: float
    """Results of exp2 a second."""

    def as_sustained(self) -> Sustained:
        return Sustained(device=self.device, special=self.special, tensor={"f16": self.tensor_f16})

    def as_dict(self) -> Mapping[str, float]:
        return {"device": self.device, "tensor_f16": self.tensor_f16, "special": self.special}


def measured_rates(machine: Machine, seconds: Seconds) -> Rates:
    """The three rates, each from the time of its kernel."""
    blocks = machine.sms * BLOCKS_PER_SM
    grid = (blocks, 1, 1)
    warps = blocks * THREADS // WARP
    return Rates(
        device=2 * COPIED_BYTES / seconds("copy", grid),
        tensor_f16=warps * TURNS * PRODUCTS * PRODUCT_FLOP / seconds("product", grid),
        special=blocks * THREADS * TURNS * PRODUCTS / seconds("exp2_rate", grid),
    )
