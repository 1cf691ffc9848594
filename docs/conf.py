"""The site: `make docs`. `NB_EXECUTE=1` runs the notebooks; without it their code is shown without output."""

from __future__ import annotations

import os
import sys
from importlib import metadata
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "graphbench"
author = project_copyright = "The graphbench maintainers"
release = metadata.version("graphbench-lightning")

extensions = ["sphinx.ext.autodoc", "sphinx.ext.napoleon", "myst_nb", "sphinx_design", "catalogue", "api"]
exclude_patterns = ["_build", "_ext", "jupyter_execute"]
source_suffix = {".md": "myst-nb", ".rst": "restructuredtext"}

smartquotes_action = "qe"  # two hyphens are options, not dashes
default_role = "py:obj"  # `GPS` in a docstring leads to its entry
autodoc_inherit_docstrings = False  # those of PyTorch and Lightning say nothing about graphbench
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
maximum_signature_line_length = 88
napoleon_numpy_docstring = False

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

nb_execution_mode = "force" if os.environ.get("NB_EXECUTE") else "off"
nb_execution_timeout = 900  # seconds for a cell, on a machine that has other work too
nb_execution_raise_on_error = True
nb_output_stderr = "remove"  # warnings of notebooks about widgets, with paths of the machine that builds

html_theme = "furo"
html_title = f"graphbench {release}"
html_theme_options = {  # where "Edit this page" leads
    "source_repository": "https://github.com/graphbench-lightning/graphbench",
    "source_branch": "main",
    "source_directory": "docs/",
}
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_copy_source = False
html_show_sphinx = False
