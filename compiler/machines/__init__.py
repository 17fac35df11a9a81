"""Machines as data: what a GPU has, from a file that a user can copy and change.

`load_machine("h100")` reads one of the files beside this one; a path reads a user's. `set-machine` writes a
machine into a module, and `machine_of(module)`, which is all that later passes use, reads it from there."""

from treadle.compiler.machines.files import load_machine, machine_names
from treadle.compiler.machines.machine import ARCHS, DEFAULT_MACHINE, Level, Limits, Machine, Rates, Sustained
from treadle.compiler.machines.module import MACHINE, machine_of, write_machine

__all__ = [
    "ARCHS",
    "DEFAULT_MACHINE",
    "MACHINE",
    "Level",
    "Limits",
    "Machine",
    "Rates",
    "Sustained",
    "load_machine",
    "machine_names",
    "machine_of",
    "write_machine",
]
