"""In what state the device was: its clock and its power, which nvidia-smi notes all the while."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
from datetime import datetime
from threading import Thread
from typing import IO

QUERY = ("--query-gpu=timestamp,clocks.sm,power.draw", "--format=csv,noheader,nounits", "-lms", "200")


class Conditions:
    """Notes them while it is entered; nothing where there is no nvidia-smi."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._rows: list[tuple[float, float, float]] = []

    def __enter__(self) -> Conditions:
        if (tool := shutil.which("nvidia-smi")) is not None:
            device = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0] or "0"
            command = [tool, f"--id={device}", *QUERY]
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            assert self._process.stdout is not None
            Thread(target=self._read, args=(self._process.stdout,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _read(self, lines: IO[str]) -> None:
        for line in lines:
            try:
                told, clock, watts = line.split(", ")
                when = datetime.strptime(told, "%Y/%m/%d %H:%M:%S.%f").timestamp()
                self._rows.append((when, float(clock), float(watts)))
            except ValueError:
                continue  # what a device does not tell, or what went wrong

    def during(self, span: tuple[float, float] | None) -> dict[str, float]:
        """Their medians, as far as they are known."""
        begin, end = span or (0.0, 0.0)
        rows = [row for row in tuple(self._rows) if begin <= row[0] <= end]
        if not rows:
            return {}
        _, clocks, watts = zip(*rows, strict=True)
        return {"clock MHz": statistics.median(clocks), "watts": round(statistics.median(watts), 1)}
