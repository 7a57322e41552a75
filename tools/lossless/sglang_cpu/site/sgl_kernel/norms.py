# mypy: ignore-errors
"""Norm, gate and split operators of the Qwen3.5 layers.

Values are computed in float32 and rounded once to the input dtype, as the fused
kernels do.  Weights named *gemma* are stored as an offset from one.
"""

import torch
import torch.nn.functional as F

OPS = [
    "fused_sigmoid_mul_cpu",
    "fused_qk_gemma_rmsnorm_cpu",
    "fused_qk_gemma_rmsnorm_with_gate_cpu",
    "fused_qkvzba_split_reshape_cat_contiguous_cpu",
    "fused_rmsnorm_gated_cpu",
]


def _rms(x, eps):
    x = x.float()
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)


def _gemma(x, weight, eps, head_dim):
    rows = x.reshape(-1, head_dim)
    return (_rms(rows, eps) * (1.0 + weight.float())).to(x.dtype)


def fused_sigmoid_mul_cpu(x, gate):
    """x *= sigmoid(gate), in place; gate may keep a separate head axis."""
    g = gate.reshape(x.shape).float().sigmoid()
    x.copy_((x.float() * g).to(x.dtype))


def fused_qk_gemma_rmsnorm_cpu(q, k, q_weight, k_weight, eps, head_dim):
    return _gemma(q, q_weight, eps, head_dim), _gemma(k, k_weight, eps, head_dim)


def fused_qk_gemma_rmsnorm_with_gate_cpu(q_gate, k, q_weight, k_weight, eps, head_dim, num_heads):
    """q_gate holds [query, gate] side by side for every head."""
    q, gate = q_gate.reshape(q_gate.shape[0], num_heads, 2 * head_dim).split(head_dim, -1)
    return (
        _gemma(q, q_weight, eps, head_dim),
        _gemma(k, k_weight, eps, head_dim),
        gate.reshape(-1, head_dim).contiguous(),
    )


def fused_qkvzba_split_reshape_cat_contiguous_cpu(mixed_qkvz, mixed_ba, num_k_heads, num_v_heads, head_k, head_v):
    """[q | k | v | z] and [b | a] -> [q | k | v], z per head, b, a."""
    n = mixed_qkvz.shape[0]
    qkv = 2 * num_k_heads * head_k + num_v_heads * head_v
    z = mixed_qkvz[:, qkv:].reshape(n, num_v_heads, head_v)
    b, a = mixed_ba.split(num_v_heads, -1)
    return mixed_qkvz[:, :qkv].contiguous(), z.contiguous(), b.contiguous(), a.contiguous()


def fused_rmsnorm_gated_cpu(x, weight, gate, eps):
    """rmsnorm(x) * weight * silu(gate)"""
    return (_rms(x, eps) * weight.float() * F.silu(gate.float())).to(x.dtype)
