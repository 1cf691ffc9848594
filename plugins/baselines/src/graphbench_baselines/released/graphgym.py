"""Checkpoints of GraphGym as written by GraphGPS: the model's tensors are in `model_state`.

Rampasek et al., NeurIPS 2022, arXiv 2205.12454; names are those of github.com/rampasek/GraphGPS at commit 2801570.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from graphbench.errors import BadInput
from graphbench_baselines.released.conversion import BATCH_NORM, Conversion

_STATE = "model_state"
#: Number of the OGB atom feature that has gained a value: chirality tags, from 4 to 5.
_CHIRALITY, _FORMER_TAGS = 1, 4


def gps(content: Mapping[str, Any], ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Convert GPS with GatedGCN and softmax attention on molecules with RWSE (`Atom+RWSE`, `Bond`, head `san_graph`).

    Targets are unscaled, `standardize_targets: false`. OGB now has five chirality tags instead of four; the fifth,
    `misc`, gets the row of the fourth, `CHI_OTHER`.

    Args:
        content: content of the file.
        ours: `state_dict` of the recipe's model.

    Returns:
        The new `state_dict`.

    Raises:
        BadInput: the file has a different layout or model.
    """
    conversion = Conversion(_state(content), ours)
    nodes, edges = "encoder.node_encoder", "encoder.edge_encoder"
    atoms = conversion.pop_list(f"{nodes}.encoder1.atom_embedding_list")
    if len(atoms) > _CHIRALITY and len(atoms[_CHIRALITY]) == _FORMER_TAGS:
        atoms[_CHIRALITY] = torch.cat([atoms[_CHIRALITY], atoms[_CHIRALITY][-1:]])
    _stack(conversion, "architecture.node_encoder.features.table", atoms)
    positions = "architecture.node_encoder.positional.0"
    conversion.copy_module(f"{nodes}.encoder2.raw_norm", f"{positions}.norm", BATCH_NORM)
    conversion.copy_module(f"{nodes}.encoder2.pe_encoder", f"{positions}.encode")
    bonds = conversion.pop_list(f"{edges}.bond_embedding_list")
    _stack(conversion, "architecture.edge_encoder.features.table", bonds)
    for number in _numbers(ours, "architecture.layers."):
        _convert_layer(conversion, f"layers.{number}", f"architecture.layers.{number}")
    for number in _numbers(ours, "task.head.mlp.layers."):
        conversion.copy_module(f"post_mp.FC_layers.{number}", f"task.head.mlp.layers.{number}")
    conversion.set("task.offset", torch.zeros(1))
    conversion.set("task.scale", torch.ones(1))
    return conversion.finish()


def _convert_layer(conversion: Conversion, theirs: str, ours: str) -> None:
    """Convert one GPS layer; ours combines the maps A, B, D and E of GatedGCN."""
    local = f"{theirs}.local_model"
    for name in ("weight", "bias"):
        parts = [conversion.pop(f"{local}.{part}.{name}") for part in "ABDE"]
        conversion.set(f"{ours}.local.node_maps.{name}", torch.cat(parts))
    conversion.copy_module(f"{local}.C", f"{ours}.local.edge_map")
    for their_norm, our_norm in (
        ("local_model.bn_node_x", "local.node_norm"),
        ("local_model.bn_edge_e", "local.edge_norm"),
        ("norm1_local", "local_norm"),
        ("norm1_attn", "attention_norm"),
        ("norm2", "norm"),
    ):
        conversion.copy_module(f"{theirs}.{their_norm}", f"{ours}.{our_norm}", BATCH_NORM)
    conversion.copy(f"{theirs}.self_attn.in_proj_weight", f"{ours}.attention.attention.in_proj.weight")
    conversion.copy(f"{theirs}.self_attn.in_proj_bias", f"{ours}.attention.attention.in_proj.bias")
    conversion.copy_module(f"{theirs}.self_attn.out_proj", f"{ours}.attention.attention.out_proj")
    conversion.copy_module(f"{theirs}.ff_linear1", f"{ours}.feed_forward.expand")
    conversion.copy_module(f"{theirs}.ff_linear2", f"{ours}.feed_forward.contract")


def _state(content: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the model's tensors; PyG from 2.1 on prefixes their names with `model.`."""
    state = content.get(_STATE)
    if not isinstance(state, Mapping):
        raise BadInput(f"a checkpoint of GraphGym has {_STATE!r}, this file {', '.join(map(str, content))}.")
    return {name.removeprefix("model."): value for name, value in state.items()}


def _stack(conversion: Conversion, name: str, tables: list[Tensor]) -> None:
    """Concatenate the tables of all features into one table of the model."""
    if not tables:
        raise BadInput(f"the file has no tables of features for {name}.")
    conversion.set(name, torch.cat(tables))


def _numbers(names: Iterable[str], prefix: str) -> list[int]:
    """Return the numbers of the layers whose names start with `prefix`."""
    return sorted({int(name.removeprefix(prefix).partition(".")[0]) for name in names if name.startswith(prefix)})
