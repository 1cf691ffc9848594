from .attribution import Attribution as Attribution
from .attribution import attribute as attribute

__all__: list[str]
