"""The site: `make docs`. `NB_EXECUTE=1` runs the notebooks; without it their code is shown without output."""

from __future__ import annotations

import os
import sys
from importlib import metadata
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "graphbench"
author = "The graphbench maintainers"
release = metadata.version("graphbench-lightning")

extensions = ["myst_nb", "sphinx_design", "catalogue"]
exclude_patterns = ["_build", "_ext", "jupyter_execute"]
source_suffix = {".md": "myst-nb"}

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

nb_execution_mode = "force" if os.environ.get("NB_EXECUTE") else "off"
nb_execution_timeout = 120
nb_execution_raise_on_error = True
nb_output_stderr = "remove"  # warnings of notebooks about widgets, with paths of the machine that builds

html_theme = "furo"
html_title = "graphbench"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
