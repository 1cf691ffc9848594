"""Read and write runs on disk and on the Hub: folders, checkpoints, weights, and imports of their configurations.

- `folder`: paths in a run, and its small JSON records; `holding` lets one process write to it;
- `environment`: versions and hardware of a run;
- `slurm`: the job around a command, and how it is requeued;
- `checkpoints`, `weights`: written so that a kill cannot damage them, read without running code from them; safetensors;
- `differences`: comparison of configurations by meaning;
- `hub`: models by name on the Hugging Face Hub;
- `tables`: CSV tables of a run;
- `trust`: which imports a run's configuration may name.
"""

from graphbench.runs.folder import RunFolder as RunFolder
