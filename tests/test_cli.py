"""The command line: what it does, and what it says to whoever makes a mistake."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from commands import program, refused

from treadle.compiler import main as cli
from treadle.compiler.pipeline import Options, pipeline
from treadle.runtime.nvcc import find_nvcc

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.mlir"))
ATTENTION = str(ROOT / "examples" / "attention.mlir")
MATMUL = str(ROOT / "examples" / "matmul.mlir")
SMALL = ["--size", "m=20", "--size", "n=24", "--size", "k=40"]

needs_nvcc = pytest.mark.skipif(find_nvcc() is None, reason="there is no nvcc")


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


# -- doing ------------------------------------------------------------------------------------------


@pytest.mark.sample(7)
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_compiles_and_verifies(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["compile", str(path), "-o", "out.cu"]) == 0
    text = Path("out.cu").read_text()
    assert "__global__" in text
    assert "asm" in text or "mma" not in text
    capsys.readouterr()
    assert cli.main(["run", str(path)]) == 0
    captured = capsys.readouterr()
    unknown = r"(, \d+ of \d+ elements without a bound)?"  # of sums that cancel, as state_space has among its own
    loose = r"(; loose: [^)]*)?" if "f8" in path.stem else ""  # of few products, which rounding to 8 bits leaves coarse
    likely = "(, if roundings are independent)?" if path.stem == "delta_rule" else ""  # which go from token to token
    told = rf"verified \(\w+\): \w+ max error \S+ \(tolerance \S+?{unknown}{likely}{loose}\)\n"
    assert re.fullmatch(rf"({told})+", captured.out)


def test_compile_prints_to_standard_output_what_it_writes_to_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["compile", MATMUL]) == 0
    printed = capsys.readouterr().out
    assert cli.main(["compile", MATMUL, "-o", "out.cu"]) == 0
    assert Path("out.cu").read_text() == printed
    assert cli.main(["compile", MATMUL, "-o", "-"]) == 0
    assert capsys.readouterr().out == printed
    assert not Path("-").exists()


def test_a_size_on_compile_is_static(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["compile", MATMUL, "--size", "k=64", "--print-after", "diagram-set-sizes"]) == 0
    assert "tensor<?x64xf16, #diagram.array<[m, k]>>" in capsys.readouterr().err


def test_report(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["compile", MATMUL, "-o", "out.cu", "--report"]) == 0
    report = capsys.readouterr().out
    for spec in pipeline(Options()):
        assert re.search(rf"^  {spec.name} +[\d.]+ ms", report, re.M), spec.name
    assert "group m" in report
    assert "stream k" in report
    assert "cost model" in report


@needs_nvcc
def test_cubin_and_registers(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["compile", program(), "--cubin", "out.cubin", "-o", "out.cu", "--report"]) == 0
    assert Path("out.cubin").read_bytes().startswith(b"\x7fELF")
    assert re.search(r"\d+ registers, 0 bytes spilled", capsys.readouterr().out)


def test_printing_before_and_after(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["compile", program(), "--print-before", "fusion", "--print-after", "fusion"]) == 0
    said = capsys.readouterr().err
    assert said.index("// -- before fusion --") < said.index("// -- after fusion --")
    assert said.count("hierarchy.kernel @") == 1
    assert "\nbuiltin.module {" in said or "\nbuiltin.module attributes" in said
    assert cli.main(["compile", program(), "--print-after", "all"]) == 0
    said = capsys.readouterr().err
    assert said.count("// -- after ") == len(pipeline(Options()))
    assert "// -- after diagram-set-sizes -- (unchanged)" in said


@pytest.mark.parametrize("backend", ["emulator", "interpreter"])
def test_run_says_where_and_how_exactly(backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", MATMUL, "--backend", backend, *SMALL]) == 0
    assert capsys.readouterr().out.startswith(f"verified ({backend}): C16 max error ")


def test_verbose_tells_the_story_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", MATMUL, "--verbose", *SMALL]) == 0
    told = capsys.readouterr().out
    heads = ["derived", "sizes", "predicted transfers (", "ran in: ", "verified ("]
    places = [told.index(f"\n{head}" if head != "derived" else head) for head in heads]
    assert places == sorted(places)


def test_verbose_says_why_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", str(ROOT / "examples" / "two_kernels.mlir"), "--verbose"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "decline warp-specialization" in told
    assert "the machine a100 is sm_80" in told
    assert "only one axis can be streamed" in told


def test_how_to_launch_stands_in_the_file() -> None:
    assert cli.main(["compile", program(), "-o", "out.cu"]) == 0
    text = Path("out.cu").read_text()
    assert re.search(
        r"^// Launch: ceil\(m / \d+\) \* ceil\(n / \d+\) blocks along x, each of \d+ threads; \d+ bytes", text, re.M
    )
    entries = re.findall(r"void __launch_bounds__\(\d+(?:, \d+)?\) (\w+)\(", text)
    assert len(entries) > 1
    said = next(line for line in text.splitlines() if line.startswith("// The entry depends"))
    assert all(f"{entry} (" in said or f"{entry} takes any strides" in said for entry in entries)


def test_verify_each_runs_every_pass(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", program(), "--backend", "emulator", "--verify-each"]) == 0
    told = capsys.readouterr().out
    for spec in pipeline(Options()):
        assert re.search(rf"^  {spec.name}: (unchanged|verified)", told, re.M), spec.name


def test_verify_each_names_the_first_wrong_pass(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from xdsl.dialects.builtin import FloatAttr, f32

    from treadle.dialects.diagram import FillOp
    from treadle.passes.tiling import TilingPass

    honest = TilingPass.apply

    def wrong(self, ctx, op):
        honest(self, ctx, op)
        for cast in [inner for inner in op.walk() if inner.name == "diagram.contract"]:
            fill = FillOp(FloatAttr(1.0, f32), cast.results[0].type)
            cast.parent_block().insert_op_before(fill, cast)
            cast.results[0].replace_all_uses_with(fill.result)

    monkeypatch.setattr(TilingPass, "apply", wrong)
    assert cli.main(["run", program(), "--backend", "interpreter", "--verify-each"]) == 1
    told = capsys.readouterr().out
    assert "WRONG: pass 'tiling' is the first that changes the result" in told
    assert re.search(r"^  streaming: (unchanged|verified)", told, re.M)


def test_a_wrong_result_is_exit_1(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from treadle.compiler.cli.run import Execution

    honest = Execution.run
    monkeypatch.setattr(Execution, "run", lambda *a: [result + 1 for result in honest(*a)])
    assert cli.main(["run", program(), "--backend", "interpreter"]) == 1
    assert capsys.readouterr().out.startswith("WRONG (interpreter): C[")


def test_what_cannot_be_verified_is_exit_4(capsys: pytest.CaptureFixture[str]) -> None:
    """Neither verified nor wrong: sums far beyond the largest f16."""
    np.savez("x.npz", A=np.full((5, 16), 6e4, np.float16), B=np.full((16, 7), 6e4, np.float16))
    text = Path(program()).read_text().replace("m, n]>>", "m, n]>>\n!H = tensor<?x?xf16, #diagram.array<[m, n]>>")
    text = text.replace("-> !C attributes", "-> !H attributes").replace(
        "  func.return %C : !C", "  %H = diagram.cast %C : !C -> !H\n  func.return %H : !H"
    )
    Path("p.mlir").write_text(text)
    for backend in ("interpreter", "emulator"):
        assert cli.main(["run", "p.mlir", "--backend", backend, "--inputs", "x.npz", "--verify-each"]) == 4
        told = capsys.readouterr().out
        assert "WRONG" not in told
        assert f"\ncannot be verified ({backend}): H: 35 of 35 elements have no tolerance" in told
        assert "smaller inputs, shorter sums or wider formats can be verified" in told


def test_wrong_outweighs_what_cannot_be_verified() -> None:
    from treadle.compiler.cli.run import exit_code
    from treadle.runtime.verify import Verdict

    right = Verdict("C", "here", ok=True, max_error=0.0, tolerance=1.0, elements=3)
    unknown = Verdict("C", "here", ok=False, max_error=0.0, tolerance=1.0, elements=3, unchecked=3)
    wrong = Verdict("C", "here", ok=False, max_error=2.0, tolerance=1.0, elements=3, wrong=1)
    assert exit_code([right, right]) == 0
    assert exit_code([right, unknown]) == 4
    assert exit_code([unknown, wrong, right]) == 1


def test_a_kernel_that_faults_is_exit_1(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from treadle.compiler.cli import run

    honest = run.print_cuda

    def without_barriers(module):
        return honest(module).replace("\n    barrier_block();", "\n    ;")

    assert "\n    barrier_block();" in _printed()
    monkeypatch.setattr(run, "print_cuda", without_barriers)
    assert cli.main(["run", MATMUL, "--backend", "emulator", *SMALL]) == 1
    assert re.match(r"WRONG \(emulator\): [\w ]+: matmul_kernel\w* line \d+", capsys.readouterr().out)
    assert cli.main(["run", MATMUL, "--backend", "emulator", "--verify-each", *SMALL]) == 1
    assert "WRONG: pass 'convert-hierarchy-to-cuda' is the first" in capsys.readouterr().out


def _printed() -> str:
    assert cli.main(["compile", MATMUL, "-o", "out.cu"]) == 0
    return Path("out.cu").read_text()


def test_a_kernel_that_no_compiler_takes_is_a_mistake_of_treadle(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from treadle.compiler.cli import run

    honest = run.print_cuda
    monkeypatch.setattr(run, "print_cuda", lambda module: honest(module) + "\nint 3;\n")
    assert cli.main(["run", program(), "--backend", "emulator"]) == 3
    assert "the compiler refuses what treadle printed" in capsys.readouterr().err


def test_a_pass_that_leaves_invalid_ir_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from xdsl.dialects.builtin import ArrayAttr

    from treadle.passes.tiling import TilingPass

    def broken(self, ctx, op):
        product = next(inner for inner in op.walk() if inner.name == "diagram.contract")
        product.properties["over"] = ArrayAttr([])

    monkeypatch.setattr(TilingPass, "apply", broken)
    assert cli.main(["compile", program()]) == 3
    said = capsys.readouterr().err
    assert "pass 'tiling' left invalid IR at 'diagram.contract' %C" in said
    assert "'over' names no axis" in said


def test_what_a_verifier_says_of_what_a_pass_makes_is_a_mistake_of_treadle(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from treadle.compiler import opt_main
    from treadle.dialects.diagram.array import ArrayEncoding
    from treadle.passes.tiling import TilingPass

    def broken(self, ctx, op):
        ArrayEncoding(["1a"])

    monkeypatch.setattr(TilingPass, "apply", broken)
    assert cli.main(["compile", program()]) == 3
    assert opt_main.main([program(), "-p", "set-machine{name=a100},fusion,streaming,tiling"]) == 3
    assert capsys.readouterr().err.count("pass 'tiling': internal error, please report it: VerifyException") == 2


def test_a_pass_that_fails_on_what_another_left_is_not_blamed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from xdsl.dialects.builtin import UnitAttr

    from treadle.passes.streaming import StreamingPass
    from treadle.passes.tiling import TilingPass

    def broken(self, ctx, op):
        next(inner for inner in op.walk() if inner.name == "diagram.contract").properties["odd"] = UnitAttr()

    def fails(self, ctx, op):
        assert not any("odd" in inner.properties for inner in op.walk())

    monkeypatch.setattr(StreamingPass, "apply", broken)
    monkeypatch.setattr(TilingPass, "apply", fails)
    assert cli.main(["compile", program()]) == 3
    assert "pass 'streaming' left invalid IR at 'diagram.contract' %C" in capsys.readouterr().err


def test_inputs_from_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    a = np.ones((3, 16), np.float16)
    b = np.asfortranarray(np.ones((16, 9), np.float16))
    np.savez("x.npz", A=a, B=b)
    assert cli.main(["run", program(), "--inputs", "x.npz"]) == 0
    assert capsys.readouterr().out.startswith("verified (")


def test_inputs_in_bf16_which_numpy_does_not_know(capsys: pytest.CaptureFixture[str]) -> None:
    import ml_dtypes

    np.savez("x.npz", A=np.ones((3, 16), ml_dtypes.bfloat16), B=np.ones((16, 9), ml_dtypes.bfloat16))
    assert cli.main(["run", program(FORMAT="bf16"), "--inputs", "x.npz", "--backend", "interpreter"]) == 0


def test_explain(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", MATMUL, "--machine", "h100"]) == 0
    text = capsys.readouterr().out
    assert "on h100" in text
    assert "device" in text
    assert cli.main(["explain", MATMUL, "--json", *SMALL]) == 0
    kernel = json.loads(capsys.readouterr().out)["kernels"][0]
    assert kernel["sizes"] == {"m": 20, "k": 40, "n": 24}


def test_an_existing_file_is_replaced_whole_and_keeps_its_mode() -> None:
    Path("out.cu").write_text("OLD TEXT")
    Path("out.cu").chmod(0o640)
    assert cli.main(["compile", program(), "-o", "out.cu"]) == 0
    assert "OLD TEXT" not in Path("out.cu").read_text()
    assert Path("out.cu").stat().st_mode & 0o777 == 0o640


# -- refusing ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["compile", "run", "explain"])
@pytest.mark.parametrize(
    ("replaced", "message"),
    [
        ({"diagram.contract": "diagram.contrct"}, "p.mlir:5:8: dialect 'diagram' has no operation"),
        ({"over [k]": "over [z]"}, "p.mlir:5:3: 'diagram.contract' %C: axis 'z' is reduced, but no operand has it"),
        ({"tensor<16x?": "tensor<8x?"}, "axis 'k' has size 16 in operand 0 but 8 in operand 1"),
        (
            {"FORMAT": "f64"},
            "unsupported number format f64 (supported: f8E4M3FN, f8E5M2, f16, bf16, f32, i8, ui8, i32)",
        ),
        (
            {"func.return %C": "%D = diagram.fill 0.0 : f32 -> tensor<8xf32, #diagram.array<[m]>>\n  func.return %C"},
            "'diagram.fill' %D: axis 'm' has size ? in %A but 8 in %D",
        ),
        ({"m = 5": "zz = 5"}, "'sizes' names axis 'zz'"),
        ({"m = 5": "k = 5"}, "'sizes' gives axis 'k' the size 5, but its size is 16"),
        ({"func.return": "func.retrun"}, "did you mean 'func.return'?"),
        ({"}\n": ""}, "expected"),
    ],
)
def test_bad_programs(command: str, replaced: dict[str, str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, command, program(**replaced))
    assert message in said
    assert said.startswith("treadle: p.mlir:")


@pytest.mark.parametrize("command", ["compile", "run", "explain"])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.mlir"], "no such file: missing.mlir"),
        (["."], "is a directory"),
        (["p.mlir", "--size", "z=3"], "there is no axis 'z' (the axes are m = ?, k = 16, n = ?)"),
        (["p.mlir", "--size", "k=3"], "axis 'k' has size 16 in the program and cannot be 3"),
        (["p.mlir", "--size", "m"], "write it as axis=number"),
        (["p.mlir", "--size", "m=-1"], "'-1' is not a size"),
        (["p.mlir", "--size", "m=1e3"], "'1e3' is not a size"),
        (["p.mlir", "--size", "m=99999999999"], "is not a size"),
        (["p.mlir", "--size", "m=3", "--size", "m=4"], "given twice"),
        (["p.mlir", "--machine", "h1000"], "did you mean 'h100'"),
        (["p.mlir", "--machine", "no/such.toml"], "no/such.toml"),
        (["p.mlir", "--arch", "sm_70"], "no code for 'sm_70', only for sm_80, "),
        (["p.mlir", "--arch", "sm_86"], "does not run on a100 (sm_80): name another machine"),
        (["p.mlir", "--arch", "sm_100"], "what is printed for sm_80 compiles with nvcc for newer ones too"),
        (["p.mlir", "--arch", "fast"], "no code for 'fast'"),
        (["p.mlir", "--machine", "a100", "--arch", "sm_90a"], "does not run on a100"),
    ],
)
def test_bad_arguments(command: str, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    program()
    assert message in refused(capsys, command, *arguments)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--sizes", "treadle run: error: unrecognized arguments: --sizes m=3; did you mean --size?\n"),
        ("--quick", "treadle run: error: unrecognized arguments: --quick m=3\n"),
    ],
)
def test_an_option_that_there_is_not(option: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert refused(capsys, "run", program(), option, "m=3").endswith(message)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-o", "no/such/out.cu"], "there is no folder no/such"),
        (["-o", "."], "it is a directory"),
        (["--print-after", "fuson"], "did you mean 'fusion'?"),
        (["--print-before", "x"], "the pipeline has no pass 'x'"),
    ],
)
def test_bad_outputs(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert message in refused(capsys, "compile", program(), *arguments)


def test_cubin_without_nvcc_writes_nothing(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treadle.runtime.nvcc.find_nvcc", lambda: None)
    said = refused(capsys, "compile", program(), "-o", "out.cu", "--cubin", "out.cubin")
    assert "nvcc was not found" in said
    assert cli.main(["compile", program(), "-o", "out.cu", "--report"]) == 0
    assert "nvcc was not found" in capsys.readouterr().out


def test_two_programs_in_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    text = Path(program()).read_text()
    Path("p.mlir").write_text(text + text[text.index("func.func") :].replace("@product", "@second"))
    assert "there are 2 functions (@product, @second)" in refused(capsys, "compile", "p.mlir")


def test_a_backend_that_is_not_here(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treadle.runtime.gpu.missing_for_gpu", lambda: "no GPU: none")
    monkeypatch.setattr("treadle.runtime.backend.has_host_compiler", lambda: False)
    assert "no GPU: none" in refused(capsys, "run", program(), "--backend", "gpu")
    assert "C++ compiler" in refused(capsys, "run", program(), "--backend", "emulator")
    assert cli.main(["run", program()]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("verified (interpreter)")
    assert "no C++ compiler" in captured.err


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"A": np.ones((3, 16), np.float16)}, "there is no array 'B'"),
        ({"A": np.ones((3, 15), np.float16), "B": np.ones((16, 2), np.float16)}, "axis 'k' of argument %A has 15"),
        ({"A": np.ones((3, 16), np.float32), "B": np.ones((16, 2), np.float16)}, "elements of float32"),
        ({"A": np.ones(16, np.float16), "B": np.ones((16, 2), np.float16)}, "has 1 dimensions: expected 2"),
        ({"A": np.ones((3, 16), np.float16), "B": np.array([{}])}, "Python objects"),
    ],
)
def test_wrong_inputs(arrays: dict[str, np.ndarray], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez("x.npz", **arrays)
    assert message in refused(capsys, "run", program(), "--inputs", "x.npz")


def test_files_that_hold_no_inputs(capsys: pytest.CaptureFixture[str]) -> None:
    np.save("one.npy", np.ones(3))
    Path("junk.npz").write_bytes(b"PK\x03\x04 junk")
    Path("text.npz").write_text("hello")
    for name in ("one.npy", "junk.npz", "text.npz", "missing.npz"):
        assert name in refused(capsys, "run", program(), "--inputs", name)
    np.savez("x.npz", A=np.ones((3, 16), np.float16), B=np.ones((16, 2), np.float16))
    assert "--size m=4, but" in refused(capsys, "run", program(), "--inputs", "x.npz", "--size", "m=4")


@pytest.mark.parametrize("seed", ["x", "-1"])
def test_bad_seeds(seed: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "seed" in refused(capsys, "run", program(), "--seed", seed)


def test_usage_errors_are_exit_2(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["paint"], ["run"], ["run", "p.mlir", "--backend", "tpu"], ["compile", "p.mlir", "--nope"]):
        refused(capsys, *arguments)


# -- a stranger's file ------------------------------------------------------------------------------


def words_of_code(path: str) -> set[str]:
    """What stands in a C file outside of line comments; a backslash must not end one late."""
    text = Path(path).read_text()
    assert not re.search(r"//[^\n]*\\\n", text)
    return set(re.findall(r"\w+", re.sub(r"//[^\n]*", "", text)))


NASTY = ['x*/system("id");/*', "x\\\nint evil;", "a b", "int", "q;", "__asm__", "é"]


@pytest.mark.parametrize("name", NASTY)
def test_names_cannot_inject_code(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As the name of the function, of an axis, of a value and of the file."""
    quoted = name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    as_function = Path(program(NAME=f'"{quoted}"')).read_text()
    as_axis = Path(program(**{"[m, ": f'["{quoted}", '})).read_text()
    as_generic = (
        Path(program())
        .read_text()
        .replace("attributes {", f'attributes {{"{quoted}" = "{quoted}", note = "{quoted}", ')
    )
    for text in (as_function, as_axis, as_generic):
        Path("p.mlir").write_text(text)
        code = cli.main(["compile", "p.mlir", "-o", "out.cu"])
        said = capsys.readouterr().err
        assert code in (0, 2), said
        assert "Traceback" not in said
        if code == 0:
            assert not {"evil", "system"} & words_of_code("out.cu")
            Path("out.cu").unlink()


def test_the_name_of_the_file_cannot_inject_code() -> None:
    text = Path(program()).read_text()
    nasty = Path("p\nint evil; \\\nint more.mlir")
    nasty.write_text(text)
    assert cli.main(["compile", str(nasty), "-o", "out.cu"]) == 0
    assert not {"evil", "more"} & words_of_code("out.cu")


# -- as a process -----------------------------------------------------------------------------------


def process(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False, **options)  # type: ignore


def test_nothing_heavy_is_imported_before_it_is_needed() -> None:
    script = f"""
import sys
from treadle.compiler.main import main
assert main(["compile", {MATMUL!r}, "-o", "out.cu", "--report"]) == 0
heavy = ("ml_dtypes", "sympy", "torch", "pycuda", "cuda", "hypothesis", "pytest")  # numpy estimates all sizes together
print([name for name in heavy if name in sys.modules], file=sys.stderr)
assert main(["run", {MATMUL!r}, "--backend", "interpreter", "--size", "m=3"]) == 0
print([name for name in ("sympy", "torch", "pycuda", "cuda") if name in sys.modules], file=sys.stderr)
"""
    done = process("-c", script)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-2:] == ["[]", "[]"]


def test_without_a_command_there_is_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main([])
    assert end.value.code == 0
    assert "examples:" in capsys.readouterr().out


def test_help_and_version_as_a_process() -> None:
    done = process("-m", "treadle.compiler.main", "--help")
    assert done.returncode == 0
    assert "exit codes" in done.stdout
    for command in ("compile", "run", "explain"):
        assert "examples:" in process("-m", "treadle.compiler.main", command, "--help").stdout


def test_a_reader_that_stops_is_no_error() -> None:
    command = f"{sys.executable} -m treadle.compiler.main compile {MATMUL} | head -1"
    done = subprocess.run(["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, text=True, check=False)
    assert done.stderr == ""


def test_ctrl_c_is_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_command", interrupted)
    assert cli.main(["compile", MATMUL]) == 130


def test_a_mistake_of_treadle_is_told_from_one_of_the_user(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: str) -> None:
        raise KeyError("oops")

    monkeypatch.setattr(cli, "_command", broken)
    monkeypatch.delenv("TREADLE_TRACEBACK", raising=False)
    assert cli.main(["compile", MATMUL]) == 3
    assert "internal error" in capsys.readouterr().err
    monkeypatch.setenv("TREADLE_TRACEBACK", "1")
    with pytest.raises(KeyError):
        cli.main(["compile", MATMUL])


def test_treadle_opt_locates_and_refuses() -> None:
    program()
    opt = ("-m", "treadle.compiler.opt_main", "p.mlir")
    done = process(*opt, "--print-debuginfo")
    assert 'loc("p.mlir":5:3)' in done.stdout
    for arguments, message in [
        (("-p", "fuson"), "Unrecognized passes: ['fuson']: did you mean 'fusion'? 'treadle passes' lists"),
        (("-p", "nothing-like-it"), "Unrecognized passes: ['nothing-like-it']: 'treadle passes' lists"),
        (("-o", "-"), "cannot write -: this goes to a file only"),
        (("-p", "fusion{"), "pass pipeline"),
        (("-p", 'diagram-set-sizes{sizes="z=1"}', "-o", "out.mlir"), "pass 'diagram-set-sizes': 'func.func' @product"),
        (("-o", "no/such/out.mlir"), "no folder"),
    ]:
        done = process(*opt, *arguments)
        assert done.returncode == 2, done.stderr
        assert message in done.stderr
        assert "Traceback" not in done.stderr
        assert not Path("out.mlir").exists()
    assert process(*opt, "-o", "out.mlir").returncode == 0
    assert "diagram.contract" in Path("out.mlir").read_text()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written(capsys: pytest.CaptureFixture[str]) -> None:
    Path("locked").mkdir(mode=0o500)
    assert "permission denied" in refused(capsys, "compile", program(), "-o", "locked/out.cu")
