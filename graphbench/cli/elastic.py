"""How processes of one training meet: on one host unseen from others; after a restart under new keys.

Torch's store of addresses, which rank 0 serves, listens on all interfaces and asks nobody for a password, and gloo on
the interface of the host's name. Where all processes are on one host, both are given the loopback interface.
"""

from __future__ import annotations

import os
import socket
from datetime import timedelta

import pytorch_lightning as pl
import torch.distributed as dist
from pytorch_lightning.plugins.environments import LightningEnvironment, SLURMEnvironment
from pytorch_lightning.strategies import DDPStrategy, FSDPStrategy
from pytorch_lightning.strategies.launchers import _SubprocessScriptLauncher

_LOOPBACK = "127.0.0.1"


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


def meet_on_loopback(trainer: pl.Trainer) -> dist.TCPStore | None:
    """Serve the store of addresses of processes on this host on the loopback interface alone.

    Lightning, or SLURM on one node, starts the processes. torchrun serves its store in a process of its own, as it was
    told to; processes that are forked have no part in what this one serves, and are left to torch.

    Args:
        trainer: of several processes or of one, before it starts any.

    Returns:
        What has to live until the processes have met: torch finds this server by its port, where it would start its
        own. None in processes other than rank 0, and where nothing is served here.
    """
    strategy = trainer.strategy
    environment = getattr(strategy, "cluster_environment", None)
    on_slurm = isinstance(environment, SLURMEnvironment) and os.environ.get("SLURM_NNODES") == "1"
    if (
        environment is None
        or trainer.world_size < 2
        or trainer.num_nodes > 1
        or not isinstance(strategy, DDPStrategy | FSDPStrategy)
        or not isinstance(strategy.launcher, _SubprocessScriptLauncher | None)  # forks, or spawns
        or not (on_slurm or isinstance(environment, LightningEnvironment))
    ):
        return None
    if on_slurm:
        os.environ.setdefault("MASTER_ADDR", _LOOPBACK)  # else the name of the node, on which others may listen
    if environment.main_address not in (_LOOPBACK, "localhost"):
        return None  # the user's choice
    for interface in ("lo", "lo0"):
        if interface in (name for _, name in socket.if_nameindex()):
            os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
    if trainer.global_rank != 0 or dist.is_initialized():
        return None
    listening = socket.socket()
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((_LOOPBACK, environment.main_port))
    except OSError:  # served for an earlier trainer of this process, or taken: torch says so
        listening.close()
        return None
    return dist.TCPStore(
        _LOOPBACK,
        environment.main_port,
        is_master=True,
        wait_for_workers=False,
        multi_tenant=True,
        master_listen_fd=listening.detach(),
    )
