"""Read graphs from sources named by the user: files, folders, functions, and data sets of other packages."""
