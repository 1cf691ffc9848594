from .integrated import Attribution as Attribution
from .integrated import attribute as attribute

__all__: list[str]
