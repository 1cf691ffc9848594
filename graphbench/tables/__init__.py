"""Read the user's tables in every format, part by part: `reader` yields text and row numbers, `frames` adds types."""
