"""A module of treadle, imported with one deliberate mistake in it."""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder, SourceLoader
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[1]
NOT_APPLIED = 3
"""Exit code where a mistake could not be made: the file no longer says what it changes, or is not Python after it."""

Mutation = tuple[str, str, str]
"""A file (of `passes/`, if no folder is named), what stands in it, and what a mistake puts there."""


class Mutator(MetaPathFinder, SourceLoader):
    """Imports one module with a mistake in it."""

    def __init__(self, module: str, old: str, new: str):
        path = module if "/" in module else f"passes/{module}"
        self.file = ROOT / f"{path}.py"
        self.module, self.old, self.new = f"treadle.{path.replace('/', '.')}", old, new

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return spec_from_loader(fullname, self) if fullname == self.module else None

    def get_filename(self, fullname: str) -> str:
        return str(self.file)

    def get_data(self, path: str | bytes) -> bytes:
        return self.text().encode()

    def text(self) -> str:
        text = self.file.read_text(encoding="utf-8")
        assert self.old in text, f"{self.file} no longer says: {self.old}"
        return text.replace(self.old, self.new)

    def check(self) -> None:
        """AssertionError or SyntaxError if the mistake cannot be made."""
        ast.parse(self.text())


def mutate(mutations: Mapping[str, Mutation], names: Sequence[str]) -> None:
    """Make the mistake of that name from here on, if there is a name."""
    for name in names:
        mutator = Mutator(*mutations[name])
        try:
            mutator.check()
        except (AssertionError, SyntaxError) as problem:
            print(f"{name}: {problem}", file=sys.stderr)
            sys.exit(NOT_APPLIED)
        sys.meta_path.insert(0, mutator)
