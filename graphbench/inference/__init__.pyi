from .ensemble import Ensemble as Ensemble
from .loading import load as load
from .predictor import Predictor as Predictor
from .training import TrainingFacts as TrainingFacts

__all__: list[str]
