"""Run bundles of units as Ray tasks: on the cluster running here or in RAY_ADDRESS, else on this machine.

Ray restarts a task if its worker or machine is lost; the bundle then continues with the units that have not succeeded,
and these resume.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphbench.experiments.launchers.units import Bundle

#: How often a task is restarted; tasks that fail by themselves are not.
_RESTARTS = 100


class RayJob:
    """A task, given by the reference of its result, with the interface of submitit jobs that launchers use."""

    def __init__(self, reference: Any) -> None:
        self._reference = reference
        self.job_id: str = reference.hex()

    def done(self) -> bool:
        """Return whether it has finished, successfully or not."""
        import ray

        return bool(ray.wait([self._reference], timeout=0)[0])

    def cancel(self) -> None:
        """Stop it as with Ctrl-C, so that its command writes a checkpoint, and wait for that."""
        import ray

        ray.cancel(self._reference)
        ray.wait([self._reference], timeout=60)


class RayExecutor:
    """Submit bundles to Ray, which starts them as tasks with this name when there is room."""

    def __init__(self, name: str, cpus: int = 1, gpus: int = 0) -> None:
        import ray

        if not ray.is_initialized():
            ray.init(log_to_driver=False, include_dashboard=False, logging_level="ERROR")
        self._options = {"name": name, "num_cpus": cpus, "num_gpus": gpus, "max_retries": _RESTARTS}

    def submit(self, bundle: Bundle) -> RayJob:
        """Submit a bundle to Ray."""
        import ray

        return RayJob(ray.remote(_run).options(**self._options).remote(bundle))


def _run(bundle: Bundle) -> list[str]:
    return bundle()
