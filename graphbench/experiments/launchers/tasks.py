"""Run bundles of units as tasks of Ray: of the cluster that runs here or in RAY_ADDRESS, else of this machine.

Ray starts a task again when its worker or machine is gone; the bundle then goes on with the units that have not ended
well, and these where they were cut off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphbench.experiments.launchers.units import Bundle

#: How often a task is started again; what fails by itself is not.
_RESTARTS = 100


class RayJob:
    """A task, by the reference of its result, with what launchers use of a job of submitit."""

    def __init__(self, reference: Any) -> None:
        self._reference = reference
        self.job_id: str = reference.hex()

    def done(self) -> bool:
        """Return whether it has ended, well or not."""
        import ray

        return bool(ray.wait([self._reference], timeout=0)[0])

    def cancel(self) -> None:
        """End it as by Ctrl-C, so that what it runs writes its checkpoint, and wait for that."""
        import ray

        ray.cancel(self._reference)
        ray.wait([self._reference], timeout=60)


class RayExecutor:
    """Submits bundles to Ray, which starts them as tasks of this name where there is room."""

    def __init__(self, name: str, cpus: int = 1, gpus: int = 0) -> None:
        import ray

        if not ray.is_initialized():
            ray.init(log_to_driver=False, include_dashboard=False, logging_level="ERROR")
        self._options = {"name": name, "num_cpus": cpus, "num_gpus": gpus, "max_retries": _RESTARTS}

    def submit(self, bundle: Bundle) -> RayJob:
        """Hand a bundle to Ray."""
        import ray

        return RayJob(ray.remote(_run).options(**self._options).remote(bundle))


def _run(bundle: Bundle) -> list[str]:
    return bundle()
