"""One kind of error for whoever runs treadle: what is wrong, where, why, and what to do about it.

Verifiers and passes raise xDSL's own exceptions, so that they read well in the stock `xdsl-opt` too.
`describe` turns any of them into a `TreadleError`, which adds the place in the file."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from xdsl.utils.exceptions import (
    DiagnosticException,
    ParseError,
    PassFailedException,
    VerifyException,
)

if TYPE_CHECKING:
    from xdsl.ir import Operation


OF_A_PROGRAM = "a program is MLIR, as in examples/matmul.mlir"
"""What a message about a file that is none ends with."""

LONGEST_EXCERPT = 120
"""Characters of a line of a file that a message shows."""


class TreadleError(Exception):
    """Something that a user can put right. `str()` is the whole message, `file:line:col: what`, with the
    line of the file below it where that is known."""

    def __init__(self, message: str, location: str | None = None, excerpt: str = ""):
        super().__init__(message)
        self.message = message
        self.location = location
        self.excerpt = excerpt

    def __str__(self) -> str:
        head = self.message if self.location is None else f"{self.location}: {self.message}"
        return f"{head}\n{self.excerpt}" if self.excerpt else head


class InternalError(TreadleError):
    """A mistake of treadle's own: no input should lead here."""


class Reported(PassFailedException):
    """An error with a place already, on its way through xDSL, which knows only its own. `raise Reported(error)`."""

    def __init__(self, error: TreadleError):
        super().__init__(str(error))
        self.error = error


class Refusal(PassFailedException):
    """A pass that cannot go on, and the operation at which it stopped. `raise Refusal(op, "why")`."""

    def __init__(self, operation: Operation, message: str):
        super().__init__(message)
        self.operation = operation


def describe(exception: BaseException, module: Operation | None = None) -> TreadleError:
    """The message for `exception`, which was raised while reading, verifying or rewriting `module`."""
    if isinstance(exception, TreadleError):
        return exception
    if isinstance(exception, ParseError):
        return _describe_parse_error(exception)
    if isinstance(exception, Reported):
        return exception.error
    if isinstance(exception, Refusal):
        return at(exception.operation, str(exception))
    if isinstance(exception, VerifyException):
        return _describe_verify_exception(exception, module)
    if isinstance(exception, DiagnosticException):
        return TreadleError(_one_message(exception), None if module is None else file_of(module))
    if isinstance(exception, RecursionError):
        return TreadleError("the program is nested too deeply")
    if isinstance(exception, OSError):
        where = "the output" if exception.filename is None else exception.filename
        return TreadleError(f"cannot read or write {where}: {exception.strerror or exception}")
    if isinstance(exception, UnicodeDecodeError):
        return TreadleError(f"the file is not text: byte {exception.start} is not UTF-8. Save it as UTF-8")
    if is_lack_of_memory(exception):
        return TreadleError(no_room(exception))
    return mistake(exception, module)


def mistake(exception: BaseException, module: Operation | None = None) -> InternalError:
    """The message for an exception that no input should lead to, as what a verifier says of what a pass makes."""
    return InternalError(
        f"internal error, please report it: {type(exception).__name__}: {_joined(str(exception))} "
        "(TREADLE_TRACEBACK=1 shows where)",
        None if module is None else file_of(module),
    )


def is_lack_of_memory(exception: BaseException) -> bool:
    """Whether arrays need more memory than there is; numpy says it otherwise where no address would reach their end."""
    if isinstance(exception, ValueError):
        return str(exception).startswith(("array is too big", "Maximum allowed dimension exceeded"))
    return isinstance(exception, MemoryError)


def no_room(lack: BaseException) -> str:
    """What is said where memory is lacking."""
    return f"there is not enough memory ({str(lack) or 'none left'}): use smaller sizes (--size AXIS=N)"


def at(operation: Operation, message: str) -> TreadleError:
    """`message` about `operation`, with its name, its place and the line that it came from."""
    place = place_of(operation)
    # The module is nothing that a reader wrote: what is said about it is about the whole program.
    said = message if operation.name == "builtin.module" else f"{label_of(operation)}: {message}"
    if place is None:
        return TreadleError(said, file_of(operation))
    file, line, column = place
    return TreadleError(said, f"{file}:{line}:{column}", _line_of_file(file, line, column))


def label_of(operation: Operation) -> str:
    """`'diagram.contract' %S`: an operation as a reader finds it."""
    for name in ("sym_name", "kernel_name"):
        if name in operation.properties:
            return f"'{operation.name}' @{_text(operation.properties[name])}"
    hints = [f"%{result.name_hint}" for result in operation.results if result.name_hint]
    return " ".join([f"'{operation.name}'", *hints])


def place_of(operation: Operation) -> tuple[str, int, int] | None:
    """File, line and column of `operation`, or of the nearest operation around it that has them."""
    from xdsl.dialects.builtin import FileLineColLoc

    current: Operation | None = operation
    while current is not None:
        location = current.location
        if isinstance(location, FileLineColLoc):
            return location.filename.data, location.line.data, location.column.data
        current = current.parent_op()
    return None


def file_of(module: Operation) -> str | None:
    """The file that `module` was read from."""
    for operation in module.walk():
        if (place := place_of(operation)) is not None:
            return place[0]
    return None


def failing_operation(module: Operation) -> tuple[Operation, str] | None:
    """The innermost operation that does not verify, and why; verifying the module as a whole raises
    without saying which one it was."""
    for operation in module.walk(region_first=True):
        try:
            operation.verify(verify_nested_ops=False)
            for region in operation.regions:
                for block in region.blocks:
                    if not block.ops:
                        block.verify()
        except VerifyException as exception:
            return operation, str(exception)
    return None


def excerpt(line: str, number: int, column: int, width: int = 1) -> str:
    """A line of a file with carets under `width` characters from `column` (which counts from 1)."""
    shown = "".join(char if char.isprintable() else " " for char in line.rstrip())
    start = max(0, column - 1 - LONGEST_EXCERPT // 2)
    shown = shown[start : start + LONGEST_EXCERPT]
    indent = column - 1 - start
    carets = "^" * max(1, min(width, len(shown) - indent))
    return f"{number:5} | {shown}\n{'':5} | {' ' * indent}{carets}"


def _describe_parse_error(error: ParseError) -> TreadleError:
    span = error.span
    place = span.get_location()
    text = str(span.input.content)
    line = text[text.rfind("\n", 0, span.start) + 1 :].split("\n", 1)[0]
    message = _reworded(error.msg)
    if OF_A_PROGRAM not in message and not has_program(text[: span.start]):
        message += f": {OF_A_PROGRAM}"
    return TreadleError(message, str(place), excerpt(line, place.line, place.col, span.end - span.start))


def has_program(text: str) -> bool:
    """Whether there is anything but comments."""
    return any(line.strip() and not line.strip().startswith("//") for line in text.splitlines())


def _reworded(message: str) -> str:
    """xDSL's parser says some things in a way that only its authors understand."""
    if message.startswith("Could not parse entire input"):
        return "expected an operation, or the end of the file"
    if message == "Expected shape type.":
        return "expected the format of the elements, as f16 or f32"
    if "{first_char}" in message:
        return "after '#', '!', '^' or '%' a name must follow at once"
    if message.startswith(" "):
        return f"expected a name{message}"
    if message[1:2].isupper():  # "SSA value %A is already defined"
        return message
    return message[:1].lower() + message[1:]


def _describe_verify_exception(exception: VerifyException, module: Operation | None) -> TreadleError:
    failing = None if module is None else failing_operation(module)
    if failing is None:
        return TreadleError(_one_message(exception), None if module is None else file_of(module))
    operation, message = failing
    return at(operation, _of_an_end(operation, _joined(message)))


def _of_an_end(operation: Operation, message: str) -> str:
    """What xDSL says of the end of a function, in words that are not only its authors'."""
    around = operation.parent_op()
    if message.endswith("but is not a terminator") and around is not None and around.name != "builtin.module":
        end = "a function ends with func.return" if around.name == "func.func" else "a body ends with a yield"
        return f"{end}, and this operation is the last"
    if operation.name == "func.return" and (types := _WRONG_RESULTS.fullmatch(message)):
        return f"the function says that it gives {types[1] or 'nothing'}, and this returns {types[2] or 'nothing'}"
    return message


_WRONG_RESULTS = re.compile(r"Expected arguments to have .* function output types: expected \[(.*)\], got \[(.*)\]")


def _one_message(exception: BaseException) -> str:
    return _joined(str(exception)) or type(exception).__name__


def _joined(message: str) -> str:
    """xDSL breaks its own verifier messages over lines; one line reads better after a location."""
    return " ".join(line.strip() for line in message.splitlines() if line.strip())


def _line_of_file(file: str, number: int, column: int) -> str:
    """The line as it stands in the file, or nothing where the file is gone or was never one."""
    try:
        with open(file, encoding="utf-8-sig") as stream:
            for i, line in enumerate(stream, start=1):
                if i == number:
                    return excerpt(line, number, column)
    except (OSError, UnicodeDecodeError, ValueError):
        return ""
    return ""


def _text(attribute: object) -> str:
    return str(getattr(attribute, "data", attribute))
