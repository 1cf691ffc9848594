"""Read and write runs on disk and on the Hub: folders, checkpoints, weights, and imports of their configurations.

- `folder`: paths in a run, and its small JSON records; `holding` lets one process write to it;
- `environment`: versions and hardware of a run;
- `slurm`: the job around a command, and its return to the queue;
- `checkpoints`, `weights`: written so that no kill tears them, read without running code from them; safetensors;
- `differences`: configurations compared by meaning;
- `hub`: models by name on the Hugging Face Hub;
- `tables`: CSV tables of a run;
- `trust`: which imports the configuration of a run may name.
"""

from graphbench.runs.folder import RunFolder as RunFolder
