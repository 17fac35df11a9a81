"""Write the reference of dialects, passes and the Python interface from their docstrings: `make reference`
(`python docs/make_reference.py`).

Nothing in docs/reference is written by hand; a test says when it is no longer what this makes."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from importlib import import_module
from inspect import getdoc, getmodule
from pathlib import Path
from typing import Any

from xdsl.dialects.builtin import (
    ArrayOfConstraint,
    DenseArrayBase,
    FloatAttr,
    FunctionType,
    IntAttr,
    IntegerAttr,
    StringAttr,
    SymbolNameConstraint,
    SymbolRefAttr,
    UnitAttr,
)
from xdsl.ir import Attribute, Dialect, Operation, TypeAttribute
from xdsl.irdl import (
    AnyAttr,
    AnyOf,
    AttrConstraint,
    BaseAttr,
    OptOperandDef,
    OptPropertyDef,
    OptRegionDef,
    OptResultDef,
    ParamAttrConstraint,
    RangeOf,
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
    return {"passes.md": passes_page(), "python.md": python_page(), **made}


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
    lists: Mapping[str, list[str]] = {
        "operands": [_named(*each) for each in irdl.operands],
        "results": [_named(*each) for each in irdl.results],
        "properties": [_named(name, each, _type(each.constr)) for name, each in properties],
        "regions": [_named(*each) for each in irdl.regions],
    }
    said = [f"{head}: {', '.join(found)}" for head, found in lists.items() if found]
    has = f"\n{'; '.join(said)}.\n" if said else ""
    return f"## `{op.name}`\n\n{_doc(op)}\n{has}"


OPTIONAL = (OptOperandDef, OptPropertyDef, OptRegionDef, OptResultDef)
SEVERAL = (VarOperandDef, VarRegionDef, VarResultDef)


def _named(name: str, definition: object, type: str = "") -> str:
    """Optional ones include those that may be several: IRDL derives the one from the other."""
    many = "optional" if isinstance(definition, OPTIONAL) else "any number" if isinstance(definition, SEVERAL) else ""
    told = ", ".join(each for each in (type, many) if each)
    return f"`{name}` ({told})" if told else f"`{name}`"


WORDS: Mapping[type[Attribute], str] = {
    DenseArrayBase: "integers",
    FloatAttr: "float",
    FunctionType: "function type",
    IntAttr: "integer",
    IntegerAttr: "typed integer",
    StringAttr: "string",
    SymbolRefAttr: "symbol",
    UnitAttr: "flag",
}
"""Attributes of MLIR; those of the dialects are called what they are written as."""


def _type(constraint: AttrConstraint) -> str:
    """What a property holds, by the constraint that verifies it."""
    match constraint:
        case ArrayOfConstraint(elem_range_constraint=RangeOf(constr=each)):
            return f"list of {_type(each)}s"
        case AnyOf(attr_constrs=several):
            return " or ".join(map(_type, several))
        case AnyAttr():
            return "attribute or type"
        case SymbolNameConstraint():
            return "name"
        case BaseAttr(attr=attr) | ParamAttrConstraint(base_attr=attr):
            return WORDS.get(attr, f"`#{attr.name}`")
        case _:
            raise ValueError(f"no word for a property of {constraint}: give one in WORDS")


def _attribute(attribute: type[Attribute]) -> str:
    sign = "!" if issubclass(attribute, TypeAttribute) else "#"
    return f"## `{sign}{attribute.name}`\n\n{_doc(attribute)}\n"


# -- Python ------------------------------------------------------------------------------------------

MODULES = ("treadle", "treadle.language", "treadle.torch")
"""What users import."""


def python_page() -> str:
    parts = [
        "# Python\n",
        "What `treadle` offers to Python; [Getting started](../start.md) shows how it is used.\n",
    ]
    shown: dict[Any, str] = {}
    for name in MODULES:
        module = import_module(name)
        parts += [f"# `{name}`\n", f"{_marked(_text(module), 'python')}\n"]
        offered = {each: getattr(module, each) for each in module.__all__ if not each.startswith("_")}
        for own, each in sorted(offered.items(), key=lambda named: _place(named[1])):
            if each in shown:
                parts += [f"## `{name}.{own}`\n", f"The same as `{shown[each]}`.\n"]
            else:
                shown[each] = f"{name}.{own}"
                parts += _offered(shown[each], each)
    return MADE + "\n".join(parts)


def _offered(name: str, each: Any) -> Iterator[str]:
    """A class with its members, or a function with its signature."""
    yield f"## `{name}`\n"
    if not inspect.isclass(each):
        yield f"```python\n{each.__name__}{_plain(each)}\n```\n"
    yield f"{_marked(_text(each), 'python')}\n"
    if inspect.isclass(each) and (members := list(_members(each))):
        yield "".join(members)


def _place(each: Any) -> tuple[bool, str, int]:
    """Classes before functions, each in the order of their source."""
    return not inspect.isclass(each), str(each.__module__), inspect.getsourcelines(each)[1]


def _members(cls: type) -> Iterator[str]:
    """Fields, properties and methods that are not private, and calls."""
    if dataclasses.is_dataclass(cls):
        yield from (f"- `{each.name}`: `{each.type}`\n" for each in dataclasses.fields(cls) if each.name[0] != "_")
    for name, each in vars(cls).items():
        read = each.fget if isinstance(each, property) else each.func if isinstance(each, cached_property) else None
        if (name[0] != "_" or name == "__call__") and (read is not None or inspect.isfunction(each)):
            called = "" if name == "__call__" else name
            head = f"`{name}`" if read is not None else f"`{called}{_plain(each, without_self=True)}`"
            yield f"- {head}: {_indented(_marked(_text(read or each), 'python'))}\n"


class _Said(str):
    """An annotation as it stands in the source."""

    def __repr__(self) -> str:
        return str(self)


def _plain(function: Callable[..., Any], without_self: bool = False) -> str:
    given = inspect.signature(function)
    parameters = list(given.parameters.values())[1 if without_self else 0 :]
    said = [each.replace(annotation=_Said(each.annotation)) for each in parameters if each.annotation is not each.empty]
    assert len(said) == len(parameters), f"{function.__qualname__}: a parameter has no annotation"
    return str(given.replace(parameters=said, return_annotation=_Said(given.return_annotation)))


# -- docstrings --------------------------------------------------------------------------------------


def _doc(cls: type) -> str:
    """The docstring of what is of IR."""
    return _marked(_text(cls))


def _text(each: Any) -> str:
    text = getdoc(each)
    assert text, f"{each.__name__} of {getmodule(each)} has no docstring"
    return text


def _indented(text: str) -> str:
    """As part of a list."""
    return text.replace("\n", "\n  ").replace("\n  \n", "\n\n")


def _marked(text: str, language: str = "mlir") -> str:
    """The text, whose blocks get their language."""
    opened = iter(range(text.count("```")))
    return re.sub(r"^```$", lambda match: f"```{language}" if next(opened) % 2 == 0 else "```", text, flags=re.M)


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    print(f"{FOLDER.relative_to(Path.cwd()) if FOLDER.is_relative_to(Path.cwd()) else FOLDER}: {len(pages())} pages")


if __name__ == "__main__":
    main()
