from .folder import export_folder as export_folder
from .folder import is_exported as is_exported

__all__: list[str]
