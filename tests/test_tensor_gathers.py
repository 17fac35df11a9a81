"""Rows that lie where data say, brought by tensor copies, a run of rows each: for an H100, whose warpgroups multiply
them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from test_scattered_reads import PAGED, beyond

from roads import Road, compiled
from treadle.compiler.layouts.gathers import gather_traffic
from treadle.compiler.printer.gathered import is_warp
from treadle.compiler.rings import ring_problems
from treadle.dialects import cuda
from treadle.dialects.cuda.runs import rows_of_run
from treadle.dialects.diagram.place import PlaceAttr
from treadle.runtime.backend import has_host_compiler
from treadle.runtime.emulator.backend import EmulatorBackend
from treadle.runtime.host import execute

pytestmark = pytest.mark.skipif(not has_host_compiler(), reason="no C++ compiler is installed")
EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
EXPERTS = (EXAMPLES / "experts.mlir").read_text(encoding="utf-8")


def paged(page: int = 16, d: int = 64, order: str = "p s h d", format: str = "f16") -> str:
    """Attention on pages of so many positions, whose axes lie in this order."""
    names = order.split()
    sizes = {"p": "?", "s": str(page), "h": "?", "d": str(d)}
    place = {"p": f"table[b, x // {page}]", "s": f"x % {page}", "h": "h", "d": "d"}
    text = PAGED.replace("x64x", f"x{d}x").replace("x // 16", f"x // {page}").replace("x % 16", f"x % {page}")
    for last in ("d", "e"):
        axes = [last if name == "d" else name for name in names]
        type = f"tensor<{'x'.join(sizes[name] for name in names)}xf16, #diagram.array<[{', '.join(axes)}]>>"
        array, at = ("!K_pages", "h, d") if last == "d" else ("!V_pages", "h, e")
        text = re.sub(rf"{array} = .*", f"{array} = {type}", text)
        places = ", ".join(last if name == "d" else place[name] for name in names)
        text = text.replace(f'"table[b, x // {page}], x % {page}, {at}"', f'"{places}"')
    return text.replace("xf16,", f"x{format},")


def gathers(road: Road) -> list[cuda.TensorGatherOp]:
    return [op for kernel in road.kernels for op in kernel.walk() if isinstance(op, cuda.TensorGatherOp)]


SIZES = [
    {"b": 2, "q": 33, "h": 1, "g": 2, "p": 11, "m": 9},
    {"b": 3, "q": 5, "h": 2, "g": 1, "p": 1, "m": 1},
    {"b": 2, "q": 3, "h": 1, "g": 1, "p": 4, "m": 0},
]


def check(road: Road, sizes: dict[str, int], which: int, seed: int = 0) -> None:
    """On entries that are rows of the array, and on others; the kernel with roles runs."""
    inputs = road.inputs(sizes, seed)
    for given in (inputs, beyond(inputs, which, seed)):
        for verdict in road.verdicts(given, sizes):
            assert verdict.ok, f"{sizes}: {verdict}"
    assert any("_specialised" in name for name in road.backend().variants)


@pytest.mark.sample(3)
@pytest.mark.parametrize("order", ["p s h d", "p h s d", "h p s d"])
@pytest.mark.parametrize(("page", "d"), [(16, 64), (8, 64), (128, 64), (24, 128), (16, 256)])
def test_pages(page: int, d: int, order: str) -> None:
    road = compiled(paged(page, d, order), machine="h100")
    assert {op.rows for op in gathers(road)} == {8 if page == 24 else page}
    for seed, sizes in enumerate(SIZES):
        check(road, sizes, 3, seed)


def test_another_format() -> None:
    check(compiled(paged(format="bf16"), machine="h100"), SIZES[0], 3)


def test_data_may_arrive_in_any_order() -> None:
    road = compiled(PAGED, machine="h100")
    inputs = [given if isinstance(given, np.ndarray) else given.item() for given in road.inputs(SIZES[0])]
    backends = [EmulatorBackend(road.text, cuda.kernel_names(road.module), seed=seed) for seed in range(20)]
    assert len({execute(road.module, inputs, backend)[0].tobytes() for backend in backends}) == 1


def test_what_lies_behind_a_length_may_be_no_number() -> None:
    """A product multiplies it with zeros: rows of the last page become zeros, one by one, and pages that the table
    names behind a length are not asked for at all."""
    road = compiled(PAGED, machine="h100")
    sizes = {"b": 1, "q": 20, "h": 2, "g": 1, "p": 6, "m": 6}
    query, keys, values, table, length, past = road.inputs(sizes)
    table[...] = np.arange(6)
    for count in (0, 1, 15, 16, 17, 50, 95, 96):
        length[...], past[...] = count, 0
        holed = [pages.copy() for pages in (keys, values)]
        for pages in holed:
            pages.reshape(96, 2, 64)[count:] = np.nan
        for verdict in road.verdicts((query, *holed, table, length, past), sizes):
            assert verdict.ok, f"{count} keys: {verdict}"


def test_keys_from_a_position_on() -> None:
    text = PAGED.replace("x < length[b] and x <= q + past[b]", "x < length[b] and x >= past[b]")
    road = compiled(text, machine="h100")
    assert {op.rows for op in gathers(road)} == {16}
    check(road, SIZES[0], 3)
    sizes = {"b": 1, "q": 20, "h": 2, "g": 1, "p": 30, "m": 30}
    query, keys, values, table, length, past = road.inputs(sizes)
    table[...], length[...] = np.arange(30), 470
    for begin in (0, 1, 16, 77, 300, 469):
        past[...] = begin
        holed = [pages.copy() for pages in (keys, values)]
        for pages in holed:
            pages.reshape(480, 2, 64)[:begin] = np.inf
        for verdict in road.verdicts((query, *holed, table, length, past), sizes):
            assert verdict.ok, f"from {begin}: {verdict}"


RAGGED = """
!X = tensor<?x64xf16, #diagram.array<[t, k]>>
!first = tensor<?xi32, #diagram.array<[g]>>
!Y = tensor<?x200x64xf16, #diagram.array<[g, r, k]>>
!W = tensor<?x64x?xf16, #diagram.array<[g, k, e]>>
!O = tensor<?x200x?xf32, #diagram.array<[g, r, e]>>
func.func @f(%X: !X, %first: !first {diagram.up_to = "t"}, %W: !W) -> !O
    attributes {sizes = #diagram.sizes<t = 2000, g = 64, e = 1024>} {
  %Y = diagram.read %X at "first[g] + r, k" padded with (first = %first : !first) : !X -> !Y
  %O = diagram.contract %Y, %W over [k] accumulate f32 : !Y, !W -> !O
  func.return %O : !O
}
"""


def test_rows_from_a_position_on_that_data_say() -> None:
    """All rows of a tile are a run: it may begin before the array, reach past its end, or be far outside."""
    road = compiled(RAGGED, machine="h100")
    (rows,) = {op.boxes.rows for op in gathers(road)}
    assert {op.rows for op in gathers(road)} == {rows}
    sizes = {"t": 300, "g": 7, "e": 72}
    _, first, _ = inputs = road.inputs(sizes)
    first[...] = [-(2**31), -150, -1, 0, 250, 299, 2**31 - 1]
    for verdict in road.verdicts(inputs, sizes):
        assert verdict.ok, verdict


def test_weights_of_experts() -> None:
    text = EXPERTS.replace("g = 6, r = 64, k = 96, n = 72, i = 5", "g = 60, r = 128, k = 2048, n = 2048, i = 16")
    road = compiled(text, machine="h100")
    assert {op.runs for op in gathers(road)} == {1}
    (kernel,) = (kernel for kernel in road.kernels if kernel.sym_name.data.endswith("_specialised"))
    assert not is_warp(cuda.roles_of(kernel))  # one thread starts every copy
    check(road, {"g": 3, "r": 130, "k": 136, "n": 72, "i": 5}, 2)


def test_entries_are_loaded_before_the_wait_for_a_stage() -> None:
    text = compiled(PAGED, machine="h100").text
    producer = text[(start := text.index("if (warpgroup < 0)")) : text.index("\n  else {", start)]
    loads = [at.start() for at in re.finditer(r"load_global(_if)?\(vec<1>\(&table", producer)]
    assert loads
    for at in loads:
        behind = producer[at:]
        assert behind.index("mbarrier_wait") < behind.index("tensor_load")


def test_rows_that_lie_one_by_one_are_no_tensor_copies() -> None:
    road = compiled(paged(page=4), machine="h100")
    assert not gathers(road)
    assert "4 rows follow each other, of 8 a copy is worth it" in road.text
    check(road, SIZES[0], 3)


@pytest.mark.parametrize(
    ("place", "begins", "rows"),
    [
        ("table[b, x // 16], x % 16, h, d", 64, 16),
        ("table[b, x // 16], x % 16, h, d", 8, 8),
        ("table[b, x // 16], x % 16, h, d", 1, 1),
        ("table[b, x // 24], x % 24, d", 192, 8),
        ("table[b, x // 48], x % 48, d", 48, 16),
        ("first[b] + x, h, d", 1, 128),
        ("first[b] + 2 * x, h, d", 64, 1),
        ("token[x], d", 64, 1),
        ("table[x % 16], x // 16, d", 64, 1),
        ("x // 32, x % 32, x % 8, d", 64, 1),
        ("table[x // 4], x % 16, d", 64, 4),
        ("table[b], h, d", 64, 1),
    ],
)
def test_the_rows_of_a_run(place: str, begins: int, rows: int) -> None:
    forms = PlaceAttr(place).forms
    assert rows_of_run(forms, "x", 128, lambda number: begins % number == 0) == rows


def test_a_copy_that_nobody_expects_is_found() -> None:
    kernel = next(each for each in compiled(PAGED, machine="h100").kernels if cuda.roles_of(each))
    assert not ring_problems(kernel)
    (gather, *_) = [op for op in kernel.walk() if isinstance(op, cuda.TensorGatherOp)]
    assert isinstance(gather.prev_op, cuda.ExpectOp)
    gather.prev_op.detach()
    assert "bytes, 0 are expected" in ring_problems(kernel)[0]


PRODUCT = """
!X = tensor<?x16x?xf16, #diagram.array<[p, s, k]>>
!n = tensor<?xi32, #diagram.array<[m]>>
!Y = tensor<?x?xf16, #diagram.array<[x, k]>>
!W = tensor<?x?xf16, #diagram.array<[k, e]>>
!O = tensor<?x?xf32, #diagram.array<[x, e]>>
func.func @f(%X: !X, %n: !n {diagram.up_to = "p"}, %W: !W) -> !O
    attributes {sizes = #diagram.sizes<p = 300, m = 256, k = 1024, e = 1024>} {
  %Y = diagram.read %X at "n[x // 16], x % 16, k" padded with (n = %n : !n) : !X -> !Y
  %O = diagram.contract %Y, %W over [k] accumulate f32 : !Y, !W -> !O
  func.return %O : !O
}
"""


def test_sectors_are_those_that_the_emulator_counts() -> None:
    road = compiled(PRODUCT, machine="h100")
    op = gathers(road)[0]
    rows, columns = op.boxes.rows, op.boxes.count * op.boxes.span.data
    sizes = {"p": 40, "m": rows // 16, "k": 2 * columns, "e": 64}
    road.check(sizes)
    counts = [each for report in road.backend().reports for each in report.operations if each.kind == "tensor_load"]
    lines = road.text.splitlines()
    asked = [each for each in counts if "X_map" in lines[each.line - 1]]
    found = gather_traffic(op)
    assert sum(each.requests for each in asked) == 2 * found.requests
    assert sum(each.sectors for each in asked) == 2 * found.sectors
    assert sum(each.bytes for each in asked) == 2 * found.bytes


WINDOWS = """
!X = tensor<?x?x64xf16, #diagram.array<[b, i, c]>>
!W = tensor<4x64x?xf16, #diagram.array<[r, c, o]>>
!P = tensor<?x?x4x64xf16, #diagram.array<[b, t, r, c]>>
!l = tensor<?xf16, #diagram.array<[t]>>
!Y = tensor<?x?x?xf32, #diagram.array<[b, t, o]>>
func.func @f(%X: !X, %W: !W, %like: !l) -> !Y attributes {sizes = #diagram.sizes<b = 32, i = 4096, t = 4096, o = 256>} {
  %P = diagram.read %X at "b, t + r - 3, c" padded : !X -> !P
  %Y = diagram.contract %P, %W over [r, c] accumulate f32 : !P, !W -> !Y
  func.return %Y : !Y
}
"""


def test_zeros_around_an_array() -> None:
    """Windows that reach before the first element, and past the last; the array is shorter than what looks at it, or
    longer."""
    road = compiled(WINDOWS, machine="h100")
    assert {op.runs for op in gathers(road)} == {1}
    for t, i in ((200, 200), (1, 1), (130, 77), (77, 300), (140, 137)):
        road.check({"b": 2, "i": i, "t": t, "o": 72})
    assert {name.partition("_aligned")[0] for name in road.backend().variants} == {"f_kernel_specialised"}


def test_zeros_around_an_array_that_no_tensor_map_takes() -> None:
    road = compiled(WINDOWS, machine="h100")
    sizes = {"b": 2, "i": 50, "t": 51, "o": 72}
    x, *others = road.inputs(sizes)
    for verdict in road.verdicts((np.pad(x, ((0, 0), (0, 0), (0, 1)))[..., :-1], *others), sizes):
        assert verdict.ok, verdict
    assert not any("specialised" in name for name in road.backend().variants)


def test_a_view_of_what_has_zeros_around_it_has_them_where_the_array_goes_on() -> None:
    """The view ends before the array does, so no copy of the array finds its zeros."""
    text = WINDOWS.replace("!P = ", "!V = tensor<?x40x64xf16, #diagram.array<[b, j, c]>>\n!P = ")
    read = '  %P = diagram.read %X at "b, t + r - 3, c" padded : !X -> !P'
    again = read.replace("%X", "%V").replace("!X", "!V")
    text = text.replace(read, f'  %V = diagram.read %X at "b, j + 2, c" padded : !X -> !V\n{again}')
    road = compiled(text, machine="h100")
    assert not gathers(road)
    road.check({"b": 2, "i": 90, "t": 70, "o": 72})
