"""`treadle.compile`: kernels in Python's hand, their cache on disk, and what is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import treadle
from treadle import TreadleError, derive, store
from treadle.compiler.pipeline import Options
from treadle.runtime import cache
from treadle.texts import Estimate

EXAMPLES = Path(__file__).parents[1] / "examples"
MATMUL = """
func.func @product(%A: tensor<?x?xf32, #diagram.array<[m, k]>>, %B: tensor<?x?xf32, #diagram.array<[k, n]>>)
    -> tensor<?x?xf32, #diagram.array<[m, n]>> attributes {sizes = #diagram.sizes<m = 64, n = 64, k = 64>} {
  %C = diagram.contract %A, %B over [k] accumulate f32
    : tensor<?x?xf32, #diagram.array<[m, k]>>, tensor<?x?xf32, #diagram.array<[k, n]>>
    -> tensor<?x?xf32, #diagram.array<[m, n]>>
  func.return %C : tensor<?x?xf32, #diagram.array<[m, n]>>
}
"""
OUTER = """
!x = tensor<?xf32, #diagram.array<[i]>>
!y = tensor<?xf32, #diagram.array<[j]>>
!o = tensor<?x?xf32, #diagram.array<[i, j]>>
func.func @outer(%x: !x, %y: !y) -> !o {
  %o = diagram.map (%a = %x : !x, %b = %y : !y) -> !o {
    %c = arith.mulf %a, %b : f32
    diagram.yield %c : f32
  }
  func.return %o : !o
}
"""


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("TREADLE_CACHE", str(folder))
    return folder


@pytest.fixture(scope="module")
def product() -> treadle.Kernel:
    return treadle.compile(MATMUL)


def matrices(m: int = 30, n: int = 20, k: int = 40) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    return random.standard_normal((m, k), np.float32), random.standard_normal((k, n), np.float32)


def test_nothing_is_imported_before_it_is_used() -> None:
    code = "import treadle, sys; print([n for n in ('xdsl', 'numpy', 'torch', 'sympy', 'pycuda') if n in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_a_kernel_runs_at_any_size(product: treadle.Kernel) -> None:
    for sizes in ((30, 20, 40), (1, 1, 1), (65, 7, 33)):
        A, B = matrices(*sizes)
        np.testing.assert_allclose(product.run(A, B), A @ B, rtol=1e-5, atol=1e-4)
        np.testing.assert_array_equal(product(A, B=B), product(B=B, A=A))


def test_a_kernel_tells_what_it_is(product: treadle.Kernel) -> None:
    assert repr(product) == ("<treadle kernel product(A: f32[m, k], B: f32[k, n]) -> C: f32[m, n], for a100 (sm_80)>")
    assert product.arguments[0] == treadle.Argument("A", {"m": None, "k": None}, "f32")
    assert "__global__" in product.cuda
    assert "hierarchy.kernel" in product.hierarchy
    assert "cuda.launch" in product.host
    assert any(step.rewrite == "choose sizes" for step in product.derivation)
    small, large = (product.cost(m=m, n=512, k=512).kernels[0].levels[0].transfer_values for m in (512, 1024))
    assert small < large


def test_costs_are_of_sizes_that_the_program_leaves_open() -> None:
    kernel = treadle.compile(EXAMPLES / "attention.mlir")
    with pytest.raises(TreadleError, match="axis 'd' has size 64 in the program and cannot be 3"):
        kernel.cost(d=3)
    with pytest.raises(TreadleError, match="there is no axis 'keys'"):
        kernel.cost(keys=3)


def test_sizes_machine_and_architecture_are_options() -> None:
    kernel = treadle.compile(MATMUL, machine="h100", sizes={"k": 64})
    assert (kernel.machine, kernel.arch) == ("h100", "sm_90a")
    assert kernel.arguments[0].axes == {"m": None, "k": 64}
    assert treadle.compile(EXAMPLES / "softmax.mlir", arch="sm_80").arch == "sm_80"


def test_a_module_stays_as_it_is() -> None:
    from treadle.compiler.source import parse_module

    module = parse_module(MATMUL)
    before = str(module)
    assert treadle.compile(module).name == "product"
    assert str(module) == before


def test_verify_gives_the_verdicts_of_the_command_line(product: treadle.Kernel) -> None:
    (verdict,) = product.verify(*matrices())
    assert verdict.ok
    assert str(verdict).startswith("verified (emulator): C max error")


def test_the_interpreter_runs_it_too(product: treadle.Kernel) -> None:
    A, B = matrices()
    result = product.run(A, B, backend="interpreter")
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, A @ B, rtol=1e-5, atol=1e-4)


def test_any_strides_are_taken(product: treadle.Kernel) -> None:
    A, B = matrices()
    np.testing.assert_allclose(product(A.T.copy().T, B[::1, ::-1]), A @ B[:, ::-1], rtol=1e-5, atol=1e-4)


def test_torch_tensors_in_every_format() -> None:
    torch = pytest.importorskip("torch")
    kernel = treadle.compile(EXAMPLES / "attention_bf16.mlir")
    Q, K, V = (torch.randn(2, n, size).bfloat16() for n, size in ((20, 128), (30, 128), (30, 128)))
    result = kernel(Q, K, V)
    assert result.dtype == torch.bfloat16
    expected = torch.nn.functional.scaled_dot_product_attention(Q.double(), K.double(), V.double())
    assert (result.double() - expected).abs().max() < 0.05
    numpy = [each.float().numpy().astype(ml_dtypes.bfloat16) for each in (Q, K, V)]
    np.testing.assert_array_equal(kernel(*numpy).astype(np.float32), result.float().numpy())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (lambda A, B: (A,), r"^product takes 2 arguments \(A, B\), 1 are given$"),
        (
            lambda A, B: (A, B.astype(np.float64)),
            r"^product: argument 'B' has elements of float64: the program says f32; convert it \(array.astype\(numpy.f",
        ),
        (
            lambda A, B: (A, np.ma.masked_array(B)),
            r"^product: argument 'B' is a masked array, whose mask kernels do not see: pass array.filled\(...\)",
        ),
        (lambda A, B: (A, B[1:]), "^product: axis 'k' has 40 elements in argument 'A', but 39 in 'B'$"),
        (lambda A, B: (A, B[0]), r"^product: argument 'B' has 1 dimensions: expected 2, axes \[k, n\]$"),
        (lambda A, B: (A, B.tolist()), "^product: argument 'B' is a list: pass a numpy array"),
        (lambda A, B: (A, "B"), "^product: argument 'B' is a str: pass a numpy array"),
    ],
)
def test_arguments_that_do_not_fit(product: treadle.Kernel, arguments: object, message: str) -> None:
    with pytest.raises(TreadleError, match=message):
        product(*arguments(*matrices()))  # type: ignore[operator]


def test_tensors_that_do_not_fit(product: treadle.Kernel) -> None:
    torch = pytest.importorskip("torch")
    A, B = map(torch.from_numpy, matrices())
    with pytest.raises(
        TreadleError, match=r"'B' has .* float16: the program says f32; convert it \(tensor.to\(torch.f"
    ):
        product(A, B.half())
    with pytest.raises(TreadleError, match=r"^product: argument 'B' lies on the device 'meta': use a CPU or a CUDA"):
        product(A, B.to("meta"))


def test_names_that_do_not_fit(product: treadle.Kernel) -> None:
    A, B = matrices()
    with pytest.raises(TreadleError, match="no argument 'X'"):
        product(A, X=B)
    with pytest.raises(TreadleError, match="'A' twice"):
        product(A, A=A)
    with pytest.raises(TreadleError, match="needs B, too"):
        product(A=A)
    with pytest.raises(TreadleError, match="no backend 'tpu'"):
        product(A, B, backend="tpu")


def test_a_place_that_is_not_here(product: treadle.Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    """What would do instead is told as a call says it, not as the command line does."""
    monkeypatch.setattr("treadle.runtime.gpu.missing_for_gpu", lambda: "no GPU: there is no driver")
    with pytest.raises(TreadleError, match=r'^no GPU: there is no driver; backend="emulator" needs none$'):
        product(*matrices(), backend="gpu")


TWO = """!x = tensor<?xf32, #diagram.array<[i]>>
func.func {}@f(%X: !x) -> !x {{
  %Y = diagram.map (%a = %X : !x) -> !x {{
    %b = arith.mulf %a, %a : f32
    diagram.yield %b : f32
  }}
  func.return %Y : !x
}}
func.func {}@g(%X: !x) -> !x {{
  func.return %X : !x
}}"""


@pytest.mark.parametrize(
    ("program", "options", "message"),
    [
        ("no/such/file.mlir", {}, "no such file"),
        ("func.func @f(\n", {}, "<string>"),
        (MATMUL, {"sizes": {"q": 1}}, "no axis 'q'"),
        (MATMUL, {"sizes": "m=3"}, "^sizes are 'm=3': give a dict of them"),
        (MATMUL, {"machine": "H100"}, "unknown machine 'H100': .*; did you mean 'h100'"),
        (MATMUL, {"sizes": {"m": 2**31}}, "^the size of axis 'm' is 2147483648: sizes are whole numbers from 0 to"),
        (EXAMPLES / "attention.mlir", {"sizes": {"d": 32}}, "or give it no size"),
        (MATMUL, {"machine": "abacus"}, "abacus"),
        (MATMUL, {"arch": "sm_1"}, "sm_1"),
        (TWO.format("", ""), {}, r"there are 2 functions \(@f, @g\): keep one in a file"),
        (TWO.format("private ", ""), {}, r"there are 2 functions \(@f, @g\)"),  # @g would run what @f says
        (TWO.format("private ", "private "), {}, r"there are 2 functions \(@f, @g\)"),
        ("builtin.module {\n}", {}, "there is no func.func with a body"),
    ],
)
def test_what_cannot_be_compiled(program: str | Path, options: dict[str, object], message: str) -> None:
    with pytest.raises(TreadleError, match=message):
        treadle.compile(program, **options)  # type: ignore[arg-type]


# -- files ---------------------------------------------------------------------------------------


def test_a_saved_kernel_is_the_same(product: treadle.Kernel, tmp_path: Path) -> None:
    product.save(tmp_path / "product.treadle")
    again = treadle.load(tmp_path / "product.treadle")
    A, B = matrices()
    np.testing.assert_array_equal(again(A, B), product(A, B))
    assert again.derivation == product.derivation
    assert again.cuda == product.cuda


def test_what_cannot_be_loaded(product: treadle.Kernel, tmp_path: Path) -> None:
    path = tmp_path / "product.treadle"
    with pytest.raises(TreadleError, match="no such file"):
        treadle.load(path)
    product.save(path)
    data = json.loads(path.read_text())
    for text, message in (
        ("{", "no saved kernel"),
        ("[]", "no saved kernel"),
        (json.dumps(data | {"format": "another"}), "no saved kernel"),
        (json.dumps(data | {"more": 1}), "no saved kernel"),
        (json.dumps(data | {"version": "0.0"}), "saved by treadle 0.0.*compile the program again"),
    ):
        path.write_text(text)
        with pytest.raises(TreadleError, match=message):
            treadle.load(path)


def test_a_file_that_cannot_be_written(product: treadle.Kernel, tmp_path: Path) -> None:
    with pytest.raises(TreadleError, match="there is no folder"):
        product.save(tmp_path / "nowhere" / "file")


# -- the cache -----------------------------------------------------------------------------------


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The programs that were compiled and not taken from the cache."""
    done: list[str] = []
    original = derive._derive

    def counted(module: object, text: str, options: object) -> object:
        done.append(text)
        return original(module, text, options)  # type: ignore[arg-type]

    monkeypatch.setattr(derive, "_derive", counted)
    return done


def test_a_compilation_is_done_once(empty_cache: Path, compilations: list[str], tmp_path: Path) -> None:
    first, second = treadle.compile(MATMUL), treadle.compile(MATMUL)
    assert len(compilations) == 1
    assert first.cuda == second.cuda
    treadle.compile(MATMUL, sizes={"k": 8})
    treadle.compile(MATMUL, machine="h100")
    treadle.compile(MATMUL, cache=False)
    assert len(compilations) == 4


def test_an_estimate_is_made_once(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = treadle.compile(MATMUL)
    cost, estimate = kernel.cost(), kernel.estimate
    of_device = [level.memory_bytes for each in cost.kernels for level in each.levels if level.name == "device"]
    assert estimate == Estimate(len(cost.kernels), cost.time_us, sum(of_device))

    def unexpected(*_: object) -> None:
        raise AssertionError("the estimate is worked out again")

    monkeypatch.setattr("treadle.compiled._explained", unexpected)
    assert treadle.compile(MATMUL).estimate == estimate
    with pytest.raises(AssertionError):
        _ = treadle.compile(MATMUL, cache=False).estimate


def test_another_state_of_the_sources_is_another_entry(
    empty_cache: Path, compilations: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkout of another commit never reads what this one derived, wherever it lies; an equal one does."""
    for name in ("store.py", "passes/one.py", "passes/two.py"):
        (tmp_path / "copy" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "copy" / name).write_text(f"# {name}")
    monkeypatch.setattr(store, "__file__", str(tmp_path / "copy" / "store.py"))
    keys: list[str] = []
    for change in ("", "passes/one.py", "", "passes/__pycache__.txt"):
        if change:
            (tmp_path / "copy" / change).write_text("changed")
        os.utime(tmp_path / "copy" / "passes" / "two.py")
        store._self.cache_clear()
        treadle.compile(MATMUL)
        keys.append(store.key_of(MATMUL, Options()))
    store._self.cache_clear()
    assert keys[0] != keys[1] == keys[2] == keys[3]
    assert len(compilations) == 2


def test_a_machine_file_that_changes_is_another_machine(
    empty_cache: Path, compilations: list[str], tmp_path: Path
) -> None:
    source = Path(treadle.__file__).parent / "compiler" / "machines" / "a100.toml"
    machine = tmp_path / "mine.toml"
    machine.write_text(source.read_text())
    treadle.compile(MATMUL, machine=str(machine))
    treadle.compile(MATMUL, machine=str(machine))
    machine.write_text(source.read_text() + "\n# slower, by now\n")
    treadle.compile(MATMUL, machine=str(machine))
    assert len(compilations) == 2


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b'{"format": "treadle kernel 1", "version": "0.0"}'])
def test_an_entry_that_is_broken_or_old_is_made_again(
    empty_cache: Path, compilations: list[str], content: bytes
) -> None:
    treadle.compile(MATMUL)
    (entry,) = (empty_cache / "kernels").glob("*.json")
    entry.write_bytes(content)
    kernel = treadle.compile(MATMUL)
    assert len(compilations) == 2
    treadle.compile(MATMUL)
    assert len(compilations) == 2
    assert kernel.name == "product"


def test_a_cache_that_cannot_be_used_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("TREADLE_CACHE", str(blocked / "cache"))
    assert treadle.compile(MATMUL).name == "product"


def test_the_cache_forgets_what_was_used_longest_ago(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (empty_cache / "kernels").mkdir(parents=True)
    os.chmod(empty_cache, 0o700)
    (empty_cache / "somebody else's").write_bytes(bytes(5000))
    monkeypatch.setenv("TREADLE_CACHE_LIMIT", "2500")
    for i in range(4):
        made = cache.cached_file(empty_cache / "kernels" / str(i), lambda path: path.write_bytes(bytes(1000)) and None)
        os.utime(made, (i, i))
    names = {path.name for path, _, _ in cache.entries()}
    assert names == {"2", "3"}
    assert (empty_cache / "somebody else's").exists()


def test_a_limit_that_is_no_number(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREADLE_CACHE_LIMIT", "plenty")
    with pytest.raises(TreadleError, match="'plenty': give a number of bytes"):
        cache.limit()


def test_writers_at_once_leave_whole_entries(empty_cache: Path) -> None:
    code = f"import treadle; print(treadle.compile({OUTER!r}).name)"
    running = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [process.communicate()[0].strip() for process in running] == ["outer"] * 3
    assert len(list((empty_cache / "kernels").glob("*.json"))) == 1
    assert not list((empty_cache / "kernels").glob(".making-*"))


def test_threads_share_a_kernel(product: treadle.Kernel) -> None:
    wrong: list[int] = []

    def work(seed: int) -> None:
        random = np.random.default_rng(seed)
        A, B = random.standard_normal((9, 8), np.float32), random.standard_normal((8, 7), np.float32)
        for _ in range(5):
            if not np.allclose(product(A, B), A @ B, atol=1e-4):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_the_command_tells_and_clears(empty_cache: Path) -> None:
    treadle.compile(MATMUL)
    command = [sys.executable, "-m", "treadle.compiler.main", "cache"]
    said = subprocess.check_output(command, text=True)
    assert str(empty_cache) in said
    assert "compiled programs: 1 files" in said
    assert "removed" in subprocess.check_output([*command, "--clear"], text=True)
    assert "0 bytes of at most" in subprocess.check_output(command, text=True)


def test_a_result_beyond_all_memory() -> None:
    """Of a process that may have 8 GiB: 2^40 elements, of arguments of 2^20. No product is compiled for that."""
    code = f"""
import resource
import numpy as np
import treadle
kernel = treadle.compile({OUTER!r})
small, large = ((np.ones(n, np.float32),) * 2 for n in (2, 2**20))
for place in ("emulator", "interpreter"):
    kernel.run(*small, backend=place)
resource.setrlimit(resource.RLIMIT_AS, (2**33, 2**33))
for place in ("emulator", "interpreter"):
    try:
        kernel.run(*large, backend=place)
    except treadle.TreadleError as error:
        print(error)
"""
    emulator, interpreter = subprocess.check_output([sys.executable, "-c", code], text=True).splitlines()
    assert emulator.startswith("emulator: there is not enough memory: Unable to allocate 4.00 TiB")
    assert "Unable to allocate 8.00 TiB" in interpreter
