"""Name the features of the data that a model does not read."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from graphbench.contracts.spec import BenchmarkSpec
from graphbench.contracts.table import GraphBatch
from graphbench.training.lightning_internals import attached_trainer

if TYPE_CHECKING:
    from graphbench.training.module import BenchmarkModule

logger = logging.getLogger(__name__)
_SHOWN = 8  # names in a message


@contextlib.contextmanager
def warn_of_unread(module: BenchmarkModule, batch: GraphBatch) -> Iterator[None]:
    """Log the features that the first forward pass of a training run did not read.

    Compiled models are skipped, since they would be compiled for the instrumented batch.
    """
    if module.logged_unread or module.compile_architecture:
        yield
        return
    with batch.noted_reads() as read:
        yield
    module.logged_unread = True
    trainer = attached_trainer(module)
    unread = features_beside(read, batch, module.spec)
    if unread and (trainer is None or trainer.is_global_zero):
        logger.warning("%s does not read %s.", type(module.architecture).__name__, " and ".join(unread))


def features_beside(read: Collection[str], batch: GraphBatch, spec: BenchmarkSpec) -> list[str]:
    """Describe the features of a batch that are not among the fields `read`.

    Examples:
        >>> import torch
        >>> from graphbench.testing import tiny_spec
        >>> features_beside({"x"}, GraphBatch(x=torch.ones(2, 1), edge_attr=torch.ones(2, 1)), tiny_spec())
        ['the features of edges (1 column)']
    """
    unread = []
    for level, features, codes, dense in (
        ("nodes", spec.node, "x", "x_dense"), ("edges", spec.edge, "edge_attr", "edge_dense"),
    ):  # fmt: skip
        count, width = len(features.vocabularies), len(features.vocabularies) + features.dense
        columns = list(features.names) or [""] * width
        left = [column for name, part in ((codes, columns[:count]), (dense, columns[count:]))
                if name in batch and name not in read for column in part]  # fmt: skip
        if left:
            names = ", ".join(left[:_SHOWN]) + (", ..." if len(left) > _SHOWN else "")
            number = f"{len(left)} column{'s' if len(left) > 1 else ''}"
            unread.append(f"the features of {level} ({names if features.names else number})")
    if spec.coordinates and "pos" in batch and "pos" not in read:
        unread.append("the positions of nodes (pos)")
    return unread
