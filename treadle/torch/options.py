# pyright: standard
"""What a user may say of `torch.compile(model, backend="treadle", options={...})`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch.fx import Node
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.exceptions import PassFailedException

from treadle.compiler.errors import TreadleError
from treadle.passes.set_machine import SetMachinePass
from treadle.torch.operations import PRODUCTS
from treadle.torch.registry import aten
from treadle.torch.symbols import likely
from treadle.torch.tensors import Indivisible

CPU_WORK = 2**31
"""Multiplications that one program may ask of the emulator: about a minute of it."""


@dataclass(frozen=True)
class Options:
    """`machine` and `arch` as `treadle.compile` knows them; `backend` as `Kernel.run` does; `cpu_work`, how many
    multiplications a program may have where no GPU does them (the emulator is exact, and slow); `training`, whether
    backward graphs get kernels, too, and nothing is saved for them that kernels of the forward hold near (the search
    for kernels takes about 30 s of a core for a GPT-2 block)."""

    machine: str | None = None
    arch: str | None = None
    backend: str = "auto"
    cpu_work: int = CPU_WORK
    training: bool = False

    @staticmethod
    def of(given: Mapping[str, Any] | None) -> Options:
        """(TreadleError for an option that is not known, and for no machine)"""
        known = [field.name for field in fields(Options)]
        if unknown := [name for name in given or {} if name not in known]:
            raise TreadleError(f"unknown option {', '.join(map(repr, unknown))} (options are {', '.join(known)})")
        for name, value in (given or {}).items():
            _check(name, value)
        options = Options(**(given or {}))
        options.check_machine()
        return options

    def check_machine(self) -> None:
        """Before any graph comes, for nothing of it would be taken, without a word (TreadleError)."""
        try:
            SetMachinePass(machine=self.machine, arch=self.arch).apply(Context(), ModuleOp([]))
        except PassFailedException as error:
            raise TreadleError(str(error)) from error

    def check_work(self, nodes: Sequence[Node], device: torch.device) -> None:
        """(Indivisible: all together, not only those of one program)"""
        if device.type != "cpu" or self.backend == "interpreter":
            return
        work = sum(likely(_work(node)) for node in nodes)
        if work > self.cpu_work:
            raise Indivisible(
                f"{work:.1e} multiplications are too many for the emulator; on a GPU, or with the option "
                f"cpu_work={work:.0e}, it would be a kernel"
            )


def _check(name: str, value: Any) -> None:
    """(TreadleError for a value that is no text, number or truth, as the option wants)"""
    if name == "training":
        if not isinstance(value, bool):
            raise TreadleError(f"the option training is {value!r}: it is True or False")
        return
    known: Any = int | float if name == "cpu_work" else str | None
    if isinstance(value, bool) or not isinstance(value, known):
        wanted = "a number" if name == "cpu_work" else "a text"
        raise TreadleError(f"the option {name} is {value!r}: it is {wanted}")
    if name == "cpu_work" and not value >= 0:
        raise TreadleError(f"the option cpu_work is {value!r}: it is a number of multiplications, 0 or more")


def _work(node: Node) -> Any:
    value = node.meta["val"]
    if node.target is aten.convolution.default:
        weight = node.args[1].meta["val"]  # type: ignore[union-attr]
        return value.numel() * (weight.numel() // max(weight.shape[0], 1))
    if node.target not in PRODUCTS:
        return value.numel()
    return value.numel() * node.args[-1].meta["val"].shape[-2]  # type: ignore[union-attr]
