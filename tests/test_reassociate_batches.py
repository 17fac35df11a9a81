"""Products whose factor has a batch that the inner product made (`diagram-reassociate`): weights are absorbed."""

from __future__ import annotations

import numpy as np
import pytest
from test_reassociate import PASS, same
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.arg_spec import ArgSpec

import treadle
import treadle.language as tl
from treadle.compiler.errors import Refusal
from treadle.compiler.pipeline import make_pass
from treadle.compiler.source import make_context, parse_module


def program(weight: str = "") -> str:
    """`sum_x P (sum_c C W)`, of heads h that P and W have, and a weight of the rows of what is summed."""
    scaled = """
  %U = diagram.map (%s = %V : !V, %g = %G : !G) -> !V {
    %o = arith.mulf %s, %g : f32
    diagram.yield %o : f32
  }"""
    return f"""
!P = tensor<3x?x?xf16, #diagram.array<[h, q, x]>>
!C = tensor<?x16xf16, #diagram.array<[x, c]>>
!W = tensor<3x16x8xf16, #diagram.array<[h, c, e]>>
!G = tensor<{"3x?" if weight == "[h, x]" else "3x8"}xf32, #diagram.array<{weight or "[h, e]"}>>
!V = tensor<3x?x8xf32, #diagram.array<[h, x, e]>>
!V16 = tensor<3x?x8xf16, #diagram.array<[h, x, e]>>
!O = tensor<3x?x8xf32, #diagram.array<[h, q, e]>>
func.func @f(%P: !P, %C: !C, %W: !W, %G: !G) -> !O {{
  %V = diagram.contract %C, %W over [c] accumulate f32 : !C, !W -> !V{scaled if weight else ""}
  %V16 = diagram.cast {"%U" if weight else "%V"} : !V -> !V16
  %O = diagram.contract %P, %V16 over [x] accumulate f32 : !P, !V16 -> !O
  func.return %O : !O
}}"""


def reordered(text: str) -> ModuleOp:
    module = parse_module(text, "program")
    make_pass(ArgSpec(PASS, {"sums": ("O",)})).apply(make_context(), module)
    module.verify()
    return module


@pytest.mark.parametrize("weight", ["", "[h, x]", "[h, e]"])
@pytest.mark.parametrize(("q", "x"), [(1, 40), (5, 17), (0, 3), (3, 0)])
def test_an_axis_of_both_factors_is_a_batch(weight: str, q: int, x: int):
    """Numbers of a head and of what is summed go with what is summed, those of a head and a column with the result."""
    text = program(weight)
    module = reordered(text)
    assert "[h, x, e]" not in str(module)
    assert "[c, h, q]" in str(module)
    same(text, module, q=q, x=x)


def test_what_varies_with_rows_and_what_is_summed_is_refused():
    """Heads that the other factor lacks are rows: a weight of each head and of what is summed is between both."""
    text = program("[h, x]").replace(
        "!P = tensor<3x?x?xf16, #diagram.array<[h,", "!P = tensor<8x?x?xf16, #diagram.array<[e,"
    )
    text = text.replace(
        "!O = tensor<3x?x8xf32, #diagram.array<[h, q, e]>>", "!O = tensor<8x?x3xf32, #diagram.array<[e, q, h]>>"
    )
    with pytest.raises(Refusal, match="a factor of %V16 varies along 'h' as well as 'x'"):
        reordered(text)


def attention(Q, C, Wk, Wv):
    """Latent attention as it is written down: keys and values of each head are made from what all share."""
    K = tl.contract(C, Wk, over="c").to("f16")
    V = tl.contract(C, Wv, over="c").to("f16")
    S = tl.contract(Q, K, over="d") * 0.3
    return tl.contract(tl.softmax(S, over="x"), V, over="x")


AXES = ("b", "h", "d", "x", "c", "e")


def compiled(machine: str, sizes: tuple[int, ...], passes: tuple[str, ...] = ()) -> treadle.Kernel:
    function = treadle.kernel("b h d, b x c, h c d, h c e -> b h e", machine=machine, result="f32")(attention)
    traced = function.trace(["f16"] * 4, dict(zip(AXES, sizes, strict=True)), AXES)
    return treadle.compile(str(traced), machine=machine, passes=passes)


@pytest.mark.parametrize("machine", ["h100", "a100"])
@pytest.mark.parametrize("sizes", [(2, 16, 64, 512, 64, 64), (3, 17, 48, 257, 40, 24)])
def test_weights_are_absorbed_into_queries_and_results(machine: str, sizes: tuple[int, ...]):
    kernel = compiled(machine, sizes, (f"{PASS}{{sums=product_c,result0_sum}}",))
    b, h, d, x, c, e = sizes
    random = np.random.default_rng(1)
    shapes = (b, h, d), (b, x, c), (h, c, d), (h, c, e)
    Q, C, Wk, Wv = (arrays := [(random.standard_normal(shape) / 2).astype(np.float16) for shape in shapes])
    K, V = (np.einsum("bxc,hcd->bhxd", C.astype(float), each.astype(float)) for each in (Wk, Wv))
    S = np.einsum("bhd,bhxd->bhx", Q.astype(float), K) * 0.3
    P = np.exp(S - S.max(-1, keepdims=True))
    wanted = np.einsum("bhx,bhxe->bhe", P / P.sum(-1, keepdims=True), V)
    found = kernel.run(*arrays, backend="emulator")
    np.testing.assert_allclose(found, wanted, atol=2e-3 * np.abs(wanted).max())
    assert sum(step.rewrite == PASS for step in kernel.derivation) == 2


def test_keys_of_no_head_are_saved():
    """32 sequences of 4096 tokens, 128 heads: keys of heads would be 4.3 GB, and the latents are 134 MB."""
    kernel = compiled("h100", (32, 128, 128, 4096, 512, 128))
    assert kernel.estimate.device_bytes < 0.6e9
    assert kernel.estimate.time_us < 200
