"""`treadle explain` side by side, in symbols, as plots; and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from treadle.compiler.errors import TreadleError
from treadle.compiler.explain import plots
from treadle.compiler.explain.cases import Case, parse_ranges, row, under_one_limit
from treadle.compiler.main import main
from treadle.compiler.source import load_module

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
ATTENTION = str(EXAMPLES / "attention.mlir")
MATMUL = str(EXAMPLES / "matmul.mlir")


def compared(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, object]]:
    assert main(["explain", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)["cases"]


THOUSANDS_OF_DIGITS = (
    ("x=N", "is not a size: use a whole number from 0 to 2147483647"),
    ("x=N:N:2x", "must be whole numbers"),
    ("x=1:N:2x", "must be whole numbers"),
    ("x=1:8:Nx", "is not a step"),
    ("x=1:8:+N", "is not a step"),
)
"""Python itself refuses to read so many (ValueError)."""


def test_ranges():
    assert parse_ranges(["q=7", "x=1:8:2x"]) == [{"q": 7, "x": size} for size in (1, 2, 4, 8)]
    assert parse_ranges(["x=64:200:+64"]) == [{"x": 64}, {"x": 128}, {"x": 192}]
    assert parse_ranges(["x=64:200:64"]) == parse_ranges(["x=64:200:+64"])
    assert parse_ranges([]) == [{}]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x=1:2", "write a range as axis=first:last:step"),
        ("x=0:8:2x", "goes up from a size above 0"),
        ("x=8:4:2x", "goes up from a size above 0"),
        ("x=a:8:2x", "must be whole numbers"),
        ("x=1:8:1x", "'1x' is not a step"),
        ("x=1:8:x", "'x' is not a step"),
        ("x=1:8:0", "'0' is not a step"),
        ("x=1:1000000:1", "at most 200 sizes"),
        ("x=1:99999999999:2x", "to 2147483647 at most"),
        ("x=1:8:\u00b2x", "'\u00b2x' is not a step"),
        *((text.replace("N", "9" * 5000), said) for text, said in THOUSANDS_OF_DIGITS),
    ],
    ids=lambda text: text[:20],
)
def test_wrong_ranges(text: str, message: str):
    with pytest.raises(TreadleError, match=message):
        parse_ranges([text])


def test_machines_and_sizes_side_by_side(capsys: pytest.CaptureFixture[str]):
    found = compared(capsys, ATTENTION, "--machine", "a100,h100", "--size", "x=1024:4096:2x", "--size", "q=1024")
    assert [(each["machine"], each["given"]) for each in found] == [
        (machine, {"x": size, "q": 1024}) for machine in ("a100", "h100") for size in (1024, 2048, 4096)
    ]
    times = [each["time_us"] for each in found]
    assert times[0] < times[1] < times[2]  # type: ignore[operator]
    assert times[3] < times[0]  # type: ignore[operator]


def test_no_point_is_above_its_roof():
    """What L2 keeps is no traffic of device memory: counting it would put points of attention above the roof."""
    module = load_module(ATTENTION)
    for machine, x in (("h100", 1024), ("h100", 131072), ("a100", 4096)):
        found = row(module, Case(machine, {"q": 4096, "x": x}))
        (format,) = plots.formats(found)
        peak, bandwidth = plots.roof(found, format)
        assert plots.teraflops(found) * 1e12 <= min(peak, plots.intensity(found) * bandwidth)


def test_rates_that_last(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Half of the bandwidth is what lasts: what device memory binds takes twice as long, and its limit, too."""
    path = tmp_path / "mine.toml"
    path.write_text('name = "mine"\nbase = "a100"\n[sustained]\ndevice = 1.0195e12\nlaunch = 5e-6\n', encoding="utf-8")
    found: dict[str, dict[str, float]] = {}
    for rates in ("datasheet", "sustained"):
        given = ["--machine", str(path), "--size", "row=8192", "--size", "x=8192", "--rates", rates, "--json"]
        assert main(["explain", str(EXAMPLES / "softmax.mlir"), *given]) == 0
        found[rates] = json.loads(capsys.readouterr().out)
    assert [found[rates]["launch_us"] for rates in found] == pytest.approx([0.9, 5.0])
    assert found["sustained"]["limit_us"] == pytest.approx(2 * found["datasheet"]["limit_us"])
    assert found["sustained"]["time_us"] > 1.8 * found["datasheet"]["time_us"]
    several = compared(capsys, str(EXAMPLES / "softmax.mlir"), "--machine", f"{path},a100", "--rates", "sustained")
    assert several[0]["launch_us"] == pytest.approx(5.0)


def test_the_table_says_what_differs(capsys: pytest.CaptureFixture[str]):
    assert main(["explain", ATTENTION, "--machine", "h100", "--against", "unfused", "--against", "f8"]) == 0
    title, head, *lines = capsys.readouterr().out.splitlines()
    assert title.startswith("on h100; H and M in bytes, time in us (estimates")
    assert head.split()[:2] == ["variant", "kernels"]
    assert [line.split("  ")[0] for line in lines] == ["as written", "unfused", "f8"]


def test_fusion_saves_transfers_and_time():
    module = load_module(ATTENTION)
    cases = [Case("a100", {"q": 2048, "x": 2048}, variant) for variant in ("as written", "unfused")]
    fused, unfused = under_one_limit([row(module, case) for case in cases])
    assert len(unfused.explanation.kernels) > len(fused.explanation.kernels) == 1
    # Scores are 4 bytes and 2048 of them a row; one pass writes and one reads.
    assert unfused.explanation.levels[0].transfer_bytes > 2 * 4 * 2 * 3 * 2048 * 2048
    assert fused.explanation.time_us is not None
    assert unfused.explanation.time_us is not None
    assert unfused.explanation.time_us > 2 * fused.explanation.time_us
    assert unfused.limit_us == fused.explanation.limit_us
    assert fused.share_of_limit is not None
    assert unfused.share_of_limit is not None
    assert unfused.share_of_limit < fused.share_of_limit


def test_f8_halves_bytes_at_least_where_pieces_are_as_large():
    module = load_module(EXAMPLES / "matmul.mlir")
    sizes = dict.fromkeys("mnk", 4096)
    half, eighth = (row(module, Case("h100", sizes, variant)).explanation for variant in ("as written", "f8"))
    by_group = {kernel.name: kernel.group for kernel in half.kernels}
    same = all(by_group[kernel.name] == kernel.group for kernel in eighth.kernels)
    ratio = half.levels[1].transfer_bytes / eighth.levels[1].transfer_bytes
    assert ratio == 2 if same else ratio > 1
    assert half.time_us is not None
    assert eighth.time_us is not None
    assert eighth.time_us < half.time_us


def test_costs_stay_symbolic_and_times_ask_for_sizes(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    text = (EXAMPLES / "softmax.mlir").read_text()
    start, end = text.index("attributes {sizes"), text.index("} {", text.index("attributes {sizes")) + 2
    path = tmp_path / "unbound.mlir"
    path.write_text(text[:start] + text[end:])
    assert main(["explain", str(path)]) == 2
    out, error = capsys.readouterr()
    assert "3*row*x" in out
    assert "the sizes of row, x are not known, so there is no time to tell: give them, as in --size row=1000" in error
    assert main(["explain", str(path), "--json"]) == 2
    data = json.loads(capsys.readouterr().out)
    assert (data["needs"], data["time_us"]) == (["row", "x"], None)
    assert data["kernels"][0]["levels"][0]["transfer_expr"] == "3*row*x"
    assert main(["explain", str(path), "--machine", "a100,h100", "--json"]) == 2
    several = json.loads(capsys.readouterr().out)["cases"]
    assert [(each["machine"], each["needs"]) for each in several] == [("a100", ["row", "x"]), ("h100", ["row", "x"])]
    assert main(["explain", str(path), "--size", "row=8", "--size", "x=100"]) == 0


def test_a_program_that_device_memory_or_the_grid_does_not_hold(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    product = str(EXAMPLES / "matmul.mlir")
    asked = ["explain", product, "--size", "n=1048576", "--size", "m=1048576"]
    assert main(asked) == 0
    assert "does not fit the machine: its arrays take " in capsys.readouterr().out
    assert main([*asked, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["time_us"], found["bottleneck"]) == (None, "does not fit")
    assert found["levels"][0]["memory_bytes"] > found["levels"][0]["capacity_bytes"]
    small = tmp_path / "small.toml"
    small.write_text('base = "a100"\nname = "small"\n[limits]\ngrid = 3\n')
    assert main(["explain", product, "--machine", str(small)]) == 0
    assert "blocks, a grid has at most 3" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--machine", "a100,"], "a name is missing between the commas"),
        (["--machine", "a100,v100"], "unknown machine 'v100'"),
        (["--machine", "a100", "--against", "f8"], "a100 multiplies no f8"),
        (["--plot", "pie=x.svg"], "write roofline=OUT.svg, time=OUT.svg or transfers=OUT.svg"),
        (["--plot", "time=/nowhere/x.svg"], "there is no folder /nowhere"),
        (["--plot", "time=x.svg", "--plot", "time=y.svg"], "--plot time is given twice, as x.svg and as y.svg"),
        (["--derivation", "--machine", "a100,h100"], "--derivation tells of one case, and 2 are asked for"),
        (["--derivation", "--against", "unfused"], "--derivation tells of one case, and 2 are asked for"),
        (["--size", "z=1:8:2x"], "there is no axis 'z'"),
        (["--size", "q=1:128:1", "--size", "x=1:128:1"], "cases to compare: at most 200"),
        (["--size", "d=1:8:2x"], "axis 'd' has size 64 in the program and cannot be 1"),
    ],
)
def test_what_is_refused(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]):
    assert main(["explain", ATTENTION, *arguments]) == 2
    assert message in capsys.readouterr().err


# Attention takes three times as long to derive for each case.
PLOTTED = pytest.mark.parametrize(
    ("program", "axis"),
    [(MATMUL, "m"), pytest.param(ATTENTION, "x", marks=pytest.mark.full)],
    ids=["matmul", "attention"],
)


@PLOTTED
def test_plots(program: str, axis: str, tmp_path: Path):
    pytest.importorskip("matplotlib")
    shown = {"roofline": "h100: f16, device memory", "time": "h100, as written", "transfers": "slope -1"}
    wanted = [f"--plot={kind}={tmp_path}/{kind}.svg" for kind in shown]
    asked = ["--machine", "a100,h100", "--size", f"{axis}=512:1024:2x", *wanted]
    drawn: list[dict[str, str]] = []
    for _ in range(2):
        assert main(["explain", program, *asked]) == 0
        drawn.append({kind: (tmp_path / f"{kind}.svg").read_text() for kind in shown})
    for kind, text in shown.items():
        assert ElementTree.fromstring(drawn[0][kind]).tag.endswith("svg")
        assert text in drawn[0][kind]
    assert drawn[0] == drawn[1]


@PLOTTED
def test_plots_are_written_together_or_not_at_all(program: str, axis: str, tmp_path: Path):
    pytest.importorskip("matplotlib")
    asked = [f"--plot={kind}={tmp_path}/{kind}.svg" for kind in ("roofline", "time")]
    assert main(["explain", program, *asked]) == 2  # one size has no time over sizes
    assert list(tmp_path.iterdir()) == []
    assert main(["explain", program, "--size", f"{axis}=512:1024:2x", *asked]) == 0
    assert sorted(each.name for each in tmp_path.iterdir()) == ["roofline.svg", "time.svg"]


def test_a_plot_that_has_nothing_to_show(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    pytest.importorskip("matplotlib")
    assert main(["explain", ATTENTION, "--plot", f"time={tmp_path}/x.svg"]) == 2
    assert "time is plotted over one size" in capsys.readouterr().err
    assert main(["explain", str(EXAMPLES / "softmax.mlir"), "--plot", f"roofline={tmp_path}/x.svg"]) == 2
    assert "a roofline needs products" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


NOTHING = """!A = tensor<?x?xf32, #diagram.array<[k, m]>>
!B = tensor<?x?xf32, #diagram.array<[m, k]>>
func.func @transpose(%A: !A) -> !B attributes {sizes = #diagram.sizes<k = 3, m = 5>} {
  %B = diagram.read %A at "k, m" : !A -> !B
  func.return %B : !B
}
"""


@pytest.fixture
def nothing(tmp_path: Path) -> str:
    """A program without kernels."""
    path = tmp_path / "nothing.mlir"
    path.write_text(NOTHING)
    return str(path)


@pytest.mark.parametrize("against", [["--against", "unfused"], ["--against", "f8", "--machine", "h100"]])
def test_no_kernels_beside_none(nothing: str, against: list[str], capsys: pytest.CaptureFixture[str]):
    assert main(["explain", nothing, *against]) == 0
    written, other = capsys.readouterr().out.splitlines()[2:]
    assert written.split()[2:] == other.split()[1:] == ["0", "0", "0", "0", "0", "-", "nothing"]


def test_plots_of_no_kernels(nothing: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    plot = tmp_path / "plot.svg"
    assert main(["explain", nothing, "--size", "m=2:16:2x", "--plot", f"time={plot}"]) == 0
    assert ElementTree.fromstring(plot.read_text()) is not None
    assert main(["explain", nothing, "--plot", f"transfers={plot}"]) == 2
    assert "transfers are those of kernels: this program has none" in capsys.readouterr().err


# -- replayed -------------------------------------------------------------------------------------

PIECES = """set-machine{name=h100}
fusion
streaming
tiling
hierarchy-choose-sizes{group="m=32,n=16" stream="k=32"}
hierarchy-subloop
hierarchy-expand-streams
"""


@pytest.fixture
def replayed(tmp_path: Path) -> list[str]:
    path = tmp_path / "small.derivation"
    path.write_text(PIECES)
    return ["--replay", str(path)]


def test_a_derivation_is_replayed_in_every_case(replayed: list[str], capsys: pytest.CaptureFixture[str]):
    found = compared(capsys, MATMUL, *replayed, "--machine", "a100,h100", "--size", "m=64:128:2x")
    kernels: list[dict[str, object]] = [kernel for each in found for kernel in each["kernels"]]  # type: ignore
    assert [kernel["group"] for kernel in kernels] == [{"m": 32, "n": 16}] * 4
    assert [each["machine"] for each in found] == ["a100", "a100", "h100", "h100"]


def test_the_machine_of_a_derivation_is_that_of_every_case(replayed: list[str], capsys: pytest.CaptureFixture[str]):
    found = compared(capsys, MATMUL, *replayed, "--size", "m=64:128:2x")
    assert [each["machine"] for each in found] == ["h100", "h100"]


@pytest.mark.parametrize("kind", ["transfers", "time"])
def test_a_derivation_that_cannot_be_read_is_no_plot(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    plot = ["--plot", f"{kind}={tmp_path / 'plot.svg'}", "--size", "m=64:128:2x"]
    assert main(["explain", MATMUL, *plot, "--replay", str(tmp_path / "missing")]) == 2
    assert "cannot read the derivation" in capsys.readouterr().err


def test_a_derivation_is_fused_as_it_says(replayed: list[str], capsys: pytest.CaptureFixture[str]):
    assert main(["explain", MATMUL, *replayed, "--against", "unfused"]) == 2
    assert "derives the program in another way than --replay asks for" in capsys.readouterr().err
