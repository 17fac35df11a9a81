"""Who is measured: treadle, and what PyTorch offers for the same numbers."""

from __future__ import annotations

import gc
import importlib.util
import itertools
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from speed.cases import Case
from speed.clock import Call
from speed.pool import Pool


class NotHere(Exception):
    """What one would compare with is not installed, or does not do this."""


@dataclass(frozen=True)
class Prepared:
    """A kernel ready to run on a case, and what it computed once."""

    call: Call
    result: Callable[[], Any]
    """A numpy array, of several results all their elements."""
    launched: Callable[[], tuple[str, ...]] = tuple
    """The kernels of ours that ran."""


# -- treadle -------------------------------------------------------------------------------------------


def inputs_of(case: Case) -> Sequence[Any]:
    """Random numbers in the formats of the program's arguments, its weights as small as the case says."""
    from treadle.compiler.source import parse_module
    from treadle.runtime.inputs import argument_name, axis_sizes, make_inputs
    from treadle.runtime.interpreter import entry_function

    function = entry_function(parse_module(case.program))
    drawn = make_inputs(function, axis_sizes(function, case.sizes), Pool(0))
    factors = [case.factors.get(argument_name(function, i)) for i in range(len(drawn))]
    return [each if factor is None else each * factor for each, factor in zip(drawn, factors, strict=True)]


class Uploaded:
    """Arrays of the device by where those of the host lie that they are copies of: several ways to make a kernel read
    the same."""

    def __init__(self) -> None:
        self._known: dict[Any, tuple[Any, Any]] = {}

    def by(self, upload: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Uploads what is not there; an array of the host is held, so that no other comes to lie there."""

        def shared(array: Any) -> Any:
            key = array.ctypes.data, array.shape, array.strides, array.dtype.str
            if key not in self._known:
                self._known[key] = upload(array), array
            return self._known[key][0]

        return shared


def prepare_treadle(
    case: Case, inputs: Sequence[Any], device: str, lowered: Any = None, uploaded: Uploaded | None = None
) -> Prepared:
    """The whole road once, as `treadle run` takes it, if another process has not; then its launches again and again."""
    from speed.ahead import lower
    from treadle.compiler.bench.gpu import Recorder
    from treadle.compiler.cli.bench import machine_called
    from treadle.compiler.source import parse_module
    from treadle.runtime.host import execute

    lowered = lowered or lower(case, machine_called(device).name)
    backend: Any = Recorder(lowered.cuda, lowered.kernels, lowered.arch)
    if uploaded is not None:
        backend.upload = uploaded.by(backend.upload)
    result = as_one(execute(parse_module(lowered.module), inputs, backend))
    launched = tuple(dict.fromkeys(backend.variants))
    return Prepared(lambda: [launch() for launch in backend.launches], lambda: result, lambda: launched)


def as_one(results: Sequence[Any]) -> Any:
    """Of several results all their elements, one after another: so all of them are compared."""
    import numpy as np

    first, *others = results
    return np.concatenate([np.ravel(each).astype(np.float32) for each in results]) if others else first


# -- PyTorch -------------------------------------------------------------------------------------------

Maker = Callable[[Any, Case, Sequence[Any]], Call]
"""Of PyTorch itself, a case and its inputs on the device: one use (NotHere)."""


def prepare_torch(case: Case, inputs: Sequence[Any], who: str) -> Prepared:
    """PyTorch on the same numbers (NotHere)."""
    torch = pytorch()
    arrays = [torch.from_numpy(sixteen_bits(each)).cuda() for each in inputs]
    call = PEERS[case.kind][who](torch, case, arrays)
    return Prepared(call, lambda: on_host(call()))


def on_host(results: Any) -> Any:
    """One tensor, or several, as a numpy array."""
    return as_one([each.cpu().numpy() for each in (results if isinstance(results, tuple) else (results,))])


def sixteen_bits(array: Any) -> Any:
    """Numbers of 8 bits as f16, which holds them all: nobody else multiplies them by others of 16. A number alone is an
    array of no axes."""
    import numpy as np

    return np.asarray(array.astype("float16") if array.dtype.itemsize == 1 else array)


def pytorch() -> Any:
    """(NotHere)"""
    try:
        import torch
    except ImportError as error:
        raise NotHere("PyTorch is not installed") from error
    if not torch.cuda.is_available():
        raise NotHere("this PyTorch has no CUDA")
    return torch


def free_memory() -> None:
    """Of a case that is done. What was compiled for it is forgotten: of what it met at other sizes PyTorch would make
    code for any size."""
    if "torch._dynamo" in sys.modules:
        sys.modules["torch._dynamo"].reset()
    gc.collect()
    if "torch" in sys.modules:
        sys.modules["torch"].cuda.empty_cache()


def _sdpa(backend: str) -> Maker:
    def make(torch: Any, case: Case, arrays: Sequence[Any]) -> Call:
        from torch.nn.attention import SDPBackend, sdpa_kernel

        causal = case.kind.startswith("causal")
        attention = torch.nn.functional.scaled_dot_product_attention

        def call() -> Any:
            with sdpa_kernel([getattr(SDPBackend, backend)]):
                return attention(*arrays, is_causal=causal)

        return call

    return make


def _sdpa_grouped(backend: str) -> Maker:
    """Heads of queries that share keys and values are one axis to PyTorch."""

    def make(torch: Any, case: Case, arrays: Sequence[Any]) -> Call:
        from torch.nn.attention import SDPBackend, sdpa_kernel

        (b, h, g, q, d), (_, keys, values) = arrays[0].shape, arrays
        queries, attention = arrays[0].view(b, h * g, q, d), torch.nn.functional.scaled_dot_product_attention

        def call() -> Any:
            with sdpa_kernel([getattr(SDPBackend, backend)]):
                return attention(queries, keys, values, enable_gqa=True).view(b, h, g, q, -1)

        return call

    return make


def _sdpa_scaled(backend: str) -> Maker:
    """Of numbers of 8 bits, here in 16, with their scales: that of values is in them beforehand."""

    def make(torch: Any, case: Case, arrays: Sequence[Any]) -> Call:
        from torch.nn.attention import SDPBackend, sdpa_kernel

        queries, keys, values, *scales = arrays
        of_queries, of_keys, of_values = map(float, scales)
        scale = max(abs(of_queries * of_keys * case.sizes["d"] ** -0.5), 1e-30)
        turned = values.transpose(2, 3) if values.shape[2] != keys.shape[2] else values
        scaled = (turned.float() * of_values).to(queries.dtype).contiguous()

        def call() -> Any:
            with sdpa_kernel([getattr(SDPBackend, backend)]):
                return torch.nn.functional.scaled_dot_product_attention(queries, keys, scaled, scale=scale)

        return call

    return make


def _copy_keys(torch: Any, case: Case, arrays: Sequence[Any]) -> Call:
    """As many bytes as to read keys and values."""
    target = torch.empty_like(arrays[1])
    return lambda: target.copy_(arrays[1])


def _flex(torch: Any, case: Case, arrays: Sequence[Any]) -> Call:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    compiled = torch.compile(flex_attention, dynamic=False)
    if not case.kind.startswith("causal"):
        return lambda: compiled(*arrays)
    mask = create_block_mask(lambda b, h, q, x: q >= x, None, None, case.sizes["q"], case.sizes["x"])
    return lambda: compiled(*arrays, block_mask=mask)


WINDOW = 128
"""Positions that a query of `examples/attention_window.mlir` sees, its own among them."""


def _flex_window(torch: Any, case: Case, arrays: Sequence[Any]) -> Call:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    compiled = torch.compile(flex_attention, dynamic=False)
    sizes = case.sizes["q"], case.sizes["x"]
    mask = create_block_mask(lambda b, h, q, x: (q >= x) & (q - x < WINDOW), None, None, *sizes)
    return lambda: compiled(*arrays, block_mask=mask)


def _sdpa_masked(torch: Any, case: Case, arrays: Sequence[Any]) -> Call:
    """The one of PyTorch's own that takes any mask; it computes all scores."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q, x = (torch.arange(case.sizes[axis], device=arrays[0].device) for axis in "qx")
    mask = (q[:, None] >= x) & (q[:, None] - x < WINDOW)

    def call() -> Any:
        with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]):
            return torch.nn.functional.scaled_dot_product_attention(*arrays, attn_mask=mask)

    return call


def _flex_packed(torch: Any, case: Case, arrays: Sequence[Any]) -> Call:
    """Its mask of blocks is made beforehand, as it is used for all layers."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    compiled = torch.compile(flex_attention, dynamic=False)
    *heads, of_q, of_x = arrays
    sizes = case.sizes["q"], case.sizes["x"]
    mask = create_block_mask(lambda b, h, q, x: of_q[q] == of_x[x], None, None, *sizes, device=of_q.device)
    return lambda: compiled(*heads, block_mask=mask)


def _sdpa_packed(torch: Any, case: Case, arrays: Sequence[Any]) -> Call:
    """All scores, of which a mask leaves some; a query whose sequence has no key is zero elsewhere, and NaN here."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    *heads, of_q, of_x = arrays
    mask = of_q[:, None] == of_x

    def call() -> Any:
        with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]):
            return torch.nn.functional.scaled_dot_product_attention(*heads, attn_mask=mask).nan_to_num()

    return call


TUTORIAL: list[Path] = []
"""Where the fused attention of Triton's tutorials lies, if one was named: its package does not hold it."""


def _triton(torch: Any, case: Case, arrays: Sequence[Any]) -> Call:
    """Our own kernel in Triton."""
    try:
        from speed.triton_attention import attention
    except ImportError as error:
        raise NotHere("Triton is not installed") from error
    causal = case.kind.startswith("causal")
    return lambda: attention(*arrays, causal)


def _triton_tutorial(torch: Any, case: Case, arrays: Sequence[Any]) -> Call:
    if not TUTORIAL:
        raise NotHere("it is in Triton's repository only: name python/tutorials/06-fused-attention.py")
    name = "triton_fused_attention"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, TUTORIAL[0])
        if spec is None or spec.loader is None:
            raise NotHere(f"{TUTORIAL[0].name} is no Python file")
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    attention, causal = sys.modules[name].attention, case.kind.startswith("causal")
    return lambda: attention(*arrays, causal, case.sizes["d"] ** -0.5)


def _eager(function: Callable[..., Any]) -> Maker:
    def make(torch: Any, case: Case, arrays: Sequence[Any]) -> Call:
        given = _in_one_format(torch, arrays)
        return lambda: function(torch, *given)

    return make


def _compiled(function: Callable[..., Any], **options: Any) -> Maker:
    def make(torch: Any, case: Case, arrays: Sequence[Any]) -> Call:
        given = _in_one_format(torch, arrays)
        compiled = torch.compile(lambda *each: function(torch, *each), dynamic=False, **options)
        return lambda: compiled(*given)

    return make


def _in_one_format(torch: Any, arrays: Sequence[Any]) -> list[Any]:
    """A bias or a scale in f32, as the program has it, would send PyTorch through slower kernels. Positions stay what
    they are."""
    return [each.to(arrays[0].dtype) if each.is_floating_point() else each for each in arrays]


def _triton_product(torch: Any, case: Case, arrays: Sequence[Any]) -> Call:
    with torch._inductor.config.patch(max_autotune_gemm_backends="TRITON"):
        call = _compiled(lambda torch, a, b: torch.matmul(a, b), mode="max-autotune-no-cudagraphs")(torch, case, arrays)
        call()
    return call


def _eight_bits(torch: Any, case: Case, arrays: Sequence[Any]) -> Call:
    """cuBLAS's product of 8 bits, the right operand transposed, results in f16; it takes scales, which are one."""
    lhs, rhs = (each.to(torch.float8_e4m3fn) for each in arrays)
    one = torch.ones((), device=lhs.device)
    return lambda: torch._scaled_mm(lhs, rhs.t(), scale_a=one, scale_b=one, out_dtype=torch.float16)


def _copy(torch: Any, case: Case, arrays: Sequence[Any]) -> Call:
    target = torch.empty_like(arrays[0])
    return lambda: target.copy_(arrays[0])


def _layer(torch: Any, x: Any, weights: Any, bias: Any) -> Any:
    return torch.nn.functional.silu(torch.nn.functional.linear(x, weights, bias))


def _swiglu(torch: Any, x: Any, gate: Any, value: Any) -> Any:
    return torch.nn.functional.silu(x @ gate) * (x @ value)


def _latent(torch: Any, queries: Any, rotated: Any, keys: Any, positions: Any) -> Any:
    """The scale is that of `examples/attention_latent.mlir`."""
    scores = (queries @ keys.mT).float() + (rotated @ positions.mT).float()
    return torch.softmax(scores * 192**-0.5, -1).to(queries.dtype) @ keys


def _with_update(torch: Any, x: Any, weights: Any, down: Any, up: Any) -> Any:
    """The factor is that of `examples/lora.mlir`."""
    return torch.addmm(x @ weights, x @ down, up, alpha=2.0)


def _added(torch: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    return torch.addmm(a @ b, c, d)


def _side_by_side(torch: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    """One product, of operands that are put together each time."""
    return torch.cat((a, c), 1) @ torch.cat((b, d), 0)


def _divergence(torch: Any, a: Any, b: Any) -> Any:
    one, other = torch.log_softmax(a, -1), torch.log_softmax(b, -1)
    return (one.exp() * (one - other)).sum(-1)


def _stick_breaking(torch: Any, q: Any, k: Any, v: Any) -> Any:
    """As `examples/attention_stick_breaking.mlir` has it, with all scores."""
    scores = (q @ k.mT).float() * 0.125
    seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril(-1)
    rest = torch.nn.functional.softplus(scores).masked_fill(~seen, 0)
    later = rest.flip(-1).cumsum(-1).flip(-1)
    return (scores - later).exp().masked_fill(~seen, 0).to(v.dtype) @ v


def _backward(torch: Any, q: Any, k: Any, v: Any, o: Any, given: Any) -> Any:
    """As `examples/attention_backward.mlir` has it, with all scores."""
    scale = q.shape[-1] ** -0.5
    shares = torch.softmax((q @ k.mT).float() * scale, -1)
    mean = (o.float() * given.float()).sum(-1, keepdim=True)
    scores = (shares * ((given @ v.mT).float() - mean) * scale).to(q.dtype)
    return scores @ k, scores.mT @ q, shares.to(q.dtype).mT @ given


def _flash_backward(torch: Any, case: Case, arrays: Sequence[Any]) -> Call:
    """By the operator that PyTorch's autograd calls, for a result that is given; sums of powers come beforehand."""
    (q, k, v, o, given), flash = arrays, torch.ops.aten
    scale = q.shape[-1] ** -0.5
    found = flash._scaled_dot_product_flash_attention(q, k, v, 0.0, False, False, scale=scale)
    sums, (of_q, of_k, most_q, most_k, seed, offset) = found[1], found[2:8]
    lengths, drawn = (of_q, of_k, most_q, most_k), (seed, offset)
    return lambda: flash._scaled_dot_product_flash_attention_backward(
        given, q, k, v, o, sums, *lengths, 0.0, False, *drawn, scale=scale
    )


def _routed(torch: Any, x: Any, w: Any) -> Any:
    scores, experts = torch.topk(torch.nn.functional.linear(x, w).float(), 2)
    return torch.softmax(scores, -1).to(x.dtype), experts.int()


def _nearest(torch: Any, q: Any, k: Any) -> Any:
    return torch.topk(2 * torch.nn.functional.linear(q, k).float() - (k.float() ** 2).sum(-1), 8)


def _rotated(torch: Any, x: Any, w: Any, cosine: Any, sine: Any) -> Any:
    heads = torch.matmul(x, w.flatten(1)).unflatten(1, w.shape[1:])
    return heads * cosine[:, None] + heads.roll(w.shape[2] // 2, -1) * sine[:, None]


def _sorted(torch: Any, x: Any, w: Any, ends: Any) -> Any:
    """A product for each expert, of as many rows as the host is told."""
    last = [0, *ends.tolist()]
    rows = [x[begin:end] @ w[i] for i, (begin, end) in enumerate(itertools.pairwise(last))]
    return torch.cat([*rows, x.new_zeros(len(x) - last[-1], w.shape[2])])


def _summed(torch: Any, q: Any, k: Any, w: Any) -> Any:
    scores = torch.relu(torch.matmul(q, k.T).float())
    return (scores * w[..., None]).sum(1).half()


def _projected(torch: Any, q: Any, k: Any, v: Any) -> Any:
    query, key, value = q.flatten(2, 3).transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    found = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
    return found.transpose(1, 2).unflatten(2, q.shape[2:4])


def _delta(torch: Any, q: Any, k: Any, v: Any, b: Any) -> Any:
    """One token after another."""
    q, k, v, part = q.float(), k.float(), v.float(), torch.sigmoid(b.float())
    k = k * torch.rsqrt((k * k).sum(-1, keepdim=True) + 1e-6)
    state, read = q.new_zeros(q.shape[0], q.shape[2], v.shape[2]), []
    for t in range(q.shape[1]):
        wrong = v[:, t] - (k[:, t, :, None] * state).sum(1)
        state = state + k[:, t, :, None] * (part[:, t, None] * wrong)[:, None]
        read.append((q[:, t, :, None] * state).sum(1))
    return torch.stack(read, 1).half(), state


def _sdpa_dropped(torch: Any, case: Case, arrays: Sequence[Any]) -> Call:
    """A tenth of the shares is left out, another one than ours."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q, k, v = (each[None] for each in arrays[:3])

    def call() -> Any:
        with sdpa_kernel([SDPBackend.FLASH_ATTENTION]):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=0.1)

    return call


def _distances(torch: Any, x: Any, y: Any) -> Any:
    return (x[:, None] - y[None]).abs().sum(-1)


def _softmax(torch: Any, a: Any) -> Any:
    return torch.softmax(a, -1)


def _rms_norm(torch: Any, x: Any, gamma: Any) -> Any:
    return torch.nn.functional.rms_norm(x, x.shape[-1:], gamma, 1e-5)


ATTENTION: Mapping[str, Maker] = {
    "SDPA flash": _sdpa("FLASH_ATTENTION"),
    "SDPA cuDNN": _sdpa("CUDNN_ATTENTION"),
    "FlexAttention": _flex,
    "Triton": _triton,
    "Triton's tutorial": _triton_tutorial,
}

IN_SIXTEEN_BITS = {f"{who} in f16": ATTENTION[who] for who in ("SDPA flash", "SDPA cuDNN")}
"""Beside attention in two formats, which nobody else has."""

GROUPED = {"SDPA flash": _sdpa_grouped("FLASH_ATTENTION"), "SDPA cuDNN": _sdpa_grouped("CUDNN_ATTENTION")}
SCALED = {
    "SDPA flash in f16": _sdpa_scaled("FLASH_ATTENTION"),
    "SDPA cuDNN in f16": _sdpa_scaled("CUDNN_ATTENTION"),
}

UNFUSED, COPY = "PyTorch eager", "copy"

SLOW = ("FlexAttention", "Triton", "Triton's tutorial", "torch.compile")
"""Those who compile for a minute before they can be measured."""

PEERS: Mapping[str, Mapping[str, Maker]] = {
    "attention": ATTENTION,
    "causal attention": ATTENTION,
    "attention of narrow heads": {who: ATTENTION[who] for who in ("SDPA flash", "SDPA cuDNN", "FlexAttention")},
    "mixed attention": IN_SIXTEEN_BITS,
    "attention in 8 bits": SCALED,
    "attention in 8 bits of values by key": SCALED,
    "grouped queries": GROUPED,
    "generation": {**GROUPED, COPY: _copy_keys},
    "attention to latent keys": {UNFUSED: _eager(_latent), "torch.compile": _compiled(_latent)},
    "packed attention": {"SDPA masked": _sdpa_packed, "FlexAttention": _flex_packed},
    "window attention": {"SDPA masked": _sdpa_masked, "FlexAttention": _flex_window},
    "product": {"cuBLAS": _eager(lambda torch, a, b: torch.matmul(a, b)), "Triton": _triton_product},
    "product of 8 bits": {"cuBLAS": _eight_bits},
    "product in f32": {"cuBLAS": _eager(lambda torch, a, b: torch.mm(a, b, out_dtype=torch.float32))},
    "layer": {UNFUSED: _eager(_layer), "torch.compile": _compiled(_layer)},
    "swiglu": {UNFUSED: _eager(_swiglu), "torch.compile": _compiled(_swiglu)},
    "distances": {
        UNFUSED: _eager(lambda torch, x, y: torch.cdist(x, y, p=1)),
        "torch.compile": _compiled(_distances),
    },
    "low-rank update": {UNFUSED: _eager(_with_update)},
    "products added up": {UNFUSED: _eager(_added), "one product": _eager(_side_by_side)},
    "products of a batch added up": {UNFUSED: _eager(lambda torch, a, b: torch.einsum("bmk,bkn->mn", a, b))},
    "projection of heads": {UNFUSED: _eager(lambda torch, a, b: torch.einsum("bhtd,hdo->bto", a, b))},
    "divergence": {UNFUSED: _eager(_divergence), COPY: _copy},
    "stick-breaking": {UNFUSED: _eager(_stick_breaking), "torch.compile": _compiled(_stick_breaking)},
    "cumulative sums": {UNFUSED: _eager(lambda torch, a: a.cumsum(-1)), COPY: _copy},
    "attention with dropout": {"SDPA flash, dropped": _sdpa_dropped},
    "routing": {UNFUSED: _eager(_routed), "torch.compile": _compiled(_routed)},
    "nearest keys": {UNFUSED: _eager(_nearest), "torch.compile": _compiled(_nearest)},
    "rotated projection": {UNFUSED: _eager(_rotated), "torch.compile": _compiled(_rotated)},
    "delta rule": {UNFUSED: _eager(_delta)},
    "sorted experts": {UNFUSED: _eager(_sorted)},
    "summed heads": {UNFUSED: _eager(_summed), "torch.compile": _compiled(_summed)},
    "projected attention": {UNFUSED: _eager(_projected)},
    "attention backward": {UNFUSED: _eager(_backward), "flash backward": _flash_backward},
    "softmax": {UNFUSED: _eager(_softmax), "torch.compile": _compiled(_softmax), COPY: _copy},
    "rms norm": {UNFUSED: _eager(_rms_norm), "torch.compile": _compiled(_rms_norm), COPY: _copy},
}
"""Beside treadle, by kind. The copy says what the memory does; it computes nothing."""
