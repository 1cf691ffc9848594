from .molecules import PCQMContact as PCQMContact
from .molecules import PeptidesFunc as PeptidesFunc
from .molecules import PeptidesStruct as PeptidesStruct
from .superpixels import COCOSP as COCOSP
from .superpixels import LRGBBenchmark as LRGBBenchmark
from .superpixels import PascalVOCSP as PascalVOCSP
