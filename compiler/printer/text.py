"""Lines of C with indentation."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from treadle.compiler.printer.indices import Loop


@dataclass
class Text:
    """C being written."""

    lines: list[str] = field(default_factory=list[str])
    depth: int = 0

    def line(self, text: str = "") -> None:
        self.lines.append("  " * self.depth + text if text else "")

    def insert(self, at: int, text: str) -> None:
        """A line before the one that has the index `at`, indented as that is."""
        following = self.lines[at]
        self.lines.insert(at, following[: len(following) - len(following.lstrip())] + text)

    def comment(self, text: str) -> None:
        """A comment; a stranger's string cannot end it or continue it past its line."""
        safe = "".join(c if c.isprintable() else " " for c in text).replace("\\", "/").replace("??", "? ?")
        self.line(f"// {safe}")

    @contextmanager
    def block(self, head: str, end: str = "}") -> Generator[None]:
        """`head {` ... `}`"""
        self.line(f"{head} {{" if head else "{")
        self.depth += 1
        yield
        self.depth -= 1
        self.line(end)

    def nest(self, loops: Sequence[Loop | str], body: Sequence[str]) -> None:
        """Statements inside nested loops, with braces only where there are several."""
        depth = self.depth
        loops = [loop for loop in loops if isinstance(loop, str) or not loop.is_given]
        if not loops and len(body) > 1:  # what the statements declare ends with them
            self.line("{")
            self.depth += 1
        for i, loop in enumerate(loops):
            brace = " {" if len(body) > 1 and i == len(loops) - 1 else ""
            self.line(f"{loop}{brace}")
            self.depth += 1
        for statement in body:
            self.line(statement)
        self.depth = depth
        if len(body) > 1:
            self.depth += max(len(loops) - 1, 0)
            self.line("}")
            self.depth = depth
