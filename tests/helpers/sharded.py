"""FSDP without a graphics card."""

from __future__ import annotations

from typing import Any

import torch
from pytorch_lightning.strategies import FSDPStrategy
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel


class ShardedOnCpu(FSDPStrategy):
    """FSDP as Lightning sets it up on GPUs; torch shards on a CPU as well where it is told to."""

    def _setup_model(self, model: nn.Module) -> Any:
        return FullyShardedDataParallel(
            model, device_id=torch.device("cpu"), sharding_strategy=self.sharding_strategy, **self.kwargs
        )
