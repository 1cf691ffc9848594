"""Find installed classes by name, describe them from their sources, and find configurations and expected scores.

- `entry_points`: architectures, benchmarks, encodings, tasks and callbacks by name; this package exports its functions;
  `listings`: names that this project registers;
- `describe`: summaries, specifications and options, read from source without importing it;
- `configurations`: installed configurations by name; `expected`: their expected scores;
- `starting_weights`: installed weights by name;
- `importing`: imports of names in configurations, which a gate may refuse.
"""

from graphbench.registry.entry_points import GROUPS as GROUPS
from graphbench.registry.entry_points import ConfigEntry as ConfigEntry
from graphbench.registry.entry_points import Group as Group
from graphbench.registry.entry_points import Record as Record
from graphbench.registry.entry_points import architectures as architectures
from graphbench.registry.entry_points import benchmarks as benchmarks
from graphbench.registry.entry_points import callbacks as callbacks
from graphbench.registry.entry_points import clashes as clashes
from graphbench.registry.entry_points import config_entries as config_entries
from graphbench.registry.entry_points import encodings as encodings
from graphbench.registry.entry_points import find as find
from graphbench.registry.entry_points import load as load
from graphbench.registry.entry_points import records as records
from graphbench.registry.entry_points import refresh as refresh
from graphbench.registry.entry_points import table_entries as table_entries
from graphbench.registry.entry_points import unreadable as unreadable
from graphbench.registry.entry_points import weight_entries as weight_entries
