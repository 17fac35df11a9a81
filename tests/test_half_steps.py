"""Half a step of a product, where no more of the summed axis is left: tiles end there, so that rows that are an odd
number of 16 bytes follow each other without a gap, and meet no bank twice however they are copied and read."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_box_order import shifted, transposed, wider

from benchmarking import benchmark
from roads import Road, compiled
from treadle.compiler import main as cli
from treadle.compiler.gates.traffic import traffic_of
from treadle.compiler.layouts.accesses import matrix_rows
from treadle.compiler.layouts.conflicts import wavefronts
from treadle.compiler.layouts.tiles import PERIOD_BYTES, Tile
from treadle.compiler.sass import find_disassembler
from treadle.dialects.cuda.layout import rows_layout
from treadle.dialects.cuda.products import has_half_step, least_depth
from treadle.runtime.backend import has_host_compiler
from treadle.runtime.nvcc import release_of

programs = benchmark("programs")
needs_compiler = pytest.mark.skipif(not has_host_compiler(), reason="no C++ compiler is installed")

View = Callable[[Any], Any]
VIEWS: dict[str, View] = {
    "as they are": np.asarray,
    "16 bytes": partial(wider, by=8),
    "from 16 bytes on": partial(shifted, by=8),
    "8 bytes": partial(wider, by=4),
    "4 bytes": partial(wider, by=2),
    "from 4 bytes on": partial(shifted, by=2),
    "2 bytes": partial(wider, by=1),
    "rows far apart": partial(wider, by=1001),
}
SIZES = {"b": 1, "h": 2, "q": 70, "x": 333}


@cache
def attention(d: int, machine: str = "a100", example: str = "attention") -> Road:
    return compiled(programs.attention(d, example=example), machine=machine)


def test_which_steps_are_halved() -> None:
    assert [size for size in range(1, 33) if has_half_step("m16n8k16", size)] == [*range(1, 9), *range(17, 25)]
    assert not any(has_half_step("m16n8k32", size) for size in range(64))
    assert (least_depth("m16n8k16"), least_depth("m16n8k32"), least_depth("m16n8k8_tf32")) == (8, 32, 8)


@pytest.mark.parametrize("chunks", range(1, 33, 2))
def test_rows_of_an_odd_number_of_chunks_meet_no_bank_twice(chunks: int) -> None:
    """Every address: so many bytes that follow each other lie in different banks, wherever a request begins and
    whatever elements it leaves out; and one chunk of eight rows does."""
    tile = Tile(("q", "d"), rows_layout((64, chunks * 8), 8), 2)
    assert (tile.rows.pitch.data, tile.rows.swizzle_bits) == (chunks * 8, 0)
    places = [tile.address({"q": row, "d": column}) for row, column in product(range(64), range(chunks * 8))]
    assert places == list(range(0, 2 * len(places), 2))  # in the order in which copies go through them
    assert wavefronts(matrix_rows("q", "d", tile.extents, 2), tile).conflicts == 0
    for first in range(0, len(places) * 2 - PERIOD_BYTES, 16):
        assert len({address // 4 % 32 for address in range(first, first + PERIOD_BYTES, 4)}) == 32


@needs_compiler
@pytest.mark.sample(10)
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("d", [8, 24, 40, 56, 72])
def test_heads_of_half_a_step_meet_no_bank_twice(d: int, view: str) -> None:
    road = attention(d)
    for verdict in road.verdicts([VIEWS[view](each) for each in road.inputs(SIZES)], SIZES):
        assert verdict.ok, verdict
    operations = traffic_of(road.text, road.backend().reports[-1:])
    assert sum(each.conflicts for each in operations) == 0
    assert all(each.sectors == each.fewest_sectors for each in operations)


@needs_compiler
@pytest.mark.parametrize("d", [4, 17, 20, 36, 40, 100])
def test_what_is_behind_a_row_counts_for_nothing(d: int) -> None:
    """An infinity in one row, or a NaN, is in no other."""
    road = attention(d)
    q, k, v = (np.array(each) for each in road.inputs(SIZES))
    q[0, 0, 5], k[0, 1, 7] = np.inf, np.nan
    (out,) = road.run((q, k, v))
    whole: Any = np.isfinite(np.asarray(out, np.float64)).all(axis=-1)
    assert not whole[0, 0, 5]
    assert not whole[0, 1].any()
    assert whole[0, 0].sum() == SIZES["q"] - 1


@needs_compiler
@pytest.mark.sample(4)
@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("example", ["attention_bf16", "attention_causal", "attention_backward", "attention_bias"])
def test_other_products_take_half_steps(example: str, machine: str) -> None:
    text = (programs.EXAMPLES / f"{example}.mlir").read_text(encoding="utf-8")
    road = compiled(re.sub("x(64|128)(?=x)", "x40", text), machine=machine)
    assert ("mma_m16n8k8(" if machine == "a100" else "wgmma_m64n") in road.text
    road.check({})


@needs_compiler
@pytest.mark.parametrize("transposes", [*product((False, True), repeat=2)])
def test_operands_that_lie_across(transposes: tuple[bool, bool]) -> None:
    """Axes that are held whole and summed, down the rows of a tile: half a step of them is read across."""
    left, right = (("k", "m") if transposes[0] else ("m", "k")), (("k", "n") if transposes[1] else ("n", "k"))

    def type(axes: tuple[str, str]) -> str:
        sizes = "x".join("24" if axis == "k" else "?" for axis in axes)
        return f"tensor<{sizes}xf16, #diagram.array<[{', '.join(axes)}]>>"

    made = "tensor<?x?xf32, #diagram.array<[m, n]>>"
    road = compiled(f"""
func.func @product(%A: {type(left)}, %B: {type(right)}) -> {made}
    attributes {{sizes = #diagram.sizes<m = 70, n = 90>}} {{
  %C = diagram.contract %A, %B over [k] accumulate f32 : {type(left)}, {type(right)} -> {made}
  func.return %C : {made}
}}""")
    for view in (VIEWS["as they are"], transposed):
        inputs = [view(each) for each in road.inputs({"m": 70, "n": 90})]
        for verdict in road.verdicts(inputs, {"m": 70, "n": 90}):
            assert verdict.ok, verdict


LAYOUTS = Path(__file__).parents[1] / "docs/layouts.md"


@pytest.mark.full
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
@pytest.mark.skipif(find_disassembler() is None, reason="cuobjdump is not installed")
def test_the_table_of_the_documentation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What the tool tells now, of the compiler that the table names. On an ordinary day `test_compile_report` of
    tests/test_report.py reads the same lines of another kernel."""
    page = LAYOUTS.read_text(encoding="utf-8")
    table = page[page.index("| attention, heads of 40, A100") :].split("\n\n")[0]
    release = re.search(r"nvcc (\S+) ", table)
    assert release is not None
    if release_of("nvcc") != release[1]:
        pytest.skip(f"the table is of nvcc {release[1]}")
    program = tmp_path / "attention.mlir"
    program.write_text(programs.attention(40))
    assert cli.main(["compile", str(program), "--machine", "a100", "--report", "-o", str(tmp_path / "out.cu")]) == 0
    said = capsys.readouterr().out
    for row, pattern in (
        ("instructions of a turn beside products", r"not products +(\d+)"),
        ("registers of a thread", r"(\d+) registers, 0 bytes spilled a thread; ([\d,]+) bytes of shared memory"),
    ):
        (line,) = (line for line in table.splitlines() if row in line)
        told = re.search(pattern, said)
        assert told is not None
        assert line.split("|")[-2].strip() == "; ".join(told.groups())
