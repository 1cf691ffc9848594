"""Which models train on batches of graphs of similar size."""

import pytest
import pytorch_lightning as pl
import torch
from torch import nn

from graphbench.benchmarks import PATTERN


class Sizes(pl.LightningModule):
    """Records the spread of sizes in its training batches."""

    def __init__(self, norm):
        super().__init__()
        self.norm, self.weight, self.spread = norm, nn.Parameter(torch.zeros(())), []

    def training_step(self, batch, batch_idx):
        sizes = batch.ptr.diff()
        self.spread.append(int(sizes.max() - sizes.min()))
        return self.weight.square()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return str(tmp_path_factory.mktemp("pattern"))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("norm", "bucketing", "by_size"),
    [
        (nn.LayerNorm(4), None, True),
        (nn.BatchNorm1d(4), None, False),
        (nn.SyncBatchNorm(4), None, False),
        (nn.BatchNorm1d(4), True, True),
        (nn.LayerNorm(4), False, False),
    ],
)
def test_batch_norms_train_on_mixed_sizes_unless_told_otherwise(root, norm, bucketing, by_size):
    model, data = Sizes(norm), PATTERN(root=root, sizes=(60, 4, 4), batch_size=6, bucketing=bucketing)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    pl.Trainer(max_epochs=1, limit_val_batches=0, enable_checkpointing=False, accelerator="cpu", **quiet).fit(
        model, data
    )
    spread = sum(model.spread) / len(model.spread)
    # Sizes range from 44 to 188: ten batches of sorted sizes span at most a tenth of that each, on average.
    assert (spread <= 14.4) == by_size
    assert by_size or spread > 25


def test_without_a_model_training_mixes_sizes_and_evaluation_does_not(root):
    data = PATTERN(root=root, sizes=(60, 4, 4), batch_size=6, eval_batch_size=2)
    data.setup()
    assert not data.train_dataloader().batch_sampler.bucketing
    assert data.val_dataloader().batch_sampler.bucketing
