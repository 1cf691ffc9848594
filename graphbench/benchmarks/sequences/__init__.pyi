from .base import SequenceBenchmark as SequenceBenchmark
from .listops import ListOps as ListOps
from .long_text import Retrieval as Retrieval
from .long_text import Text as Text
from .pathfinder import Pathfinder as Pathfinder
from .sequential_images import SequentialFashionMNIST as SequentialFashionMNIST
from .sequential_images import SequentialImage as SequentialImage
