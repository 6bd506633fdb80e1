"""Riemannian AdamW in polar form, parameter groups by role, schedules by step."""

from polarvit.optim.ambient import AmbientRiemannianAdamW
from polarvit.optim.groups import param_groups
from polarvit.optim.riemannian import RiemannianAdamW
from polarvit.optim.schedule import cosine

__all__ = ["AmbientRiemannianAdamW", "RiemannianAdamW", "cosine", "param_groups"]
