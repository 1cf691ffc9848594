"""Sample many parametric solids at once: a cross-section swept along a profile, with random shapes.

A family is a section and a profile, 6 x 6 = 36 in all. A point of the surface has an angle t and a height h in -1..1:

    (x, y) = s(h) r(t) (cos(t + w h), sin(t + w h)),    z = h,

where r is the section, s the profile and w a twist; a ring is bent around instead, with its section as the tube:

    (x, y) = (1 + q r(t) cos t) (cos p, sin p),    z = q r(t) sin t.

Sections: round r = 1; regular polygons of 3, 4 and 6 sides whose corners are more or less rounded; five and four lobes
r = 1 + a cos(5 t), r = 1 + a cos(4 t). Profiles: straight s = 1; tapering s = 1 - a (h + 1) / 2; bulging
s = 1 - a h^2; waisted s = 1 - a (1 - h^2); closing to both ends like a ball, s = (1 - h^2)^a; and the ring. All
families share random variations: a slant and a bend of the axis, stretching along all three axes, a turn about z, noise
on points and normals. Their distributions are symmetric under reflection, so a model that is invariant to it loses
nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphbench.benchmarks.points.meshes import Clouds, Floats, sample_surfaces, to_unit_sphere
from graphbench.data.worker_pool import random_state

SECTIONS = ("round", "triangular", "square", "hexagonal", "five-lobed", "four-lobed")
PROFILES = ("straight", "tapering", "bulging", "waisted", "ball", "ring")
NUM_FAMILIES = len(SECTIONS) * len(PROFILES)
RING = PROFILES.index("ring")
_SIDES = {1: 3, 2: 4, 3: 6}  # section number -> sides of the polygon
_LOBES = {4: 5, 5: 4}  # section number -> lobes
_AROUND, _ALONG = 60, 24  # vertices of the mesh in angle and height; 60 has a vertex at every corner


@dataclass(frozen=True)
class SolidSettings:
    """Variation of the solids of one family.

    Args:
        num_points: points per solid.
        stretch: every axis is stretched by a factor between 1 / stretch and stretch, log-uniform.
        point_noise: standard deviation of the noise on points, in radii of the solid.
        normal_noise: standard deviation of the noise on normals, per coordinate, before they are normalised.
        seed: seed of all random numbers.
    """

    num_points: int = 1_024
    stretch: float = 1.8
    point_noise: float = 0.02
    normal_noise: float = 0.15
    seed: int = 0


@dataclass(frozen=True)
class SolidChunk:
    """A job: solids of families `[S]` (section times 6 plus profile); `number` has further seeds."""

    families: np.ndarray
    settings: SolidSettings
    number: tuple[int, ...] = ()


def sample_solids(chunk: SolidChunk) -> Clouds:
    """Sample points and normals of the solids of a job, centred, with radius 1; float16."""
    settings = chunk.settings
    generator = random_state(settings.seed, *chunk.number)
    corners = _triangles(_vertices(chunk.families, settings, generator), chunk.families % len(PROFILES) == RING)
    owner = np.repeat(np.arange(len(chunk.families)), corners.shape[1])
    points, normals, _ = sample_surfaces(corners.reshape(-1, 3, 3), owner, settings.num_points, generator)
    points = to_unit_sphere(points)  # scaled before, so that the noise has the same size in all solids
    points = to_unit_sphere(points + settings.point_noise * generator.standard_normal(points.shape))
    normals = normals + settings.normal_noise * generator.standard_normal(normals.shape)
    normals /= np.linalg.norm(normals, axis=-1, keepdims=True)
    return Clouds(points.astype(np.float16), normals.astype(np.float16), chunk.families.astype(np.uint8))


def _vertices(families: np.ndarray, settings: SolidSettings, generator: np.random.RandomState) -> Floats:
    """Compute the grid of the surface `[S, along, around, 3]`."""
    section, profile = np.divmod(families, len(PROFILES))
    count, shape = len(families), (len(families), _ALONG, _AROUND)
    angle = 2 * np.pi * np.arange(_AROUND) / _AROUND
    radius = _section(section, angle, generator)[:, None]
    height = np.linspace(-1, 1, _ALONG)
    draw = generator.uniform
    scale = _profile(profile, height, generator)[:, :, None]
    turned = angle + draw(-0.4, 0.4, (count, 1, 1)) * height[:, None]
    far, lift = scale * radius, np.broadcast_to(height[:, None], shape)
    swept = np.stack([far * np.cos(turned), far * np.sin(turned), lift], axis=-1)
    tube, around = draw(0.25, 0.5, (count, 1, 1)), np.pi * (height[:, None] + 1)
    phase = angle + draw(0, 2 * np.pi, (count, 1, 1))  # phase of the tube
    far = 1 + tube * radius * np.cos(phase)
    lift = np.broadcast_to(tube * radius * np.sin(phase), shape)
    ring = np.stack([far * np.cos(around), far * np.sin(around), lift], axis=-1)
    surface = np.where((profile == RING)[:, None, None, None], ring, swept)
    z = surface[..., 2]
    slant, bend = draw(-0.25, 0.25, (2, count, 1, 1, 2))
    surface[..., :2] += slant * z[..., None] + bend * z[..., None] ** 2
    stretch = np.exp(np.log(settings.stretch) * draw(-1, 1, (count, 1, 1, 3)))
    turn = draw(0, 2 * np.pi, (count, 1, 1))
    x, y, z = np.moveaxis(surface * stretch, -1, 0)
    return np.stack([x * np.cos(turn) - y * np.sin(turn), x * np.sin(turn) + y * np.cos(turn), z], axis=-1)


def _section(section: np.ndarray, angle: np.ndarray, generator: np.random.RandomState) -> Floats:
    """Compute the radius at every angle `[S, around]`."""
    rounding = generator.uniform(0.0, 0.4, (len(section), 1))
    lobe = generator.uniform(0.12, 0.3, (len(section), 1))
    radius = np.ones((len(section), len(angle)))
    for number, sides in _SIDES.items():
        polygon = np.cos(np.pi / sides) / np.cos(angle % (2 * np.pi / sides) - np.pi / sides)
        radius = np.where((section == number)[:, None], (1 - rounding) * polygon + rounding * polygon.mean(), radius)
    for number, lobes in _LOBES.items():
        radius = np.where((section == number)[:, None], 1 + lobe * np.cos(lobes * angle), radius)
    return radius


def _profile(profile: np.ndarray, height: np.ndarray, generator: np.random.RandomState) -> Floats:
    """Compute the scale at every height `[S, along]`; 1 for rings."""
    amount = generator.uniform(0.25, 0.6, (len(profile), 1))
    choices = [
        np.ones((len(profile), len(height))),
        1 - amount * (height + 1) / 2,
        1 - amount * height**2,
        1 - amount * (1 - height**2),
        np.clip(1 - height**2, 0, None) ** amount,
        np.ones((len(profile), len(height))),
    ]
    return np.choose(profile[:, None], choices)


def _triangles(vertices: Floats, is_ring: np.ndarray) -> Floats:
    """Return the corners of all triangles `[S, T, 3, 3]`: two per cell of the grid, and fans that close the ends.

    A ring is closed without fans, so its fans have no area.
    """
    following = np.roll(vertices, -1, axis=2)
    lower, upper = vertices[:, :-1], vertices[:, 1:]
    lower_next, upper_next = following[:, :-1], following[:, 1:]
    sides = np.concatenate(
        [np.stack([lower, lower_next, upper_next], axis=-2), np.stack([lower, upper_next, upper], axis=-2)], axis=1
    )
    # the grid of a ring has the opposite orientation
    sides = np.where(is_ring[:, None, None, None, None], sides[..., ::-1, :], sides)
    fans = []
    for end, order in ((0, (0, 2, 1)), (-1, (0, 1, 2))):
        middle = np.broadcast_to(vertices[:, end].mean(1, keepdims=True), vertices[:, end].shape)
        fan = np.stack([middle, vertices[:, end], following[:, end]], axis=-2)[:, :, list(order)]
        fans.append(np.where(is_ring[:, None, None, None], middle[:, :, None], fan))
    count = len(vertices)
    return np.concatenate([sides.reshape(count, -1, 3, 3), *fans], axis=1)
