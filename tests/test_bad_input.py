"""Programs that no kernel can be made of, or only just: one message with its place, or a right result; no traceback."""

from __future__ import annotations

import io
import os
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from commands import program, refused, written

from roads import array
from treadle.compiler import main as cli
from treadle.compiler import opt_main
from treadle.compiler.errors import TreadleError
from treadle.compiler.source import load_module
from treadle.runtime.inputs import check_inputs
from treadle.runtime.interpreter import entry_function

COMMANDS = ["compile", "run", "explain"]
TYPES = """!Z = tensor<f32, #diagram.array<[]>>
!A = tensor<?xf32, #diagram.array<[m]>>
!F = tensor<?x?xf32, #diagram.array<[m, k]>>
"""


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def verified(capsys: pytest.CaptureFixture[str], *arguments: str) -> None:
    for also in ([], ["--verify-each"]):
        code = cli.main(["run", *arguments, *also])
        captured = capsys.readouterr()
        assert code == 0, captured.err
        assert "verified (" in captured.out


# -- sizes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_a_size_beyond_32_bits(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, command, program(**{"x16x": f"x{2**31}x", "<16x": f"<{2**31}x"}))
    assert "p.mlir:" in said
    assert "axis 'k' has size 2147483648: an axis has at most 2147483647 elements" in said
    assert "at most" in refused(capsys, command, program(**{"m = 5": f"m = {2**31}"}))


def test_arrays_that_memory_cannot_hold(capsys: pytest.CaptureFixture[str]) -> None:
    most = str(2**31 - 1)
    said = refused(capsys, "run", program(), "--size", f"m={most}", "--size", f"n={most}")
    assert "not enough memory" in said
    assert "--size" in said


@pytest.mark.parametrize("backend", ["emulator", "interpreter"])
def test_arrays_whose_end_no_address_reaches(backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    """An input of 2^64 bytes, and a result of 2^62 elements."""
    text = f"""
!A = {array("f32", m=None, k=None)}
func.func @f(%A: !A) -> !A attributes {{sizes = #diagram.sizes<m = 3, k = 3>}} {{
  %B = diagram.map (%a = %A : !A) -> !A {{
    %b = arith.addf %a, %a : f32
    diagram.yield %b : f32
  }}
  func.return %B : !A
}}
"""
    most = str(2**31 - 1)
    said = refused(capsys, "run", written(text), "--size", f"m={most}", "--size", f"k={most}", "--backend", backend)
    assert "not enough memory" in said
    said = refused(capsys, "run", program(), "--size", f"m={most}", "--size", f"n={most}", "--backend", backend)
    assert "not enough memory" in said


def test_an_axis_without_elements_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    for sizes in (["m=0"], ["n=0"], ["m=0", "n=0"]):
        assert cli.main(["explain", program(), *(f"--size={size}" for size in sizes)]) == 0, capsys.readouterr().err


@pytest.mark.parametrize("command", COMMANDS)
def test_a_sum_of_floats_becomes_no_integer(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, command, program(**{"xf32": "xi32"}))
    assert "p.mlir:5:3: 'diagram.contract' %C: what accumulates in f32 cannot become i32" in said


@pytest.mark.parametrize("command", COMMANDS)
def test_a_narrow_accumulator(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything is decided, by the name that the program gives."""
    said = refused(capsys, command, program(**{"accumulate f32": "accumulate f16"}))
    assert (
        "p.mlir:5:3: pass 'fusion': 'diagram.contract' %C: it accumulates in f16, and kernels add up products" in said
    )
    assert "write 'accumulate f32'" in said


# -- programs ---------------------------------------------------------------------------------------


def constants(arguments: str) -> str:
    return written(
        TYPES
        + f"""func.func @f({arguments}) -> !A attributes {{sizes = #diagram.sizes<m = 5, k = 7>}} {{
  %F = diagram.fill 2.0 : f32 -> !F
  %S = diagram.reduce add %F over [k] : !F -> !A
  %C = diagram.map (%a = %A : !A, %s = %S : !A) -> !A {{
    %c = arith.addf %a, %s : f32
    diagram.yield %c : f32
  }}
  func.return %C : !A
}}
"""
    )


def test_a_sum_of_constants_along_an_axis_of_an_argument(capsys: pytest.CaptureFixture[str]) -> None:
    verified(capsys, constants("%A: !A, %B: !F"))
    assert cli.main(["explain", "p.mlir"]) == 0


@pytest.mark.parametrize("command", ["compile", "run"])
def test_a_sum_of_constants_along_an_axis_of_nothing(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, command, constants("%A: !A"))
    assert "reduces constants along 'k', and no array of the program has that axis" in said


def test_arrays_without_axes(capsys: pytest.CaptureFixture[str]) -> None:
    text = """func.func @f(%A: !A, %z: !Z) -> (!A, !Z) attributes {sizes = #diagram.sizes<m = 5>} {
  %C = diagram.map (%a = %A : !A, %s = %z : !Z) -> !A {
    %c = arith.addf %a, %s : f32
    diagram.yield %c : f32
  }
  %S = diagram.reduce add %C over [m] : !A -> !Z
  func.return %C, %S : !A, !Z
}
"""
    verified(capsys, written(TYPES + text))
    np.savez("x.npz", A=np.ones(3, np.float32), z=np.float32(2))
    verified(capsys, "p.mlir", "--inputs", "x.npz")


@pytest.mark.parametrize("command", ["compile", "run"])
def test_a_program_that_computes_nothing(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = "func.func @f(%A: !A) -> !A {\n  func.return %A : !A\n}\n"
    said = refused(capsys, command, written(TYPES + text), *(["--size", "m=3"] if command == "run" else []))
    assert "p.mlir:4:1: 'func.func' @f: it computes nothing" in said


@pytest.mark.parametrize("command", ["compile", "run"])
def test_a_program_that_only_reads(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The host makes views: there is no kernel, and no pass was forgotten."""
    text = """!T = tensor<?x?xf32, #diagram.array<[k, m]>>
func.func @f(%A: !F) -> !T attributes {sizes = #diagram.sizes<m = 5, k = 3>} {
  %B = diagram.read %A at "m, k" : !F -> !T
  func.return %B : !T
}
"""
    assert "p.mlir:5:1: 'func.func' @f: it computes nothing" in refused(capsys, command, written(TYPES + text))


@pytest.mark.parametrize("command", ["compile", "run"])
def test_a_read_with_zeros_around_gives_no_size(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One that goes over all of an axis has that axis's size; any other may go on for ever."""
    text = """!W = tensor<?x3xf32, #diagram.array<[t, r]>>
!B = tensor<?xf32, #diagram.array<[t]>>
func.func @f(%A: !A) -> !B attributes {sizes = #diagram.sizes<m = 5, t = 5>} {
  %W = diagram.read %A at "t + r - 1" padded : !A -> !W
  %B = diagram.reduce add %W over [r] : !W -> !B
  func.return %B : !B
}
"""
    said = refused(capsys, command, written(TYPES + text))
    assert "p.mlir:7:3: " in said
    assert "'diagram.read' %W: nothing tells the size of axis 't' at launch" in said
    verified(capsys, written(TYPES + text.replace("?x3", "5x3").replace("?xf32", "5xf32").replace(", t = 5", "")))
    verified(capsys, written(TYPES + text.replace("[t", "[m").replace("t + r", "m + r").replace(", t = 5", "")))


def test_an_argument_may_be_a_result_too(capsys: pytest.CaptureFixture[str]) -> None:
    text = """func.func @f(%A: !A) -> (!A, !A, !A) attributes {sizes = #diagram.sizes<m = 5>} {
  %C = diagram.map (%a = %A : !A) -> !A {
    %c = arith.addf %a, %a : f32
    diagram.yield %c : f32
  }
  func.return %A, %C, %C : !A, !A, !A
}
"""
    verified(capsys, written(TYPES + text))


@pytest.mark.parametrize("command", COMMANDS)
def test_an_array_in_the_body_of_a_map(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = """func.func @f(%A: !A) -> !A {
  %C = diagram.map (%a = %A : !A) -> !A {
    %k = arith.constant dense<2.0> : tensor<4xf32>
    diagram.yield %a : f32
  }
  func.return %C : !A
}
"""
    assert "everything in it is a scalar" in refused(capsys, command, written(TYPES + text))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_name_that_is_defined_twice(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = "func.func @f(%A: !A) -> !A {\n  func.return %A : !A\n}\nfunc.func private @f(%A: !A) -> !A\n"
    assert "p.mlir:7:1: 'func.func' @f: @f is defined twice" in refused(capsys, command, written(TYPES + text))


def test_a_chain_longer_than_python_recurses(capsys: pytest.CaptureFixture[str]) -> None:
    """Maps become one; its body is as long as the chain."""
    body = "%c = math.sin %a : f32\n    diagram.yield %c : f32"
    maps = [f"  %v{i + 1} = diagram.map (%a = %v{i} : !A) -> !A {{\n    {body}\n  }}\n" for i in range(1100)]
    text = "func.func @f(%v0: !A) -> !A {\n" + "".join(maps) + "  func.return %v1100 : !A\n}\n"
    assert cli.main(["run", written(TYPES + text), "--size", "m=3"]) == 0
    assert capsys.readouterr().out.startswith("verified (")


SCALARS = (
    TYPES
    + """func.func @f(%A: !A, %s: f16, %t: f32, %u: i32) -> !A attributes {sizes = #diagram.sizes<m = 5>} {
  %C = diagram.map (%a = %A : !A, %b = %s : f16, %c = %t : f32, %d = %u : i32) -> !A {
    %x = arith.extf %b : f16 to f32
    %y = arith.mulf %a, %x : f32
    %z = arith.addf %y, %c : f32
    %v = arith.sitofp %d : i32 to f32
    %w = arith.addf %z, %v : f32
    diagram.yield %w : f32
  }
  func.return %C : !A
}
"""
)


def test_scalars_in_every_format(capsys: pytest.CaptureFixture[str]) -> None:
    verified(capsys, written(SCALARS))
    verified(capsys, written(SCALARS.replace("f16", "bf16")))
    for whole in (7, -(2**31)):
        np.savez("x.npz", A=np.ones(3, np.float32), s=np.float16(2), t=0.1, u=whole)
        verified(capsys, written(SCALARS), "--inputs", "x.npz")


@pytest.mark.parametrize("backend", ["emulator", "interpreter"])
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"u": 3.5}, "argument %u is 3.5: expected a whole number"),
        ({"u": 2**31}, "argument %u has elements of int64: the program says i32"),
        ({"u": -(2**31) - 1}, "argument %u has elements of int64: the program says i32"),
        ({"u": -(2**63)}, "argument %u has elements of int64: the program says i32"),
        ({"u": np.float32(3)}, "argument %u has elements of float32: the program says i32"),
        ({"s": np.float32(3)}, "convert it (array.astype(numpy.float16))"),
        ({"t": "x"}, "argument %t has elements of <U1"),
        ({"t": np.ones(1, np.float32)}, "argument %t has 1 dimensions: expected 0"),
        ({"A": np.array("x")}, "argument %A has 0 dimensions: expected 1"),
        ({"A": np.ones(3, ">f4")}, "argument %A has elements of >f4: the program says f32"),
    ],
)
def test_numbers_that_a_format_does_not_hold(
    backend: str, changed: dict[str, object], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given: dict[str, object] = {"A": np.ones(3, np.float32), "s": np.float16(2), "t": 0.1, "u": 7}
    np.savez("x.npz", **{**given, **changed})  # type: ignore[arg-type]
    assert message in refused(capsys, "run", written(SCALARS), "--inputs", "x.npz", "--backend", backend)


@pytest.mark.parametrize("number", [-(2**31), 2**31 - 1])
def test_the_least_and_the_greatest_number_of_a_format(number: int, capsys: pytest.CaptureFixture[str]) -> None:
    """As numpy saves a number of Python's, and as a caller gives it."""
    np.savez("x.npz", A=np.ones(3, np.float32), s=np.float16(2), t=0.1, u=number)
    verified(capsys, written(SCALARS), "--inputs", "x.npz")
    function = entry_function(load_module("p.mlir"))
    assert check_inputs(function, [np.ones(3, np.float32), np.float16(2), 0.1, number]) == {"m": 3}
    with pytest.raises(TreadleError, match="expected a whole number that i32 holds"):
        check_inputs(function, [np.ones(3, np.float32), np.float16(2), 0.1, number + (1 if number > 0 else -1)])


def archive(**members: bytes) -> None:
    with zipfile.ZipFile("x.npz", "w") as file:
        for name, content in members.items():
            file.writestr(f"{name}.npy", content)


def npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def header(shape: str) -> bytes:
    text = f"{{'descr': '<f2', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00v\x00" + text.encode()


@pytest.mark.parametrize(
    ("member", "message"),
    [
        (b"hello", "'A' in it is no array"),
        (npy(np.ones((3, 16), np.float16))[:-20], "expected 96 bytes got 76"),
        (header("(100000000000, 16)"), "Unable to allocate"),
        (header("(-3, 16)"), "negative dimensions"),
        (header("(" * 200), "cannot be read as an .npz"),
        (npy(np.array([None])), "it holds Python objects"),
    ],
)
def test_archives_that_hold_no_arrays(member: bytes, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    archive(A=member, B=npy(np.ones((16, 2), np.float16)))
    said = refused(capsys, "run", program(), "--inputs", "x.npz")
    assert said.startswith("treadle: x.npz: ")
    assert message in said


# -- laws -------------------------------------------------------------------------------------------

LAWS = """!x = tensor<?xf32, #diagram.array<[i]>>
!xq = tensor<?x8xf32, #diagram.array<[i, q]>>
!s = tensor<f32, #diagram.array<[]>>
!S = tensor<8x?xf32, #diagram.array<[q, k]>>
diagram.law @centre over [i] (%v : !x) -> !x {
  %largest = diagram.reduce max %v over [i] : !x -> !s
  %y = diagram.map (%a = %v : !x, %b = %largest : !s) -> !x {
    %d = arith.subf %a, %b : f32
    diagram.yield %d : f32
  }
  diagram.yield %y : !x
}
diagram.law @twice over [i] (%v : !x) -> !x {
  %w = diagram.apply @centre(%v) over [i] : (!x) -> !x
  %y = diagram.apply @softmax(%w) over [i] : (!x) -> !x
  diagram.yield %y : !x
}
diagram.law @endless over [i] (%v : !x) -> !x {
  %w = diagram.apply @endless(%v) over [i] : (!x) -> !x
  diagram.yield %w : !x
}
diagram.law @own over [i] (%v : !x) -> !x {
  %f = diagram.fill 1.0 : f32 -> !xq
  %r = diagram.reduce add %f over [q] : !xq -> !x
  diagram.yield %r : !x
}
func.func @f(%B: !S) -> !S attributes {sizes = #diagram.sizes<k = 70>} {
  %C = diagram.apply @LAW(%B) over [k] : (!S) -> !S
  func.return %C : !S
}
"""


def law(name: str) -> str:
    return written(LAWS.replace("@LAW", f"@{name}"))


def test_a_law_may_apply_laws(capsys: pytest.CaptureFixture[str]) -> None:
    verified(capsys, law("twice"))


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("endless", "law @endless applies itself, so its meaning has no end"),
        ("own", "law @own has an axis 'q' of its own, and so has an array that it is applied to"),
        ("none", "no law for 'none' on axis 'k': define @none"),
        ("centr", "no law for 'centr' on axis 'k'; perhaps @centre is meant: define @centr"),
    ],
)
def test_laws_that_cannot_be_applied(command: str, name: str, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, command, law(name))
    assert "p.mlir:28:3: " in said
    assert why in said


def test_a_law_captures_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    text = law("centre")
    text = Path(text).read_text().replace("diagram.law @own", "%out = diagram.fill 1.0 : f32 -> !x\ndiagram.law @own")
    said = refused(capsys, "run", written(text.replace("yield %r", "yield %out")))
    assert "'diagram.law' @own" in said


# -- files that are written -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["-o", "p.mlir"], "it is the program itself too"),
        (["-o", "d.txt", "--replay", "d.txt"], "it is the derivation to replay too"),
        (["-o", "x.cu", "--cubin", "./x.cu"], "it is another output too"),
        (["-o", ""], "its name is empty"),
        (["-o", "a\0b"], "its name is empty or holds a zero byte"),
        (["-o", "x" * 300], "cannot write"),
        (["-o", "x.cu/"], "it is a directory, name a file in it"),
        (["--html", "-"], "cannot write -: this goes to a file only"),
        (["--cubin", "-"], "cannot write -: this goes to a file only"),
    ],
)
def test_outputs_that_cannot_be(arguments: list[str], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert why in refused(capsys, "compile", program(), *arguments)


@pytest.mark.parametrize("command", [["compile"], ["draw"], ["explain", "--plot"]])
def test_no_command_writes_over_what_it_reads(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    Path("m.toml").write_text('base = "a100"\n')
    Path("link").symlink_to("p.mlir")
    for target in ("p.mlir", "link", "./p.mlir", "m.toml"):
        option = ["--plot", f"time={target}"] if command[0] == "explain" else ["-o", target]
        given = [] if command[0] == "draw" else ["--machine", "m.toml"]
        if target == "m.toml" and not given:
            continue
        assert "too; give each file a name" in refused(capsys, command[0], program(), *given, *option)


def test_of_two_files_none_appears_if_one_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    from treadle.compiler import files
    from treadle.compiler.errors import TreadleError

    def full(target: Path, content: bytes) -> Path:
        if target.name == "second":
            raise OSError(28, "No space left on device")
        return honest(target, content)

    honest = files._staged
    monkeypatch.setattr(files, "_staged", full)
    with pytest.raises(TreadleError, match="cannot write second: No space left on device"):
        files.write_all_whole({"first": b"1", "second": b"2"})
    assert list(Path().iterdir()) == []


def test_a_link_stays_a_link() -> None:
    Path("real.cu").write_text("old")
    Path("link.cu").symlink_to("real.cu")
    assert cli.main(["compile", program(), "-o", "link.cu"]) == 0
    assert Path("link.cu").is_symlink()
    assert "__global__" in Path("real.cu").read_text()


def test_one_array_is_no_archive(capsys: pytest.CaptureFixture[str]) -> None:
    np.save("one.npy", np.ones(3, np.float16))
    assert "this is one array, not an .npz" in refused(capsys, "run", program(), "--inputs", "one.npy")


def test_a_file_of_another_kind_is_no_archive(capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, "run", program(), "--inputs", "p.mlir")
    assert said.startswith(
        "treadle: p.mlir: cannot be read as an .npz of numbers: it is none: make one with numpy.savez"
    )


def test_the_optimizer_refuses_what_is_not_text(capsys: pytest.CaptureFixture[str]) -> None:
    Path("p.mlir").write_bytes(bytes(range(256)))
    assert opt_main.main(["p.mlir"]) == 2
    assert "byte 128 is not UTF-8" in capsys.readouterr().err


def with_streams(arguments: list[str], streams: str, unbuffered: str) -> subprocess.CompletedProcess[str]:
    command = shlex.join([sys.executable, "-m", "treadle.compiler.main", *arguments])
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    return subprocess.run(["sh", "-c", f"{command} {streams}"], env=environment, capture_output=True, text=True)


@pytest.mark.sample(3)
@pytest.mark.parametrize(("streams", "code"), [("<&- >&-", 0), ("<&- >&- 2>&-", 0), ("> /dev/full", 2)])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_closed_streams_and_a_full_disk_are_no_internal_errors(streams: str, code: int, unbuffered: str) -> None:
    done = with_streams(["explain", program()], streams, unbuffered)
    assert done.returncode == code, done.stderr
    assert "internal error" not in done.stderr
    assert "Exception ignored" not in done.stderr


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["--version"]])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_help_on_a_full_disk(arguments: list[str], unbuffered: str) -> None:
    done = with_streams(arguments, "> /dev/full", unbuffered)
    assert done.returncode == 2
    assert done.stderr == "treadle: cannot read or write the output: No space left on device\n"


@pytest.mark.parametrize(("streams", "code"), [(">&-", 0), ("| :", 0), ("> /dev/full", 2)])
def test_the_optimizer_with_closed_streams_and_a_full_disk(streams: str, code: int) -> None:
    """Whoever reads may stop, and that is no error."""
    program()
    line = f"{sys.executable} -m treadle.compiler.opt_main -p fusion p.mlir 2> told"
    subprocess.run(["sh", "-c", f"({line}; echo $? > code) {streams}"], check=True)
    assert Path("code").read_text().strip() == str(code)
    told = Path("told").read_text()
    assert told == ("treadle-opt: cannot read or write the output: No space left on device\n" if code else "")


def test_files_may_begin_with_a_mark_of_their_encoding(capsys: pytest.CaptureFixture[str]) -> None:
    """Some editors write one. Places in messages do not count it."""
    mark = b"\xef\xbb\xbf"
    Path("m.toml").write_bytes(mark + b'base = "a100"\n')
    Path(program()).write_bytes(mark + Path("p.mlir").read_bytes())
    assert cli.main(["compile", "p.mlir", "--machine", "m.toml", "-o", "p.cu"]) == 0
    assert opt_main.main(["p.mlir", "-p", "fusion"]) == 0
    capsys.readouterr()
    Path("p.mlir").write_bytes(mark + b"nothing\n")
    assert "p.mlir:1:1: " in (said := refused(capsys, "compile", "p.mlir"))
    assert "    1 | nothing\n" in said


def test_a_line_is_no_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert "no such file: -; /dev/stdin is standard input" in refused(capsys, "compile", "-")
