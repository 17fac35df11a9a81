# pyright: standard
"""When torch tensors are such that a kernel does with them what it did before: asked at every launch, so by whatever
tells it soonest."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from treadle.runtime.replay import ADDRESS_BITS
from treadle.runtime.torch_dispatch import goes_straight

Key: TypeAlias = tuple[Any, ...]

LATELY = 4
"""So many geometries are looked at one after another, before all are looked up."""


def geometry(arguments: Sequence[Any]) -> tuple[Key, list[int]]:
    """All that a host function may ask of arguments: of a tensor where it lies, but for the last bits of its address
    not at which, of a number itself (an int and a float that are equal are two). And the addresses, of numbers 0."""
    key: list[Any] = []
    addresses: list[int] = []
    for each in arguments:
        if hasattr(each, "data_ptr"):
            address = each.data_ptr()
            key.append((each.shape, each.stride(), each.dtype, each.device, address & ADDRESS_BITS))
        else:
            address = 0
            key.append((type(each), each))
        addresses.append(address)
    return tuple(key), addresses


class _Met(NamedTuple):
    """Tensors that were given: what holds of others that are like them, but for their addresses."""

    number: int
    check: Callable[..., bool]
    bits: list[int]
    without_gradients: bool
    """Whether that is so only while no gradients are recorded."""
    what: Any


class Recent:
    """What tensors led to that were given lately. PyTorch's own compiler has a check of types, formats, sizes, strides,
    devices and modes of several tensors in one call, an eighth of asking each for each; where a version has it no more,
    nothing is known here."""

    def __init__(self) -> None:
        self._met: tuple[_Met, ...] = ()
        self._transforms: Callable[[], bool] = bool
        self._forward: Any = None
        self._address: Callable[[Any], int] = int

    def of(self, arguments: Sequence[Any]) -> tuple[Any, list[int]] | None:
        """What it was, and where these tensors lie; None where that is not known without asking more."""
        if not self._met or self._transforms() or self._forward._current_level >= 0:
            return None
        for number, check, bits, without_gradients, what in self._met:
            if number != len(arguments) or not check(*arguments):
                continue
            if without_gradients and sys.modules["torch"].is_grad_enabled():
                continue
            addresses = [*map(self._address, arguments)]
            if [address & ADDRESS_BITS for address in addresses] == bits:
                return what, addresses
        return None

    def add(self, arguments: Sequence[Any], addresses: Sequence[int], what: Any, straight: bool = False) -> None:
        """Of plain tensors (`are_plain`), to which numbers among them are an exception; if `straight`, only where
        PyTorch would leave an operator on them alone (`torch_dispatch.py`)."""
        if (check := _check_of(arguments)) is None or (straight and not goes_straight(arguments, check)):
            return
        torch: Any = sys.modules["torch"]
        self._transforms, self._forward = torch._C._are_functorch_transforms_active, torch.autograd.forward_ad
        self._address = torch.Tensor.data_ptr
        bits = [address & ADDRESS_BITS for address in addresses]
        met = _Met(len(bits), check, bits, any(each.requires_grad for each in arguments), what)
        if check(*arguments):
            self._met = (met, *self._met[: LATELY - 1])


def _check_of(arguments: Sequence[Any]) -> Callable[..., bool] | None:
    """Of tensors that are like these."""
    guards: Any = sys.modules.get("torch._C._dynamo.guards")
    if not arguments or not all(hasattr(each, "data_ptr") for each in arguments):
        return None
    sizes, strides = [list(each.shape) for each in arguments], [list(each.stride()) for each in arguments]
    try:
        return guards.TensorGuards(*arguments, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check
    except Exception:  # of another version of PyTorch, whatever it says
        return None


__all__ = ["Key", "Recent", "geometry"]
