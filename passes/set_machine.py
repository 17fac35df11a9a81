"""`set-machine`: the machine that a module is compiled for."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Self

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.utils.arg_spec import ArgSpec

from treadle.compiler.errors import Refusal, Reported, TreadleError
from treadle.compiler.machines import ARCHS, DEFAULT_MACHINE, Machine, load_machine, write_machine


@dataclass(frozen=True)
class SetMachinePass(ModulePass):
    """Write a machine into the module, whole: `name` is one that ships with treadle, `file` the path of a
    machine file (in quotes); `arch` asks for code of another architecture that the machine runs. Later passes
    read only the attribute. Before, with `set-machine{name=h100}`:

    ```
    builtin.module {
    }
    ```

    After (shortened):

    ```
    builtin.module attributes {machine = {arch = "sm_90a", clock = 1.830000e+09 : f64, name = "h100"}} {
    }
    ```
    """

    name = "set-machine"

    # xDSL keeps the word `name` for the name of the pass: the option of that name is this field.
    machine: str | None = None
    file: str | None = None
    arch: str | None = None

    @classmethod
    def from_spec(cls, spec: ArgSpec) -> Self:
        given = {"machine" if key == "name" else key: value for key, value in spec.parameters.items()}
        return super().from_spec(ArgSpec(spec.name, given))

    def spec(self, *, include_default: bool = False) -> ArgSpec:
        spec = super().spec(include_default=include_default)
        given = {"name" if key == "machine" else key: value for key, value in spec.parameters.items()}
        return ArgSpec(spec.name, given)

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.machine is not None and self.file is not None:
            raise Refusal(op, "set-machine takes 'name' or 'file', and was given both")
        try:
            machine = load_machine(self.file or self.machine or DEFAULT_MACHINE)
        except TreadleError as error:
            raise Reported(error) from error
        if self.arch is not None:
            if (problem := _unfit(self.arch, machine)) is not None:
                raise Refusal(op, problem)
            machine = replace(machine, arch=self.arch)
        write_machine(op, machine)


def _unfit(arch: str, machine: Machine) -> str | None:
    """Why code for `arch` cannot run on the machine: it may be older, but only within its generation, and
    code with the suffix `a` runs on that very version."""
    if arch not in ARCHS:
        newer = "; what is printed for sm_80 compiles with nvcc for newer ones too" if re.match(r"sm_1\d", arch) else ""
        return f"treadle makes no code for '{arch}', only for {', '.join(ARCHS)}{newer}"
    number = int(arch[3:5])
    fits = number == machine.capability if arch.endswith("a") else number <= machine.capability
    if fits:
        return None
    return (
        f"code for {arch} does not run on {machine.name} ({machine.arch}): name another machine, which may be a file "
        f'that says name, base = "{machine.name}", arch = "{arch}" and what else differs'
    )
