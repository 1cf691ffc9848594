"""One file per command of `graphbench`; `graphbench.cli.COMMANDS` names their functions."""
