"""Points of the figures, one trained transformer each, and the length of its training.

A point is a configuration of `plugins/linear-transformer/configs` with changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

CONFIGS = Path(__file__).parents[1] / "configs"
LAYERS = (1, 3, 5, 7, 9)
FAMILIES = ("FC", "CSL")
MAPS = ("electric", "resistive", "heat")


@dataclass(frozen=True)
class Recipe:
    """Length and learning rate of the training of points.

    Args:
        folder: folder of the configurations, below `configs`.
        steps: optimizer steps by number of layers, for maps.
        eigenvector_steps: the same for eigenvectors.
        lr: learning rate of maps is the smaller of this over the number of layers and `largest_lr`.
        largest_lr: see `lr`.
        general_too: the general form also learns eigenvectors at that rate, not at the configuration's.
        drops: number of times the rate is halved, at equal intervals; 0 keeps the configuration's schedule.
    """

    folder: str
    steps: Mapping[int, int]
    eigenvector_steps: Mapping[int, int]
    lr: float
    largest_lr: float
    general_too: bool = False
    drops: int = 5


#: "published": appendix 13 and the authors' code. "reduced": figure 1 takes about an hour on one core.
RECIPES = {
    "published": Recipe(
        folder="",
        steps={1: 3_100, 3: 6_100, 5: 10_100, 7: 14_100, 9: 40_100},
        eigenvector_steps=dict.fromkeys(LAYERS, 40_100),
        lr=0.02,
        largest_lr=0.02,
    ),
    "reduced": Recipe(
        folder="reduced",
        steps={1: 500, 3: 1_000, 5: 2_000, 7: 3_000, 9: 4_000},
        eigenvector_steps={1: 500, 3: 1_000, 5: 2_000, 7: 3_000, 9: 4_000},
        lr=0.05,
        largest_lr=0.02,
        general_too=True,
        drops=0,
    ),
}


@dataclass(frozen=True)
class Point:
    """One training run.

    Args:
        figure: 1, 2 or 15.
        family: FC or CSL.
        target: electric, resistive, heat or eigenvectors.
        num_eigenvectors: trained on loss_1 to this one; 0 for maps.
        num_layers: L.
        seed: seed of weights and graphs.
        recipe: key of `RECIPES`.
        centred: demands sum to 0.
        frozen: the stack `[B, Ψ]`, in which no layer changes B and one Frobenius norm applies to all.
    """

    figure: int
    family: str
    target: str
    num_eigenvectors: int
    num_layers: int
    seed: int
    recipe: str
    centred: bool = True
    frozen: bool = False

    @property
    def form(self) -> str:
        """Form of the layers."""
        return "efficient" if self.figure == 15 else "general"

    @property
    def config(self) -> Path:
        """The configuration that the point changes."""
        figure = 2 if self.target == "eigenvectors" else self.figure
        return CONFIGS / RECIPES[self.recipe].folder / f"electric-flow-figure-{figure}.yaml"

    @property
    def steps(self) -> int:
        """Optimizer steps."""
        recipe = RECIPES[self.recipe]
        return (recipe.eigenvector_steps if self.num_eigenvectors else recipe.steps)[self.num_layers]

    def arguments(self) -> list[str]:
        """Return the options of a graphbench command that trains this point."""
        recipe = RECIPES[self.recipe]
        changes = {
            "seed_everything": self.seed,
            "data.init_args.family": self.family,
            "data.init_args.target": self.target,
            "model.architecture.init_args.form": self.form,
            "model.architecture.init_args.num_layers": self.num_layers,
            "trainer.max_steps": self.steps,
        }
        if not self.centred:
            changes["data.init_args.centred"] = "false"
        if self.frozen:
            changes["model.architecture.init_args.frozen"] = "true"
        if recipe.drops:
            changes["model.schedule.step_size"] = self.steps // recipe.drops
        if self.num_eigenvectors:
            changes["data.init_args.num_eigenvectors"] = self.num_eigenvectors
        if not self.num_eigenvectors or (recipe.general_too and self.form == "general"):
            changes["model.optimizer.init_args.lr"] = min(recipe.lr / self.num_layers, recipe.largest_lr)
        return ["--config", str(self.config), *(f"--{name}={value}" for name, value in changes.items())]


def points(
    figures: list[int],
    layers: list[int],
    seeds: int,
    recipe: str,
    centred_maps: tuple[str, ...] = MAPS,
    frozen: bool = False,
) -> Iterator[Point]:
    """Yield every point of the figures: all layers of all curves with one seed, then with the next.

    Figure 15 has the four problems of figures 1 and 2(d): three maps, and eigenvectors trained on loss_1-10.

    Args:
        figures: 1, 2 and 15.
        layers: numbers of layers.
        seeds: number of seeds.
        recipe: key of `RECIPES`.
        centred_maps: maps whose demands sum to 0.
        frozen: see `Point`; for figure 1.
    """
    for seed in range(seeds):
        for figure in figures:
            curves = [] if figure == 2 else [(target, 0) for target in MAPS]
            curves += {1: [], 2: [("eigenvectors", 5), ("eigenvectors", 10)], 15: [("eigenvectors", 10)]}[figure]
            for target, number in curves:
                for family in FAMILIES:
                    for num_layers in layers:
                        centred = bool(number) or target in centred_maps
                        stack = frozen and figure == 1
                        yield Point(figure, family, target, number, num_layers, seed, recipe, centred, stack)
