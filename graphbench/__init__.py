"""graphbench: train, compare and look inside graph transformers.

Public names are listed in `__init__.pyi` and loaded on first use, so that `import graphbench` and the light commands
do not import torch.
"""

from typing import Any

import lazy_loader

_lazy, _, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    if name != "__version__":
        return _lazy(name)
    globals()[name] = _version()
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})


def _version() -> str:
    from importlib import metadata

    try:
        return metadata.version("graphbench-lightning")
    except metadata.PackageNotFoundError:
        raise AttributeError(
            f"graphbench is imported from {__path__[0]}, which is not installed, so its version and its plug-ins are "
            "unknown. Install it: pip install -e FOLDER_OF_THE_CLONE"
        ) from None
