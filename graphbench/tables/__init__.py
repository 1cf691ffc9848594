"""Tables of the user: one reader for every format, part by part, as text with the place of each row."""
