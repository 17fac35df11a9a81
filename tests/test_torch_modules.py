# pyright: standard
"""Modules of `transformers` and PyTorch that nobody here wrote, with random weights, each alone: what it gives is what
eager PyTorch gives, and `treadle.explain` shows a kernel; with `--device cuda`, on a GPU. Whole layers and families of
models take longer: tests/test_torch.py and tests/test_torch_families.py, with `make test-all`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

from treadle.torch import backend, explain

Made = tuple[nn.Module, tuple[torch.Tensor, ...]]
SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 2}
TOLERANCES = {torch.float32: 2e-5, torch.float16: 2.0**-7}
"""Of the largest element: rounding of the format, once for each operation that eager PyTorch rounds after."""


def rows(width: int = 32) -> torch.Tensor:
    return torch.randn(2, 9, width)


def bert_attention() -> Made:
    from transformers import BertConfig
    from transformers.models.bert.modeling_bert import BertSelfAttention

    config = BertConfig(**SIZES)
    config._attn_implementation = "sdpa"
    return BertSelfAttention(config), (rows(),)


def bert_output() -> Made:
    from transformers import BertConfig
    from transformers.models.bert.modeling_bert import BertOutput

    return BertOutput(BertConfig(**SIZES)), (rows(48), rows())


def gpt2_mlp() -> Made:
    from transformers import GPT2Config
    from transformers.models.gpt2.modeling_gpt2 import GPT2MLP

    return GPT2MLP(48, GPT2Config(n_embd=32, n_head=2)), (rows(),)


def llama_norm() -> Made:
    from transformers.models.llama.modeling_llama import LlamaRMSNorm

    return LlamaRMSNorm(32), (rows(),)


def mistral_mlp() -> Made:
    from transformers import MistralConfig
    from transformers.models.mistral.modeling_mistral import MistralMLP

    return MistralMLP(MistralConfig(**SIZES)), (rows(),)


def gemma_norm() -> Made:
    from transformers.models.gemma.modeling_gemma import GemmaRMSNorm

    return GemmaRMSNorm(32), (rows(),)


def t5_feed_forward() -> Made:
    from transformers import T5Config
    from transformers.models.t5.modeling_t5 import T5LayerFF

    return T5LayerFF(T5Config(d_model=32, d_ff=48, dropout_rate=0.0)), (rows(),)


def vit_attention() -> Made:
    from transformers import ViTConfig
    from transformers.models.vit.modeling_vit import ViTAttention

    config = ViTConfig(**SIZES)
    config._attn_implementation = "sdpa"
    return ViTAttention(config), (rows(),)


def clip_mlp() -> Made:
    from transformers import CLIPTextConfig
    from transformers.models.clip.modeling_clip import CLIPMLP

    return CLIPMLP(CLIPTextConfig(**SIZES)), (rows(),)


def phi_mlp() -> Made:
    from transformers import PhiConfig
    from transformers.models.phi.modeling_phi import PhiMLP

    return PhiMLP(PhiConfig(**SIZES)), (rows(),)


def attention_of_pytorch() -> Made:
    x = rows()
    return nn.MultiheadAttention(32, 2, batch_first=True), (x, x, x)


def group_norm_of_pytorch() -> Made:
    return nn.GroupNorm(4, 16), (torch.randn(2, 16, 5, 7),)


MODULES = [
    *(bert_output, gpt2_mlp, llama_norm, mistral_mlp, gemma_norm, t5_feed_forward, vit_attention, clip_mlp, phi_mlp),
    group_norm_of_pytorch,
]
LONG = [bert_attention, attention_of_pytorch]
FORMATS = (torch.float32, torch.float16)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Without PyTorch's own fused attention of a module, of which it makes no graph."""
    torch._dynamo.reset()
    torch.backends.mha.set_fastpath_enabled(False)
    yield
    torch.backends.mha.set_fastpath_enabled(True)
    torch._dynamo.reset()


def cases() -> list[Any]:
    """Every module in one format, by turns, and in the other one with `--all`; long ones only so."""
    return [
        pytest.param(
            make,
            dtype,
            marks=() if make in MODULES and dtype is FORMATS[number % 2] else pytest.mark.full,
            id=f"{make.__name__}-{str(dtype).removeprefix('torch.')}",
        )
        for number, make in enumerate([*MODULES, *LONG])
        for dtype in FORMATS
    ]


@pytest.mark.parametrize(("make", "dtype"), cases())
def test_a_module(make: Callable[[], Made], dtype: torch.dtype, device: str) -> None:
    torch.manual_seed(0)
    module, given = make()
    module, given = module.eval().to(device, dtype), tuple(each.to(device, dtype) for each in given)
    with torch.no_grad():
        wanted = first_of(module(*given))
        report = explain(module, given)
        torch._dynamo.reset()
        found = first_of(torch.compile(module, backend=backend, fullgraph=True)(*given))
    assert report.taken, report
    assert not report.breaks
    assert all("__global__" in each.kernel.cuda for each in report.taken)
    assert found.device == wanted.device
    assert (found.dtype, found.shape, found.stride()) == (wanted.dtype, wanted.shape, wanted.stride())
    bound = TOLERANCES[dtype] * wanted.float().abs().max().item()
    torch.testing.assert_close(found.float(), wanted.float(), atol=bound, rtol=0.0)


def first_of(result: Any) -> torch.Tensor:
    return result if isinstance(result, torch.Tensor) else result[0]
