"""Operations by submodule against table 7 of the paper: two clouds of 1,024 tokens of width 256, 16 heads.

The table counts one map of relative features per layer, as for `topk`; separate maps of top and random tokens are two.
"""

from dataclasses import replace

import pytest
from torch.utils.flop_counter import FlopCounterMode

from graphbench import Features
from graphbench.cli.commands.profile import count_operations
from graphbench.testing import tiny_spec, tiny_table
from graphbench_sft import SFT
from graphbench_sft.inputs import NORMALS

TOKENS, DIM, HEADS, CLOUDS = 1024, 256, 16, 2
SPEC = replace(tiny_spec("node-classification", "coordinates"), node=Features(dense=3, names=NORMALS), edge=Features())
#: Submodule -> GFLOP that the paper prints by sampling rate.
PRINTED = {
    "query_map": (0.268, 0.268, 0.268, 0.268, 0.268),
    "key_map": (0.268, 0.134, 0.067, 0.034, 0.017),
    "value_map": (0.268, 0.134, 0.067, 0.034, 0.017),
    "leak_map": (0.0168, 0.0084, 0.0042, 0.0021, 0.0011),
    "relative": (0.268, 0.134, 0.067, 0.034, 0.017),
    "out_map": (0.268, 0.268, 0.268, 0.268, 0.268),
}
RATES = (1, 2, 4, 8, 16)


@pytest.fixture(scope="module")
def counted():
    batch = tiny_table(SPEC, sizes=[TOKENS] * CLOUDS).batch(range(CLOUDS))
    counts = []
    for rate in RATES:
        model = SFT(
            SPEC,
            hidden_dim=DIM,
            num_heads=HEADS,
            num_layers=1,
            num_samples=TOKENS // rate,
            relative="distances",
            evaluation="topk",
        )
        counts.append({name: count / 1e9 for name, count in count_operations(model.eval(), batch).items()})
    return counts


@pytest.mark.parametrize("module", PRINTED)
def test_submodules_cost_what_the_paper_prints(module, counted):
    """Agree to 2 %, or to the last printed digit; the paper seems to halve numbers that are already rounded."""
    for count, printed in zip(counted, PRINTED[module], strict=True):
        rounding = 0.6 * 10.0 ** -len(str(printed).partition(".")[2])
        assert abs(count[f"layers.*.attention.{module}"] - printed) <= max(0.02 * printed, rounding)


def test_the_feed_forward_network_costs_the_printed_two_digits(counted):
    for count in counted:
        assert count["layers.*.ffn"] == pytest.approx(2 * CLOUDS * TOKENS * 2 * DIM * 4 * DIM / 1e9)
        assert abs(count["layers.*.ffn"] - 2.2) < 0.06


def test_sampling_costs_one_product_a_token_and_a_layer_norm_makes_it_the_printed_number(counted):
    """The paper's tool counts five operations per number for a layer norm; ours counts only matrix products."""
    for count in counted:
        score = count["layers.*.attention.sampler"]
        assert score == pytest.approx(2 * CLOUDS * TOKENS * DIM / 1e9)
        assert score + 5 * CLOUDS * TOKENS * DIM / 1e9 == pytest.approx(0.0037, rel=0.02)


def test_what_is_left_of_attention_is_the_products_with_values_and_normals(counted):
    """The values of every head have an additional column of ones, which sums its weights."""
    parts = ("query_map", "key_map", "value_map", "leak_map", "relative", "out_map", "sampler")
    for count, rate in zip(counted, RATES, strict=True):
        rest = count["layers.*.attention"] - sum(count[f"layers.*.attention.{part}"] for part in parts)
        assert rest == pytest.approx(2 * CLOUDS * TOKENS * (TOKENS // rate) * (DIM + HEADS + 3) / 1e9)


def test_training_and_evaluation_as_trained_map_relative_features_of_both_tokens_of_a_pair():
    batch = tiny_table(SPEC, sizes=[64]).batch([0])
    options = {"hidden_dim": 32, "num_heads": 4, "num_layers": 1, "num_samples": 16, "relative": "distances"}
    best, model = SFT(SPEC, **options, evaluation="topk"), SFT(SPEC, **options)
    topk = count_operations(best, batch)["layers.*.attention.relative"]
    assert count_operations(model, batch)["layers.*.attention.relative"] == 2 * topk
    assert model.training
    with FlopCounterMode(display=False) as counter:
        model(batch)
    training = sum(counter.get_flop_counts()["SFT.layers.0.attention.relative"].values())
    assert training == 2 * topk
