"""The text of `wgmma_m64nNk16`, of `wgmma_m64nNk32` for 8-bit floats and of `wgmma_m64nNk32_s32` for integers: one
primitive for each width N, which differ in nothing but their registers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

WIDTHS = range(8, 257, 8)
"""Columns that a product of floats may have (PTX ISA 9.7.15.2)."""
WIDTHS_OF_INTEGERS = tuple(columns for columns in WIDTHS if columns <= 32 or columns % 16 == 0)
"""The same of integers."""

_ELEMENTS = (("__half", "f16"), ("__nv_bfloat16", "bf16"))
_LINE = 118


def name_of(columns: int, depth: int = 16) -> str:
    return f"wgmma_m64n{columns}k{depth}"


def blocks() -> Iterator[tuple[str, Callable[[], str], tuple[str, ...]]]:
    """Name of each, what writes its text, and what it needs, narrowest first."""
    for columns in WIDTHS:
        yield name_of(columns), partial(_block, columns), ("as_register", "same_type")
        needs = ("eight_bit", "as_register", "same_type")
        yield name_of(columns, 32), partial(_block_of_bytes, _FLOATS, columns), needs
    for columns in WIDTHS_OF_INTEGERS:
        needs = ("ExactSum", "as_register", "same_type")
        yield f"{name_of(columns, 32)}_s32", partial(_block_of_bytes, _INTEGERS, columns), needs


@dataclass(frozen=True)
class _OfBytes:
    """Products of 8-bit operands: what follows `wgmma_m64nNk32` in their name, the C type of a sum, its format and the
    constraint of its registers, and the C types and formats of operands."""

    suffix: str
    sum: str
    format: str
    register: str
    elements: tuple[tuple[str, str], ...]
    scales: str
    """Immediate operands: the signs of a and b, which integers have not."""


_FLOATS = _OfBytes("", "float", "f32", "f", (("__nv_fp8_e4m3", "e4m3"), ("__nv_fp8_e5m2", "e5m2")), ", 1, 1")
_INTEGERS = _OfBytes("_s32", "ExactSum", "s32", "r", (("int8_t", "s8"), ("uint8_t", "u8")), "")


def _block_of_bytes(of: _OfBytes, columns: int) -> str:
    name, tiles = name_of(columns, 32) + of.suffix, columns // 8
    sums = f"{of.sum} (&d)[{tiles}][2][2]"
    heads = {
        False: f"void {name}({sums}, uint64_t a, uint64_t b, bool accumulate AND_LINE) {{",
        True: f"void {name}({sums}, const A (&a)[2][2][4], uint64_t b,\n{' ' * (35 + len(of.suffix))}"
        "bool accumulate AND_LINE) {",
    }
    functions = "".join(
        f"""\
template <class A, class B>
__device__ __forceinline__ {head}
#ifndef TREADLE_EMULATOR
{_branches_of_bytes(of, columns, in_registers=in_registers)}
#else
  emu::wgmma({{&d[0][0][0], {"a, 0" if in_registers else "nullptr, a"}, b, {columns}, emu::element_of<A>(), false,
              false, accumulate, emu::element_of<B>()}}, line);
#endif
}}
"""
        for in_registers, head in heads.items()
    )
    return f"""\
// d (64 x {columns}) = a (64 x 32) b (32 x {columns}), added to d where accumulate, by the four warps of a warpgroup,
// in their own time; 8-bit a and b lie in shared memory, K-major, or lane l of warp w holds
//   a[k16][m8][k1] at row 16 w + 8 m8 + l / 4, column 16 k16 + 4 (l % 4) + k1. PTX ISA 9.7.15.5, wgmma.mma_async.
{functions}"""


def _branches_of_bytes(of: _OfBytes, columns: int, *, in_registers: bool) -> str:
    lines: list[str] = []
    for left, left_format in of.elements:
        for right, right_format in of.elements:
            test = f"if constexpr (SameType<A, {left}>::value && SameType<B, {right}>::value) {{"
            lines.append(f"  {'} else ' if lines else ''}{test}")
            types = f"{of.format}.{left_format}.{right_format}"
            lines += _assembly(columns, types, of.scales, in_registers=in_registers, depth=32, register=of.register)
    return "\n".join([*lines, "  }"])


def _block(columns: int) -> str:
    name, tiles = name_of(columns), columns // 8
    return f"""\
// d (64 x {columns}) = a (64 x 16) b (16 x {columns}), added to d where accumulate, by the four warps of a warpgroup,
// in their own time. a and b lie in shared memory, K-major or (A_MN, B_MN) M- or N-major; or lane l of warp w holds
//   a[k8][m8][k1] at row 16 w + 8 m8 + l / 4, column 8 k8 + 2 (l % 4) + k1, as it holds
//   d[n8][m8][n1] at row 16 w + 8 m8 + l / 4, column 8 n8 + 2 (l % 4) + n1. PTX ISA 9.7.15.5, wgmma.mma_async.
template <class T, int A_MN, int B_MN>
__device__ __forceinline__ void {name}(float (&d)[{tiles}][2][2], uint64_t a, uint64_t b, bool accumulate AND_LINE) {{
#ifndef TREADLE_EMULATOR
{_branches(columns, in_registers=False)}
#else
  emu::wgmma({{&d[0][0][0], nullptr, a, b, {columns}, emu::element_of<T>(), A_MN != 0, B_MN != 0, accumulate}}, line);
#endif
}}
template <class T, int B_MN>
__device__ __forceinline__ void {name}(float (&d)[{tiles}][2][2], const T (&a)[2][2][2], uint64_t b,
                                       bool accumulate AND_LINE) {{
#ifndef TREADLE_EMULATOR
{_branches(columns, in_registers=True)}
#else
  emu::wgmma({{&d[0][0][0], a, 0, b, {columns}, emu::element_of<T>(), false, B_MN != 0, accumulate}}, line);
#endif
}}
"""


def _branches(columns: int, *, in_registers: bool) -> str:
    lines: list[str] = []
    for i, (element, format) in enumerate(_ELEMENTS):
        test = f"  if constexpr (sizeof(T) == 2 && SameType<T, {element}>::value) {{"
        lines.append(test if i == 0 else test.replace("  if", "  } else if"))
        lines += _assembly(columns, f"f32.{format}.{format}", ", 1, 1", in_registers=in_registers)
    return "\n".join([*lines, "  }"])


def _assembly(
    columns: int, types: str, scales: str, *, in_registers: bool, depth: int = 16, register: str = "f"
) -> list[str]:
    """The inline assembly: registers of d, then a, b, accumulate, signs and what is transposed, which 8 bits never
    are."""
    count = columns // 2
    left = ", ".join(f"%{count + i}" for i in range(4)) if in_registers else f"%{count}"
    at = count + (4 if in_registers else 1)
    a = f"{{{left}}}" if in_registers else left
    flags = f", %{at + 2}" if in_registers else f", %{at + 2}, %{at + 3}"
    flags = flags if depth == 16 else ""
    registers = [f"%{i}" for i in range(count)]
    outputs = [f'"+{register}"(d[{i // 4}][{i // 2 % 2}][{i % 2}])' for i in range(count)]
    words = [f'"r"(as_register(a[{i // 2}][{i % 2}]))' for i in range(4)]
    inputs = [*(words if in_registers else ['"l"(a)']), '"l"(b)', '"r"(int(accumulate))']
    if depth == 16:
        inputs += ['"n"(B_MN)'] if in_registers else ['"n"(A_MN)', '"n"(B_MN)']
    text = [
        '    asm volatile("{\\n.reg .pred more;\\n"',
        f'      "setp.ne.b32 more, %{at + 1}, 0;\\n"',
        f'      "wgmma.mma_async.sync.aligned.m64n{columns}k{depth}.{types} {{"',
        *(f'      "{line}"' for line in _wrapped(registers, 4)),
        f'      "}}, {a}, %{at}, more{scales}{flags};\\n}}"',
    ]
    return [
        *text,
        *_list("      : ", outputs),
        *_list("      : ", inputs, ");"),
    ]


def _wrapped(parts: list[str], quotes: int) -> list[str]:
    """Parts joined by commas, in lines that are not too long; each line but the last ends with a comma."""
    lines: list[str] = []
    line = ""
    for i, part in enumerate(parts):
        piece = part + (", " if i < len(parts) - 1 else "")
        if len(line) + len(piece) > _LINE - 6 - quotes:
            lines.append(line)
            line = ""
        line += piece
    return [*lines, line]


def _list(head: str, parts: list[str], tail: str = "") -> list[str]:
    lines = _wrapped(parts, 2)
    return [(head if i == 0 else " " * len(head)) + line.rstrip() for i, line in enumerate(lines[:-1])] + [
        (head if len(lines) == 1 else " " * len(head)) + lines[-1] + tail
    ]
