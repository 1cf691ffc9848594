"""An instance of TSP as its authors wrote it."""


def line_of(points, tour):
    """Return the published form: coordinates, the word, the tour from 1 and back to its start, a trailing blank."""
    coordinates = " ".join(f"{value:.16f}" for value in points.reshape(-1))
    return f"{coordinates} output {' '.join(str(point + 1) for point in [*tour, tour[0]])} \n"
