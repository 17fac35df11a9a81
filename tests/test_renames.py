"""States that meet a matrix: axes under other names in the step of a recurrence (`diagram.rename`), at every level."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from test_recurrence import hold
from xdsl.utils.exceptions import VerifyException

import oracles
import treadle
import treadle.language as tl
from treadle.compiler.errors import TreadleError
from treadle.compiler.pipeline import Options, run_pipeline
from treadle.compiler.source import parse_module
from treadle.dialects import cuda
from treadle.dialects.hierarchy import KernelOp
from treadle.runtime.interpreter import run_function, run_with_bounds

ROOT = Path(__file__).parents[1]
GRU = (ROOT / "examples" / "gru.mlir").read_text(encoding="utf-8")
CRF = (ROOT / "tests" / "programs" / "crf_forward.mlir").read_text(encoding="utf-8")
MACHINES = ["h100", "a100", "l40s"]

Arrays = tuple[NDArray[Any], ...]


def of_gru(b: int, t: int, d: int = 64) -> Arrays:
    random = np.random.default_rng(b + t + d)
    shapes = ((b, t, d), *[(d, d)] * 6, *[(d,)] * 4, (b, d))
    narrow = [random.standard_normal(shape).astype(np.float16) for shape in shapes[:7]]
    return (*narrow, *(random.standard_normal(shape).astype(np.float32) for shape in shapes[7:]))


def gru(*arrays: NDArray[Any]) -> Arrays:
    """In float64, one token after another."""
    x, ur, uz, un, wr, wz, wn, br, bz, bn, bh, h = (each.astype(np.float64) for each in arrays)
    made = np.zeros(x.shape)
    for t in range(x.shape[1]):
        fed = x[:, t]
        reset = 1 / (1 + np.exp(-(fed @ ur + h @ wr / 8 + br)))
        update = 1 / (1 + np.exp(-(fed @ uz + h @ wz / 8 + bz)))
        h = update * h + (1 - update) * np.tanh(fed @ un + bn + reset * (h @ wn / 8 + bh))
        made[:, t] = h
    return made, h


def of_crf(b: int, t: int) -> Arrays:
    random = np.random.default_rng(b + t)
    return tuple(random.standard_normal(shape).astype(np.float32) for shape in ((b, t, 24), (24, 24), (b, 24)))


def crf(e: NDArray[Any], between: NDArray[Any], a: NDArray[Any]) -> Arrays:
    """Over all paths by powers, which are small here."""
    e, between, a = (each.astype(np.float64) for each in (e, between, a))
    made = np.zeros(e.shape)
    for t in range(e.shape[1]):
        a = np.log(np.exp(a) @ np.exp(between)) + e[:, t]
        made[:, t] = a
    return np.log(np.exp(a).sum(-1)), made


# -- the reference -----------------------------------------------------------------------------------


@pytest.mark.parametrize("t", [0, 1, 7])
def test_the_reference_multiplies_a_state_at_every_position(t: int) -> None:
    for text, arrays, plain in ((GRU, of_gru(2, t), gru), (CRF, of_crf(2, t), crf)):
        for found, expected in zip(run_function(parse_module(text), [*arrays]).results, plain(*arrays), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def test_the_reference_is_what_pytorch_gives() -> None:
    """torch.nn.GRU, which has the gates below each other, and each matrix the other way round."""
    arrays = of_gru(3, 9)
    given = [torch.from_numpy(each.astype(np.float64)) for each in arrays]
    expected = oracles.ORACLES["gru"](*given)
    for found, each in zip(run_function(parse_module(GRU), [*arrays]).results, expected, strict=True):
        np.testing.assert_allclose(found, each.numpy(), rtol=1e-9, atol=1e-9)


# -- kernels -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("machine", MACHINES)
def test_kernels_of_gates(machine: str) -> None:
    kernel = treadle.compile(GRU, machine=machine)
    for sizes in ((3, 9), (1, 1), (2, 0), (5, 3)):
        arrays = of_gru(*sizes)
        hold(kernel, arrays, gru(*arrays), within=2e-3)


@pytest.mark.parametrize("machine", MACHINES)
def test_kernels_of_pairs_of_labels(machine: str) -> None:
    kernel = treadle.compile(CRF, machine=machine)
    for sizes in ((3, 20), (1, 1), (2, 0), (9, 4)):
        arrays = of_crf(*sizes)
        hold(kernel, arrays, crf(*arrays), within=1e-4)


ELMAN = """
!X = tensor<?x?x{d}xf32, #diagram.array<[b, t, j]>>
!W = tensor<{d}x{d}xf32, #diagram.array<[i, j]>>
!h = tensor<?x{d}xf32, #diagram.array<[b, j]>>
!g = tensor<?x{d}xf32, #diagram.array<[b, i]>>
func.func @elman(%X: !X, %W: !W) -> (!X, !h) attributes {{sizes = #diagram.sizes<b = 3, t = 5>}} {{
  %zero = diagram.fill 0.0 : f32 -> !h
  %last, %Y = diagram.recurrence over t (%h = %zero : !h) each (%x = %X : !X, %w = %W : !W) -> (!h, !X) {{
    %g = diagram.rename %h (j as i) : !h -> !g
    %p = diagram.contract %g, %w over [i] accumulate f32 : !g, !W -> !h
    %n = diagram.map (%a = %p : !h, %c = %x : !h) -> !h {{
      %s = arith.addf %a, %c : f32
      %r = math.tanh %s : f32
      diagram.yield %r : f32
    }}
    diagram.yield %n, %n : !h, !h
  }}
  func.return %Y, %last : !X, !h
}}"""


def elman(x: NDArray[Any], w: NDArray[Any]) -> Arrays:
    x, w = x.astype(np.float64), w.astype(np.float64)
    h, made = np.zeros((x.shape[0], x.shape[2])), np.zeros(x.shape)
    for t in range(x.shape[1]):
        made[:, t] = h = np.tanh(h @ w + x[:, t])
    return made, h


def of_elman(b: int, t: int, d: int) -> Arrays:
    random = np.random.default_rng(b + t + d)
    x, w = random.standard_normal((b, t, d)), random.standard_normal((d, d)) / np.sqrt(d)
    return x.astype(np.float32), w.astype(np.float32)


@pytest.mark.parametrize("d", [1, 2, 7, 33, 40, 100])
@pytest.mark.parametrize("machine", ["h100", "a100"])
def test_states_of_any_size(d: int, machine: str) -> None:
    """Also such as no vector divides: what a layout has past the end of an axis meets nothing."""
    kernel = treadle.compile(ELMAN.format(d=d), machine=machine)
    arrays = of_elman(3, 4, d)
    hold(kernel, arrays, elman(*arrays))


@pytest.mark.parametrize("group", ["b=1", "b=4"])
@pytest.mark.parametrize("warps", ["j=4", "i=4", "i=2,j=2", "i=8"])
def test_warps_along_a_matrix(group: str, warps: str) -> None:
    """Whichever warps have what of it, and exchange parts of a sum, or what lies along the other axis."""
    kernel = treadle.compile(
        ELMAN.format(d=48), machine="h100", passes=[f'hierarchy-choose-sizes{{group="{group}" warps="{warps}"}}']
    )
    arrays = of_elman(5, 4, 48)
    hold(kernel, arrays, elman(*arrays))


def test_warps_are_put_along_what_does_not_fit_one() -> None:
    """A matrix of 128 x 128 has no room in the registers of one warp."""
    module = parse_module(ELMAN.format(d=128))
    run_pipeline(module, Options("h100"), last="hierarchy-choose-sizes")
    (kernel,) = (op for op in module.walk() if isinstance(op, KernelOp))
    assert kernel.schedule is not None
    warps = kernel.schedule.warps.as_dict()
    assert warps.get("i", 1) * warps.get("j", 1) >= 8


def test_transposed_states() -> None:
    """S becomes A S + k, and then what it is with its axes in each other's place."""

    @treadle.kernel("d f, t d e, d e -> d e, t d e", machine="h100", static="d e f")
    def turned(A: Any, K: Any, S: Any) -> Any:
        def step(s: Any, k: Any, a: Any) -> Any:
            s = tl.contract(a, tl.read(s, "f, e"), over="f") + k
            return tl.read(s, "e, d"), s

        return tl.recurrence(step, over="t", states=S, inputs=[K, A])

    random = np.random.default_rng(3)
    a, k, s = (random.standard_normal(shape).astype(np.float32) / 3 for shape in ((12, 12), (6, 12, 12), (12, 12)))
    found = turned(a, k, s, backend="emulator")
    made = np.zeros(k.shape)
    for t in range(6):
        made[t] = a.astype(np.float64) @ s + k[t]
        s = made[t].T
    np.testing.assert_allclose(found[0], s, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found[1], made, rtol=1e-5, atol=1e-5)


def test_an_lstm_in_python_is_that_of_pytorch() -> None:
    """With the projection of the sequence before, and a mean behind, in one program."""

    @treadle.kernel("b t c, c h, c h, c h, c h, k h, k h, k h, k h, h, h, h, h -> b t h, b h, b h", static="c h k")
    def lstm(X: Any, *matrices: Any) -> Any:
        fed = [tl.contract(X, each, over="c") + shift for each, shift in zip(matrices[:4], matrices[8:], strict=True)]

        def step(h: Any, c: Any, *given: Any) -> Any:
            before = tl.read(h, "b, k")
            i, f, g, o = (x + tl.contract(before, w, over="k") for x, w in zip(given[:4], given[4:], strict=True))
            c = c * tl.sigmoid(f) + tl.tanh(g) * tl.sigmoid(i)
            h = tl.sigmoid(o) * tl.tanh(c)
            return h, c, h

        last, cell, made = tl.recurrence(step, over="t", states=["b h", "b h"], inputs=[*fed, *matrices[4:8]])
        return made, last, cell

    network = torch.nn.LSTM(20, 24, batch_first=True)
    x = torch.randn(3, 7, 20, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected, (last, cell) = network(x)
    own = dict(network.named_parameters())
    into = [part.T.contiguous().detach().numpy() for name in ("ih", "hh") for part in own[f"weight_{name}_l0"].chunk(4)]
    shifts = [part.detach().numpy() for part in (own["bias_ih_l0"] + own["bias_hh_l0"]).chunk(4)]
    found = lstm(x.numpy(), *into, *shifts, backend="emulator")
    for each, plain in zip(found, (expected, last[0], cell[0]), strict=True):
        np.testing.assert_allclose(each, plain.numpy(), rtol=1e-4, atol=1e-5)


def test_elements_go_by_shuffles_where_one_warp_has_them_and_else_through_shared_memory() -> None:
    found: dict[int, set[str]] = {}
    for d in (8, 128):
        module = parse_module(ELMAN.format(d=d))
        run_pipeline(module, Options("h100"), last="convert-hierarchy-to-cuda")
        renames = [op for op in module.walk() if isinstance(op, cuda.RenameOp)]
        found[d] = {use.operation.name for op in renames for use in op.result.uses}
    assert found == {8: {"cuda.exchange"}, 128: {"cuda.write"}}


def test_matrices_stay_as_narrow_as_they_are() -> None:
    """Twice as much of 16 bits has room in registers: it is widened where it is multiplied."""
    kernel = treadle.compile(GRU, machine="h100")
    assert "__half Wr_piece[" in kernel.cuda


# -- bounds ------------------------------------------------------------------------------------------


def test_likely_bounds_hold_and_are_near() -> None:
    """Of f32 against float64, where worst cases of each position grow without end."""
    arrays = of_crf(3, 60)
    worst = run_with_bounds(parse_module(CRF), [*arrays])[1]
    likely = run_with_bounds(parse_module(CRF), [*arrays], likely=True)[1]
    assert not np.isfinite(worst.error[:, -1]).all() or worst.error[:, -1].max() > 1
    assert likely.error.max() < 1e-2
    found = treadle.compile(CRF, machine="h100").run(*arrays, backend="emulator")[1]
    assert (np.abs(found - likely.value) <= likely.error).all()


def test_a_state_that_small_errors_move_far_has_no_near_bound() -> None:
    """With a matrix eight times as large a network is chaotic, and no likely bound says otherwise."""
    x, w = of_elman(2, 40, 64)
    module = parse_module(ELMAN.format(d=64))
    near, far = (run_with_bounds(module, [x, scale * w], likely=True)[1].error.max() for scale in (0.5, 8))
    assert near < 1e-4
    assert far > 0.1


def test_a_wrong_matrix_is_found() -> None:
    """A kernel of another matrix is outside of the tolerance."""
    kernel = treadle.compile(ELMAN.format(d=24), machine="h100")
    x, w = of_elman(2, 10, 24)
    good, verdicts = kernel.run(x, w, backend="emulator"), kernel.verify(x, w, backend="emulator")
    wrong = kernel.run(x, w.T.copy(), backend="emulator")
    for one, other, verdict in zip(good, wrong, verdicts, strict=True):
        assert verdict.ok
        assert np.abs(one - other).max() > 20 * verdict.tolerance


# -- what is refused ---------------------------------------------------------------------------------

RENAME = "%g = diagram.rename %h (j as i) : !h -> !g"
WRONG = {
    "axis 'k' has another name, but the operand has no such axis": RENAME.replace("j as i", "k as i"),
    "axis 'j' is to be called 'b', as another axis of the operand is": RENAME.replace("j as i", "j as b"),
    "no axis has another name": RENAME.replace("j as i", ""),
    "'j' is named twice": RENAME.replace("j as i", "j as i, j as k"),
    "is renamed to what it is called": RENAME.replace("j as i", "b as b, j as i"),
    r"\[b = \?, j = 8\] under other names is \[b = \?, i = 8\], not \[b = \?, i = 9\]": (
        f"%q = diagram.rename %h (j as i) : !h -> tensor<?x9xf32, #diagram.array<[b, i]>>\n{RENAME}"
    ),
    "a rename keeps the format: f32": (
        f"%q = diagram.rename %h (j as i) : !h -> tensor<?x8xf16, #diagram.array<[b, i]>>\n{RENAME}"
    ),
}


@pytest.mark.parametrize("match", WRONG)
def test_what_is_no_rename(match: str) -> None:
    text = ELMAN.format(d=8)
    assert RENAME in text
    with pytest.raises((TreadleError, VerifyException), match=match):
        parse_module(text.replace(RENAME, WRONG[match])).verify()


def test_an_array_in_memory_is_read() -> None:
    text = """
!h = tensor<?x8xf32, #diagram.array<[b, j]>>
!g = tensor<?x8xf32, #diagram.array<[b, i]>>
func.func @f(%h: !h) -> !g {
  %g = diagram.rename %h (j as i) : !h -> !g
  func.return %g : !g
}"""
    with pytest.raises((TreadleError, VerifyException), match=r'in the body of a recurrence alone.*at "b, i"'):
        parse_module(text).verify()


def test_states_that_no_group_holds() -> None:
    for size, match in (("?", "its size is known only at launch"), ("257", "it has 257")):
        with pytest.raises(TreadleError, match=f"axis 'j' is 'i' in %g, of which every group needs all.*{match}"):
            treadle.compile(ELMAN.replace("x{d}x", f"x{size}x").replace("<{d}x", f"<{size}x").format(), machine="h100")


def test_a_matrix_that_no_registers_hold() -> None:
    with pytest.raises(TreadleError, match="make it smaller, or what is the same at all positions narrower"):
        treadle.compile(ELMAN.format(d=256), machine="h100")


def test_what_a_step_does_not_read() -> None:
    def refused(at: str, match: str) -> None:
        function = treadle.kernel("b t j, i j -> b j")(
            lambda X, W: tl.recurrence(  # pyright: ignore[reportUnknownLambdaType]
                lambda h, x, w: tl.read(h, at) + x, over="t", states="b j", inputs=[X, W]
            )[0]
        )
        with pytest.raises(TreadleError, match=match):
            function.trace(["f32", "f32"], {"b": 2, "t": 3, "i": 4, "j": 4})

    refused("b, j + 1", "under other names of its axes alone")
    refused("b", "under other names of its axes alone")
    refused("b, k", "along 'k', which no argument has")
