# mypy: ignore-errors
# ruff: noqa: ARG001  (SGLang's signatures)
"""Paged attention for the `intel_amx` backend: decode, extend and verify."""

import torch

OPS = ["decode_attention_cpu", "extend_attention_cpu"]


def _attend(q, kb, vb, rows, scale, cap, mask, window, qpos):
    g = q.shape[1] // kb.shape[1]
    k = kb[rows].to(q.dtype).repeat_interleave(g, 1)
    v = vb[rows].to(q.dtype).repeat_interleave(g, 1)
    s = torch.einsum("qhd,khd->hqk", q.float(), k.float()) * scale
    if cap and cap > 0:
        s = cap * torch.tanh(s / cap)
    if window and window > 0:
        kp = torch.arange(rows.numel())
        mask = mask & (kp[None, :] > qpos[:, None] - window)
    s = s.masked_fill(~mask, float("-inf"))
    return torch.einsum("hqk,khd->qhd", s.softmax(-1), v.float()).to(q.dtype)


def _scales_at(place):
    """SGLang 0.5.23 passes a key and a value scale (of 8-bit caches) from this argument on; 0.5.19 has none."""

    def wrap(kernel):
        def call(*args):
            if not isinstance(args[place], torch.Tensor):
                if args[place : place + 2] != (1.0, 1.0):
                    raise NotImplementedError("scaled key/value caches are not supported by this stand-in")
                args = args[:place] + args[place + 2 :]
            return kernel(*args)

        return call

    return wrap


@_scales_at(3)
def decode_attention_cpu(
    q,
    k_buffer,
    v_buffer,
    o,
    k,
    v,
    loc,
    attn_logits,
    req_to_token,
    req_pool_indices,
    seq_lens,
    scale,
    cap,
    is_cross=False,
    window=0,
    encoder_lens=None,
    sinks=None,
):
    if k is not None:
        k_buffer[loc] = k.view(-1, *k_buffer.shape[1:]).to(k_buffer.dtype)
        v_buffer[loc] = v.view(-1, *v_buffer.shape[1:]).to(v_buffer.dtype)
    for i, (r, n) in enumerate(zip(req_pool_indices.tolist(), seq_lens.tolist(), strict=True)):
        rows = req_to_token[r, :n].long()
        o[i : i + 1] = _attend(
            q[i : i + 1],
            k_buffer,
            v_buffer,
            rows,
            scale,
            cap,
            torch.ones(1, n, dtype=torch.bool),
            window,
            torch.tensor([n - 1]),
        )


@_scales_at(6)
def extend_attention_cpu(
    q,
    k,
    v,
    o,
    k_buffer,
    v_buffer,
    req_to_token,
    req_pool_indices,
    seq_lens,
    extend_seq_lens,
    extend_start_loc,
    max_len_extend,
    scale,
    cap,
    is_cross=False,
    window=0,
    encoder_lens=None,
    sinks=None,
    tree_mask=None,
    is_causal=True,
):
    at = 0
    for r, n, e, s0 in zip(
        req_pool_indices.tolist(), seq_lens.tolist(), extend_seq_lens.tolist(), extend_start_loc.tolist(), strict=True
    ):
        rows = req_to_token[r, :n].long()
        qpos = torch.arange(n - e, n)
        mask = torch.ones(e, n, dtype=torch.bool)
        if tree_mask is not None:
            mask[:, n - e :] = tree_mask.view(-1)[at : at + e * e].view(e, e)
            at += e * e
        elif is_causal:
            mask = torch.arange(n)[None, :] <= qpos[:, None]
        o[s0 : s0 + e] = _attend(q[s0 : s0 + e], k_buffer, v_buffer, rows, scale, cap, mask, window, qpos)
