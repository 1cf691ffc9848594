"""Processes that torchrun started again meet under new keys, not under those that the lost ones left behind."""

from __future__ import annotations

import os
from datetime import timedelta

import pytorch_lightning as pl
import torch.distributed as dist
from pytorch_lightning.strategies import DDPStrategy, FSDPStrategy


def join_again(trainer: pl.Trainer) -> None:
    """Open the process group of a restart; Lightning finds it open, and the first start is left to Lightning.

    torchrun keeps its store of addresses from one start to the next (PyTorch 2.13: `--standalone`, c10d and static
    rendezvous). A process that asks before another one has written its new address gets the address of one that is no
    more, and the restart ends with "Connection refused". So the keys of a restart begin with its number.

    Args:
        trainer: of several processes or of one.
    """
    restart, shared = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"), os.environ.get("TORCHELASTIC_USE_AGENT_STORE")
    strategy = trainer.strategy
    if restart == "0" or shared != "True" or not isinstance(strategy, DDPStrategy | FSDPStrategy):
        return
    if dist.is_initialized():
        return
    timeout = getattr(strategy, "_timeout", None) or timedelta(minutes=30)
    size = int(os.environ["WORLD_SIZE"])
    store = dist.TCPStore(
        os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), size, is_master=False, timeout=timeout
    )
    dist.init_process_group(
        strategy._get_process_group_backend(),
        store=dist.PrefixStore(f"restart-{restart}", store),
        rank=int(os.environ["RANK"]),
        world_size=size,
        timeout=timeout,
    )
