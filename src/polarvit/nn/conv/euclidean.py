"""The Euclidean batch norm, as several processes need it."""

from __future__ import annotations

from torch import Tensor, nn

from polarvit.kernels.images.sync import count, summed


class BatchNorm2d(nn.BatchNorm2d):
    """PyTorch's batch norm; in several processes with the statistics of the whole batch, on a CPU too.

    Each process must bring equally many images.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Images [B, C, H, W]."""
        processes = count()
        if not self.training or processes == 1:
            return super().forward(x)
        wide = x.float() if x.dtype.itemsize < 4 else x
        mean = summed(wide.mean((0, 2, 3))) / processes
        offsets = wide - mean.view(-1, 1, 1)
        variance = summed(offsets.square().mean((0, 2, 3))) / processes
        self._remember(mean.detach(), variance.detach(), processes * x.numel() // x.shape[1])
        scale = self.weight * (variance + self.eps).rsqrt()
        return (offsets * scale.view(-1, 1, 1) + self.bias.view(-1, 1, 1)).to(x.dtype)

    def _remember(self, mean: Tensor, variance: Tensor, number: int) -> None:
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        assert self.momentum is not None
        self.num_batches_tracked.add_(1)
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
        self.running_var.lerp_((variance * number / max(number - 1, 1)).to(self.running_var.dtype), self.momentum)
