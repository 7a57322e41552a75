# mypy: ignore-errors
"""Host-side tree helper used by the NGRAM worker."""


def reconstruct_indices_from_tree_mask(
    tree_mask,
    verified_seq_len,
    positions,
    retrive_index,
    retrive_next_token,
    retrive_next_sibling,
    batch_size,
    draft_token_num,
):
    n = draft_token_num
    m = tree_mask.view(batch_size, n, n).tolist()
    lens = verified_seq_len.tolist()
    pos, ri = positions.view(batch_size, n), retrive_index.view(batch_size, n)
    nt, ns = retrive_next_token.view(batch_size, n), retrive_next_sibling.view(batch_size, n)
    for b in range(batch_size):
        parent = []
        for i in range(n):
            anc = [j for j in range(i) if m[b][i][j]]
            parent.append(anc[-1] if anc else -1)
            pos[b, i] = lens[b] + len(anc)
            ri[b, i] = b * n + i
        for i in range(n):
            kids = [j for j in range(i + 1, n) if parent[j] == i]
            nt[b, i] = kids[0] if kids else -1
            sibs = [j for j in range(i + 1, n) if parent[j] == parent[i] and parent[i] >= 0]
            ns[b, i] = sibs[0] if sibs else -1
