"""The checking emulator against kernels that were made wrong on purpose: every fault is caught, by a report or by
the comparison with the reference; and correct kernels give no report under any seed.

A fault is a small change of the printed text. Each is written so that it finds its place in kernels that are
printed otherwise tomorrow, and a test fails where it finds none."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

from benchmarking import benchmark
from treadle.compiler.pipeline import Options, print_cuda, run_pipeline
from treadle.compiler.source import parse_module
from treadle.dialects.cuda import kernel_names
from treadle.runtime.backend import has_host_compiler
from treadle.runtime.emulator import EmulationError
from treadle.runtime.emulator.backend import EmulatorBackend
from treadle.runtime.host import execute
from treadle.runtime.inputs import Input, axis_sizes, make_inputs
from treadle.runtime.interpreter import entry_function
from treadle.runtime.verify import verify

pytestmark = pytest.mark.skipif(not has_host_compiler(), reason="no C++ compiler is installed")

programs = benchmark("programs")

SIZES: Mapping[str, Sequence[Mapping[str, int]]] = {
    # An odd number of full pieces, so that the rest lands where the last but one lay, and a rest of many rows; less
    # than one piece; nothing to stream; or full pieces alone.
    "attention": (
        {"b": 1, "h": 1, "q": 100, "x": 612},
        {"b": 1, "h": 1, "q": 3, "x": 5},
        {"b": 1, "h": 1, "q": 70, "x": 0},
    ),
    "matmul": (
        {"m": 40, "n": 48, "k": 464},
        {"m": 3, "n": 16, "k": 16},
        {"m": 40, "n": 48, "k": 128},
        {"m": 40, "n": 48, "k": 256},
    ),
}


@dataclass(frozen=True)
class Program:
    algorithm: ModuleOp
    module: ModuleOp
    text: str

    @property
    def kernels(self) -> list[str]:
        return kernel_names(self.module)


@cache
def program(name: str) -> Program:
    algorithm = parse_module(programs.attention() if name == "attention" else programs.matmul())
    module = algorithm.clone()
    run_pipeline(module, Options(arch="sm_80"))
    return Program(algorithm, module, print_cuda(module))


@cache
def inputs(name: str, which: int, apart: bool) -> tuple[Input, ...]:
    """Inputs of the sizes in question; `apart`, each begins in the middle of a word, so that rows are not aligned.
    Scores of attention are so large that their maximum moves by more than it may lag behind."""
    function = entry_function(program(name).algorithm)
    made = make_inputs(function, axis_sizes(function, SIZES[name][which]), 0)
    if name == "attention":
        q, k, v = made
        made = q, k * np.float16(8), v
    return tuple(_moved(each) for each in made) if apart else made


def _moved(array: Any) -> Any:
    room = np.zeros(array.size + 1, array.dtype)
    room[1:] = array.ravel()
    return room[1:].reshape(array.shape)


def only(text: str, kernel: str) -> str:
    """A printed file without its other kernels, which would only be compiled."""
    functions = re.findall(r'(?ms)^extern "C" __global__ .*?^}\n', text)
    others = [each for each in functions if not re.search(rf"\b{kernel}\($", each.splitlines()[0])]
    assert len(others) == len(functions) - 1, f"there is no kernel {kernel}"
    for each in others:
        text = text.replace(each, "")
    return text


def run(name: str, text: str, which: int, *, seed: int = 0, apart: bool = False) -> tuple[Any, ...]:
    """What a kernel computes at sizes of that number (EmulationError)."""
    made = program(name)
    kernel = made.kernels[-1 if apart else 0]
    backend = EmulatorBackend(only(text, kernel), [kernel], seed=seed)
    return execute(made.module, inputs(name, which, apart), backend)


def complaint(name: str, text: str, *, apart: bool = False) -> str:
    """What is said of a kernel; empty if nothing is wrong."""
    for which, sizes in enumerate(SIZES[name]):
        try:
            outputs = run(name, text, which, apart=apart)
        except EmulationError as error:
            return str(error)
        given = inputs(name, which, apart)
        wrong = [
            each for each in verify(program(name).algorithm, given, outputs, "emulator", sizes=sizes) if not each.ok
        ]
        if wrong:
            return str(wrong[0])
    return ""


@dataclass(frozen=True)
class Fault:
    """A change of the text: at every place that the pattern finds, one after the other, or at all at once."""

    pattern: str
    replacement: str
    at_once: bool = False
    within: str = ""
    """Only between this and the end of the kernel."""
    apart: bool = False
    """Shows only in arrays that are not aligned."""

    def versions(self, text: str) -> list[str]:
        begin = re.search(self.within or r"_body\(|__global__ void", text)
        assert begin is not None, f"the kernel has no '{self.within}'"
        head, body = text[: begin.start()], text[begin.start() :]
        found = list(re.finditer(self.pattern, body))
        assert found, f"nothing in the kernel is like '{self.pattern}'"
        if self.at_once:
            return [head + re.sub(self.pattern, self.replacement, body)]
        return [head + body[: each.start()] + each.expand(self.replacement) + body[each.end() :] for each in found]


LOOP = r"for \(int64_t"
"""Where the loop that streams begins."""

SHARED_FAULTS = {
    "no barrier": Fault(r"barrier_block\(\);", ""),
    "no commit in the loop": Fault(r"copy_async_commit\(\);", "", within=LOOP),
    "no commit at all": Fault(r"copy_async_commit\(\);", "", at_once=True),
    "no wait at all": Fault(r"copy_async_wait<\d>\(\);", "", at_once=True),
    "too lax a wait in the loop": Fault(
        r"(?s)copy_async_wait<0>(.*)copy_async_wait<0>", r"copy_async_wait<1>\1copy_async_wait<0>"
    ),
    "reads the stage that is being filled": Fault(r"stage = uint32_t\(turn\) % 2", "stage = (turn + 1) % 2"),
    "fills the stage that is being read": Fault(r"place = uint32_t\(turn \+ 1\) % 2", "place = uint32_t(turn) % 2"),
    "always reads the first stage": Fault(r"stage_at\((\w+), stage \* \d+\)", r"\1"),
    "always fills the first stage": Fault(r"stage_at\((\w+), place \* \d+\)", r"\1"),
    "stages that overlap": Fault(r"(_now = stage_at\(\w+, stage \*) (\d+)", r"\1 (\2 - 128)"),
    "fetches a piece too many": Fault(r"(_ahead_\d+) < (\w+_full)", r"\1 <= \2"),
    "fetches the piece that it has": Fault(r"(int64_t (\w+)_ahead_\d+) = \2 \+ \d+", r"\1 = \2"),
    "fetches what may not be there": Fault(r"if \(is_there\)", "if (true)"),
    "skips a piece": Fault(r"(\w+0) \+= (\d+)\)", r"\1 += 2 * \2)"),
    "forgets the rest": Fault(r"if \((\w+)_full < \1\)", r"if (false)"),
    "one barrier for half of the block": Fault(r"barrier_block\(\);", "if (warp < 2) barrier_block();"),
    "one barrier for half of a warp": Fault(r"barrier_block\(\);", "if (lane < 16) barrier_block();"),
    "a tile begins too early": Fault(r"(K|B)(_shared = .*?shared_memory\(\) \+ )(\d+)", r"\1\2\3 - 64"),
    "a tile begins in the middle of a word": Fault(r"(K|B)(_shared = .*?shared_memory\(\) \+ )(\d+)", r"\1\2\3 + 2"),
    "more alignment than there is": Fault(r"_body<0>\(", "_body<16>(", apart=True),
    "slots that nobody has": Fault(r"(slots\w*\.count; \w+ \+=) (\d+)", r"\1 2 * \2", apart=True),
    "slots that everybody has": Fault(r"(copy_async_if\(.*), is_there\w*\)", r"\1, true)", apart=True),
    "slots of rows that are not there": Fault(r"at_most\((\d+), \w+ - \w+\)", r"\1", apart=True),
    "slots of the wrong rows": Fault(r"(there\w* \+ \w+_i \* )(\w+)", r"\1(\2 + 1)", apart=True),
    "another swizzle where a tile is filled": Fault(r"(copy_async_or_now\(.*?swizzled\w*)<(\d+), \d+", r"\1<\2, 1"),
    "another swizzle where a tile is read": Fault(
        r"(load_matrix\w*\(.*?|_lane = (?:kept\()?)swizzled<(\d+), \d+", r"\1swizzled<\2, 1"
    ),
    "the rows of a source do not advance": Fault(r"there \+= \w+_step \* (?!C16)\w+;", ""),
    "the rows of a running source do not advance": Fault(r"advance\((\w+), .*\);", ""),
    "a running source advances too far": Fault(
        r"(\w+_(?:down|turn) = kept\(.*) \* int64_t\((\d)\)", r"\1 * int64_t(2 * \2)"
    ),
    "operands of the right side exchanged": Fault(r"rhs\[0\]\)", "rhs[1])"),
    "a row of the result too many": Fault(r"(store_global_if\(.*)_down < (\w+)", r"\1_down <= \2"),
    "the result too far to the right": Fault(r"(store_global_if\(vec<width>\(there)\)", r"\1 + width)"),
    "lanes of other rows": Fault(r"lane / 4 \+ warp", "lane / 8 + warp"),
}

FAULTS: Mapping[str, Mapping[str, Fault]] = {
    "attention": {
        **SHARED_FAULTS,
        "too lax a wait before the loop": Fault(r"copy_async_wait<1>", "copy_async_wait<2>"),
        "no first commit": Fault(r"(?s)copy_async_commit\(\);(.*)", r"\1"),
        "a query too many": Fault(r"(copy_async_or_now\(.*q_down) < q\b", r"\1 <= q"),
        "queries that are not there": Fault(r"(copy_async_or_now\(.*), q0 \+ [^;]* < q\)", r"\1, true)"),
        "a key too many": Fault(r"(copy_async_or_now\(.*x_down) < x\b", r"\1 <= x"),
        "keys that are not there": Fault(r"(copy_async_or_now\(.*), x_full [^;]* < x\)", r"\1, true)"),
        "no zeros outside": Fault(r"(copy_async_or_now\([^;]*?, )(x_full [^;]* < x)\);", r"if (\2) \1true);"),
        "no mask of the scores": Fault(r"(\w+)_full \+ [^;?]*\? (S\[[^:]*) : -INFINITY", r"\2"),
        "a mask one too wide": Fault(r"< x( \? S\[)", r"<= x\1"),
        "no repair of the sum": Fault(r"fmaf\(l\[q8\], repair\[q8\], (e\S*)\)", r"l[q8] + \1"),
        "no repair of the result": Fault(r"(A_sum\S+ = A_sum\S+) \* repair\[q8\]", r"\1"),
        "a shuffle that stays in pairs": Fault(r"shuffle_xor\((\w+)\[q8\], 2\)", r"shuffle_xor(\1[q8], 1)"),
        "a shuffle across rows": Fault(r"shuffle_xor\((l\w*)\[q8\], 1\)", r"shuffle_xor(\1[q8], 4)"),
        "the maximum of one lane": Fault(
            r"S_max_new\[q8\] = maximum\(S_max_new\[q8\], shuffle\w+\(.*?\)\);", "", at_once=True
        ),
    },
    "matmul": {
        **SHARED_FAULTS,
        "a running source goes on in the last row": Fault(r"\? (\w+_down) : \w+_turn", r"? \1 : \1"),
        "a row too many": Fault(r"(copy_async_or_now\(.*m_down) < m\b", r"\1 <= m"),
        "rows that are not there": Fault(r"(copy_async_or_now\(.*), m0 \+ [^;]* < m\)", r"\1, true)"),
        "columns that are not there": Fault(r"(copy_async_or_now\(.*), n0 \+ [^;]* < n\)", r"\1, true)"),
        "a row of the rest too many": Fault(r"(copy_async_or_now\(.*k_down) < k\b", r"\1 <= k"),
        "no zeros outside": Fault(
            r"(copy_async_or_now\([^;]*?, )((?:m0 [^;]*)?k_full [^;]* < [kn])\);", r"if (\2) \1true);"
        ),
        "warps that do each other's work": Fault(r"warp % 2 \* \d+", "0"),
    },
}


@pytest.mark.sample(19, each=False)
@pytest.mark.parametrize(("name", "fault"), [(name, fault) for name, faults in FAULTS.items() for fault in faults])
def test_a_fault_is_caught(name: str, fault: str, request: pytest.FixtureRequest) -> None:
    """At every place, or in the shorter run at the first and the last."""
    change = FAULTS[name][fault]
    text = program(name).text
    places = list(enumerate(change.versions(text)))
    if not request.config.getoption("--all"):
        places = places[:1] + places[1:][-1:]
    for i, version in places:
        assert version != text
        said = complaint(name, version, apart=change.apart)
        assert said, f"{name}, '{fault}' at place {i}: nothing was said"


@pytest.mark.parametrize(("name", "axis"), [("attention", "x"), ("matmul", "k")])
def test_the_rest_lands_where_the_last_piece_but_one_lay(name: str, axis: str) -> None:
    """Else nobody would miss the barrier before it."""
    (piece,) = set(re.findall(rf"{axis}0 \+= (\d+)\)", program(name).text))
    assert SIZES[name][0][axis] // int(piece) % 2 == 1
    assert SIZES[name][0][axis] % int(piece) > 16


def test_there_are_enough_faults() -> None:
    assert sum(map(len, FAULTS.values())) >= 20


@pytest.mark.sample(2)
@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("name", FAULTS)
def test_a_correct_kernel_gives_no_report(name: str, apart: bool) -> None:
    """Whatever the order of warps and the moment at which copies arrive, results are the same to the bit."""
    text = program(name).text
    assert complaint(name, text, apart=apart) == ""
    for which in range(len(SIZES[name])):
        (first,) = run(name, text, which, apart=apart)
        for seed in range(1, 20):
            (again,) = run(name, text, which, seed=seed, apart=apart)
            np.testing.assert_array_equal(again, first)
