# pyright: standard
"""Families of models as `transformers` has them, with random weights: every result as eager PyTorch's, and kernels for
what they do. Longer than the rest of the door, so they run in `make test-all` alone; with `--device cuda`, on a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_map_only

from treadle.torch import Report
from treadle.torch.backend import make_backend
from treadle.torch.options import Options

SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 4, "vocab_size": 50}
SHARED = {**SIZES, "num_key_value_heads": 2}
IMAGE = {
    **{name: size for name, size in SIZES.items() if name != "vocab_size"},
    **{"image_size": 16, "patch_size": 8},
}
LATENT = {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8}
ENCODER_DECODER = {"vocab_size": 50, "d_model": 32}
BOTH_SIDES = {
    **{f"{side}_layers": 1 for side in ("encoder", "decoder")},
    **{f"{side}_attention_heads": 4 for side in ("encoder", "decoder")},
    **{f"{side}_ffn_dim": 48 for side in ("encoder", "decoder")},
}
SPACE = {"mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 8, "mamba_n_groups": 1, "mamba_chunk_size": 4}
WAVES = {
    **{"conv_dim": [8, 8], "conv_kernel": [5, 3], "conv_stride": [4, 2], "num_feat_extract_layers": 2},
    **{"num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2, "apply_spec_augment": False},
}

FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "t5": ("t5", {**ENCODER_DECODER, "d_kv": 8, "d_ff": 48, "num_layers": 1, "num_heads": 4}),
    "bart": ("bart", {**ENCODER_DECODER, **BOTH_SIDES}),
    "whisper": (
        "whisper",
        {
            **{**ENCODER_DECODER, **BOTH_SIDES, "num_mel_bins": 8, "max_source_positions": 8},
            **{"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1},
        },
    ),
    "llama with padding": ("llama", SHARED),
    "gptj with padding": ("gptj", {"vocab_size": 50, "n_embd": 32, "n_layer": 1, "n_head": 4, "rotary_dim": 4}),
    "bamba with padding": ("bamba", {**SHARED, **SPACE, "num_hidden_layers": 2, "attn_layer_indices": [1]}),
    "clip": (
        "clip",
        {
            "text_config": {**SIZES, "max_position_embeddings": 8, "eos_token_id": 2, "projection_dim": 16},
            "vision_config": {**IMAGE, "projection_dim": 16},
            "projection_dim": 16,
        },
    ),
    "wav2vec2": ("wav2vec2", {**SIZES, **WAVES}),
    "perceiver": (
        "perceiver",
        {
            **{"num_latents": 6, "d_latents": 32, "d_model": 16, "num_blocks": 1, "num_self_attends_per_block": 1},
            **{"num_self_attention_heads": 4, "num_cross_attention_heads": 4},
        },
    ),
    "gpt_neox": ("gpt_neox", SIZES),
    "falcon with slopes": ("falcon", {**SIZES, "alibi": True}),
    "bloom": ("bloom", {"vocab_size": 50, "hidden_size": 32, "n_layer": 1, "n_head": 4}),
    "mpt": ("mpt", {"vocab_size": 50, "d_model": 32, "n_layers": 1, "n_heads": 4, "max_seq_len": 16}),
    "phi": ("phi", SIZES),
    "gemma2": ("gemma2", {**SHARED, "num_hidden_layers": 2, "head_dim": 8, "sliding_window": 4}),
    "mistral": ("mistral", {**SHARED, "sliding_window": 4}),
    "qwen3": ("qwen3", {**SHARED, "head_dim": 8}),
    "olmo2": ("olmo2", SHARED),
    "cohere": ("cohere", SHARED),
    "deepseek_v3": (
        "deepseek_v3",
        {
            **SIZES,
            **LATENT,
            **{"num_key_value_heads": 4, "first_k_dense_replace": 0, "n_routed_experts": 4, "num_experts_per_tok": 2},
            **{"n_group": 2, "topk_group": 1, "moe_intermediate_size": 16},
        },
    ),
    "mixtral": ("mixtral", {**SHARED, "num_local_experts": 4, "num_experts_per_tok": 2}),
    "gpt_oss": ("gpt_oss", {**SHARED, "head_dim": 8, "num_local_experts": 4, "sliding_window": 4}),
    "modernbert": ("modernbert", {**SIZES, "pad_token_id": 0, "global_attn_every_n_layers": 2, "local_attention": 4}),
    "deberta-v2": (
        "deberta-v2",
        {**SIZES, "relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 4},
    ),
    "longformer": ("longformer", {**SIZES, "attention_window": [4]}),
    "xlnet": ("xlnet", {**ENCODER_DECODER, "n_layer": 1, "n_head": 4, "d_inner": 48}),
    "mamba2": (
        "mamba2",
        {
            **{"vocab_size": 50, "hidden_size": 16, "state_size": 4, "num_hidden_layers": 1},
            **{"num_heads": 4, "head_dim": 8, "n_groups": 1, "chunk_size": 4},
        },
    ),
    "vit": ("vit", IMAGE),
    "beit": ("beit", {**IMAGE, "use_relative_position_bias": True}),
    "swin": ("swin", {"image_size": 16, "patch_size": 2, "embed_dim": 16, "depths": [2], "num_heads": [2]}),
    "convnext": ("convnext", {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2}),
}
"""The name that `transformers` gives a family, and sizes that are small."""
IMAGES = {"vit", "beit", "swin", "convnext"}
TWO_SIDED = {"t5", "bart"}

TOLERANCES = {torch.float32: 3e-5, torch.float16: 2.0**-7}
"""Of the largest element, in the format of the model: rounding, once for each layer that eager PyTorch rounds in
between."""


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.full
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("family", FAMILIES)
def test_families(family: str, dtype: torch.dtype, device: str) -> None:
    report = compare(family, dtype, device)
    assert report.taken, report
    assert not any("treadle failed" in left.reason for left in report.left), report


@pytest.mark.full
@pytest.mark.parametrize("family", ["llama with padding", "mistral", "gpt_oss"])
def test_steps_with_a_cache_of_fixed_size(family: str, device: str) -> None:
    """Which keys count is told by a length on the device: it is part of the condition, and no mask is written."""
    from transformers import AutoConfig, AutoModel, StaticCache

    torch.manual_seed(0)
    kind, sizes = FAMILIES[family]
    model = AutoModel.from_config(AutoConfig.for_model(kind, **sizes)).eval().to(device)
    words = torch.randint(3, 50, (2, 8), device=device)
    report = Report()
    step = torch.compile(model, backend=make_backend(Options.of(None), report.graphs.append))
    with torch.no_grad():
        caches = [StaticCache(config=model.config, max_cache_len=16) for _ in range(2)]
        for cache in caches:
            model(words, past_key_values=cache)
        for i in range(3):
            given = words[:, i : i + 1]
            found, wanted = (
                each(given, past_key_values=cache) for each, cache in zip((step, model), caches, strict=True)
            )
            torch.testing.assert_close(found[0], wanted[0], atol=1e-4, rtol=1e-4)
    assert not any("le.Tensor" in left.operation for left in report.left), report


def compare(family: str, dtype: torch.dtype, device: str) -> Report:
    from transformers import AutoConfig, AutoModel

    torch.manual_seed(0)
    kind, sizes = FAMILIES[family]
    model = AutoModel.from_config(AutoConfig.for_model(kind, **sizes)).eval().to(device, dtype)
    given = tree_map_only(torch.Tensor, lambda each: each.to(device), inputs_of(family, dtype))
    report = Report()
    with torch.no_grad():
        wanted = tensors(model(**given))
        made = make_backend(Options.of(None), report.graphs.append)
        found = tensors(torch.compile(model, backend=made)(**given))
    for a, b in zip(found, wanted, strict=True):
        assert a.device == b.device
        assert a.dtype == b.dtype
        assert a.stride() == b.stride()
        bound = TOLERANCES[dtype] * b.float().abs().max().item()
        torch.testing.assert_close(a.float(), b.float(), atol=bound, rtol=0.0)
    return report


def inputs_of(family: str, dtype: torch.dtype) -> dict[str, Any]:
    image = torch.randn(1, 3, 16, 16, dtype=dtype)
    if family in IMAGES:
        return {"pixel_values": image}
    if family == "whisper":
        features, begun = torch.randn(2, 8, 16, dtype=dtype), torch.randint(3, 50, (2, 5))
        return {"input_features": features, "decoder_input_ids": begun, "use_cache": False}
    if family == "wav2vec2":
        return {"input_values": torch.randn(2, 80, dtype=dtype)}
    if family == "perceiver":
        return {"inputs": torch.randn(2, 9, 16, dtype=dtype)}
    words = torch.randint(3, 50, (2, 8))
    if family in TWO_SIDED:
        return {"input_ids": words, "decoder_input_ids": words[:, :5], "use_cache": False}
    if family == "clip":
        return {"input_ids": words, "pixel_values": image.expand(2, -1, -1, -1)}
    if "padding" in family:
        return {"input_ids": words, "attention_mask": (torch.arange(8) >= torch.tensor([[3], [0]])).long()}
    return {"input_ids": words}


def tensors(result: Any) -> list[torch.Tensor]:
    """All of a result, in order."""
    if isinstance(result, torch.Tensor):
        return [result]
    several = result.values() if isinstance(result, dict) else result if isinstance(result, tuple | list) else ()
    return [each for part in several for each in tensors(part)]
