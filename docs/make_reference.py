"""Write the reference of dialects and passes from their docstrings: `make reference` (`python docs/make_reference.py`).

Nothing in docs/reference is written by hand; a test says when it is no longer what this makes."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from inspect import getdoc, getmodule
from pathlib import Path
from typing import Any

from xdsl.ir import Attribute, Dialect, Operation, TypeAttribute
from xdsl.irdl import (
    OptOperandDef,
    OptPropertyDef,
    OptRegionDef,
    OptResultDef,
    VarOperandDef,
    VarRegionDef,
    VarResultDef,
)
from xdsl.passes import ModulePass

from treadle.compiler.pipeline import Options, pipeline
from treadle.compiler.universe import DIALECTS, PASSES, TARGETS, loader

FOLDER = Path(__file__).parent / "reference"
MADE = "<!-- Made by `make reference` from docstrings: change those. -->\n"


def pages() -> dict[str, str]:
    """The text of each page by the name of its file."""
    made = {f"{name}.md": dialect_page(loader(path)(), path) for name, path in DIALECTS.items()}
    return {"passes.md": passes_page(), **made}


# -- passes ------------------------------------------------------------------------------------------


def passes_page() -> str:
    ran = [spec.name for spec in pipeline(Options())]
    others = [name for name in PASSES if name not in ran]
    parts = [
        "# Passes\n",
        "Each is registered with the stock `xdsl-opt` under its name. The first ones are the pipeline, in its order; "
        "`treadle` runs them all.\n",
        "| pass | option | type | default |\n| --- | --- | --- | --- |\n"
        + "".join(row for name in (*ran, *others) for row in _options(name)),
        *(_pass(name) for name in (*ran, *sorted(others))),
        "# Targets\n",
        *(f"## `{name}`\n\n{_doc(loader(path)())}\n" for name, path in TARGETS.items()),
    ]
    return MADE + "\n".join(parts)


def _pass(name: str) -> str:
    return f"## `{name}`\n\n{_doc(loader(PASSES[name])())}\n"


def _options(name: str) -> Iterator[str]:
    cls: type[ModulePass] = loader(PASSES[name])()
    fields = dataclasses.fields(cls)  # pyright: ignore[reportArgumentType]
    link = f"[`{name}`](#{name})"
    if not fields:
        yield f"| {link} | | | |\n"
    # A pass may spell an option otherwise than its field, which may not be called `name`.
    spelled = cls().spec(include_default=True).parameters
    for i, (option, name) in enumerate(zip(fields, spelled, strict=True)):
        default = "" if option.default is dataclasses.MISSING else f"`{option.default!r}`"
        type = str(option.type).replace("|", "\\|")
        yield f"| {'' if i else link} | `{name}` | `{type}` | {default} |\n"


# -- dialects ----------------------------------------------------------------------------------------


def dialect_page(dialect: Dialect, path: str) -> str:
    module = __import__(path.partition(":")[0], fromlist=["_"])
    operations = sorted(dialect.operations, key=lambda op: op.name)
    attributes = sorted(dialect.attributes, key=lambda each: each.name)
    parts = [f"# The dialect `{dialect.name}`\n", f"{_marked(module.__doc__.strip())}\n"]
    parts += ["# Operations\n", *(_operation(op) for op in operations)]
    parts += ["# Attributes and types\n", *(_attribute(each) for each in attributes)]
    return MADE + "\n".join(parts)


def _operation(op: type[Operation]) -> str:
    irdl = op.get_irdl_definition()  # pyright: ignore
    properties = [(name, each) for name, each in irdl.properties.items() if not name.endswith("SegmentSizes")]
    lists: Mapping[str, list[tuple[str, Any]]] = {
        "operands": list(irdl.operands),
        "results": list(irdl.results),
        "properties": properties,
        "regions": list(irdl.regions),
    }
    said = [f"{head}: {', '.join(_named(*each) for each in found)}" for head, found in lists.items() if found]
    has = f"\n{'; '.join(said)}.\n" if said else ""
    return f"## `{op.name}`\n\n{_doc(op)}\n{has}"


OPTIONAL = (OptOperandDef, OptPropertyDef, OptRegionDef, OptResultDef)
SEVERAL = (VarOperandDef, VarRegionDef, VarResultDef)


def _named(name: str, definition: object) -> str:
    """Optional ones include those that may be several: IRDL derives the one from the other."""
    if isinstance(definition, OPTIONAL):
        return f"`{name}` (optional)"
    return f"`{name}` (any number)" if isinstance(definition, SEVERAL) else f"`{name}`"


def _attribute(attribute: type[Attribute]) -> str:
    sign = "!" if issubclass(attribute, TypeAttribute) else "#"
    return f"## `{sign}{attribute.name}`\n\n{_doc(attribute)}\n"


def _doc(cls: type) -> str:
    """The docstring."""
    text = getdoc(cls)
    assert text, f"{cls.__name__} of {getmodule(cls)} has no docstring"
    return _marked(text)


def _marked(text: str) -> str:
    """The text, whose blocks of IR get the language of MLIR."""
    opened = iter(range(text.count("```")))
    return re.sub(r"^```$", lambda match: "```mlir" if next(opened) % 2 == 0 else "```", text, flags=re.M)


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    print(f"{FOLDER.relative_to(Path.cwd()) if FOLDER.is_relative_to(Path.cwd()) else FOLDER}: {len(pages())} pages")


if __name__ == "__main__":
    main()
