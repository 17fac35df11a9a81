"""Axes that no argument has: reads tell their sizes, at a launch as in the reference, and nobody chooses them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import refused, written
from xdsl.dialects import tensor

import treadle
from roads import compiled
from treadle.compiler import main as cli
from treadle.compiler.bench.predict import sizes_of
from treadle.compiler.errors import TreadleError
from treadle.compiler.sizes import default_sizes, set_default_sizes
from treadle.compiler.source import parse_module
from treadle.compiler.told_sizes import told_axes, told_sizes
from treadle.runtime.inputs import axis_sizes, make_inputs
from treadle.runtime.interpreter import entry_function, run_function

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
PAGED, WINDOWS = ((EXAMPLES / f"{name}.mlir").read_text(encoding="utf-8") for name in ("attention_paged", "conv1d"))

ROWS = """!W = tensor<?x64xf16, #diagram.array<[v, d]>>
!token = tensor<?xi32, #diagram.array<[u]>>
!X = tensor<SIZEx64xf16, #diagram.array<[t, d]>>
func.func @rows(%W: !W, %token: !token) -> !X attributes {sizes = #diagram.sizes<v = 5, u = 6STATED>} {
  %X = diagram.read %W at "token[t // 2], d" padded with (token = %token : !token) : !W -> !X
  %Y = diagram.map (%x = %X : !X) -> !X {
    %y = arith.negf %x : f16
    diagram.yield %y : f16
  }
  func.return %Y : !X
}
"""


def rows(size: str = "?", stated: str = "") -> str:
    return ROWS.replace("SIZE", size).replace("STATED", stated)


def chosen(tokens: int, length: int) -> tuple[list[Any], np.ndarray[Any, Any]]:
    """Arguments of `rows`, and by hand what it gives: zeros behind the tokens."""
    W = np.random.default_rng(0).standard_normal((5, 64)).astype(np.float16)
    token = np.random.default_rng(1).integers(0, 5, tokens).astype(np.int32)
    found = np.zeros((length, 64), np.float16)
    there = min(2 * tokens, length)
    found[:there] = W[np.repeat(token, 2)[:there]]
    return [W, token], -found


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


WHY = "axis 't' cannot have 20 elements: no argument has it, so this read tells its size, 12 where u = 6; give 'u' "


@pytest.mark.parametrize(
    "command",
    [
        ["run", "--backend", "interpreter"],
        ["run", "--backend", "emulator", "--machine", "h100"],
        ["run", "--backend", "emulator", "--verify-each"],
        ["explain"],
        ["explain", "--machine", "a100,h100"],
        ["draw", "-o", "p.svg"],
        ["tune", "--list"],
    ],
)
def test_a_size_that_a_read_tells_otherwise_is_refused(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, command[0], written(rows()), *command[1:], "--size", "t=20")
    assert said.startswith("treadle: p.mlir:5:3: 'diagram.read' %X: " + WHY)
    assert "another size, or write 20 in place of '?' for 't' in the types" in said


def test_no_program_for_empty_results_alone_is_proposed(capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, "run", written(rows()), "--size", "t=0").splitlines()[0]
    assert said.endswith("tells its size, 12 where u = 6; give 'u' another size")


def test_the_size_that_it_tells_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    file = written(rows())
    for sizes in (["t=12"], ["t=18", "u=9"], ["u=9"]):
        given = [text for size in sizes for text in ("--size", size)]
        assert cli.main(["run", file, "--backend", "emulator", *given]) == 0
    assert "verified (emulator)" in capsys.readouterr().out


def test_in_python_it_is_refused_alike() -> None:
    function = entry_function(parse_module(rows()))
    for refuses in (
        lambda: axis_sizes(function, {"t": 20}),
        lambda: set_default_sizes(function, {"t": 20}),
        lambda: run_function(parse_module(rows()), chosen(6, 20)[0], sizes={"t": 20}),
        lambda: treadle.compile(rows(), cache=False).cost(t=20),
    ):
        with pytest.raises(TreadleError, match=WHY):
            refuses()


def test_windows_end_where_their_array_does(capsys: pytest.CaptureFixture[str]) -> None:
    """They have no zeros behind it, so none are offered."""
    said = refused(capsys, "run", written(WINDOWS), "--size", "t=500")
    assert "its size, 200 where l = 204; give 'l' another size\n" in said
    assert "or write 20 in place" in refused(capsys, "run", "p.mlir", "--size", "t=20")


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        (
            {"t": 50, "l": 20},
            "it cannot have t = 50, l = 20: it reads up to 53 along 'l', which has 20; give other sizes",
        ),
        ({"t": 50}, "it cannot have t = 50: it reads up to 53 along 'l', which has 20; give other sizes"),
    ],
)
def test_a_kernel_for_windows_behind_the_end_is_refused(sizes: dict[str, int], message: str) -> None:
    """Where `l` is static by the types, too."""
    text = (
        WINDOWS
        if "l" in sizes
        else WINDOWS.replace("?x?x32xf16, #diagram.array<[b, l, c]>", "?x20x32xf16, #diagram.array<[b, l, c]>").replace(
            "l = 204, ", ""
        )
    )
    with pytest.raises(TreadleError) as raised:
        treadle.compile(text, sizes=sizes, cache=False)
    assert type(raised.value) is TreadleError
    assert f"'diagram.read' %windows: {message}" in str(raised.value)


def test_pages_are_refused_where_the_table_ends(capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, "run", written(PAGED), "--size", "q=200", "--size", "x=300", "--machine", "h100")
    assert "axis 'x' cannot have 300 elements" in said
    assert "208 where m = 13; give 'm' another size" in said


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("length", [20, 7])
def test_a_size_in_the_types_is_meant(machine: str, length: int) -> None:
    arguments, wanted = chosen(6, length)
    kernels = (
        treadle.compile(rows(str(length)), machine=machine, cache=False),
        treadle.compile(rows(), machine=machine, sizes={"t": length}, cache=False),
    )
    for kernel in kernels:
        assert (kernel.run(*arguments, backend="emulator") == wanted).all()
        assert (kernel.run(*arguments, backend="interpreter") == wanted).all()


@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_keys_behind_the_table_are_zeros_where_an_argument_has_their_axis(machine: str) -> None:
    """They count in a softmax, as the reference and numpy have it."""
    text = PAGED.replace('%past: !n {diagram.up_to = "x"})', '%past: !n {diagram.up_to = "x"}, %kept: !kept)')
    text = text.replace("!S =", "!kept = tensor<?x?xi32, #diagram.array<[b, x]>>\n!S =", 1)
    text = text.replace('x <= q + past[b]" with (', 'kept[b, x] >= 0" with (kept = %kept : !kept, ')
    text = text.replace(", past = %past : !n)", ")")
    road = compiled(text, machine=machine)
    sizes = {"b": 2, "q": 70, "h": 1, "g": 1, "p": 9, "m": 5, "x": 300}
    Q, K, V, table, _, past, kept = road.inputs(sizes)
    length = np.asarray([300, 77], np.int32)
    (found,) = road.run((Q, K, V, table, length, past, kept))
    for b in range(2):
        valid = (table[b] >= 0) & (table[b] < 9)
        keys, values = np.zeros((2, 300, 64))
        for pages, rows in ((K, keys), (V, values)):
            rows[:80] = np.where(valid[:, None, None], pages[table[b] % 9, :, 0], 0).reshape(80, 64)
        seen = (kept[b] >= 0) & (np.arange(300) < length[b])
        scores = Q[b, 0, 0].astype(float) @ keys[seen].T / 8
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        wanted = powers / powers.sum(-1, keepdims=True) @ values[seen]
        assert np.abs(found[b, 0, 0] - wanted).max() < 4e-3


@pytest.mark.parametrize("stated", ["", ", t = 12"])
def test_the_reference_goes_by_the_arrays(stated: str) -> None:
    """Defaults are what kernels are optimised for: they do not say how much of other arrays is read."""
    kernel = treadle.compile(rows(stated=stated), cache=False)
    arguments, wanted = chosen(9, 18)
    for backend in ("emulator", "interpreter"):
        found = kernel.run(*arguments, backend=backend)
        assert found.shape == wanted.shape
        assert (found == wanted).all()
    (verdict,) = kernel.verify(*arguments, backend="emulator")
    assert verdict.ok, verdict


def test_defaults_follow_those_that_are_given() -> None:
    function = entry_function(parse_module(rows(stated=", t = 12")))
    assert axis_sizes(function, {"u": 9}) == {"v": 5, "d": 64, "u": 9, "t": 18}
    set_default_sizes(function, {"u": 9})
    assert default_sizes(function) == {"v": 5, "u": 9, "t": 18}


def test_defaults_that_a_read_tells_otherwise_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("compile", "run", "explain"):
        assert WHY in refused(capsys, command, written(rows(stated=", t = 20")))
    with pytest.raises(TreadleError, match=WHY):
        treadle.compile(rows(stated=", t = 20"), cache=False)


MADE = (
    rows(stated=", t = 12")
    .replace("u = 6, ", "")
    .replace("%token: !token)", "%n: index)")
    .replace("  %X = diagram.read", "  %token = tensor.empty(%n) : !token\n  %X = diagram.read")
)
"""The tokens are made by another dialect, so their number is known once they are there."""


def test_what_is_told_follows_from_what_arrays_say() -> None:
    for text in (rows(), MADE):
        function = entry_function(parse_module(text))
        assert told_axes(function) == {"t"}
        found = told_sizes(function, {"v": 5, "u": 9, "t": 5})
        assert {axis: told.size for axis, told in found.items()} == {"t": 18}
        assert told_sizes(function, {"v": 5, "t": 5}) == {}
    given = entry_function(parse_module(rows().replace("%token: !token)", "%token: !token, %at: !X)")))
    assert told_axes(given) == frozenset()
    assert axis_sizes(given, {"v": 5, "u": 6, "t": 20})["t"] == 20


def test_a_default_is_not_what_another_dialect_makes() -> None:
    (W, _), wanted = chosen(9, 18)
    made = {tensor.EmptyOp: lambda op, size: np.zeros(int(size))}
    (found,) = run_function(parse_module(MADE), [W, np.int64(9)], foreign=made).results
    assert found.shape == wanted.shape
    assert (found == -W[0].astype(float)).all()


def test_lengths_to_predict_for_leave_such_axes_out() -> None:
    for name in ("conv1d", "attention_paged", "block_diagonal"):
        file = EXAMPLES / f"{name}.mlir"
        function = entry_function(parse_module(file.read_text(encoding="utf-8")))
        for sizes in sizes_of(file):
            assert told_axes(function).isdisjoint(sizes)
            assert make_inputs(function, axis_sizes(function, sizes | dict.fromkeys(sizes, 3)), 0)
