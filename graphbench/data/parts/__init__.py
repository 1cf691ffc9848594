"""Divide long computations into parts: `shares` divides them between jobs, `kept` stores finished parts."""
