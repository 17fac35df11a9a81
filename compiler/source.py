"""From a file to a verified module whose every operation knows its line.

Two things are done here that xDSL's parser leaves to its users: operations get locations, and every error
says where it is. Only the dialects that a program may use are registered, each imported when first seen,
which keeps the start of `treadle` fast."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn, cast

from xdsl.context import Context
from xdsl.dialects.builtin import AnyFloat, FileLineColLoc, IntAttr, LocationAttr, ModuleOp, StringAttr, UnknownLoc
from xdsl.dialects.func import FuncOp
from xdsl.ir import BlockArgument, Operation, SSAValue
from xdsl.parser import Parser
from xdsl.parser.attribute_parser import AttrParser
from xdsl.parser.generic_parser import ParserState
from xdsl.utils.exceptions import ParseError, UnregisteredConstructException, VerifyException
from xdsl.utils.lexer import Input, Span
from xdsl.utils.mlir_lexer import MLIRLexer, MLIRTokenKind

from treadle.compiler.errors import OF_A_PROGRAM, TreadleError, at, describe, has_program
from treadle.compiler.universe import DIALECTS, loader
from treadle.dialects.diagram.array import check_array, is_array

UPSTREAM_DIALECTS = {
    "builtin": "xdsl.dialects.builtin:Builtin",
    "func": "xdsl.dialects.func:Func",
    "arith": "xdsl.dialects.arith:Arith",
    "math": "xdsl.dialects.math:Math",
    "cf": "xdsl.dialects.cf:Cf",
    "scf": "xdsl.dialects.scf:Scf",
    "memref": "xdsl.dialects.memref:MemRef",
    "tensor": "xdsl.dialects.tensor:Tensor",
    "linalg": "xdsl.dialects.linalg:Linalg",
}
"""What a program may use besides treadle's own dialects."""

LARGEST_FILE = 64 * 2**20
"""Bytes; an algorithm is a page long, so a larger file was named by mistake."""


def make_context() -> Context:
    """The dialects that a program may use, each loaded when first seen."""
    context = Context()
    for name, path in (UPSTREAM_DIALECTS | DIALECTS).items():
        context.register_dialect(name, loader(path))
    return context


def load_module(path: str | Path, context: Context | None = None) -> ModuleOp:
    """Read, parse and verify the program in a file (TreadleError for whatever is wrong with it)."""
    return parse_module(read_text(path), str(path), context)


def parse_module(text: str, name: str = "<string>", context: Context | None = None) -> ModuleOp:
    """Parse and verify a program; `name` stands for the file in locations and messages."""
    context = context or make_context()
    if not has_program(text):
        raise TreadleError(
            "there is no program here: expected a func.func over arrays with named axes, as in examples/matmul.mlir",
            name,
        )
    try:
        module = LocatingParser(context, text, name).parse_module()
    except (ParseError, UnregisteredConstructException, RecursionError) as error:
        raise describe(error) from None
    verify_module(module)
    return module


def verify_module(module: ModuleOp) -> None:
    """Verify `module`, and that every value is defined before it is used (TreadleError)."""
    _check_symbols(module)
    _check_yields(module)
    try:
        module.verify()
    except (VerifyException, RecursionError) as error:
        raise describe(error, module) from None
    except ValueError:  # of a value that is defined later, or in another region
        _check_order(module, set())
        raise
    _check_arrays(module)
    _check_order(module, set())


def read_text(path: str | Path) -> str:
    """The text of a file (TreadleError if it is missing, a directory, too large or not UTF-8)."""
    path = Path(path)
    if not path.exists():
        hint = "; /dev/stdin is standard input" if str(path) == "-" else _similar_files(path)
        raise TreadleError(f"no such file: {path}{hint}")
    if path.is_dir():
        raise TreadleError(f"{path} is a directory: name one .mlir file in it")
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise TreadleError(f"{path} is larger than {LARGEST_FILE >> 20} MiB: is it a program?")
        return path.read_text(encoding="utf-8-sig")  # some editors begin a file with a mark of the encoding
    except UnicodeDecodeError as error:
        raise TreadleError(f"{path} is not a text file: byte {error.start} is not UTF-8. Save it as UTF-8") from None
    except OSError as error:
        raise TreadleError(f"cannot read {path}: {error.strerror}") from None


class _Lexer(MLIRLexer):
    """The stock lexer takes exponential time over a string that is not closed, and a program may be a
    stranger's. The same strings, without a choice of how to read them."""

    _unescaped_characters_regex = re.compile(r'"(?:[^"\\\n\v\f]|\\(?:["nt\\]|[0-9A-Fa-f]{2}))*+"')


class _Bits(AttrParser._TensorLiteralElement):  # pyright: ignore[reportPrivateUsage]
    """A hexadecimal element of a tensor. xDSL 0.74 takes it for a whole number where a float is wanted, though not in a
    scalar, and prints infinities and NaN this way; to upstream it is the float's bits."""

    def to_type(self, parser: AttrParser, type: Any) -> Any:
        if not isinstance(type, AnyFloat):
            return super().to_type(parser, type)
        bits = cast(int, self.value)
        if not 0 <= bits < 2 ** (8 * type.compile_time_size):
            parser.raise_error(f"{self.span.text} is not the bits of one {type}", self.span)
        return next(type.iter_unpack(bits.to_bytes(type.compile_time_size, "little")))


class LocatingParser(Parser):
    """xDSL's parser, which also gives every operation and block argument its file, line and column,
    says where an attribute that does not verify stands, and suggests names for misspelt operations. In
    `dense<0xFF800000>` it reads the bits of a float, as upstream does."""

    def __init__(
        self,
        ctx: Context,
        input: str | bytes,
        name: str = "<unknown>",
        line_offset: int = 0,
        readable_errors: bool = True,
    ):
        super().__init__(ctx, "", name)
        text = input.decode("utf-8-sig") if isinstance(input, bytes) else input
        self._parser_state = ParserState(_Lexer(Input(text, name)))
        self._readable_errors = readable_errors
        self._file = StringAttr(name)
        self._line_offset = line_offset
        self._line_starts = [0, *(i + 1 for i, char in enumerate(text) if char == "\n")]

    def parse_module(self, allow_implicit_module: bool = True) -> ModuleOp:
        try:
            return super().parse_module(allow_implicit_module)
        except ParseError as error:
            if self._readable_errors and error.msg.startswith("values used but not defined"):
                self._raise_undefined(next(iter(self.forward_ssa_references)))
            raise

    def _raise_undefined(self, name: str) -> NoReturn:
        """The stock parser notices at the end of the file; a reader wants the first use."""
        use = re.search(rf"%{re.escape(name)}(?![\w$.-])", self.lexer.input.content)
        start, end = use.span() if use else (self.pos, self.pos)
        self.raise_error(f"%{name} is used, but nothing defines it", start, end)

    def parse_operation(self) -> Operation:
        start = self.pos
        with self._located(start):
            operation = super().parse_operation()
        if isinstance(operation.location, UnknownLoc):
            operation.location = self._location(start)
        return operation

    def _parse_alias_def(self) -> None:
        with self._located(self.pos):
            super()._parse_alias_def()

    def _register_ssa_definition(self, name: str, values: Sequence[SSAValue], span: Span[Any]) -> None:
        super()._register_ssa_definition(name, values, span)
        for value in values:
            if value.name_hint == "":  # xDSL's rest of `%_0`, which it does not take back
                value.name_hint = None
            if isinstance(value, BlockArgument) and isinstance(value.location, UnknownLoc):
                value.location = self._location(span.start)

    def _get_op_by_name(self, name: str) -> type[Operation]:
        # What is in quotes is in generic form, which knows no other syntax.
        is_generic = self.lexer.input.content[: self.pos].rstrip().endswith('"')
        if name.startswith("linalg.") and not is_generic and (form := _form_of(name)) is not None:
            return form
        found = self.ctx.get_optional_op(name, dialect_stack=self._parser_state.dialect_stack)
        if found is not None:
            return found
        # The token of the name has been consumed: it is the last occurrence before the current one.
        start = max(0, self.lexer.input.content.rfind(name, 0, self.pos))
        self.raise_error(_unknown_operation(self.ctx, name), start, start + len(name))

    def _parse_tensor_literal_element(self) -> AttrParser._TensorLiteralElement:
        element = super()._parse_tensor_literal_element()
        if not element.span.text.lower().lstrip("-").startswith("0x"):
            return element
        return _Bits(element.is_negative, element.value, element.span)

    def _parse_location(self) -> LocationAttr:
        """Upstream's printer defines its aliases of places at the end of a file."""
        if (alias := self._parse_optional_token(MLIRTokenKind.HASH_IDENT)) is None:
            return super()._parse_location()
        found = self.attribute_aliases.get(alias.text)
        return found if isinstance(found, LocationAttr) else UnknownLoc()

    def _location(self, position: int) -> FileLineColLoc:
        line = bisect_right(self._line_starts, position)
        column = position - self._line_starts[line - 1] + 1
        return FileLineColLoc(self._file, IntAttr(line + self._line_offset), IntAttr(column))

    @contextmanager
    def _located(self, start: int) -> Generator[None]:
        """Attributes verify as they are made, knowing no place: it is the one being parsed. Some of
        xDSL's own parsers also meet junk with a bare ValueError or AssertionError."""
        try:
            yield
        except Exception as error:
            if not self._readable_errors:
                raise
            self._raise_located(error, start)

    def _raise_located(self, error: Exception, start: int) -> NoReturn:
        if isinstance(error, VerifyException | UnregisteredConstructException):
            self.raise_error(str(error), start, self._end_of_line(start))
        if isinstance(error, OverflowError):  # in packing a float
            message = "a number here is beyond the largest of its format: write 0x7F800000 for infinity in f32"
            self.raise_error(message, start, self._end_of_line(start))
        if isinstance(error, ValueError | AssertionError | TypeError | KeyError | AttributeError):
            detail = f": {error}" if str(error) else ""
            self.raise_error(f"this cannot be parsed{detail}", start, self._end_of_line(start))
        raise error

    def _end_of_line(self, position: int) -> int:
        return self.lexer.input.get_end_of_line(position)


def _form_of(name: str) -> type[Operation] | None:
    """How upstream's syntax of an operation is read, where xDSL does not read it."""
    # Imported here: few programs are in linalg, and its operations take a tenth of the start of `treadle compile`.
    from treadle.compiler.upstream import FORMS

    return cast("type[Operation] | None", FORMS.get(name))


def _unknown_operation(context: Context, name: str) -> str:
    dialect, _, _ = name.partition(".")
    known = context.get_optional_dialect(dialect)
    names = sorted(context.registered_dialect_names)
    if known is not None:
        candidates = [operation.name for operation in known.operations]
        return f"dialect '{dialect}' has no operation '{name}'{_did_you_mean(name, candidates)}"
    if "." in name and (close := get_close_matches(dialect, names, n=1, cutoff=0.6)):
        return f"unknown operation '{name}': there is no dialect '{dialect}'; did you mean '{close[0]}'?"
    if "." not in name:
        return f"expected an operation, and '{name}' is none: {OF_A_PROGRAM}"
    return f"unknown operation '{name}': a program may use the dialects {', '.join(names)}"


def _did_you_mean(name: str, candidates: Iterable[str]) -> str:
    close = get_close_matches(name, list(candidates), n=1, cutoff=0.6)
    if close:
        return f"; did you mean '{close[0]}'?"
    return f"; it has {', '.join(sorted(candidates))}"


def _check_symbols(module: ModuleOp) -> None:
    """xDSL's verifier says that a name is defined twice, but not where."""
    taken: set[str] = set()
    for operation in module.body.ops:
        name = operation.properties.get("sym_name")
        if not isinstance(name, StringAttr):
            continue
        if name.data in taken:
            raise at(operation, f"@{name.data} is defined twice: give one of them another name")
        taken.add(name.data)


def _check_yields(module: ModuleOp) -> None:
    """xDSL's verifier does not ask whether branches and loops give what they say, and their printer leaves out an end
    without values."""
    for operation in module.walk():
        if operation.name not in ("scf.if", "scf.for") or not operation.results:
            continue
        given = [result.type for result in operation.results]
        for region in operation.regions:
            last = region.block.last_op if region.blocks else None
            if last is None or last.name != "scf.yield" or [each.type for each in last.operands] != given:
                raise at(
                    last or operation, f"a '{operation.name}' of {len(given)} values yields others, or not as many"
                )


def _check_arrays(module: ModuleOp) -> None:
    """Operations of diagrams check what they use; an array that only passes through is checked here."""
    for operation in module.walk():
        arguments = [argument for region in operation.regions for block in region.blocks for argument in block.args]
        for value in (*operation.results, *arguments):
            if not is_array(value.type):
                continue
            try:
                check_array(value.type, f"%{value.name_hint}" if value.name_hint else "a value")
            except VerifyException as error:
                raise at(operation, str(error)) from None


def _check_order(operation: Operation, defined: set[SSAValue]) -> None:
    """xDSL's verifier does not ask whether a value is used before it is defined."""
    for region in operation.regions:
        for block in region.blocks:
            defined |= set(block.args)
            for inner in block.ops:
                for operand in inner.operands:
                    if operand not in defined:
                        hint = f"%{operand.name_hint}" if operand.name_hint else "a value"
                        raise at(inner, f"{hint} is used before it is defined")
                if inner.regions:
                    _check_order(inner, set(defined))
                defined |= set(inner.results)


def only_function(module: ModuleOp, file: str | None = None) -> FuncOp:
    """The program of a file: it holds one function with a body, private or not, which is what is compiled and run."""
    functions = [op for op in module.walk() if isinstance(op, FuncOp) and op.body.blocks and op.body.block.ops]
    if len(functions) == 1:
        return functions[0]
    if not functions:
        raise TreadleError("there is no func.func with a body: a program is one function over arrays", file)
    names = ", ".join(f"@{function.sym_name.data}" for function in functions)
    raise TreadleError(f"there are {len(functions)} functions ({names}): keep one in a file", file)


def _similar_files(path: Path) -> str:
    try:
        stems = [entry.stem for entry in path.parent.iterdir() if entry.suffix == ".mlir"]
    except OSError:
        return "; there is no such folder either" if str(path.parent) != "." else ""
    close = get_close_matches(path.stem, stems, n=1, cutoff=0.6)
    return f"; did you mean {path.parent / close[0]}.mlir?" if close else ""
