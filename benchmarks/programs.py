"""The programs that are measured, and run: those of `examples/`, at the sizes in question, and those of the tests."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
OF_TESTS = ROOT / "tests" / "programs"


def file_of(name: str) -> Path:
    """`examples/NAME.mlir`; a name that is a path, as those of `of_tests` are, begins at the root."""
    return (ROOT if "/" in name else EXAMPLES) / f"{name}.mlir"


def of_tests() -> Iterator[str]:
    """The names of the programs of the tests: what calls functions is left out, for it is no kernel by itself."""
    for path in sorted(OF_TESTS.rglob("*.mlir"), key=lambda path: (len(path.parts), path)):
        if not calls_functions(path.read_text(encoding="utf-8")):
            yield path.relative_to(ROOT).with_suffix("").as_posix()


def calls_functions(text: str) -> bool:
    from xdsl.dialects.func import CallOp

    from treadle.compiler.source import parse_module

    return any(isinstance(op, CallOp) for op in parse_module(text).walk())


def example(name: str, sizes: Mapping[str, int] | None = None, format: str = "f16") -> str:
    """The program `examples/NAME.mlir`, made for these sizes."""
    return _with_sizes(_in_format(file_of(name).read_text(encoding="utf-8"), format), sizes)


def attention(
    width: int = 64, sizes: Mapping[str, int] | None = None, format: str = "f16", example: str = "attention"
) -> str:
    """Attention with heads of that width, made for these sizes (`b`, `h`, `q`, `x`); `example` is one whose heads are
    64 wide."""
    text = (EXAMPLES / f"{example}.mlir").read_text(encoding="utf-8")
    text = re.sub(r"x64x", f"x{width}x", text)
    text = re.sub(r"constant 0\.125", f"constant {width**-0.5!r}", text)
    return _with_sizes(_in_format(text, format), sizes)


def matmul(sizes: Mapping[str, int] | None = None, format: str = "f16") -> str:
    """A matrix product made for these sizes (`m`, `n`, `k`)."""
    return example("matmul", sizes, format)


def product_of_eight_bits(sizes: Mapping[str, int]) -> str:
    """Both operands in f8 with k innermost, as warpgroups read them; the result in f16."""
    text = example("matmul_nt", sizes)
    return re.sub(r"^(![AB] = .*)xf16", r"\1xf8E4M3FN", text, flags=re.MULTILINE)


def attention_of_eight_bits(width: int, sizes: Mapping[str, int], values: str) -> str:
    """Queries, keys and values in f8, each with a scale; `values` is the order of the axes of these: `e x`, as tensor
    cores read them, or `x e`, as a network makes them."""
    text = attention(width, sizes, example="attention_f8")
    if values == "x e":
        changed = text.replace(f"?x?x{width}x?xf8", f"?x?x?x{width}xf8").replace("[b, h, e, x]", "[b, h, x, e]")
        assert changed != text
        return changed
    return text


def packed_attention(width: int, sizes: Mapping[str, int]) -> str:
    """Sequences one after the other, of which numbers tell; as many as tests draw numbers, not one for each token."""
    text = attention(width, sizes, example="attention_packed")
    return text.replace('diagram.up_to = "x", ', "")


def product_in_f32(sizes: Mapping[str, int]) -> str:
    """Operands in f16; the sums as they are."""
    text = example("matmul", sizes)
    return (
        re.sub(r"^  %C16 = .*\n", "", text, flags=re.MULTILINE)
        .replace("-> !C16", "-> !C")
        .replace("%C16 : !C16", "%C : !C")
    )


def traced(signature: str, function: Callable[..., Any], sizes: Mapping[str, int], fixed: Sequence[str] = ()) -> str:
    """What a function over named axes computes, of arguments in f16, made for these sizes, of which some are fixed."""
    import treadle

    kernel = treadle.kernel(signature)(function)
    return str(kernel.trace(["f16"] * len(kernel.names), dict(sizes), fixed))


def _in_format(text: str, format: str) -> str:
    return re.sub(r"\bx?f16\b", lambda found: found[0].replace("f16", format), text)


def _with_sizes(text: str, sizes: Mapping[str, int] | None) -> str:
    if not sizes:
        return text
    listed = ", ".join(f"{axis} = {size}" for axis, size in sizes.items())
    changed, count = re.subn(r"#diagram\.sizes<[^>]*>", f"#diagram.sizes<{listed}>", text)
    assert count == 1, "the example says its sizes once"
    return changed
