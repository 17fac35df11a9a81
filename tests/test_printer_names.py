"""A stranger's names: whatever a file calls its functions, axes and values, the printed C compiles, means the same, and
holds nothing of them but identifiers and comments."""

from __future__ import annotations

import re
import shutil
from functools import cache
from pathlib import Path

import pytest

from roads import Road, compiled
from treadle.compiler.primitives import primitive_names
from treadle.compiler.printer.names import RESERVED, Names, identifier
from treadle.runtime.nvcc import compile_cubin, find_nvcc

TEMPLATE = """
func.func {visibility} @{function}(%{one}: tensor<?x?xf16, #diagram.array<[{a}, {b}]>>,
                      %{two}: tensor<?x?xf16, #diagram.array<[{b}, {c}]>>, %{three}: f32)
    -> tensor<?x?xf32, #diagram.array<[{a}, {c}]>> {{
  %{four} = diagram.contract %{one}, %{two} over [{b}] accumulate f32 :
      tensor<?x?xf16, #diagram.array<[{a}, {b}]>>, tensor<?x?xf16, #diagram.array<[{b}, {c}]>>
      -> tensor<?x?xf32, #diagram.array<[{a}, {c}]>>
  %{five} = diagram.map (%{six} = %{four} : tensor<?x?xf32, #diagram.array<[{a}, {c}]>>, %{seven} = %{three} : f32)
      -> tensor<?x?xf32, #diagram.array<[{a}, {c}]>> {{
    %{eight} = arith.mulf %{six}, %{seven} : f32
    %{nine} = arith.maximumf %{eight}, %{six} : f32
    diagram.yield %{nine} : f32
  }}
  func.return %{five} : tensor<?x?xf32, #diagram.array<[{a}, {c}]>>
}}
"""
VALUES = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def program(
    names: list[str], axes: tuple[str, str, str] = ("m", "k", "n"), function: str = "f", visibility: str = ""
) -> str:
    """The same program, its values called by these names in turn."""
    values = {key: names[i % len(names)] + "_" * (i // len(names)) for i, key in enumerate(VALUES)}
    return TEMPLATE.format(visibility=visibility, function=function, **dict(zip("abc", axes, strict=True)), **values)


HOSTILE_VALUES = [
    *sorted(RESERVED | set(primitive_names())),
    *("_Exit", "__half", "__nv_bfloat16", "_0", "a.b", "a-b", "a$b", "A_q", "m0", "k0", "A_shared", "f_kernel"),
    *("f_kernel_body", "f_kernel_aligned_2", "x" * 300, "x" * 301),
    *("INT_MAX", "int_max", "EOF", "M_PI_2", "cudaStreamDefault", "SNANF32", "BIG_ENDIAN", "EXIT_SUCCESS", "NULL"),
]
LETTERS = re.compile(r"[A-Za-z_][\w$.-]*")


@pytest.mark.sample(6)
@pytest.mark.parametrize("start", range(0, len(HOSTILE_VALUES), len(VALUES)))
def test_values_with_reserved_names(start: int) -> None:
    names = [name for name in HOSTILE_VALUES[start : start + len(VALUES)] if LETTERS.fullmatch(name)]
    compiled(program(names)).check({"m": 33, "k": 40, "n": 17})


AXES = [
    ("int", "float", "for"),
    ("blockIdx", "threadIdx", "warp"),
    ("lane", "thread", "i"),
    ("width", "round", "there"),
    ("lhs", "rhs", "k4"),
    ("x1", "x", "x8"),
    ("main", "size_t", "uint4"),
    ("a" * 60, "a" * 61, "a" * 59 + "b"),
    ("q_i", "q", "q0"),
    ("ALIGNED", "UNROLL", "INFINITY"),
    ("INT_MAX", "EOF", "M_PI"),
    ("stdin", "errno", "assert"),
    ("NULL", "null", "EXIT_SUCCESS"),
]


@pytest.mark.sample(7)
@pytest.mark.parametrize("axes", AXES, ids=lambda axes: axes[0][:20])
def test_axes_with_reserved_names(axes: tuple[str, str, str]) -> None:
    road = compiled(program(["A", "B", "c", "d", "e", "f", "g", "h", "i"], axes))
    road.check(dict(zip(axes, (33, 40, 17), strict=True)))


FEW = 6
"""Of so many functions one runs; the others are printed."""

FUNCTIONS = [
    "float",
    "main",
    "barrier_block",
    "operator",
    "a.b",
    "x" * 200,
    '"with a space"',
    '"*/ int evil; /*"',
    '"end\\0Aint evil() { return 1; }"',
    '"\\22; system(\\22ls\\22); //"',
    '"??/"',
    '"\\\\"',
    '"%s%n"',
    '"\\C3\\A9t\\C3\\A9"',
    '"#include <evil>"',
    '""',
]


@cache
def with_function(function: str) -> Road:
    return compiled(program(list(VALUES), function=function))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_functions_with_any_name(function: str) -> None:
    """The name of a function is in the names of its kernels, as far as C allows it."""
    road = with_function(function)
    assert not re.search(r"\b(evil|system)\b", code_of(road.text))
    if FUNCTIONS.index(function) % FEW == 0:
        road.check({"m": 33, "k": 40, "n": 17})


def code_of(text: str) -> str:
    """C without its comments."""
    return re.sub(r"//[^\n]*", "", text)


def test_kernels_of_one_file_have_different_names() -> None:
    """A function of two kernels, and one named like the first of them; names alike for longer than C names are here."""
    long = "y" * 80
    for first, second in (("f", "f_1"), (long + "a", long + "b")):
        text = program(list(VALUES), function=first)
        road = compiled(text + program(list(VALUES), ("p", "r", "s"), function=second, visibility="private"))
        names = re.findall(r"\bvoid (?:__launch_bounds__\(\d+(?:, \d+)?\) )?(\w+_kernel\w*)\(", road.text)
        assert len(names) == len(set(names)) >= 2
        road.check({"m": 33, "k": 40, "n": 17})


def test_a_comment_ends_with_its_line() -> None:
    for line in compiled(program(["a"], function="g")).text.splitlines():
        assert not line.rstrip().endswith("\\")
        assert "??/" not in line


@pytest.mark.parametrize("hint", ["", None, "9", "*/", "\n", "é", "a b", "__x__", "_", "int", "x" * 1000, "a\\"])
def test_an_identifier_is_one(hint: str | None) -> None:
    """Neither reserved by C++ (a double underscore, or one before a capital) nor longer than a line."""
    name = Names(RESERVED).fresh(hint)
    assert re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name)
    assert "__" not in name
    assert name not in RESERVED
    assert len(identifier(hint, "v")) <= 48


@pytest.mark.parametrize("name", ["INT_MAX", "M_PI", "EOF", "KV_CACHE", "SNANF32X", "cudaStreamDefault"])
def test_what_a_header_may_define_is_printed_in_small_letters(name: str) -> None:
    assert identifier(name, "v") == name.lower()


@pytest.mark.parametrize("name", ["QKV", "C16", "L", "M_2", "A_q", "LSE", "cuda", "P_row", "M_row"])
def test_other_capitals_stay(name: str) -> None:
    assert identifier(name, "v") == name


@pytest.mark.skipif(find_nvcc() is None, reason="nvcc is not installed")
@pytest.mark.parametrize(
    "axes",
    [pytest.param(axes, id=axes[0][:20], marks=[pytest.mark.full] if i > 0 else []) for i, axes in enumerate(AXES)],
)
def test_nvcc_takes_the_same_names(axes: tuple[str, str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREADLE_CACHE", str(tmp_path))
    assert shutil.which("nvcc") or find_nvcc()
    names = ["int", "EOF", "blockIdx", "INT_MAX", "printf", "asm", "float4", "make_float4", "M_PI"]
    assert compile_cubin(compiled(program(names, axes)).text, "sm_80").image
