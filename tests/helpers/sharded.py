"""FSDP without a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from pytorch_lightning.strategies import FSDPStrategy, fsdp
from torch import nn
from torch.distributed.fsdp import (
    FullOptimStateDictConfig,
    FullStateDictConfig,
    FullyShardedDataParallel,
    StateDictType,
)


class ShardedOnCpu(FSDPStrategy):
    """FSDP as Lightning sets it up on GPUs; torch also shards on a CPU if it is told to."""

    def _setup_model(self, model: nn.Module) -> Any:
        return FullyShardedDataParallel(
            model, device_id=torch.device("cpu"), sharding_strategy=self.sharding_strategy, **self.kwargs
        )

    def lightning_module_state_dict(self) -> dict[str, Any]:
        with _without_offload():
            return super().lightning_module_state_dict()

    def optimizer_state(self, optimizer: Any) -> Any:
        with _without_offload():
            return super().optimizer_state(optimizer)


@contextmanager
def _without_offload() -> Iterator[None]:
    """Gather states where they are: torch would move them from the CPU to the CPU, free them, and crash."""

    def context(module: nn.Module, world_size: int, rank0_only: bool = True) -> Any:
        return FullyShardedDataParallel.state_dict_type(
            module, StateDictType.FULL_STATE_DICT, FullStateDictConfig(rank0_only=False),
            FullOptimStateDictConfig(rank0_only=rank0_only),
        )  # fmt: skip

    with mock.patch.object(fsdp, "_get_full_state_dict_context", context):
        yield
