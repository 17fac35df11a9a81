"""Options of passes that a user gives, over those that the pipeline gives them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from difflib import get_close_matches
from typing import Literal, get_args, get_origin, get_type_hints

from xdsl.passes import ModulePass
from xdsl.utils.arg_spec import ArgSpec, parse_pipeline
from xdsl.utils.exceptions import ArgSpecParseError

from treadle.compiler.errors import TreadleError


def read_override(text: str) -> ArgSpec:
    """The pass and the options of `coalescing{minimize=sectors}` (TreadleError); whether it has them, who makes it
    says."""
    try:
        specs = list(parse_pipeline(text))
    except ArgSpecParseError as error:
        raise TreadleError(f"'{text}' is no pass with options, as coalescing{{max-bytes=8}}: {error}") from error
    if len(specs) != 1:
        raise TreadleError(f"'{text}' names {len(specs)} passes: give each by itself")
    return specs[0].normalize_parameter_names()


def overridden(specs: Sequence[ArgSpec], overrides: Iterable[ArgSpec]) -> tuple[ArgSpec, ...]:
    """Passes with the options that are given for them, wherever they stand; other options stay (TreadleError for a
    pass that does not run)."""
    for given in overrides:
        check_runs(given.name, [spec.name for spec in specs])
        specs = [_with(spec, given) if spec.name == given.name else spec for spec in specs]
    return tuple(specs)


def _with(spec: ArgSpec, given: ArgSpec) -> ArgSpec:
    own, more = spec.normalize_parameter_names(), given.normalize_parameter_names()
    return ArgSpec(spec.name, {**own.parameters, **more.parameters})


def check_runs(name: str, names: Sequence[str]) -> None:
    """Refuse a pass that is not one of these (TreadleError)."""
    if name in names:
        return
    close = get_close_matches(name, names, n=1, cutoff=0.6)
    hint = f"did you mean '{close[0]}'?" if close else f"its passes are {', '.join(dict.fromkeys(names))}"
    raise TreadleError(f"the pipeline has no pass '{name}': {hint}")


def check_options(of: type[ModulePass], spec: ArgSpec) -> None:
    """Refuse an option that a pass does not have, and a word that is none of those it knows (TreadleError)."""
    if "from_spec" in vars(of):
        return  # it has other names for its options, and checks them
    types = get_type_hints(of)
    names = [field.name for field in fields(of) if field.init and field.name != "name"]
    for option, values in spec.normalize_parameter_names().parameters.items():
        told = option.replace("_", "-")
        if option not in names:
            close = get_close_matches(option, names, n=1)
            hint = f": did you mean {close[0].replace('_', '-')}?" if close else ""
            every = ", ".join(name.replace("_", "-") for name in names) or "none"
            raise TreadleError(f"pass '{spec.name}' has no option '{told}'{hint} (its options: {every})")
        known = [each for each in _choices(types[option]) if each is not None]
        if known and not (len(values) == 1 and values[0] in known):
            given = f"{told}={','.join(map(str, values))}" if values else told
            raise TreadleError(f"pass '{spec.name}': {given}: {told} is {' or '.join(map(str, known))}")


def _choices(type: object) -> tuple[object, ...]:
    """The words of a literal, in a choice with others, too; none of other types."""
    if get_origin(type) is Literal:
        return get_args(type)
    return tuple(each for inner in get_args(type) if get_origin(inner) is Literal for each in get_args(inner))
