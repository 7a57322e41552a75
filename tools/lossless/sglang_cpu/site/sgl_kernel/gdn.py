# mypy: ignore-errors
# ruff: noqa: ARG001  (SGLang's signatures)
"""Gated DeltaNet operators: short convolution, gates, delta rule.

Layouts (SGLang's, without the AMX repacking):
  conv state      [slot, channel, width-1]      last inputs, oldest first
  delta state     [slot, v head, dv, dk]        float32
  saved windows   [request, step, channel, width-1]
  saved states    [request, step, v head, dv, dk]
A slot index below zero marks a padded row: nothing is read or written for it.

Prefill, decode and verify all run ONE token-by-token recurrence (`_scan`), one
request at a time and with the same tensor shapes whatever the batch is.  A chunked
prefill would be faster; this way the state after n tokens is bit-equal however those
tokens were split over forward passes, so differences seen in a test cannot come from
here.  (Matrix products in the layers around it still depend on the batch size.)
"""

import torch
import torch.nn.functional as F

OPS = ["fused_gdn_gating_cpu", "fused_sigmoid_gating_delta_rule_update_cpu"]
CHUNK = 64  # SGLang's FLA chunk; prefix caching reads one state per chunk start


def _act(y, activation):
    return F.silu(y) if activation in ("silu", "swish", True) else y


def _conv(window, weight, bias, activation, n):
    """window [C, width-1+n] -> [C, n]; the last input is weighted by the last tap."""
    w = weight.float()
    win = window.float()
    width = w.shape[1]
    y = win[:, 0:n] * w[:, 0:1]
    for j in range(1, width):
        y = y + win[:, j : j + n] * w[:, j : j + 1]
    if bias is not None:
        y = y + bias.float()[:, None]
    return _act(y, activation).to(window.dtype)


# ----------------------------------------------------------- short convolution
def causal_conv1d_fn_cpu(
    x,
    weight,
    bias,
    conv_states,
    query_start_loc,
    seq_lens_cpu=None,
    cache_indices=None,
    has_initial_state=None,
    activation="silu",
    pad_slot_id=-1,
    **unused,
):
    """Prefill.  x [C, tokens of all requests]; conv_states is advanced in place."""
    out = torch.empty_like(x)
    keep = weight.shape[1] - 1
    ends = query_start_loc.tolist()
    slots = cache_indices.tolist() if cache_indices is not None else range(len(ends) - 1)
    for i, slot in enumerate(slots):
        s, e = ends[i], ends[i + 1]
        if slot < 0 or e == s:
            continue
        state = conv_states[slot]
        old = state if has_initial_state is None or bool(has_initial_state[i]) else torch.zeros_like(state)
        window = torch.cat([old.to(x.dtype), x[:, s:e]], 1)
        out[:, s:e] = _conv(window, weight, bias, activation, e - s)
        conv_states[slot] = window[:, -keep:].to(conv_states.dtype)
    return out


def causal_conv1d_update_cpu(
    x,
    conv_state,
    weight,
    bias=None,
    activation=None,
    cache_seqlens=None,
    conv_state_indices=None,
    num_accept_tokens=None,
    intermediate_conv_window=None,
    intermediate_state_indices=None,
    retrieve_next_token=None,
    retrieve_next_sibling=None,
    retrieve_parent_token=None,
    pad_slot_id=-1,
    **unused,
):
    """Decode (x [B, C]) and verify of a draft chain (x [B, C, T]).

    With `intermediate_conv_window` the window after every draft token is stored so that
    the accepted one can be put back; like the GPU kernel this also advances conv_state,
    which the commit after verification overwrites.
    """
    if cache_seqlens is not None or num_accept_tokens is not None:
        raise NotImplementedError("circular conv state")
    if retrieve_next_token is not None:
        raise NotImplementedError("draft trees (topk > 1) are not supported by this stand-in")
    one = x.dim() == 2
    xs = x.unsqueeze(-1) if one else x
    n = xs.shape[-1]
    keep = weight.shape[1] - 1
    out = torch.empty_like(xs)
    slots = conv_state_indices.tolist() if conv_state_indices is not None else range(xs.shape[0])
    for i, slot in enumerate(slots):
        if slot < 0:
            out[i] = 0
            continue
        window = torch.cat([conv_state[slot].to(x.dtype), xs[i]], 1)
        out[i] = _conv(window, weight, bias, activation, n)
        conv_state[slot] = window[:, -keep:].to(conv_state.dtype)
        if intermediate_conv_window is not None:
            row = intermediate_conv_window[int(intermediate_state_indices[i])]
            for t in range(n):
                row[t] = window[:, t + 1 : t + 1 + keep].to(row.dtype)
    return out[..., 0] if one else out


# ------------------------------------------------------------------------ gates
def _gates(A_log, a, b, dt_bias, beta=1.0, threshold=20.0):
    log_decay = -A_log.float().exp() * F.softplus(a.float() + dt_bias.float(), beta, threshold)
    return log_decay, b.float().sigmoid()


def fused_gdn_gating_cpu(A_log, a, b, dt_bias):
    g, beta = _gates(A_log, a, b, dt_bias)
    return g.unsqueeze(0), beta.unsqueeze(0)


# ------------------------------------------------------------------- delta rule
def _heads(x, n_heads, norm):
    """[T, h, d] -> float32 [T, n_heads, d], normalised, each head repeated for its group."""
    x = x.float()
    if norm:
        x = x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt()
    return x.repeat_interleave(n_heads // x.shape[1], 1)


def _scan(state, q, k, v, g, beta, on_step=None):
    """Run the recurrence over T tokens.  state [H, dv, dk] is not modified; returns (out [T, H, dv], state)."""
    decay = g.exp()
    outs = []
    for t in range(q.shape[0]):
        kt = k[t].unsqueeze(1)  # [H, 1, dk]
        state = state * decay[t][:, None, None]
        read = (state * kt).sum(-1)  # [H, dv]
        delta = (v[t] - read) * beta[t][:, None]
        state = state + delta.unsqueeze(-1) * kt
        outs.append((state * q[t].unsqueeze(1)).sum(-1))
        if on_step is not None:
            on_step(t, state)
    return torch.stack(outs), state


def chunk_gated_delta_rule_cpu(
    q,
    k,
    v,
    g,
    beta,
    initial_state,
    cu_seqlens,
    head_first=False,
    use_qk_l2norm_in_kernel=False,
    initial_state_indices=None,
    scale=None,
    **unused,
):
    """Prefill.  q/k/v [1, T, h, d], g/beta [1, T, H].

    `initial_state` is the whole pool and is advanced in place at initial_state_indices.
    Also returns the states at the chunk starts of every request, [1, chunks, H, dv, dk],
    which prefix caching picks from.
    """
    if head_first:
        raise NotImplementedError("head_first")
    H = v.shape[2]
    scale = k.shape[-1] ** -0.5 if scale is None else scale
    out = torch.zeros_like(v)
    ends = cu_seqlens.tolist()
    starts = []
    for i, slot in enumerate(initial_state_indices.tolist()):
        s, e = ends[i], ends[i + 1]
        if slot < 0 or e == s:
            continue
        first = initial_state[slot].float()
        starts.append(first)

        def at_chunk(t, st, last=e - s - 1):
            if (t + 1) % CHUNK == 0 and t != last:
                starts.append(st)

        o, st = _scan(
            first,
            _heads(q[0, s:e], H, use_qk_l2norm_in_kernel) * scale,
            _heads(k[0, s:e], H, use_qk_l2norm_in_kernel),
            v[0, s:e].float(),
            g[0, s:e].float(),
            beta[0, s:e].float(),
            at_chunk,
        )
        out[0, s:e] = o.to(out.dtype)
        initial_state[slot] = st.to(initial_state.dtype)
    h = torch.stack(starts).unsqueeze(0) if starts else initial_state.new_zeros((1, 0, *initial_state.shape[1:]))
    return out, None, h


def fused_sigmoid_gating_delta_rule_update_cpu(
    A_log,
    dt_bias,
    q,
    k,
    v,
    a,
    b,
    initial_state_source,
    initial_state_indices,
    cu_seqlens,
    use_qk_l2norm_in_kernel=True,
    softplus_beta=1.0,
    softplus_threshold=20.0,
    is_kda=False,
    scale=None,
    disable_state_update=False,
    intermediate_states_buffer=None,
    intermediate_state_indices=None,
    cache_steps=None,
    retrieve_parent_token=None,
    **unused,
):
    """Decode (one token per request) and verify (the draft chain of every request).

    Verify passes disable_state_update and a buffer that receives the state after each
    draft token; the commit after verification copies the accepted one into the pool.
    """
    if is_kda or retrieve_parent_token is not None:
        raise NotImplementedError("KDA and draft trees are not supported by this stand-in")
    H = v.shape[2]
    scale = k.shape[-1] ** -0.5 if scale is None else scale
    g, beta = _gates(A_log, a.reshape(-1, H), b.reshape(-1, H), dt_bias, softplus_beta, softplus_threshold)
    out = torch.zeros_like(v)
    ends = cu_seqlens.tolist()
    for i, slot in enumerate(initial_state_indices.tolist()[: len(ends) - 1]):
        s, e = ends[i], ends[i + 1]
        if slot < 0 or e == s:
            continue
        save = None
        if intermediate_states_buffer is not None:
            row = intermediate_states_buffer[int(intermediate_state_indices[i])]

            def save(t, st, row=row):
                row[t] = st.to(row.dtype)

        o, st = _scan(
            initial_state_source[slot].float(),
            _heads(q[0, s:e], H, use_qk_l2norm_in_kernel) * scale,
            _heads(k[0, s:e], H, use_qk_l2norm_in_kernel),
            v[0, s:e].float(),
            g[s:e],
            beta[s:e],
            save,
        )
        out[0, s:e] = o.to(out.dtype)
        if not disable_state_update:
            initial_state_source[slot] = st.to(initial_state_source.dtype)
    return out
