# pyright: standard
"""PyTorch's door, with modules that nobody here wrote: results as eager PyTorch's, and kernels for what they do.
Those of attention, norms and modules run on a GPU with `--device cuda`."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._pytree import tree_map_only

import treadle
import treadle.language as tl
from treadle.compiler.errors import TreadleError
from treadle.dialects.cuda import KernelOp
from treadle.torch import Report, backend, explain, operator
from treadle.torch.backend import make_backend
from treadle.torch.options import Options

torch.manual_seed(0)

TOLERANCES = {torch.float32: 2e-5, torch.float16: 2.0**-7, torch.bfloat16: 2.0**-4}
"""Of the largest element: rounding of the format, once for each layer that eager PyTorch rounds in between."""


EXPLAINED: list[bool] = []
"""Whether every comparison asks `explain` and then the backend, which compile alike; else one compilation does."""


@pytest.fixture(autouse=True)
def fresh(pytestconfig: pytest.Config) -> Iterator[None]:
    EXPLAINED[:] = [bool(pytestconfig.getoption("--all"))]
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compare(
    model: Callable[..., Any],
    inputs: tuple[Any, ...],
    options: dict[str, Any] | None = None,
    explained: bool = False,
    whole: bool = False,
    device: str = "cpu",
) -> Report:
    """Run both ways, there; the report of what became kernels, which knows of graph breaks if it is `explained`. A
    `whole` model has none."""
    model = model.to(device) if isinstance(model, nn.Module) else model
    inputs = tree_map_only(torch.Tensor, lambda each: each.to(device), inputs)
    with torch.no_grad():
        want = model(*inputs)
        if explained or EXPLAINED[0]:
            report = explain(model, inputs, options=options)
            assert not (whole and report.breaks)
            torch._dynamo.reset()
            got = torch.compile(model, backend=backend, options=options or {})(*inputs)
        else:
            report = Report()
            made = make_backend(Options.of(options), report.graphs.append)
            got = torch.compile(model, backend=made, fullgraph=whole)(*inputs)
    want, got = (first_of(each) for each in (want, got))
    assert got.device == want.device
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    bound = TOLERANCES[want.dtype] * want.float().abs().max().item()
    torch.testing.assert_close(got.float(), want.float(), atol=bound, rtol=0.0)
    return report


def first_of(result: Any) -> torch.Tensor:
    return result if isinstance(result, torch.Tensor) else result[0]


def operations(report: Report) -> set[str]:
    return {name.split(".")[0] for taken in report.taken for name in taken.operations}


# -- functions as people write them ----------------------------------------------------------------


def explicit(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.softmax(q @ k.transpose(-1, -2) / q.size(-1) ** 0.5, -1) @ v


def heads(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_explicit_attention_is_one_kernel(dtype: torch.dtype, device: str) -> None:
    q, k, v = heads(2, 3, 19, 16, dtype=dtype), heads(2, 3, 33, 16, dtype=dtype), heads(2, 3, 33, 16, dtype=dtype)
    report = compare(explicit, (q, k, v), device=device)
    (taken,) = report.taken
    assert len(taken.kernel.cost().kernels) == 1
    assert not report.left


def test_self_attention_reads_one_tensor_thrice() -> None:
    x = heads(2, 19, 16)
    report = compare(lambda x: explicit(x, x, x), (x,))
    assert len(report.taken) == 1


@pytest.mark.parametrize("options", [{"is_causal": True}, {"scale": -0.3}, {"scale": 0.0}])
def test_scaled_dot_product_attention(options: dict[str, Any], device: str) -> None:
    q, k, v = heads(2, 3, 19, 16), heads(2, 3, 19, 16), heads(2, 3, 19, 24)
    report = compare(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, **options), (q, k, v), device=device)
    assert len(report.taken) == 1


@pytest.mark.parametrize("mask", [heads(7, 9), heads(7, 9) > 0, heads(2, 1, 1, 9) > -1])
def test_masks(mask: torch.Tensor, device: str) -> None:
    q, k, v = heads(2, 3, 7, 16), heads(2, 3, 9, 16), heads(2, 3, 9, 16)
    compare(lambda q, k, v, mask: F.scaled_dot_product_attention(q, k, v, mask), (q, k, v, mask), device=device)


def test_a_row_that_sees_nothing_is_zero() -> None:
    q, k, v = heads(1, 1, 5, 16), heads(1, 1, 9, 16), heads(1, 1, 9, 16)
    mask = torch.arange(5)[:, None] > torch.zeros(9)
    compiled = torch.compile(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, mask), backend=backend)
    with torch.no_grad():
        result = compiled(q, k, v)
    assert (result[0, 0, 0] == 0).all()
    assert result.isfinite().all()


@pytest.mark.parametrize("number", [float("-inf"), float("nan")])
def test_rows_of_what_is_added_may_be_infinite(number: float) -> None:
    """As eager: zeros for a row that -inf takes out, NaN for a row of NaN."""
    q, k, v = heads(2, 5, 16), heads(2, 9, 16), heads(2, 9, 16)
    bias = heads(5, 9)
    bias[2] = number

    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, bias)

    with torch.no_grad():
        (taken,) = explain(attention, (q, k, v, bias)).taken
        torch._dynamo.reset()
        got, wanted = torch.compile(attention, backend=backend)(q, k, v, bias), attention(q, k, v, bias)
    assert sum(isinstance(op, KernelOp) for op in taken.kernel.module.walk()) == 1
    torch.testing.assert_close(got, wanted, atol=1e-5, rtol=0.0, equal_nan=True)


def test_causal_attention_skips_tiles() -> None:
    q = heads(1, 1, 19, 16)
    report = compare(lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), (q,))
    assert "diagram.where %" in report.taken[0].kernel.diagram


def test_grouped_heads_are_not_repeated_in_memory() -> None:
    q, k, v = heads(2, 4, 9, 16), heads(2, 2, 9, 16), heads(2, 2, 9, 16)
    report = compare(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True), (q, k, v))
    (taken,) = report.taken
    sizes = [list(argument.axes.values()) for argument in taken.kernel.arguments]
    assert sorted(map(sorted, sizes)) == [[2, 2, 2, 9, 16], [2, 2, 9, 16], [2, 2, 9, 16]] or len(sizes) == 3


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.layer_norm(x, (24,)),
        lambda x: F.rms_norm(x, (24,)),
        lambda x: F.log_softmax(x, -1),
        lambda x: torch.logsumexp(x, 0),
        lambda x: x.var(-1) + x.mean(-1),
        lambda x: F.normalize(x, dim=-1),
        lambda x: (x - x.amax(-1, keepdim=True)).exp().sum(-1).log(),
        lambda x: F.silu(x) * F.gelu(x, approximate="tanh") + x.clamp(-1, 1) ** 2,
        lambda x: torch.where(x > 0, x, 0.1 * x).sum(0),
        lambda x: (x.t() @ x).softmax(0),
        lambda x: torch.addmm(x.new_ones(24), x.reshape(24, 5).t(), x.new_ones(24, 24), beta=2.0),
        lambda x: torch.addmm(
            x.new_full((24,), torch.nan), x.reshape(24, 5).t(), x.new_ones(24, 24), beta=0, alpha=0.5
        ),
        lambda x: (x * x).mean() - x.sum(),
        lambda x: torch.softmax(x + x[:, :1], -2) * x.amax(-1, keepdim=True),
        lambda x: (x @ x.t()).add_(1).mul_(2),
        lambda x: (x @ x.t()).var(-1) + x.std(-1),
    ],
)
def test_functions(function: Callable[..., Any], device: str) -> None:
    report = compare(function, (heads(5, 24),), device=device)
    assert report.taken, report


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.normalize(x, dim=-1),
        lambda x: torch.linalg.vector_norm(x) + torch.linalg.vector_norm(x, 1, dim=0),
        lambda x: F.cosine_similarity(x[:, None], x[None, :3] * 2, dim=-1),
        lambda x: F.group_norm(x, 4, x.sum(0), x.mean(0)),
        lambda x: x.clamp(x.mean(0), max=x.mean(1, keepdim=True) + 1),
        lambda x: torch.clamp(x, max=x.mean(0)),
        lambda x: F.group_norm(x.reshape(5, 4, 6), 2),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_norms_leave_nothing_to_pytorch(function: Callable[..., Any], dtype: torch.dtype, device: str) -> None:
    report = compare(function, (heads(5, 24, dtype=dtype),), device=device)
    assert report.taken
    assert not report.left, report


def test_norms_of_complex_numbers_stay() -> None:
    report = compare(lambda x: torch.linalg.vector_norm(torch.complex(x, x), dim=-1), (heads(5, 24),))
    assert any("linalg_vector_norm" in left.operation for left in report.left)


@pytest.mark.parametrize("function", [torch.var, torch.std, torch.var_mean, lambda x: torch.std_mean(x, 0)])
def test_variances_of_complex_numbers_have_both_parts(function: Callable[..., Any]) -> None:
    x = torch.complex(heads(5, 24), heads(5, 24) * 3)
    torch.testing.assert_close(torch.compile(function, backend=backend)(x), function(x))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.layer_norm(x, (24,)),
        lambda x: F.group_norm(x, 4),
        lambda x: torch.var_mean(x, -1)[1],
        lambda x: F.normalize(x, dim=-1),
    ],
)
def test_what_is_spelled_out_of_doubles_is_as_exact(function: Callable[..., Any]) -> None:
    """Beside a mean of 100, which is rounded to 1e-14: what is near it keeps no more digits than that."""
    torch.manual_seed(0)
    x = heads(5, 24).double() + 100
    torch.testing.assert_close(torch.compile(function, backend=backend)(x), function(x), atol=1e-13, rtol=1e-12)


# -- modules -----------------------------------------------------------------------------------------


def encoder_layer() -> tuple[nn.Module, tuple[Any, ...]]:
    return nn.TransformerEncoderLayer(32, 2, 48, dropout=0.0, batch_first=True), (heads(2, 9, 32),)


def multihead() -> tuple[nn.Module, tuple[Any, ...]]:
    x = heads(2, 9, 32)
    return nn.MultiheadAttention(32, 2, batch_first=True), (x, x, x)


def perceptron() -> tuple[nn.Module, tuple[Any, ...]]:
    return nn.Sequential(nn.Linear(24, 40), nn.GELU(), nn.LayerNorm(40), nn.Linear(40, 8)), (heads(7, 24),)


def llama_config() -> Any:
    from transformers import LlamaConfig

    return LlamaConfig(
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=50,
    )


def llama_norm() -> tuple[nn.Module, tuple[Any, ...]]:
    from transformers.models.llama.modeling_llama import LlamaRMSNorm

    return LlamaRMSNorm(32), (heads(2, 9, 32),)


def llama_mlp() -> tuple[nn.Module, tuple[Any, ...]]:
    from transformers.models.llama.modeling_llama import LlamaMLP

    return LlamaMLP(llama_config()), (heads(2, 9, 32),)


def llama() -> tuple[nn.Module, tuple[Any, ...]]:
    from transformers.models.llama.modeling_llama import LlamaModel

    return LlamaModel(llama_config()), (torch.randint(0, 50, (2, 9)),)


def bert_layer() -> tuple[nn.Module, tuple[Any, ...]]:
    from transformers import BertConfig
    from transformers.models.bert.modeling_bert import BertLayer

    config = BertConfig(hidden_size=32, intermediate_size=48, num_attention_heads=2)
    config._attn_implementation = "sdpa"
    return BertLayer(config), (heads(2, 9, 32),)


def gpt2_block() -> tuple[nn.Module, tuple[Any, ...]]:
    from transformers import GPT2Config
    from transformers.models.gpt2.modeling_gpt2 import GPT2Block

    config = GPT2Config(n_embd=32, n_head=2)
    config._attn_implementation = "eager"
    return GPT2Block(config), (heads(2, 9, 32),)


def vit_layer() -> tuple[nn.Module, tuple[Any, ...]]:
    from transformers import ViTConfig
    from transformers.models.vit.modeling_vit import ViTLayer

    config = ViTConfig(hidden_size=32, intermediate_size=48, num_attention_heads=2)
    config._attn_implementation = "sdpa"
    return ViTLayer(config), (heads(2, 9, 32),)


def t5_attention() -> tuple[nn.Module, tuple[Any, ...]]:
    from transformers import T5Config
    from transformers.models.t5.modeling_t5 import T5LayerFF

    return T5LayerFF(T5Config(d_model=32, d_ff=48, dropout_rate=0.0)), (heads(2, 9, 32),)


LONG = (encoder_layer, bert_layer, vit_layer, multihead, llama)
"""Those in which there is more to choose: half a minute each."""
MODULES = [
    *(perceptron, llama_norm, llama_mlp, gpt2_block, t5_attention),
    *(pytest.param(each, marks=pytest.mark.full) for each in LONG),
]


@pytest.fixture
def plain_layers() -> Iterator[None]:
    """Without PyTorch's own fused encoder layer."""
    torch.backends.mha.set_fastpath_enabled(False)
    yield
    torch.backends.mha.set_fastpath_enabled(True)


@pytest.mark.sample(6)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("make", MODULES, ids=lambda make: make.__name__)
def test_modules(
    make: Callable[[], tuple[nn.Module, tuple[Any, ...]]], dtype: torch.dtype, device: str, plain_layers: None
) -> None:
    torch.manual_seed(0)
    module, inputs = make()
    given = tuple(each.to(dtype) if each.is_floating_point() else each for each in inputs)
    report = compare(module.eval().to(dtype), given, whole=True, device=device)
    assert report.taken, report


# -- training, sizes that change ---------------------------------------------------------------------


def test_gradients_are_pytorchs() -> None:
    module, (x,) = perceptron()
    x.requires_grad_()
    torch.compile(module, backend=backend)(x).square().sum().backward()
    got = [each.grad.clone() for each in (x, *module.parameters()) if each.grad is not None]
    for each in (x, *module.parameters()):
        each.grad = None
    module(x).square().sum().backward()
    want = [each.grad for each in (x, *module.parameters())]
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("masked", [False, True])
def test_gradients_of_attention_inside_a_function_of_pytorch(masked: bool) -> None:
    """Its own decomposition of attention on a CPU keeps for the backward operation what that does not expect."""
    torch.manual_seed(0)
    module = nn.MultiheadAttention(16, 2, batch_first=True)
    x, weights = heads(2, 9, 16), heads(2, 9, 16)
    mask = nn.Transformer.generate_square_subsequent_mask(9) if masked else None

    def run(function: Callable[..., Any]) -> list[torch.Tensor]:
        module.zero_grad()
        result = function(x, x, x, need_weights=False, attn_mask=mask, is_causal=masked)[0]
        (result * weights).sum().backward()
        return [result.detach(), *(each.grad.clone() for each in module.parameters() if each.grad is not None)]

    report = Report()
    compiled = torch.compile(module, backend=make_backend(Options.of(None), report.graphs.append))
    for got, want in zip(run(compiled), run(module), strict=True):
        torch.testing.assert_close(got, want, atol=1e-4, rtol=1e-4)
    assert not report.left


def test_sizes_that_change() -> None:
    compiled = torch.compile(explicit, backend=backend)
    with torch.no_grad():
        for n in (5, 9, 12, 1):
            q, k, v = heads(2, n, 16), heads(2, n, 16), heads(2, n, 16)
            torch.testing.assert_close(compiled(q, k, v), explicit(q, k, v), atol=1e-5, rtol=1e-5)


def test_an_argument_that_is_changed_in_place() -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = torch.softmax(x @ w, -1)
        x.mul_(2.0)
        return y + (x @ w).sum(-1, keepdim=True)

    a, b, w = heads(5, 16), None, heads(16, 16)
    b = a.clone()
    with torch.no_grad():
        want, got = function(a, w), torch.compile(function, backend=backend)(b, w)
    torch.testing.assert_close(got, want, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(a, b)


# -- what stays with PyTorch -------------------------------------------------------------------------


@pytest.mark.parametrize("function", [torch.softmax, torch.log_softmax, torch.sum, torch.mean])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_a_format_that_is_asked_for(function: Callable[..., Any], dtype: torch.dtype) -> None:
    """Of the result, and what is computed on the way."""
    compare(lambda x: function(x * 2, -1, dtype=dtype), (heads(5, 24).half(),))


@pytest.mark.parametrize(
    "keep",
    [
        lambda n: torch.tril(torch.ones(n, n)) == 0,
        lambda n: torch.arange(n)[:, None] < torch.arange(n)[None],
        lambda n: (torch.arange(n)[:, None] - torch.arange(n)[None]).abs() > 2,
        lambda n: (torch.arange(n)[:, None] // 3) != (torch.arange(n)[None] // 3),
    ],
)
def test_masks_that_are_computed(keep: Callable[[int], torch.Tensor]) -> None:
    """A condition where it is seen to be one; else an array that PyTorch computes, and a kernel still."""
    report = compare(
        lambda x: torch.softmax((x @ x.t()).masked_fill(keep(x.shape[0]), float("-inf")), -1) @ x, (heads(9, 16),)
    )
    assert report.taken, report


def test_what_is_not_known_stays_with_its_reason() -> None:
    report = compare(lambda x: torch.fft.rfft(x).abs() @ x[:, :13].t().contiguous(), (heads(5, 24),))
    assert any("not known to the calculus" in left.reason for left in report.left)
    assert "left to PyTorch:\n    not known to the calculus: _fft_r2c\n        report = compare(" in str(report)


def test_a_fast_path_of_pytorch_stays_and_the_reason_says_what_to_do() -> None:
    module, inputs = encoder_layer()
    with torch.no_grad():
        report = explain(module.eval(), inputs)
    assert "set_fastpath_enabled" in report.left[0].reason


def test_what_pytorch_makes_no_graph_of() -> None:
    report = compare(lambda x: torch.sparse.mm(x.to_sparse(), x.t()), (heads(5, 8),), explained=True)
    assert not report.graphs
    assert "PyTorch made no graph of it" in str(report)


def test_a_graph_break_ends_a_program() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = torch.softmax(x, -1)
        print("", end="")
        return torch.softmax(y @ y.t(), -1)

    report = compare(function, (heads(5, 24),), explained=True)
    assert len(report.graphs) == 2
    assert report.breaks
    assert "graph breaks" in str(report)


def test_control_flow_on_values() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, -1) if x.sum() > 0 else torch.softmax(-x, -1)

    compare(function, (heads(5, 24).abs(),))


def test_double_precision_and_empty_tensors_stay() -> None:
    with torch.no_grad():
        for x in (torch.randn(5, 8, dtype=torch.float64), torch.randn(0, 8), torch.randn(5, 0)):
            report = explain(lambda x: x @ x.t(), (x,))
            assert not report.taken
            torch.testing.assert_close(torch.compile(lambda x: x @ x.t(), backend=backend)(x), x @ x.t())


def test_too_much_for_the_emulator_stays() -> None:
    report = compare(explicit, (heads(2, 9, 16),) * 3, {"cpu_work": 10})
    assert not report.taken
    assert "too many for the emulator" in report.left[0].reason


def test_the_interpreter_serves_too() -> None:
    assert compare(explicit, (heads(2, 9, 16),) * 3, {"backend": "interpreter"}).taken


def test_an_option_that_is_not_known() -> None:
    with pytest.raises(TreadleError, match="unknown option 'mashine'"):
        explain(explicit, (heads(2, 9, 16),) * 3, options={"mashine": "a100"})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"machine": "nope"}, "unknown machine 'nope'"),
        ({"machine": "a100", "arch": "sm_90a"}, "code for sm_90a does not run on a100"),
    ],
)
def test_a_machine_that_is_not_known(options: dict[str, str], message: str) -> None:
    """Each graph would be left to PyTorch, and nobody would hear of it."""
    with pytest.raises(TreadleError, match=message):
        explain(explicit, (heads(2, 9, 16),) * 3, options=options)


@pytest.mark.parametrize("view", [lambda x: x.t(), lambda x: x[:, ::2], lambda x: x[1:, 3:], lambda x: x.flip(0)])
def test_strides(view: Callable[[torch.Tensor], torch.Tensor]) -> None:
    x = view(heads(12, 24))
    compare(lambda x: torch.softmax(x, -1) @ x.t(), (x,))


def test_the_name_is_registered() -> None:
    text = (Path(__file__).parents[1] / "pyproject.toml").read_text()
    entry = tomllib.loads(text)["project"]["entry-points"]["torch_dynamo_backends"]["treadle"]
    assert entry == "treadle.torch.backend:backend"


# -- operators ---------------------------------------------------------------------------------------


@treadle.kernel("b q d, b x d, b x e -> b q e")
def attention(Q: Any, K: Any, V: Any) -> Any:
    return tl.contract(tl.softmax(tl.contract(Q, K, over="d") * 0.25, over="x"), V, over="x")


def formula(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.softmax(q @ k.transpose(-1, -2) * 0.25, -1) @ v


OPERATOR = operator("treadle_tests::attention", attention, formula)


def test_an_operator() -> None:
    q, k, v = (heads(2, n, 16).requires_grad_() for n in (5, 9, 9))
    torch.testing.assert_close(OPERATOR(q, k, v), formula(q, k, v), atol=1e-5, rtol=1e-5)
    torch.library.opcheck(torch.ops.treadle_tests.attention.default, (q, k, v))
    exported = torch.export.export(Calls(), (q, k, v))
    assert "treadle_tests.attention" in str(exported.graph)
    torch.testing.assert_close(exported.module()(q, k, v), formula(q, k, v), atol=1e-5, rtol=1e-5)


class Calls(nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.ops.treadle_tests.attention(q, k, v)


def test_an_operator_without_a_formula_has_a_derived_gradient() -> None:
    plain = operator("treadle_tests::plain", attention)
    q, k, v = (heads(2, n, 16).requires_grad_() for n in (5, 9, 9))
    torch.library.opcheck(torch.ops.treadle_tests.plain.default, (q, k, v))
    ours, theirs = (torch.autograd.grad(f(q, k, v).sum(), (q, k, v)) for f in (plain, formula))
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


def test_a_name_without_a_namespace() -> None:
    with pytest.raises(TreadleError, match="namespace::name"):
        operator("attention", attention)


def test_a_function_without_axes_is_no_kernel() -> None:
    plain: Any = lambda x: x  # noqa: E731
    with pytest.raises(TreadleError, match=r"is a function under @treadle\.kernel"):
        operator("treadle_tests::function", plain)


def test_a_kernel_alone_has_no_gradient() -> None:
    """It would be left out in silence: PyTorch would take the result for a constant."""
    q, k, v = heads(1, 3, 16), heads(1, 4, 16), heads(1, 4, 16).requires_grad_()
    with pytest.raises(TreadleError, match=r"requires a gradient.*treadle\.torch\.operator"):
        attention(q, k, v)
    with torch.no_grad():
        wanted = formula(q, k, v)
        torch.testing.assert_close(attention(q, k, v), wanted, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(attention(q, k, v.detach()), wanted, atol=1e-5, rtol=1e-5)
