from .checks import check_table as check_table
from .download import fetch as fetch
from .download import fetch_members as fetch_members
from .loader import GraphLoader as GraphLoader
from .package_files import file_sha256 as file_sha256
from .package_files import package_file as package_file
from .sampler import SizeBucketSampler as SizeBucketSampler
from .splits import given_split as given_split
from .splits import index_split as index_split
from .splits import permutation as permutation
from .splits import random_split as random_split
from .store import Store as Store
from .worker_pool import map_in_processes as map_in_processes

__all__: list[str]
