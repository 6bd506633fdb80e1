"""Riemannian AdamW in polar form, parameter groups by role, schedules by step."""

from polarvit.optim.groups import param_groups
from polarvit.optim.riemannian import RiemannianAdamW
from polarvit.optim.schedule import cosine

__all__ = ["RiemannianAdamW", "cosine", "param_groups"]
