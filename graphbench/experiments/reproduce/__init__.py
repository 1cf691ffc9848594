"""Published tables row by row: which recipe obtains each value, what was obtained, and what is missing."""
