"""Fused operations. Each folder has a plain PyTorch reference, a Triton kernel and one public function that picks."""

from polarvit.kernels.attention import polar_attention

__all__ = ["polar_attention"]
