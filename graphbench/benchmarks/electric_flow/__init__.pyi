from .benchmark import ElectricFlow as ElectricFlow
