"""Read graphs from the sources that a user names: files, folders, functions, and data sets of other packages."""
