"""C identifiers for the values of a kernel: from the names in the IR, unique in their scope."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

from xdsl.ir import SSAValue

_WORDS = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class
compl concept const consteval constexpr constinit const_cast continue co_await co_return co_yield decltype
default delete do double dynamic_cast else enum explicit export extern false float for friend goto if inline int
long mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public register
reinterpret_cast requires return short signed sizeof static static_assert static_cast struct switch template
this thread_local throw true try typedef typeid typename union unsigned using virtual void volatile wchar_t
while xor xor_eq threadIdx blockIdx blockDim gridDim warpSize half half2 int8_t int16_t int32_t int64_t uint8_t
uint16_t uint32_t uint64_t size_t ptrdiff_t emu line lane warp thread main std memcpy LINE
AND_LINE UNROLL UNROLL_1 UNROLL_4 UNROLL_8
ALIGNED from Vec Word WordOf Constant vec pack unpack width round lhs rhs k4 m8 i fmaf
fmaxf fminf sqrtf rsqrtf sinf cosf tanhf erff logf powf fabsf floorf ceilf roundf expf exp2f log2f
log1pf log10f expm1f cbrtf tanf asinf acosf atanf atan2f sinhf coshf asinhf acoshf atanhf copysignf truncf rintf
abs min max sin cos tan exp log pow sqrt signed unix linux y0 y1 yn j0 j1 jn
alloca assert assert_perror errno isascii math_errhandling offsetof stderr stdin stdout strdupa strndupa toascii
"""

RESERVED = frozenset(_WORDS.split())
"""What C++, CUDA, the primitives and the printer already mean by a name."""

_MACRO = re.compile(
    r"[A-Z][A-Z0-9]+_[A-Z0-9_]*|M_[0-9_]*[A-Z]\w*|L_(ctermid|cuserid|tmpnam)|P_tmpdir|cuda[A-Z]\w*|SNAN\w*"
    r"|BUFSIZ|DOMAIN|EOF|HUGE|INFINITY|MAXFLOAT|NAN|NFDBITS|NULL|NZERO|OVERFLOW|PLOSS|SING|TLOSS|UNDERFLOW|W[A-Z]{6,}"
)
"""Names that the headers of some compiler may define, which no scope hides: INT_MAX, M_PI, EOF. They are printed in
small letters; the names of axes and arrays rarely look so."""

_NOT_IDENTIFIER = re.compile(r"[^A-Za-z0-9_]")


def identifier(hint: str | None, default: str) -> str:
    """A C identifier close to `hint`: nothing of a stranger's string but letters, digits and single underscores."""
    name = re.sub(r"_+", "_", _NOT_IDENTIFIER.sub("_", hint or "")).strip("_")[:40]
    if not name or name[0].isdigit():
        name = f"{default}_{name}" if name else default
    return name.lower() if _MACRO.fullmatch(name) else name


@dataclass
class Names:
    """Names in nested scopes: a name is taken while any scope around it has it."""

    reserved: frozenset[str]
    scopes: list[set[str]] = field(default_factory=lambda: [set[str]()])
    values: dict[SSAValue, str] = field(default_factory=dict[SSAValue, str])

    @contextmanager
    def scope(self) -> Generator[None]:
        self.scopes.append(set())
        yield
        self.scopes.pop()

    def fresh(self, hint: str | None, default: str = "v", scope: int = -1) -> str:
        """A name that is not taken, and now is: in the innermost scope, or in `scopes[scope]`."""
        base = identifier(hint, default)
        name, count = base, 1
        while name in self.reserved or any(name in scope for scope in self.scopes):
            count += 1
            name = f"{base}_{count}"
        self.scopes[scope].add(name)
        return name
