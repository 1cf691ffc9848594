"""Pretrained weights. This package contains no code: `--model.init_from molecules-base` reads the folder `weights`."""
