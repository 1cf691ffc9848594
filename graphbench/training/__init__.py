"""Training of a model: the LightningModule, optimizers and schedules, frozen parts, several processes.

- `module`: `BenchmarkModule`, an architecture with head, loss and metrics; `build` creates it with its data in Python;
- `optim`: schedules and parameter groups; `parts`: parts that are frozen or have separate learning rates;
- `distributed`: one loss for several processes, parameters without a gradient;
- `hyperparameters`: options as plain values, for checkpoints and trackers, and modules rebuilt from them.
"""
