# mypy: ignore-errors
# ruff: noqa: ARG001  (SGLang's signatures)
"""Bookkeeping kernels of the EAGLE/NEXTN, STANDALONE and NGRAM workers (CPU entry points)."""

import ctypes

import torch

__all__ = [
    "assign_draft_cache_locs_contiguous_cpu",
    "assign_extend_cache_locs_cpu",
    "assign_req_to_token_pool_cpu",
    "build_draft_decode_metadata_cpu",
    "build_tree_kernel_efficient_cpu",
    "copy_all_layer_kv_cache_cpu",
    "fill_accept_out_cache_loc_cpu",
    "fill_bonus_tokens_cpu",
    "rotate_input_ids_cpu",
    "verify_tree_greedy_cpu",
]


def verify_tree_greedy_cpu(
    predicts,
    accept_index,
    accept_token_num,
    candidates,
    retrive_index,
    retrive_next_token,
    retrive_next_sibling,
    target_predict,
):
    tp = target_predict.reshape(-1).tolist()
    cand, ri = candidates.tolist(), retrive_index.tolist()
    nxt, sib = retrive_next_token.tolist(), retrive_next_sibling.tolist()
    for b in range(len(cand)):
        last = ri[b][0]
        path, cur = [last], 0
        while len(path) < accept_index.shape[1]:
            cur = nxt[b][cur]
            while cur != -1 and cand[b][cur] != tp[last]:
                cur = sib[b][cur]
            if cur == -1:
                break
            predicts[last] = tp[last]
            last = ri[b][cur]
            path.append(last)
        predicts[last] = tp[last]
        accept_index[b, : len(path)] = torch.tensor(path, dtype=accept_index.dtype)
        accept_token_num[b] = len(path) - 1


def build_tree_kernel_efficient_cpu(
    parent_list,
    selected_index,
    verified_seq_len,
    tree_mask,
    positions,
    retrive_index,
    retrive_next_token,
    retrive_next_sibling,
    topk,
    depth,
    draft_token_num,
    tree_mask_mode,
):
    n = draft_token_num
    bs = verified_seq_len.numel()
    lens = verified_seq_len.tolist()
    pl = parent_list.reshape(bs, -1).tolist()
    sl = selected_index.reshape(bs, -1).tolist()
    ri, nt, ns = (t.view(bs, n) for t in (retrive_index, retrive_next_token, retrive_next_sibling))
    pos, flat, at = positions.view(bs, n), tree_mask.view(-1), 0
    for b in range(bs):
        where = {tok: i + 1 for i, tok in reversed(list(enumerate(sl[b])))}
        parent = [-1]
        for tok in sl[b]:
            tb = tok // topk
            parent.append(0 if tb == 0 else where.get(pl[b][tb], n))
        prefix = lens[b] if tree_mask_mode == 0 else 0
        width = prefix + n
        m = flat[at : at + n * width].view(n, width)
        at += n * width
        m[:, prefix:] = False
        m[:, prefix] = True
        for i in range(n):
            ri[b, i] = b * n + i
            d, cur = 0, i
            while cur > 0 and cur < n:
                m[i, prefix + cur] = True
                d, cur = d + 1, parent[cur]
            pos[b, i] = lens[b] + d
        for i in range(n - 1, 0, -1):
            p = parent[i]
            if p >= n:
                continue
            if int(nt[b, p]) != -1:
                ns[b, i] = nt[b, p]
            nt[b, p] = i


def assign_req_to_token_pool_cpu(req_pool_indices, req_to_token, start_offset, end_offset, out_cache_loc, pool_len):
    o = 0
    for r, s, e in zip(req_pool_indices.tolist(), start_offset.tolist(), end_offset.tolist(), strict=True):
        req_to_token[r, s:e] = out_cache_loc[o : o + e - s].to(req_to_token.dtype)
        o += e - s


def assign_extend_cache_locs_cpu(req_pool_indices, req_to_token, start_offset, end_offset, out_cache_loc, pool_len):
    o = 0
    for r, s, e in zip(req_pool_indices.tolist(), start_offset.tolist(), end_offset.tolist(), strict=True):
        out_cache_loc[o : o + e - s] = req_to_token[r, s:e].to(out_cache_loc.dtype)
        o += e - s


def assign_draft_cache_locs_contiguous_cpu(
    req_pool_indices, req_to_token, seq_lens, out_cache_loc, pool_len, topk, num_steps
):
    k = topk * num_steps
    for i, (r, s) in enumerate(zip(req_pool_indices.tolist(), seq_lens.tolist(), strict=True)):
        out_cache_loc[i * k : (i + 1) * k] = req_to_token[r, s : s + k].to(out_cache_loc.dtype)


def build_draft_decode_metadata_cpu(req_to_token, req_pool_indices, seq_lens, topk, num_steps, pool_len):
    rows = req_to_token[req_pool_indices].repeat_interleave(topk, 0).clone()
    for b, s in enumerate(seq_lens.tolist()):
        for t in range(topk):
            src = req_to_token[req_pool_indices[b], s + t * num_steps : s + (t + 1) * num_steps]
            rows[b * topk + t, s : s + num_steps] = src
    return rows


def fill_bonus_tokens_cpu(accept_tokens, accept_lens, bonus_tokens, accept_stride):
    i = torch.arange(accept_lens.numel()) * accept_stride + accept_lens.long() - 1
    bonus_tokens.copy_(accept_tokens.view(-1)[i])


def fill_accept_out_cache_loc_cpu(accept_index, out_cache_loc, accept_out_cache_loc):
    src = accept_index.reshape(-1)
    src = src[src > -1].long()
    accept_out_cache_loc.view(-1)[: src.numel()] = out_cache_loc[src]


def rotate_input_ids_cpu(input_ids, extend_start_loc, extend_seq_lens, topk_index, select_index=None):
    new = topk_index.reshape(-1)
    for i, (s, n) in enumerate(zip(extend_start_loc.tolist(), extend_seq_lens.tolist(), strict=True)):
        if n > 0:
            input_ids[s : s + n - 1] = input_ids[s + 1 : s + n].clone()
            input_ids[s + n - 1 if select_index is None else int(select_index[i])] = new[i]


def copy_all_layer_kv_cache_cpu(data_ptrs, strides, tgt_loc, src_loc):
    tgt, src = tgt_loc.tolist(), src_loc.tolist()
    for p, st in zip(data_ptrs.tolist(), strides.tolist(), strict=True):
        rows = [ctypes.string_at(p + s * st, st) for s in src]
        for t, row in zip(tgt, rows, strict=True):
            ctypes.memmove(p + t * st, row, st)
