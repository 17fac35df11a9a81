"""PyTorch's word on what each example computes, in float64: an oracle that shares nothing with treadle.

Each takes the arguments of the example as tensors and gives its results as a tuple."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

Oracle = Callable[..., tuple[Tensor, ...]]


def attention(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None, scale: float | None = None
) -> tuple[Tensor, ...]:
    return (F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=scale),)


def attention_bias(q: Tensor, k: Tensor, v: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    return attention(q, k, v, b.expand(q.shape[0], -1, -1, -1))


def selected(q: Tensor, k: Tensor, v: Tensor, seen: Tensor, bias: float | Tensor = 0.0) -> tuple[Tensor, ...]:
    """Attention to the keys of `seen`; zeros for a query that sees none, where a softmax of -inf alone is NaN."""
    scores = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5 + bias).masked_fill(~seen, -torch.inf)
    return (torch.softmax(scores, -1).nan_to_num(0.0) @ v,)


def attention_backward(q: Tensor, k: Tensor, v: Tensor, o: Tensor, do: Tensor) -> tuple[Tensor, ...]:
    """Gradients where the sum of each row is held: what its change does is in `o`, which is given."""
    given = [each.clone().requires_grad_() for each in (q, k, v)]
    scores = given[0] @ given[1].transpose(-1, -2) / q.shape[-1] ** 0.5
    shares = torch.exp(scores - scores.detach().logsumexp(-1, keepdim=True))
    apart = do @ given[2].transpose(-1, -2) - (o * do).sum(-1, keepdim=True)
    return torch.autograd.grad((shares * apart).sum(), given)


def positions(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """Those of queries, down, and of keys, along."""
    return torch.arange(q.shape[-2])[:, None], torch.arange(k.shape[-2])[None]


def attention_causal(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    i, j = positions(q, k)
    return selected(q, k, v, j <= i)


def attention_window(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    i, j = positions(q, k)
    return selected(q, k, v, (j <= i) & (i - j < 128))


def attention_strided(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    i, j = positions(q, k)
    return selected(q, k, v, (j <= i) & ((i - j < 64) | ((i - j) % 256 == 0)))


def attention_prefix(q: Tensor, k: Tensor, v: Tensor, prefix: Tensor) -> tuple[Tensor, ...]:
    i, j = positions(q, k)
    return selected(q, k, v, (j <= i) | (j < prefix))


def attention_lengths(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
    _, j = positions(q, k)
    return selected(q, k, v, j < lengths[:, None, None, None])


def attention_segments(q: Tensor, k: Tensor, v: Tensor, first: Tensor) -> tuple[Tensor, ...]:
    i, j = positions(q, k)
    return selected(q, k, v, (first[:, None] <= j) & (j <= i))


def attention_packed(q: Tensor, k: Tensor, v: Tensor, of_q: Tensor, of_x: Tensor) -> tuple[Tensor, ...]:
    return selected(q, k, v, of_q[:, None] == of_x)


def attention_alibi(q: Tensor, k: Tensor, v: Tensor, slope: Tensor) -> tuple[Tensor, ...]:
    i, j = positions(q, k)
    return selected(q, k, v, j <= i, slope[:, None, None] * (j - i))


def attention_forgetting(q: Tensor, k: Tensor, v: Tensor, gate: Tensor) -> tuple[Tensor, ...]:
    i, j = positions(q, k)
    kept = F.logsigmoid(gate).cumsum(-1)
    at_q = F.pad(kept, (0, max(len(i) - kept.shape[-1], 0)))[:, : len(i)]
    return selected(q, k, v, j <= i, at_q[:, :, None] - kept[:, None])


def attention_stick_breaking(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    """A share of what later keys leave, as products of what each leaves."""
    i, j = positions(q, k)
    share = torch.sigmoid(q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).masked_fill(j >= i, 0.0)
    left = torch.flip(torch.cumprod(torch.flip(1 - share, [-1]), -1), [-1])
    return ((share * F.pad(left[..., 1:], (0, 1), value=1.0)[..., : share.shape[-1]]) @ v,)


def philox(key: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Both words of Philox2x32 with seven rounds, as numbers without signs."""
    low = 2**32 - 1
    key, x, y = (each.to(torch.int64) & low for each in (key, x, y))
    for number in range(7):
        product = 0xD256D193 * x  # wraps around at 64 bits, which are all there
        x = (product >> 32 & low) ^ (key + 0x9E3779B9 * number & low) ^ y
        y = product & low
    return x, y


def random_bits(key: Tensor, i: Tensor, j: Tensor) -> Tensor:
    """Halves of the words that a block of 16 x 16 has for positions that differ by 8."""
    words = philox(key, i | 8, j | 8)
    return torch.where((i & 8) > 0, words[1], words[0]) >> torch.where((j & 8) > 0, 16, 0) & 0xFFFF


def attention_dropout(q: Tensor, k: Tensor, v: Tensor, seed: Tensor) -> tuple[Tensor, ...]:
    i, j = positions(q, k)
    keys = philox(seed, torch.tensor(0), torch.arange(len(q)))[0]
    share = torch.softmax(q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5, -1)
    return (torch.where(random_bits(keys[:, None, None], i, j) < 6554, 0.0, share * 65536 / (65536 - 6554)) @ v,)


def convolution(x: Tensor, f: Tensor, stride: int = 1, dilation: int = 1) -> tuple[Tensor, ...]:
    """Of samples by channels; nothing, where the window is longer than the samples."""
    count = max((x.shape[1] - 1 - dilation * (f.shape[0] - 1)) // stride + 1, 0)
    if not count:
        return (x.new_zeros(x.shape[0], 0, f.shape[2]),)
    return (F.conv1d(x.mT, f.permute(2, 1, 0), stride=stride, dilation=dilation).mT,)


def moving_average(x: Tensor) -> tuple[Tensor, ...]:
    return (x.unfold(0, 8, 1).mean(-1) if x.shape[0] >= 8 else x[:0],)


def attention_lse(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    return *attention(q, k, v), torch.logsumexp(scores, -1)


def attention_sink(q: Tensor, k: Tensor, v: Tensor, sink: Tensor) -> tuple[Tensor, ...]:
    """One more column of scores, whose shares are dropped."""
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    column = sink[None, :, None, None].expand(*scores.shape[:3], 1)
    return (torch.softmax(torch.cat([scores, column], -1), -1)[..., :-1] @ v,)


def attention_latent(q: Tensor, u: Tensor, c: Tensor, r: Tensor) -> tuple[Tensor, ...]:
    scores = (q @ c.mT + u @ r.mT) / 192**0.5  # what positions and the keys before they are compressed have
    return (torch.softmax(scores, -1) @ c,)


def attention_differential(q: Tensor, k: Tensor, r: Tensor, m: Tensor, v: Tensor, less: Tensor) -> tuple[Tensor, ...]:
    """PyTorch's own causal attention, twice."""
    first, second = (F.scaled_dot_product_attention(*each, v, is_causal=True) for each in ((q, k), (r, m)))
    return (first - less[:, None, None] * second,)


def attention_soft_cap(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    return (torch.softmax(30 * torch.tanh(scores / 30), -1) @ v,)


def attention_gqa(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    return attention(
        q, k[:, :, None].expand(-1, -1, q.shape[2], -1, -1), v[:, :, None].expand(-1, -1, q.shape[2], -1, -1)
    )


def attention_mqa(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    return attention(q, k[:, None].expand(-1, q.shape[1], -1, -1), v[:, None].expand(-1, q.shape[1], -1, -1))


def attention_sigmoid(q: Tensor, k: Tensor, v: Tensor, log_keys: Tensor) -> tuple[Tensor, ...]:
    return (torch.sigmoid(q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5 - log_keys) @ v,)


def attention_spherical(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    return (F.normalize(q @ k.transpose(-1, -2), dim=-1, eps=0) @ v,)


def attention_f8(q: Tensor, k: Tensor, v: Tensor, *scales: Tensor) -> tuple[Tensor, ...]:
    """Shares are not rounded: when that is done is up to the kernel. Scales of scores are above zero."""
    q_scale, k_scale, v_scale = scales
    return attention(q * (q_scale * k_scale).abs().clamp(min=1e-30), k, v.mT * v_scale)


def quantised_matmul(x: Tensor, w: Tensor, w_scale: Tensor) -> tuple[Tensor, ...]:
    """With PyTorch's own f8, which does not saturate: here nothing is beyond its largest number."""
    if not x.numel():
        return (x.new_zeros(x.shape[0], w.shape[0]),)
    scale = x.abs().amax(-1, keepdim=True).clamp(min=1e-6) / 448
    x8 = (x / scale).clamp(-448, 448).to(torch.float8_e4m3fn).to(torch.float64)
    return (x8 @ w.T * scale * w_scale,)


def attention_int8_cache(q: Tensor, k: Tensor, k_scale: Tensor, v: Tensor, v_scale: Tensor) -> tuple[Tensor, ...]:
    return attention(q, k * k_scale[:, None, None], v * v_scale[:, None, None])


def matmul_int4(x: Tensor, packed: Tensor, scales: Tensor) -> tuple[Tensor, ...]:
    """Of positions without a byte or a scale the weight is zero."""
    weights = x.new_zeros(x.shape[1], packed.shape[1])
    halves = torch.stack([packed % 16, packed // 16], 1).flatten(0, 1) - 8
    all_scales = scales.repeat_interleave(64, 0)
    there = min(weights.shape[0], all_scales.shape[0])
    halves = F.pad(halves, (0, 0, 0, max(there - halves.shape[0], 0)), value=-8.0)
    weights[:there] = halves[:there] * all_scales[:there]
    return (x @ weights,)


def cross_attention(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    (o,) = attention(*(t.transpose(1, 2) for t in (q, k, v)))
    return (o.transpose(1, 2),)


def linear_attention(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    """As an attention whose scores are products of features."""
    weights = (F.elu(q) + 1) @ (F.elu(k) + 1).transpose(-1, -2)
    return (weights @ v / weights.sum(-1, keepdim=True),)


def linear_attention_causal(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    return ((q @ k.transpose(-1, -2) / 8).tril() @ v,)


def state_space(c: Tensor, b: Tensor, x: Tensor, a: Tensor, a_x: Tensor, dt: Tensor) -> tuple[Tensor, ...]:
    since = a[..., :, None] - a_x[..., None, :]
    return ((torch.exp(since) * dt[..., None, :] * (c @ b.T)).tril() @ x,)


def retention(q: Tensor, k: Tensor, v: Tensor, log_rate: Tensor) -> tuple[Tensor, ...]:
    i, j = positions(q, k)
    decays = torch.exp(-log_rate.exp()[:, None, None] * (i - j))
    return ((decays * (q @ k.transpose(-1, -2))).tril().nan_to_num(0.0) @ v,)


def gated_linear_attention(q: Tensor, k: Tensor, v: Tensor, a: Tensor, a_x: Tensor) -> tuple[Tensor, ...]:
    scores = q.new_zeros(*q.shape[:-1], k.shape[-2])
    for d in range(q.shape[-1]):  # one column at a time: all of them are as many numbers for each pair of positions
        since = a[..., :, None, d] - a_x[..., None, :, d]
        scores += q[..., :, None, d] * k[..., None, :, d] * since.exp()
    return (scores.tril() @ v,)


def delta_rule(q: Tensor, k: Tensor, v: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    k, rate = k / (k.square().sum(-1, keepdim=True) + 1e-6).sqrt(), torch.sigmoid(b)
    state, read = q.new_zeros(q.shape[0], q.shape[-1], v.shape[-1]), list[Tensor]()
    for t in range(q.shape[1]):
        wrong = v[:, t] - torch.einsum("hd,hde->he", k[:, t], state)
        state = state + torch.einsum("hd,he->hde", k[:, t], rate[:, t, None] * wrong)
        read.append(torch.einsum("hd,hde->he", q[:, t], state))
    return torch.stack(read, 1), state


def gru(x: Tensor, *arrays: Tensor) -> tuple[Tensor, ...]:
    """Matrices of the state are given times 8."""
    into, own, (br, bz, bn, bh, state) = arrays[:3], arrays[3:6], arrays[6:]
    network = torch.nn.GRU(x.shape[-1], state.shape[-1], batch_first=True, dtype=x.dtype)
    zero = torch.zeros_like(bh)
    given = {
        "weight_ih_l0": torch.cat([each.T for each in into]),
        "weight_hh_l0": torch.cat([each.T / 8 for each in own]),
        "bias_ih_l0": torch.cat([br, bz, bn]),
        "bias_hh_l0": torch.cat([zero, zero, bh]),
    }
    made, last = torch.func.functional_call(network, given, (x, state[None]))
    return made, last[0]


def cross_entropy(z: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    return (F.cross_entropy(z, y, reduction="none"),)


def kl_divergence(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    p, q = F.log_softmax(a, -1), F.log_softmax(b, -1)
    return (F.kl_div(q, p, reduction="none", log_target=True).sum(-1),)


def layer_norm(x: Tensor, gamma: Tensor, beta: Tensor) -> tuple[Tensor, ...]:
    return (F.layer_norm(x, x.shape[-1:], gamma, beta, eps=1e-5),)


def rms_norm(x: Tensor, gamma: Tensor) -> tuple[Tensor, ...]:
    return (F.rms_norm(x, x.shape[-1:], gamma, eps=1e-5),)


def mlp(x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> tuple[Tensor, ...]:
    return (F.linear(F.gelu(F.linear(x, w1.T, b1)), w2.T, b2),)


def attention_paged(
    q: Tensor, k_pages: Tensor, v_pages: Tensor, table: Tensor, length: Tensor, past: Tensor
) -> tuple[Tensor, ...]:
    """Pages that there are not are zeros; a query without keys gives zeros."""
    keys, values = (_chosen(pages, table).flatten(1, 2).movedim(2, 1)[:, :, None] for pages in (k_pages, v_pages))
    scores = q @ keys.transpose(-1, -2) / q.shape[-1] ** 0.5
    x, p = torch.arange(keys.shape[3]), torch.arange(q.shape[3])
    seen = (x < length[:, None, None]) & (x <= p[:, None] + past[:, None, None])
    shares = torch.softmax(scores.masked_fill(~seen[:, None, None], -torch.inf), -1).nan_to_num(0.0)
    return (shares @ values,)


def embedding(w: Tensor, token: Tensor) -> tuple[Tensor, ...]:
    return (F.rms_norm(_chosen(w, token), w.shape[-1:], eps=1e-5),)


def routing(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    scores, experts = torch.topk(x @ w.T, 2)
    return scores.softmax(-1), experts


def experts_sorted(x: Tensor, w: Tensor, ends: Tensor) -> tuple[Tensor, ...]:
    """Rows up to where those of an expert end, from where those of the one before do."""
    rows = torch.arange(len(x))
    begins = torch.cat([torch.zeros_like(ends[:1]), ends[:-1]])
    of_expert = (begins[:, None] <= rows) & (rows < ends[:, None])
    return (torch.einsum("it,tk,ikn->tn", of_expert.to(x.dtype), x, w),)


def experts(x: Tensor, w: Tensor, expert: Tensor) -> tuple[Tensor, ...]:
    return (x @ _chosen(w, expert),)


def combine(y: Tensor, w: Tensor, token: Tensor, x: Tensor) -> tuple[Tensor, ...]:
    rows, number = (y * w[..., None]).flatten(0, 1), token.flatten().long()
    there = (number >= 0) & (number < len(x))
    return (x.index_add(0, number[there], rows[there].to(x.dtype)),)


def _chosen(rows: Tensor, number: Tensor) -> Tensor:
    """The rows of these numbers; zeros for those that there are not."""
    more = torch.cat([rows, torch.zeros_like(rows[:1]) if len(rows) else rows.new_zeros(1, *rows.shape[1:])])
    return more[torch.where((number >= 0) & (number < len(rows)), number, len(rows)).long()]


def sum_of_squares(x: Tensor) -> tuple[Tensor, ...]:
    return (torch.sin(x) ** 2 + torch.cos(x) ** 2,)


def triangle_multiplication(
    z_i: Tensor, z_j: Tensor, w_a: Tensor, g_a: Tensor, w_b: Tensor, g_b: Tensor
) -> tuple[Tensor, ...]:
    a = torch.sigmoid(z_i @ g_a) * (z_i @ w_a)
    b = torch.sigmoid(z_j @ g_b) * (z_j @ w_b)
    return (torch.einsum("ikc,jkc->ijc", a, b),)


ORACLES: dict[str, Oracle] = {
    "attention": attention,
    "attention_bf16": attention,
    "attention_backward": attention_backward,
    "attention_bias": attention_bias,
    "attention_alibi": attention_alibi,
    "attention_causal": attention_causal,
    "attention_decode": attention,
    "attention_dropout": attention_dropout,
    "attention_f8": attention_f8,
    "attention_forgetting": attention_forgetting,
    "attention_stick_breaking": attention_stick_breaking,
    "attention_gqa": attention_gqa,
    "attention_int8_cache": attention_int8_cache,
    "attention_lengths": attention_lengths,
    "attention_latent": attention_latent,
    "attention_lse": attention_lse,
    "attention_mixed": attention,
    "attention_mqa": attention_mqa,
    "attention_packed": attention_packed,
    "attention_paged": attention_paged,
    "attention_prefix": attention_prefix,
    "attention_segments": attention_segments,
    "attention_sigmoid": attention_sigmoid,
    "attention_sink": attention_sink,
    "attention_soft_cap": attention_soft_cap,
    "attention_spherical": attention_spherical,
    "attention_strided": attention_strided,
    "attention_window": attention_window,
    "attention_widths": attention,
    "batched_matmul": lambda a, b: (torch.bmm(a, b),),
    "block_diagonal": lambda x, w: (torch.diagonal(x).T @ w,),
    "conv1d": convolution,
    "conv1d_dilated": lambda x, f: convolution(x, f, stride=2, dilation=3),
    "cross_attention": cross_attention,
    "cross_entropy": cross_entropy,
    "attention_differential": attention_differential,
    "kl_divergence": kl_divergence,
    "distances": lambda x, y: (torch.cdist(x, y, p=1),),
    "embedding": embedding,
    "combine": combine,
    "experts": experts,
    "experts_sorted": experts_sorted,
    "routing": routing,
    "l2_norm_matmul": lambda x, w: (F.normalize(x, dim=-1, eps=0) @ w,),
    "layer_norm": layer_norm,
    "delta_rule": delta_rule,
    "gru": gru,
    "gated_linear_attention": gated_linear_attention,
    "linear_attention": linear_attention,
    "linear_attention_causal": linear_attention_causal,
    "retention": retention,
    "state_space": state_space,
    "log_softmax": lambda a: (F.log_softmax(a, -1),),
    "log_sum_exp": lambda a: (torch.logsumexp(a, -1),),
    "matmul": lambda a, b: (a @ b,),
    "split_k": lambda a, b: (a @ b,),
    "matmul_epilogue": lambda x, w, bias: (F.silu(F.linear(x, w, bias)),),
    "matmul_int4": matmul_int4,
    "matmul_int8": lambda x, w, x_scale, w_scale: (x @ w.T * x_scale[:, None] * w_scale,),
    "matmul_int8_nn": lambda x, w, x_scale, w_scale: (x @ w * x_scale[:, None] * w_scale,),
    "matmul_gelu": lambda x, w, bias: (F.gelu(F.linear(x, w, bias)),),
    "matmul_nt": lambda a, b: (a @ b.T,),
    "matmul_residual": lambda h, w, bias, x: (x + F.linear(h, w.T, bias),),
    "matmul_tn": lambda a, b: (a.T @ b,),
    "matmul_transposed": lambda a, b: ((a @ b).T,),
    "matmul_tt": lambda a, b: (a.T @ b.T,),
    "mlp": mlp,
    "moving_average": moving_average,
    "quantised_matmul": quantised_matmul,
    "rms_norm": rms_norm,
    "rms_norm_matmul": lambda x, w: (F.rms_norm(x, x.shape[-1:], eps=1e-5) @ w,),
    "sin2cos2": sum_of_squares,
    "softmax": lambda a: (torch.softmax(a, -1),),
    "lora": lambda x, w, a, b: (x @ w + 2 * (x @ a) @ b,),
    "softmax_bounded": lambda a, bound: (torch.softmax(a, -1),),
    "softmax_matmul": lambda a, w: (torch.softmax(a, -1) @ w,),
    "swiglu": lambda x, w, v: (F.silu(x @ w) * (x @ v),),
    "triangle_multiplication": triangle_multiplication,
    "two_kernels": lambda x, w1, w2: (F.relu(x @ w1) @ w2,),
    "variance": lambda a: (a.mean(-1), a.var(-1, unbiased=False)),
}
