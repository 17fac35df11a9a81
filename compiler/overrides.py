"""Options of passes that a user gives, over those that the pipeline gives them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from difflib import get_close_matches
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from xdsl.passes import ModulePass
from xdsl.utils.arg_spec import ArgSpec, ParameterListType, PipelineLexer, SpecTokenKind, parse_pipeline
from xdsl.utils.exceptions import ArgSpecParseError
from xdsl.utils.hints import isa

from treadle.compiler.errors import TreadleError


def read_passes(text: str) -> list[ArgSpec]:
    """The passes of `fusion,streaming{axis=x}` (TreadleError); whether there are such passes, who makes them says."""
    try:
        specs = list(parse_pipeline(text))
    except ArgSpecParseError as error:
        raise TreadleError(_reworded(error)) from error
    _check_once(text)
    return specs


def _reworded(error: ArgSpecParseError) -> str:
    """What xDSL shows over several lines, on one."""
    _, place, *_, said = str(error).splitlines()
    said = said.strip()
    return f"{said[:1].lower()}{said[1:]} (character {place.rpartition(':')[2]})"


def _check_once(text: str) -> None:
    """Refuse an option that is given twice, of which xDSL takes the last (TreadleError)."""
    lexer, given = PipelineLexer(text), set[str]()
    before = token = lexer.lex()
    while token.kind is not SpecTokenKind.EOF:
        if token.kind is SpecTokenKind.L_BRACE:
            given.clear()
        elif token.kind is SpecTokenKind.IDENT and before.kind in (SpecTokenKind.L_BRACE, SpecTokenKind.SPACE):
            if (option := token.span.text.replace("_", "-")) in given:
                raise TreadleError(f"option '{option}' is given twice: keep one")
            given.add(option)
        before, token = token, lexer.lex()


def read_override(text: str) -> ArgSpec:
    """The pass and the options of `coalescing{minimize=sectors}` (TreadleError); whether it has them, who makes it
    says."""
    try:
        specs = read_passes(text)
    except TreadleError as error:
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
    return replace(spec, parameters={**own.parameters, **more.parameters})


def check_runs(name: str, names: Sequence[str]) -> None:
    """Refuse a pass that is not one of these (TreadleError)."""
    if name in names:
        return
    close = get_close_matches(name, names, n=1, cutoff=0.6)
    hint = f"did you mean '{close[0]}'?" if close else f"its passes are {', '.join(dict.fromkeys(names))}"
    raise TreadleError(f"the pipeline has no pass '{name}': {hint}")


def check_options(of: type[ModulePass], spec: ArgSpec) -> None:
    """Refuse an option that a pass does not have, and a value that is none of those it takes (TreadleError)."""
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
        if not _takes(types[option], values):
            given = _spelt(told, values)
            raise TreadleError(f"pass '{spec.name}': {given}: {told} is {_expected(types[option])}")


def _spelt(option: str, values: ParameterListType) -> str:
    """As it was given."""
    texts = [str(value).lower() if isinstance(value, bool) else str(value) for value in values]
    return f"{option}={','.join(texts)}" if values else option


def _takes(type: Any, values: ParameterListType) -> bool:
    """Whether an option of this type may have these values."""
    if known := _choices(type):
        return len(values) == 1 and values[0] in known
    if any(isinstance(value, bool) for value in values) and bool not in _alternatives(type):
        return False  # to Python it is a number, too
    if not values and NoneType in _alternatives(type):
        return True
    return bool(isa(values, type)) or (len(values) == 1 and bool(isa(values[0], type)))


def _expected(type: object) -> str:
    """What an option takes."""
    if known := _choices(type):
        return " or ".join(map(str, known))
    return " or ".join(text for each, text in _IN_WORDS if each in _alternatives(type)) or "of another type"


def _alternatives(type: object) -> tuple[object, ...]:
    """The types of a choice of types, or the one."""
    return get_args(type) if get_origin(type) in (Union, UnionType) else (type,)


def _choices(type: object) -> tuple[object, ...]:
    """The words of a literal, in a choice with others, too; none of other types."""
    literals = [each for each in _alternatives(type) if get_origin(each) is Literal]
    return tuple(word for each in literals for word in get_args(each) if word is not None)


_IN_WORDS: Sequence[tuple[object, str]] = (
    (bool, "true or false"),
    (int, "a whole number"),
    (float, "a number"),
    (str, "a text, in quotes unless it is a word"),
    (tuple[int, ...], "whole numbers, as 1,2"),
    (tuple[str, ...], "texts, as a,b"),
)
