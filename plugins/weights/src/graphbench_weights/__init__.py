"""Weights to start from. There is no code in here: `--model.init_from molecules-base` reads the folder `weights`."""
