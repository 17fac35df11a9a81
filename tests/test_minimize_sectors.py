"""`coalescing{minimize=sectors}`: every access of every example asks for the fewest sectors, in each entry of its
kernels, and for each line as often as a copy of its tile would; what it costs is told, and results stay right."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from test_coalescing import Watched, check, program
from test_fewest_sectors import EXAMPLES, NAMES
from test_staging import inputs_of, shifted
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.arg_spec import ArgSpec

import treadle
from treadle.compiler.derivation.replay import read_overrides
from treadle.compiler.gates.beyond import BOXES, BoxesOp, beyond_lines, moved_at
from treadle.compiler.layouts.operations import traffic_of
from treadle.compiler.lowering.whole_lines import lines_of
from treadle.compiler.pipeline import Options, pipeline, print_cuda, run_passes, run_pipeline
from treadle.compiler.source import load_module, parse_module
from treadle.dialects import cuda
from treadle.dialects.cuda import kernel_names
from treadle.dialects.cuda.accesses import GlobalAccess
from treadle.dialects.cuda.kernel import FEWEST_SECTORS
from treadle.dialects.cuda.staging import EVERYWHERE
from treadle.dialects.cuda.transfers import is_added
from treadle.dialects.hierarchy.schedule import derivation_of
from treadle.passes.staging.told import ADDED
from treadle.runtime.host import HostExecution
from treadle.runtime.inputs import axis_sizes
from treadle.runtime.interpreter import entry_function
from treadle.runtime.verify import verify

PASS = "coalescing{minimize=sectors}"
SECTORS = read_overrides(PASS)

BEYOND = [
    "attention_decode",
    "attention_lengths",
    "attention_lse",
    "attention_packed",
    "attention_paged",
    "attention_segments",
    "linear_attention",
    "matmul_residual",
    "quantised_matmul",
    "softmax_matmul",
    "state_space",
]
"""The examples in which some loads or stores ask for sectors twice where time counts (`test_fewest_sectors.py`)."""

IN_PARTS = ["batched_matmul", "block_diagonal", "cross_attention", "l2_norm_matmul", "split_k", "two_kernels"]
"""More of them whose results, where time counts, leave in parts of lines."""

BY_DATA = {"attention_lengths", "attention_packed", "attention_paged", "attention_segments"}
"""Those in which data say how many turns there are."""


def compiled(name: str, machine: str) -> ModuleOp:
    module = load_module(EXAMPLES / f"{name}.mlir")
    run_pipeline(module, Options(machine=machine, overrides=SECTORS))
    return module


def kernels_of(module: ModuleOp) -> list[cuda.KernelOp]:
    return [op for op in module.body.block.ops if isinstance(op, cuda.KernelOp)]


@pytest.mark.sample(12)
@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("name", NAMES)
def test_every_access_asks_for_the_fewest(name: str, machine: str) -> None:
    """No exception but the boxes of tensor copies, which that instruction is not given otherwise, and what is added to
    what lies there, by the threads that have it."""
    for kernel in kernels_of(compiled(name, machine)):
        assert FEWEST_SECTORS in kernel.attributes
        accesses = [op for op in kernel.walk() if isinstance(op, GlobalAccess | BoxesOp)]
        for op, alignment in product(accesses, cuda.alignments(kernel) if accesses else ()):
            if isinstance(op, GlobalAccess) and not is_added(op):
                assert moved_at(op, kernel, alignment).is_fewest
        for line in beyond_lines(kernel, cuda.ANY_STRIDES):
            assert line.split(": ", 2)[-1].startswith((BOXES, ADDED))


@pytest.mark.sample(12)
@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("name", NAMES)
def test_lines_are_asked_for_once(name: str, machine: str) -> None:
    """Whatever a copy could bring in fewer lines goes through a tile; where a tile fills lines, these are whole."""
    for kernel in kernels_of(compiled(name, machine)):
        for op in (each for each in kernel.walk() if isinstance(each, cuda.LoadOp | cuda.StoreOp)):
            threads = cuda.threads_at(op, kernel)
            if is_added(op) or lines_of(op, threads) is None:
                continue
            assert op.staged is not None
            assert op.staged.below.data == EVERYWHERE
            moved = traffic_of(op, threads)
            assert moved.is_fewest
            assert moved.has_whole_lines or moved.bytes < 128 * moved.fewest_lines


@pytest.mark.sample(8)
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", sorted({*BEYOND, *IN_PARTS} - BY_DATA - {"state_space"}))
def test_counted_sectors_are_the_computed_ones(name: str, arch: str) -> None:
    for loaded, stored in check(program(name), inputs_of(name), arch=arch, overrides=SECTORS):
        assert loaded.is_fewest
        assert stored.is_fewest


@pytest.mark.sample(8)
@pytest.mark.parametrize("by", [0, 1, 8])
@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("name", [*BEYOND, *IN_PARTS])
def test_results_are_right_in_the_fewest_sectors(name: str, machine: str, by: int) -> None:
    """As the emulator counts them, operation by operation, those at positions that data say among them; also where rows
    begin inside sectors."""
    if name == "state_space" and by:
        pytest.skip("half a minute each")
    module, algorithm = compiled(name, machine), parse_module(program(name))
    backend = Watched(print_cuda(module), kernel_names(module), seed=by)
    backend.launched = []
    arrays = [shifted(each, by) for each in inputs_of(name)]
    outputs = HostExecution(module, backend).run(entry_function(module), arrays)
    sizes = axis_sizes(entry_function(algorithm), {})
    verdicts = verify(algorithm, arrays, outputs, "emulator", sizes=sizes)
    assert all(verdict.ok for verdict in verdicts), [str(verdict) for verdict in verdicts]
    if name == "attention_paged" or (machine == "h100" and by):
        return  # each warp asks for entries of pages; and no barrier parts what a producer's lanes copy
    for *_, report in backend.launched:
        for row in report.operations:
            assert row.sectors == row.distinct or row.kind.startswith("tensor"), row


# -- what is told ---------------------------------------------------------------------------------


def steps_of(module: ModuleOp) -> list[str]:
    return [str(step) for step in derivation_of(entry_function(module).attributes)]


def test_the_price_is_told() -> None:
    (told,) = [step for step in steps_of(compiled("attention_lengths", "a100")) if "copy of len[b]" in step]
    assert "spares 3 and 4 requests and costs 32" in told


def test_what_finds_no_room_is_told(tmp_path: Path) -> None:
    """On a machine whose blocks have no byte more than the kernel's own tiles: what cannot go is named with its reason,
    in the derivation and in the report. Words that leave behind all products take the place of the tiles."""
    module, specs = load_module(EXAMPLES / "linear_attention.mlir"), pipeline(Options(machine="a100"))
    *before, _ = specs
    run_passes(module, before)
    own = min(kernel.shared_bytes.data for kernel in kernels_of(module))
    text = (Path(treadle.__file__).parents[1] / "compiler" / "machines" / "a100.toml").read_text()
    small, count = re.subn(r"(shared_per_block\s*=\s*)[\d_]+", rf"\g<1>{own}", text)
    assert count == 1
    (tmp_path / "small.toml").write_text(small)
    run_passes(module, [ArgSpec("set-machine", {"file": (str(tmp_path / "small.toml"),)}), *SECTORS])
    (line,) = {each for kernel in kernels_of(module) for each in beyond_lines(kernel, 16)}
    why = "shared memory has no room for a tile on the way"
    assert line == f"K[b, h, x, d] loaded: 672 sectors, the fewest are 504: {why} (in 3 places)"
    told = [step for step in steps_of(module) if "copy of K[b, h, x, d] to registers" in step]
    assert f"where rows are aligned to 16 bytes 672 sectors, the fewest are 504: {why}" in told[0]
    stores = [op for kernel in kernels_of(module) for op in kernel.walk() if isinstance(op, cuda.StoreOp)]
    assert all(op.staged is not None for op in stores)


# -- options of passes ----------------------------------------------------------------------------


def test_python_gives_passes_options() -> None:
    name, arrays = "two_kernels", inputs_of("two_kernels")
    given = treadle.compile(program(name), passes=[PASS], cache=False)
    plain = treadle.compile(program(name), cache=False)
    assert given.cuda != plain.cuda
    assert np.array_equal(given.run(*arrays, backend="emulator"), plain.run(*arrays, backend="emulator"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("coalescing{minimize=sector}", "minimize=sector: minimize is time or sectors"),
        ("coalescing{minimise=sectors}", "has no option 'minimise': did you mean minimize?"),
        ("coalescing{z=1}", "has no option 'z' (its options: "),
        ("coalescin{minimize=sectors}", "the pipeline has no pass 'coalescin': did you mean 'coalescing'?"),
        ("diagram-differentiate", "the pipeline has no pass 'diagram-differentiate'"),
        ("coalescing{minimize=sectors", "is no pass with options"),
        ("fusion,tiling", "names 2 passes: give each by itself"),
        ("cuda-persist{longest=middle}", "longest=middle: longest is first or last or none"),
    ],
)
def test_what_no_pass_takes_is_refused(text: str, said: str) -> None:
    with pytest.raises(treadle.TreadleError, match=re.escape(said)):
        treadle.compile(program("matmul"), passes=text)


def test_other_options_of_a_step_stay() -> None:
    (given,) = read_overrides("coalescing{max-bytes=8}")
    (step,) = [s for s in pipeline(Options(overrides=(*SECTORS, given))) if s.name == "coalescing"]
    assert step.parameters == {"minimize": ("sectors",), "max_bytes": (8,)}
