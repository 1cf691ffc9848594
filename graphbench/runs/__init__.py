"""A run on disk and on the Hub: its folder, checkpoints and weights, and what its configuration may import.

- `folder`: what lies where in a run, and its small JSON records; `holding` lets one process write to it;
- `environment`: versions and hardware of a run;
- `checkpoints`, `weights`: written so that no kill tears them, read without running code from them; safetensors;
- `hub`: models by name on the Hugging Face Hub;
- `trust`: what the configuration of a run may import.
"""

from graphbench.runs.folder import RunFolder as RunFolder
