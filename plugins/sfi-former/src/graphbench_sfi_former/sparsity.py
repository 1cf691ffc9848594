"""How sparse the flows of a model are while it trains."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor

from graphbench import BenchmarkModule, GraphBatch, LayerTrace
from graphbench.diagnostics import Recording, attention_row_sum, attention_zeros, record
from graphbench.errors import BadInput, check_range


class FlowSparsity(pl.Callback):
    """Share of exact zeros and row sums of the attention matrices, by layer and head, at every validation.

    The paper (section 5.1) reports about 20% of zeros on PascalVOC-SP and COCO-SP and 5% on the other LRGB sets. The
    first batches of the validation split are listened to as they pass, so that no graph is run twice; means are over
    their graphs. Works with every model that shows its attention: softmax attention has no zeros and row sums of 1.

    Logs `flow_sparsity/zeros/layer_L_head_H`, `flow_sparsity/row_sum/layer_L_head_H` and, for layers with a balance
    between adjacency matrix and flow, `flow_sparsity/gamma/layer_L`.

    Args:
        num_batches: validation batches to listen to.
        every_n_epochs: listen at the validation of every so many epochs.

    Raises:
        BadInput: a number is not positive.

    Examples:
        >>> FlowSparsity(num_batches=2).every_n_epochs
        1
    """

    def __init__(self, num_batches: int = 4, every_n_epochs: int = 1) -> None:
        for name, number in (("num_batches", num_batches), ("every_n_epochs", every_n_epochs)):
            check_range(f"FlowSparsity: {name}", number, at_least=1, whole=True)
        self.num_batches, self.every_n_epochs = num_batches, every_n_epochs
        self._recording: Recording | None = None
        self._listening = ExitStack()

    def on_validation_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Listen to this batch, if it is one of the first."""
        turn = (trainer.current_epoch + 1) % self.every_n_epochs == 0
        if not turn or trainer.sanity_checking or batch_idx >= self.num_batches:
            return
        if not isinstance(pl_module, BenchmarkModule):
            raise BadInput(
                f"FlowSparsity looks into a BenchmarkModule, but the trainer has a {type(pl_module).__name__}."
            )
        self._recording = self._listening.enter_context(record(pl_module.architecture))

    def on_validation_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: GraphBatch,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Log what was heard; Lightning averages it over batches and processes."""
        if self._recording is None:
            return
        self._listening.close()
        values = {name: value for trace in self._recording for name, value in flow_measures(trace).items()}
        self._recording = None
        pl_module.log_dict(values, on_step=False, on_epoch=True, batch_size=batch.num_graphs, sync_dist=True)

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        """Stop listening."""
        self._listening.close()
        self._recording = None


@torch.no_grad()
def flow_measures(trace: LayerTrace) -> dict[str, Tensor]:
    """Zeros, row sums and gamma of one layer by the name under which they are logged; means over graphs.

    Args:
        trace: of a layer; without attention matrices it has no zeros and no row sums.
    """
    values: dict[str, Tensor] = {}
    for name, measure in (("zeros", attention_zeros), ("row_sum", attention_row_sum)):
        for head, of_graphs in enumerate(measure(trace.attention).unbind(1) if trace.attention else ()):
            values[f"flow_sparsity/{name}/layer_{trace.layer}_head_{head}"] = of_graphs.nanmean()
    if trace.mixing_weight is not None:
        values[f"flow_sparsity/gamma/layer_{trace.layer}"] = trace.mixing_weight
    return values
