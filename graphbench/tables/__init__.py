"""Tables of the user, in every format and part by part: `reader` gives text and places of rows, `frames` types."""
