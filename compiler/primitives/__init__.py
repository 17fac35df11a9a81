"""Device primitives: the small functions that a printed kernel calls instead of inline assembly.

Each has a device body (PTX or a CUDA intrinsic) and, beside it, a host body that calls the
emulator, so that the file nvcc compiles is the very file that the emulator runs. They live in the
`.cuh` files of this folder, one block each, under a line that names the block and what it needs:

    // primitive: load_global; needs: word

A block that says `; from: sm_90` is for that architecture and later ones. Primitives that differ in a few words are one
block, with a line for each: its `$WORD`s are filled in.

    // primitive: ${NAME}_approx
    // each: NAME = exp2 | OP = ex2
    // each: NAME = log2 | OP = lg2

`source` gathers the blocks a kernel uses, with what they need, to stand at the head of its file.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from string import Template

from treadle.compiler.primitives import wgmma

# In the order of printing: a block needs only blocks that come before it.
_FILES = (
    "prelude.cuh",
    "memory.cuh",
    "collectives.cuh",
    "matrix.cuh",
    "copy_async.cuh",
    "control.cuh",
    "selections.cuh",
    "sectors.cuh",
    "arithmetic.cuh",
    "eight_bit.cuh",
    "integers.cuh",
    "mbarrier.cuh",
    "roles.cuh",
    "tensor_copy.cuh",
    "boxes.cuh",
    "clusters.cuh",
    "wgmma.cuh",
)
_MARKER = re.compile(
    r"^// primitive: (?P<name>[\w${}]+)(?:; needs: (?P<needs>\w+(?:, \w+)*))?(?:; from: sm_(?P<arch>\d+))?\n", re.M
)
_EACH = re.compile(r"^// each: (?P<words>.*\n(?://       .*\n)*)", re.M)
_PRELUDE = "prelude"
# Blocks that serve other blocks and are no business of a kernel.
_HELPERS = frozenset(
    {
        _PRELUDE,
        "eight_bit",
        "word",
        "add_words",
        "store_word",
        "shared_address",
        "as_register",
        "as_tf32",
        "tensor_map",
        "Part",
        "box_order",
        "in_box_rows",
        "copy_async_by",
        "store_lines_to_boxes",
        "same_type",
        "ExactSum",
    }
)
_FIRST_ARCH = 80


@dataclass(frozen=True)
class _Block:
    """One primitive's text, written when a kernel needs it, and the names of the blocks it calls."""

    write: Callable[[], str]
    needs: tuple[str, ...]
    arch: int = _FIRST_ARCH


@cache
def _blocks() -> dict[str, _Block]:
    """Every block by name, in the order of printing."""
    blocks: dict[str, _Block] = {}
    for file in _FILES:
        text = (Path(__file__).parent / file).read_text(encoding="utf-8")
        markers = list(_MARKER.finditer(text))
        ends = [marker.start() for marker in markers[1:]] + [len(text)]
        for marker, end in zip(markers, ends, strict=True):
            needs = marker["needs"].split(", ") if marker["needs"] else []
            if unknown := [need for need in needs if need not in blocks]:
                raise ValueError(f"{file}: {marker['name']} needs {unknown}, not defined before it")
            arch = int(marker["arch"] or _FIRST_ARCH)
            for name, block in _variants(marker["name"], text[marker.end() : end].strip() + "\n"):
                blocks[name] = _Block(partial(str, block), tuple(needs), arch)
    for name, write, needs in wgmma.blocks():
        blocks[name] = _Block(write, needs, 90)
    return blocks


def _variants(name: str, text: str) -> Iterator[tuple[str, str]]:
    """A block as it stands; or once for each line of words, filled in."""
    lines = [each["words"].replace("\n//", " ") for each in _EACH.finditer(text)]
    if not lines:
        yield name, text
    for line in lines:
        pairs = (part.split(" =", 1) for part in line.split("|"))
        words = {word.strip(): value.strip() for word, value in pairs}
        yield Template(name).substitute(words), Template(_EACH.sub("", text)).substitute(words)


def primitive_names(arch: str = "sm_90a") -> tuple[str, ...]:
    """The primitives that a kernel for this architecture may call, in the order of printing."""
    number = int(arch.removeprefix("sm_").rstrip("af"))
    return tuple(name for name, block in _blocks().items() if name not in _HELPERS and block.arch <= number)


def source(names: Iterable[str]) -> str:
    """The text of these primitives and of all they need, in order, each once."""
    blocks = _blocks()
    wanted = {_PRELUDE}
    pending = list(names)
    while pending:
        name = pending.pop()
        if name not in blocks:
            raise KeyError(_unknown(name))
        if name not in wanted:
            wanted.add(name)
            pending.extend(blocks[name].needs)
    return "\n".join(block.write() for name, block in blocks.items() if name in wanted)


def _unknown(name: str) -> str:
    close = difflib.get_close_matches(name, primitive_names(), n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(primitive_names())}"
    return f"no device primitive is called {name!r}; {hint}"
