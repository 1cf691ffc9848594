"""Training of a model: the LightningModule, optimizers and schedules, frozen parts, several processes.

- `module`: `BenchmarkModule`, an architecture with head, loss and metrics; `build` makes one with its data in Python;
- `optim`: schedules and parameter groups; `parts`: parts that are frozen or have rates of their own;
- `distributed`: one loss for several processes, parameters without a gradient;
- `hyperparameters`: options as plain values, in checkpoints and trackers, and the way back.
"""
