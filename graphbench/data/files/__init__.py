"""Files as every room needs them: written whole or not at all, YAML without surprises, cells no spreadsheet runs."""
