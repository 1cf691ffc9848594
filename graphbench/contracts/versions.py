"""Warn about installed plug-ins that require another version of graphbench than this one, as `pip check` would."""

from __future__ import annotations

import contextlib
import logging
from functools import cache
from importlib import metadata

log = logging.getLogger(__name__)
_CORE = "graphbench-lightning"


@cache
def warn_of_version(distribution: str) -> None:
    """Warn once about a distribution whose metadata exclude the installed graphbench; called before its code runs.

    pip refuses to install it, but not with `--no-deps`, and not if graphbench is replaced later.
    """
    with contextlib.suppress(metadata.PackageNotFoundError):  # graphbench is imported from a folder, or plug-ins are
        wanted = asked_version(metadata.distribution(distribution))
        if wanted:
            version = metadata.version(distribution)
            log.warning(
                "%s %s requires %s, but this is %s %s: it may fail, or compute something else. Versions that fit: "
                "pip install --upgrade %s %s",
                distribution, version, wanted, _CORE, metadata.version(_CORE), _CORE, distribution,
            )  # fmt: skip


def asked_version(distribution: metadata.Distribution) -> str:
    """Return the requirement on graphbench that the installed version does not meet, as written; "" if none."""
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.utils import canonicalize_name

    for text in distribution.requires or ():
        with contextlib.suppress(InvalidRequirement):
            one = Requirement(text)
            applies = canonicalize_name(one.name) == _CORE and (
                one.marker is None or one.marker.evaluate({"extra": ""})
            )
            if applies and not one.specifier.contains(metadata.version(_CORE), prereleases=True):
                return f"{_CORE}{one.specifier}"
    return ""
