"""`treadle passes`: every pass, what it does, and its options."""

from __future__ import annotations

import ast
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, Field, fields
from inspect import getdoc, getsource
from itertools import pairwise
from textwrap import dedent, fill
from typing import Any

from xdsl.passes import ModulePass
from xdsl.utils.arg_spec import ArgSpec

from treadle.compiler.cli.program import known_passes
from treadle.compiler.pipeline import Options, make_pass, pass_sentence, pipeline
from treadle.compiler.universe import PASSES

WIDTH = 110


def command(arguments: Namespace) -> int:
    order = list(dict.fromkeys(spec.name for spec in pipeline(Options())))
    others = sorted(set(PASSES) - set(order))
    if arguments.name is not None:
        known_passes([arguments.name], [*order, *others])
        print("\n".join(_whole(arguments.name)))
        return 0
    print("in the order in which they run:")
    print("\n".join(line for name in order for line in _listed(name)))
    print("beside the pipeline:")
    print("\n".join(line for name in others for line in _listed(name)))
    return 0


def _listed(name: str) -> Iterator[str]:
    yield fill(pass_sentence(ArgSpec(name, {})), WIDTH, initial_indent=f"  {name:26}  ", subsequent_indent=" " * 30)
    for option, field in _fields(name):
        yield f"{'':30}{_option(option, field)}"


def _whole(name: str) -> Iterator[str]:
    """The docstring with its IR before and after, and what each option means."""
    yield name
    yield ""
    yield getdoc(_class(name)) or ""
    meanings = _meanings(_class(name))
    for i, (option, field) in enumerate(_fields(name)):
        if i == 0:
            yield "\nOptions:"
        meaning = " ".join(meanings.get(field.name, "").split())
        yield fill(
            f"{_option(option, field)}  {meaning}".rstrip(), WIDTH, initial_indent="  ", subsequent_indent="      "
        )


def _class(name: str) -> type[ModulePass]:
    return type(make_pass(ArgSpec(name, {})))


def _fields(name: str) -> Sequence[tuple[str, Field[Any]]]:
    """The options of a pass, by the names that its specification gives them, and the fields that take them."""
    made = make_pass(ArgSpec(name, {}))
    return list(zip(made.spec(include_default=True).parameters, fields(type(made)), strict=True))


def _option(option: str, field: Field[Any]) -> str:
    """As it is given, with its default: `stages=2`, or `file=<str>` where there is none."""
    kind = field.type if isinstance(field.type, str) else field.type.__name__
    kind = kind.removesuffix(" | None").replace("tuple[str, ...]", "str,...")
    given = field.default is not MISSING and field.default not in (None, "", ())
    return f"{option.replace('_', '-')}={field.default if given else f'<{kind}>'}"


def _meanings(pass_class: type[ModulePass]) -> dict[str, str]:
    """The strings that stand below the fields of the class."""
    (definition,) = ast.parse(dedent(getsource(pass_class))).body
    assert isinstance(definition, ast.ClassDef)
    return {
        field.target.id: below.value.value
        for field, below in pairwise(definition.body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
        and isinstance(below.value.value, str)
    }
