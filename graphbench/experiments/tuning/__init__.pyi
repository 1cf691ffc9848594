from .pruning import PruneTrial as PruneTrial
from .space import Choice as Choice
from .space import Range as Range
from .space import Space as Space
from .space import read_space as read_space
from .study import Begun as Begun
from .study import Study as Study
