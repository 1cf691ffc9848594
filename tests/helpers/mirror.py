"""Which test file covers a source file that has none of its name, and what test files without a source are about.

A source file `graphbench/a/b.py` has the test file `tests/a/test_b.py`, `plugins/X/src/*/a/b.py` has
`plugins/X/tests/a/test_b.py`, or its whole folder is tested by `test_a.py` in or beside the mirrored folder; everything
else stands here. `tests/test_architecture.py` compares the tables with the tree.
"""

from __future__ import annotations

#: Source without a test of its name -> (test file that covers it, why that one).
TESTED_BY = {
    "graphbench/cli/optimizers.py": ("tests/docs/test_lightning.py", "a row of the guide, and its own examples"),
    "graphbench/benchmarks/block_models/sampling.py": (
        "tests/benchmarks/block_models/test_pattern_cluster.py", "samples the graphs of PATTERN and CLUSTER",
    ),
    "graphbench/benchmarks/electric_flow/loader.py": (
        "tests/benchmarks/electric_flow/test_benchmark.py", "the benchmark's batches come from it",
    ),
    "graphbench/benchmarks/lrgb/archive.py": ("tests/benchmarks/lrgb/test_superpixels.py", "read through a benchmark"),
    "graphbench/benchmarks/lrgb/files.py": ("tests/benchmarks/lrgb/test_superpixels.py", "read through a benchmark"),
    "graphbench/benchmarks/lrgb/molecules.py": (
        "tests/benchmarks/lrgb/test_superpixels.py", "one file of archives for all five benchmarks",
    ),
    "graphbench/benchmarks/molecules/base.py": (
        "tests/benchmarks/molecules/test_own_file.py", "names, SMILES and baselines of molecules",
    ),
    "graphbench/benchmarks/molecules/ogb_files.py": ("tests/benchmarks/molecules/test_ogb.py", "its files as OGB's"),
    "graphbench/benchmarks/molecules/qm9_sources.py": ("tests/benchmarks/molecules/test_qm9.py", "a part of QM9"),
    "graphbench/benchmarks/molecules/qm9_structures.py": ("tests/benchmarks/molecules/test_qm9.py", "a part of QM9"),
    "graphbench/benchmarks/molecules/qm9_targets.py": ("tests/benchmarks/molecules/test_qm9.py", "a part of QM9"),
    "graphbench/benchmarks/points/base.py": ("tests/benchmarks/points/test_solids.py", "the benchmark without files"),
    "graphbench/benchmarks/points/files.py": ("tests/benchmarks/points/test_modelnet.py", "read through a benchmark"),
    "graphbench/benchmarks/points/meshes.py": ("tests/benchmarks/points/test_modelnet.py", "the benchmark of meshes"),
    "graphbench/benchmarks/points/shapenet_files.py": ("tests/benchmarks/points/test_shapenet.py", "its only reader"),
    "graphbench/benchmarks/sequences/ragged.py": ("tests/benchmarks/sequences/test_base.py", "what the base stores"),
    "graphbench/benchmarks/sizes.py": (
        "tests/benchmarks/block_models/test_pattern_cluster.py", "sizes that a user gives, good and bad",
    ),
    "graphbench/attributions/encoders.py": (
        "tests/attributions/test_integrated.py", "what integrated gradients run along",
    ),
    "graphbench/attributions/rows.py": ("tests/cli/commands/test_explain.py", "the rows that the command explains"),
    "graphbench/benchmarks/superpixels/base.py": (
        "tests/benchmarks/superpixels/test_own_images.py", "the benchmark of any images",
    ),
    "graphbench/benchmarks/superpixels/inputs.py": (
        "tests/benchmarks/superpixels/test_own_images.py", "new images of the benchmark of any images",
    ),
    "graphbench/benchmarks/superpixels/labelled.py": (
        "tests/benchmarks/superpixels/test_folders.py", "what reading folders returns",
    ),
    "graphbench/callbacks/best_checkpoint.py": ("tests/cli/commands/test_fit.py", "the checkpoint that a fit leaves"),
    "graphbench/callbacks/csv_logger.py": ("tests/cli/test_nothing_is_lost.py", "rows of a killed and continued run"),
    "graphbench/callbacks/diagnostic_table.py": ("tests/callbacks/test_probe.py", "written by every probe"),
    "graphbench/callbacks/epoch_lines.py": ("tests/cli/commands/test_fit.py", "what a fit prints"),
    "graphbench/callbacks/last_checkpoint.py": ("tests/cli/test_nothing_is_lost.py", "kills at its writes"),
    "graphbench/callbacks/non_finite.py": ("tests/cli/test_diverged.py", "its policies, as users choose them"),
    "graphbench/cli/complaints.py": ("tests/cli/test_options.py", "what a wrong option is told"),
    "graphbench/cli/console.py": ("tests/cli/commands/test_score.py", "the table that a command prints"),
    "graphbench/cli/lightning.py": ("tests/cli/commands/test_fit.py", "the parser of all commands that build a model"),
    "graphbench/cli/commands/list_command.py": ("tests/cli/commands/test_list.py", "the command is called list"),
    "graphbench/cli/names.py": ("tests/cli/commands/test_fit.py", "short names on the command line"),
    "graphbench/cli/preflight.py": ("tests/cli/commands/test_sweep.py", "what a sweep refuses before it runs"),
    "graphbench/cli/commands/prepare.py": (
        "tests/cli/commands/test_config_command.py", "prepares what an installed configuration names",
    ),
    "graphbench/cli/trained.py": ("tests/cli/commands/test_embed.py", "the model of a run, its data open or closed"),
    "graphbench/cli/signals.py": ("tests/cli/test_stopping.py", "signals to a training process"),
    "graphbench/contracts/architecture.py": ("tests/contracts/test_architectures.py", "held by every architecture"),
    "graphbench/contracts/benchmark.py": ("tests/contracts/test_benchmarks.py", "held by every benchmark"),
    "graphbench/contracts/encoding.py": ("tests/contracts/test_encodings.py", "held by every encoding"),
    "graphbench/contracts/spec.py": ("tests/registry/test_describe.py", "read from source and built from values"),
    "graphbench/contracts/trace.py": ("tests/diagnostics/test_recording.py", "recorded traces"),
    "graphbench/exporting/card.py": ("tests/cli/commands/test_export.py", "the card that an export writes"),
    "graphbench/exporting/folder.py": ("tests/cli/commands/test_export.py", "the folder that an export writes"),
    "graphbench/figures/attributions.py": ("tests/cli/commands/test_explain.py", "the drawings of explained rows"),
    "graphbench/runs/hub.py": ("tests/cli/commands/test_push.py", "by the real client, against a stand-in"),
    "graphbench/data/entry.py": ("tests/data/test_store.py", "an entry is what the store holds"),
    "graphbench/diagnostics/ragged.py": ("tests/diagnostics/test_rank.py", "sums per graph, in every measure of rank"),
    "graphbench/diagnostics/traces.py": ("tests/diagnostics/test_summary.py", "states that summaries read"),
    "graphbench/figures/attention.py": ("tests/callbacks/test_attention_maps.py", "the callback that draws with it"),
    "graphbench/moved.py": ("tests/moves/test_saved_run.py", "every old path is imported"),
    "graphbench/runs/holding.py": ("tests/cli/test_nothing_is_lost.py", "two processes and one folder"),
    "graphbench/runs/tables.py": ("tests/report/test_loading.py", "tables as the report reads them"),
    "graphbench/runs/trust.py": ("tests/cli/test_sent_runs.py", "runs that somebody sends, as users load them"),
    "graphbench/testing/precision.py": ("tests/testing/test_architectures.py", "a part of the architecture's contract"),
    "plugins/baselines/src/graphbench_baselines/attention.py": (
        "plugins/baselines/tests/test_depth.py", "attention whose output is mixed in, as the depth recipes use it",
    ),
    "plugins/baselines/src/graphbench_baselines/structure.py": (
        "plugins/baselines/tests/test_sat.py", "the structure extractor of SAT",
    ),
    "plugins/deepgraph/src/graphbench_deepgraph/attention.py": (
        "plugins/deepgraph/tests/test_layer.py", "the attention of the layer",
    ),
    "plugins/deepgraph/src/graphbench_deepgraph/substructure_encoder.py": (
        "plugins/deepgraph/tests/test_ordering.py", "reads the order that is tested there",
    ),
    "plugins/deepgraph/src/graphbench_deepgraph/tokens.py": (
        "plugins/deepgraph/tests/test_bias.py", "tokens whose pairs the bias describes",
    ),
    "plugins/linear-transformer/src/graphbench_linear_transformer/absolute_sums.py": (
        "plugins/linear-transformer/tests/test_incidence.py", "row sums that an incidence gives",
    ),
    "plugins/linear-transformer/src/graphbench_linear_transformer/constructions/_models.py": (
        "plugins/linear-transformer/tests/constructions/test_additive.py", "what every construction is",
    ),
    "plugins/linear-transformer/src/graphbench_linear_transformer/constructions/_weights.py": (
        "plugins/linear-transformer/tests/constructions/test_additive.py", "weights and options of every construction",
    ),
    "plugins/linear-transformer/src/graphbench_linear_transformer/normalise.py": (
        "plugins/linear-transformer/tests/test_layers.py", "the norm between layers",
    ),
    "plugins/sfi-former/src/graphbench_sfi_former/arguments.py": (
        "plugins/sfi-former/tests/test_flow.py", "checks what the solver is given",
    ),
    "plugins/sfi-former/src/graphbench_sfi_former/blockwise.py": (
        "plugins/sfi-former/tests/test_attention.py", "one of the attention's solvers",
    ),
    "plugins/sfi-former/src/graphbench_sfi_former/enhanced.py": (
        "plugins/sfi-former/tests/test_layers.py", "attention of the layers",
    ),
    "plugins/sfi-former/src/graphbench_sfi_former/fused.py": (
        "plugins/sfi-former/tests/test_attention.py", "one of the attention's solvers",
    ),
    "plugins/sfi-former/src/graphbench_sfi_former/masking.py": (
        "plugins/sfi-former/tests/test_flow.py", "masks of every solver",
    ),
    "plugins/sfi-former/src/graphbench_sfi_former/operands.py": (
        "plugins/sfi-former/tests/test_attention.py", "what its fused solver reads",
    ),
    "plugins/sfi-former/src/graphbench_sfi_former/rows.py": (
        "plugins/sfi-former/tests/test_waterfill.py", "rows of its kernels",
    ),
    "plugins/sfi-former/src/graphbench_sfi_former/workspace.py": (
        "plugins/sfi-former/tests/test_attention.py", "memory of its blockwise solver",
    ),
    "plugins/sft/src/graphbench_sft/documents.py": ("plugins/sft/tests/test_places.py", "two documents per graph"),
    "plugins/sft/src/graphbench_sft/traces.py": ("plugins/sft/tests/test_attention.py", "what attention records"),
    "graphbench/experiments/tuning/pruning.py": ("tests/experiments/tuning/test_study.py", "ends a trial of a study"),
}  # fmt: skip

#: Test file without a source of its name -> what it tests.
TESTS_OF = {
    "tests/docs/test_lightning.py": "docs/lightning.md",
    "plugins/baselines/tests/test_all_architectures.py": "the contract, for every architecture of the package",
    "plugins/baselines/tests/test_counts.py": "published parameter counts",
    "plugins/deepgraph/tests/test_counts.py": "published parameter counts",
    "plugins/deepgraph/tests/test_depth.py": "experiments/depth.py",
    "plugins/deepgraph/tests/test_released_faults.py": "faults of the released code, which ours has not",
    "plugins/large-graphs/tests/test_all_architectures.py": "the contract and linear memory, for every architecture",
    "plugins/large-graphs/tests/test_configurations.py": "its configurations",
    "plugins/large-graphs/tests/test_one_graph.py": "every model on one graph whose nodes are split",
    "plugins/linear-transformer/tests/experiments/test_figures.py": "experiments/figures.py",
    "plugins/linear-transformer/tests/experiments/test_table_2.py": "experiments/table_2.py",
    "plugins/linear-transformer/tests/test_configurations.py": "its configurations",
    "plugins/sfi-former/tests/experiments/test_pattern.py": "experiments/pattern.py",
    "plugins/sfi-former/tests/test_configurations.py": "its configurations",
    "plugins/sfi-former/tests/test_precision.py": "errors of all solvers, against arithmetic with many digits",
    "plugins/sfi-former/tests/test_warm_start.py": "a sparse model that starts from a dense one",
    "plugins/sft/tests/test_command_line.py": "precisions and refusals, as users start it",
    "plugins/sft/tests/test_configurations.py": "its configurations",
    "plugins/sft/tests/test_operations.py": "published numbers of operations",
    "plugins/sft/tests/test_places.py": "SFT on point clouds and sequences",
    "plugins/sft/tests/test_runs.py": "experiments/runs.py",
    "plugins/sft/tests/test_table_7.py": "experiments/table_7.py",
    "plugins/sft/tests/test_theory.py": "what the paper proves of a layer",
    "tests/benchmarks/test_bucketing.py": "batches of graphs of similar size, with every model",
    "tests/benchmarks/test_listed_sizes.py": "the sizes that specifications say, against the data",
    "tests/callbacks/test_two_processes.py": "diagnostics on two processes",
    "tests/cli/test_ddp.py": "scores on two processes",
    "tests/cli/test_elastic.py": "torchrun --max-restarts",
    "tests/cli/test_diagnostics_config.py": "configs/callbacks/diagnostics.yaml",
    "tests/cli/test_diverged.py": "a loss that is not finite, from start to report",
    "tests/cli/test_experiments.py": "every shipped configuration",
    "tests/cli/commands/test_list.py": "graphbench list",
    "tests/cli/test_nothing_is_lost.py": "kills at writes, damaged, moved and shared folders",
    "tests/cli/test_own_files.py": "files of one's own as spreadsheets write them, weights and mistakes in them",
    "tests/cli/test_published_counts.py": "parameters of GraphGPS's configurations",
    "tests/cli/test_resume.py": "graphbench fit --resume",
    "tests/cli/test_sent_runs.py": "graphbench/runs/trust.py, by every command that takes a run",
    "tests/cli/test_stopping_two_processes.py": "signals to two processes",
    "tests/cli/test_torn_files.py": "torn files beside a whole checkpoint",
    "tests/cli/test_trainer_options.py": "options of Lightning's trainer",
    "tests/contracts/test_architectures.py": "every registered architecture",
    "tests/contracts/test_benchmarks.py": "every registered benchmark",
    "tests/contracts/test_encodings.py": "every registered encoding",
    "tests/docker/test_entrypoint.py": "docker/entrypoint.py",
    "tests/docker/test_image_files.py": "docker/Dockerfile and what is copied into the image",
    "tests/docker/test_requirements.py": "docker/requirements.py",
    "tests/docs/test_graphs.py": "docs/graphs.md",
    "tests/docs/test_explain.py": "docs/explain.md",
    "tests/docs/test_export.py": "docs/export.md",
    "tests/docs/test_layers.py": "docs/layers.md",
    "tests/docs/test_plugin_diagnostics.py": "docs/plugin-diagnostics.md",
    "tests/cli/test_slurm_file.py": "configs/slurm/fit.sbatch",
    "tests/cli/test_two_hosts.py": "training on two hosts",
    "tests/docs/test_predict.py": "docs/predict.md",
    "tests/speed/test_large_graph.py": "the graph and the networks that speed/large_graph.py compares",
    "tests/speed/test_suite.py": "what the scripts of speed/ share",
    "tests/docs/test_reproduce.py": "docs/reproduce.md",
    "tests/docs/test_site.py": "docs/",
    "tests/experiments/test_equal_budget.py": "experiments/equal_budget.py",
    "tests/encodings/test_substructures_caps.py": "limits of the substructure search",
    "tests/moves/test_saved_run.py": "what version 0.1.0 saved",
    "tests/nn/test_positional_signs.py": "signs and filling in the encoders of eigenvectors",
    "tests/release/test_check.py": "release/check.py",
    "tests/release/test_lower_bounds.py": "release/lower_bounds.py, release/resolve.py",
    "tests/release/test_workflow.py": ".github/workflows",
    "tests/survive/test_campaign.py": "tests/survive/campaign.py",
    "tests/survive/test_cases.py": "tests/survive/cases.py",
    "tests/tasks/test_part_iou.py": "the metric of ShapeNetPart",
    "tests/test_architecture.py": "arrows between rooms, public names, and this table",
    "tests/test_changed_names.py": "tests/public_names.txt and CHANGELOG.md, against the public names",
    "tests/test_declared.py": "dependencies in pyproject.toml, against what is imported",
    "tests/test_examples.py": "examples in docstrings",
    "tests/test_public_names.py": "graphbench/__init__.pyi",
    "tests/test_wheels.py": "wheels and source distributions",
}
