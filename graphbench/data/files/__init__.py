"""Handle files for every room: write them whole or not at all, read YAML safely, and escape cells for spreadsheets."""
