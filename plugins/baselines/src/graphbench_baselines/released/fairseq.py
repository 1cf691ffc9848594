"""Checkpoints of fairseq as written by Graphormer's second code: the model's tensors are in `model`.

Ying et al., NeurIPS 2021, arXiv 2106.05234; Shi et al., arXiv 2203.04810; names are those of
github.com/microsoft/Graphormer, version 2.0.

Tables of that code start with a row for padding and have room for features that no molecule has. Value v of feature f
of an atom reads row `2 + 512 f + v`, that of a bond the next one; a degree d and a distance d read row `d + 1`, and
unconnected pairs, at distance 510, read row 511.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from graphbench.errors import BadInput
from graphbench_baselines.released.conversion import Conversion

_STATE = "model"
#: Rows between the first values of two features, and the first row of an atom's and of a bond's.
_STEP, _ATOM, _BOND = 512, 2, 3
#: Numbers of values of OGB's atom and bond features, in the order of the columns.
ATOM_SIZES, BOND_SIZES = (119, 5, 12, 12, 10, 6, 6, 2, 2), (5, 6, 2)
_UNREACHABLE = 511
_ENCODER, _GRAPH = "encoder", "encoder.graph_encoder"


def graphormer(content: Mapping[str, Any], ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Convert Graphormer with version fairseq on molecules with OGB's features, norms after the branches.

    The recipe needs `ties: one`, `standardize_targets: false`, and tables of degrees and distances as large as its
    molecules require: further rows are omitted, as is the map `masked_lm_pooler`, which that code never reads.

    Args:
        content: content of the file, by name.
        ours: `state_dict` of the recipe's model.

    Returns:
        The new `state_dict`.

    Raises:
        BadInput: the file has a different layout or model, or its row for missing edges is not zero.
    """
    state = content.get(_STATE)
    if not isinstance(state, Mapping):
        raise BadInput(f"a checkpoint of fairseq has {_STATE!r}, this file {', '.join(map(str, content))}.")
    conversion = Conversion(state, ours)
    _convert_embeddings(conversion, ours)
    _convert_biases(conversion, ours)
    conversion.copy_module(f"{_GRAPH}.emb_layer_norm", "architecture.embedding_norm")
    layers = {name.split(".")[2] for name in ours if name.startswith("architecture.layers.")}
    for number in sorted(layers, key=int):
        _convert_layer(conversion, f"{_GRAPH}.layers.{number}", f"architecture.layers.{number}")
    conversion.copy_module(f"{_ENCODER}.lm_head_transform_weight", "architecture.final.linear")
    conversion.copy_module(f"{_ENCODER}.layer_norm", "architecture.final.norm")
    conversion.copy(f"{_ENCODER}.embed_out.weight", "task.head.mlp.layers.0.weight")
    conversion.copy(f"{_ENCODER}.lm_output_learned_bias", "task.head.mlp.layers.0.bias")
    for name in ("weight", "bias"):  # that code allocates them but never reads them
        conversion.pop(f"{_ENCODER}.masked_lm_pooler.{name}")
    conversion.set("task.offset", torch.zeros(1))
    conversion.set("task.scale", torch.ones(1))
    return conversion.finish()


def _convert_embeddings(conversion: Conversion, ours: Mapping[str, Tensor]) -> None:
    """Convert the tables of atoms and degrees and the graph token."""
    features, table = f"{_GRAPH}.graph_node_feature", "architecture.embedding"
    atoms = _rows_of_features(conversion.pop(f"{features}.atom_encoder.weight"), ATOM_SIZES, _ATOM)
    conversion.set(f"{table}.features.features.table", atoms)
    for name in ("in_degree", "out_degree"):
        rows = conversion.pop(f"{features}.{name}_encoder.weight")
        size = len(_ours(ours, f"{table}.{name}.weight"))
        conversion.set(f"{table}.{name}.weight", rows[1 : size + 1])
    conversion.copy(f"{features}.graph_token.weight", "architecture.graph_token.weight")


def _convert_biases(conversion: Conversion, ours: Mapping[str, Tensor]) -> None:
    """Convert the biases of attention; their edge vectors are means of three features, ours are sums."""
    biases, bias = f"{_GRAPH}.graph_attn_bias", "architecture.bias"
    edges = conversion.pop(f"{biases}.edge_encoder.weight")
    if edges[0].any():
        raise BadInput("the first row of edge_encoder, for missing edges, is not zero, but the model has no such row.")
    bonds = _rows_of_features(edges, BOND_SIZES, _BOND)
    bonds = bonds.to(torch.promote_types(bonds.dtype, torch.float32)) / len(BOND_SIZES)  # half precision would round
    conversion.set(f"{bias}.edge_term.features.table", bonds)
    hops, heads, _ = _ours(ours, f"{bias}.edge_term.hops").shape
    maps = conversion.pop(f"{biases}.edge_dis_encoder.weight").reshape(-1, heads, heads)
    conversion.set(f"{bias}.edge_term.hops", maps[:hops])
    distances = conversion.pop(f"{biases}.spatial_pos_encoder.weight")
    size = len(_ours(ours, f"{bias}.distance.weight"))
    conversion.set(f"{bias}.distance.weight", distances[[*range(1, size), _UNREACHABLE]])
    conversion.copy(f"{biases}.graph_token_virtual_distance.weight", f"{bias}.token.weight")


def _convert_layer(conversion: Conversion, theirs: str, ours: str) -> None:
    """Convert one layer; ours combines the maps of queries and keys."""
    for name in ("weight", "bias"):
        parts = [conversion.pop(f"{theirs}.self_attn.{part}_proj.{name}") for part in "qk"]
        conversion.set(f"{ours}.attention.qk_map.{name}", torch.cat(parts))
    for their_part, our_part in (
        ("self_attn.v_proj", "attention.v_map"),
        ("self_attn.out_proj", "attention.out_map"),
        ("self_attn_layer_norm", "attention_norm"),
        ("fc1", "ffn.expand"),
        ("fc2", "ffn.contract"),
        ("final_layer_norm", "ffn_norm"),
    ):
        conversion.copy_module(f"{theirs}.{their_part}", f"{ours}.{our_part}")


def _rows_of_features(table: Tensor, sizes: tuple[int, ...], first: int) -> Tensor:
    """Return the rows of all values of all features, grouped by feature."""
    rows = torch.cat([torch.arange(size) + first + _STEP * number for number, size in enumerate(sizes)])
    if len(table) <= int(rows[-1]):
        raise BadInput(f"a table of features has {len(table)} rows, but the last value reads row {int(rows[-1])}.")
    return table[rows]


def _ours(ours: Mapping[str, Tensor], name: str) -> Tensor:
    if name not in ours:
        raise BadInput(f"the model lacks {name!r}, which the file has; its options differ from those of the file.")
    return ours[name]
