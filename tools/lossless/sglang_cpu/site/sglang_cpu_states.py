# mypy: ignore-errors
"""Torch versions of sglang/kernels/ops/mamba/mamba_state_scatter_triton.py.

They move conv and delta-rule states between slots: after verification the state of the last
accepted draft token becomes the request's state, and prefix caching copies states to
tracking slots.  An index below zero means "leave this request alone".
"""

import torch

NAMES = [
    "fused_mamba_state_scatter_with_mask",
    "fused_conv_window_scatter_with_mask",
    "fused_conv_window_scatter_multi",
    "scatter_mamba_states_after_mtp_verify",
    "fused_commit_track_indices",
    "track_mamba_states_if_needed",
    "track_mamba_states_all_layers",
]


def fused_mamba_state_scatter_with_mask(dst, src, dst_indices_raw, step_indices_raw, src_indices_raw=None):
    """dst [layer, slot, ...] <- src [layer, row, step, ...]; a request's row is its number unless src_indices_raw
    (0.5.23) says otherwise."""
    slots = dst_indices_raw.tolist()
    rows = range(len(slots)) if src_indices_raw is None else src_indices_raw.tolist()
    for i, step in enumerate(step_indices_raw.tolist()):
        if 0 <= step < src.shape[2] and 0 <= slots[i] < dst.shape[1] and 0 <= rows[i] < src.shape[1]:
            dst[:, slots[i]] = src[:, rows[i], step].to(dst.dtype)


fused_conv_window_scatter_with_mask = fused_mamba_state_scatter_with_mask


def fused_conv_window_scatter_multi(
    pairs, dst_indices_raw, step_indices_raw, dst_indices2_raw=None, step_indices2_raw=None, src_indices_raw=None
):
    for dst, src in pairs:
        fused_mamba_state_scatter_with_mask(dst, src, dst_indices_raw, step_indices_raw, src_indices_raw)
        if step_indices2_raw is not None:
            fused_mamba_state_scatter_with_mask(dst, src, dst_indices2_raw, step_indices2_raw, src_indices_raw)


def scatter_mamba_states_after_mtp_verify(
    mamba_caches,
    state_indices_tensor,
    last_correct_step_indices,
    mamba_track_indices,
    mamba_steps_to_track,
    src_indices_raw=None,
):
    pairs = list(zip(mamba_caches.conv, mamba_caches.intermediate_conv_window, strict=True))
    if mamba_caches.temporal.numel() > 0:
        pairs.append((mamba_caches.temporal, mamba_caches.intermediate_ssm))
    track = (None, None) if mamba_track_indices is None else (mamba_track_indices, mamba_steps_to_track)
    fused_conv_window_scatter_multi(pairs, state_indices_tensor, last_correct_step_indices, *track, src_indices_raw)


def fused_commit_track_indices(accept_index, accept_lens, seq_lens, draft_token_num, mamba_track_interval):
    """Step of the last accepted token; and, when an interval boundary is crossed, the step at it (else -1)."""
    base = torch.arange(accept_lens.shape[0], device=accept_lens.device) * draft_token_num
    n = accept_lens.long()
    steps = accept_index.view(accept_lens.shape[0], -1).long() - base[:, None]
    last = steps.gather(1, (n - 1)[:, None])[:, 0]
    if seq_lens is None:
        return last, None
    before = seq_lens.long()
    after = before + n
    point = after // mamba_track_interval * mamba_track_interval
    at = steps.gather(1, (point - before - 1).clamp(min=0)[:, None])[:, 0]
    crossed = before // mamba_track_interval != after // mamba_track_interval
    return last, torch.where(crossed, at, torch.full_like(at, -1))


def _copy_rows(pools, cache_indices, mask, track_indices, batch_size, check_freed_slots, slot_dim):
    src, dst, on = cache_indices.tolist(), track_indices.tolist(), mask.tolist()
    for i in range(batch_size):
        if on[i] and not (check_freed_slots and (src[i] < 0 or dst[i] < 0)):
            for p in pools:
                p.select(slot_dim, dst[i]).copy_(p.select(slot_dim, src[i]))


def track_mamba_states_if_needed(
    conv_states, ssm_states, cache_indices, mamba_track_mask, mamba_track_indices, batch_size, check_freed_slots=False
):
    _copy_rows(
        (conv_states, ssm_states),
        cache_indices,
        mamba_track_mask,
        mamba_track_indices,
        batch_size,
        check_freed_slots,
        0,
    )


def track_mamba_states_all_layers(
    conv_states_pool,
    ssm_states_pool,
    cache_indices,
    mamba_track_mask,
    mamba_track_indices,
    batch_size,
    check_freed_slots=False,
):
    _copy_rows(
        (conv_states_pool, ssm_states_pool),
        cache_indices,
        mamba_track_mask,
        mamba_track_indices,
        batch_size,
        check_freed_slots,
        1,
    )
