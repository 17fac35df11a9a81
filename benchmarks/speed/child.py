"""A process that measures one case after another, as it is told: to begin one takes longer than to measure."""

from __future__ import annotations

from contextlib import suppress
from multiprocessing.connection import Connection

from speed import kernels
from speed.clock import cuda_timer
from speed.measured import measure_one_case
from speed.news import Job


def serve(connection: Connection) -> None:
    """Until there is no more to do; a device that does nothing more after a fault is the end, too."""
    from treadle.runtime.gpu import driver

    device, timer = driver().Context.get_device().name(), cuda_timer()
    with suppress(kernels.NotHere):
        kernels.pytorch()  # which takes long to import: that is not held against who is prepared first
    while (job := _next(connection)) is not None:
        measure_one_case(job, device, timer, connection.send, driver().Context.synchronize)
        kernels.free_memory()


def _next(connection: Connection) -> Job | None:
    try:
        return connection.recv()
    except EOFError:
        return None
