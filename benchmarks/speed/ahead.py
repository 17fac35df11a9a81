"""What is compiled before anybody is measured, some at a time: a case is then measured in seconds, not in minutes.

Kernels of ours are lowered in processes beside. Those who compile for a minute do so beforehand, in processes of their
own that measure nothing, for the machine code that Triton keeps on disk; only FlexAttention, which tries no ways out,
finds all else there, too. What others find by measuring they find when they have the device for themselves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from speed.cases import Case
from speed.kernels import PEERS, SLOW

TRIES_NOTHING = ("FlexAttention",)
"""Of those who compile for a minute, who takes the same way whatever is measured meanwhile."""
WARM_LIMIT = 150
"""Seconds for all of them together."""


@dataclass(frozen=True)
class Lowered:
    """What a process needs to launch a program: its host code as text, the CUDA C, and the names of its kernels."""

    module: str
    cuda: str
    kernels: tuple[str, ...]
    arch: str


def lower(case: Case, machine: str) -> Lowered:
    from treadle.compiler.machines import load_machine
    from treadle.compiler.pipeline import Options, print_cuda, run_pipeline
    from treadle.compiler.source import parse_module
    from treadle.dialects.cuda import kernel_names

    module = parse_module(case.program)
    run_pipeline(module, Options(machine, sizes=case.open_sizes))
    return Lowered(str(module), print_cuda(module), tuple(kernel_names(module)), load_machine(machine).arch)


class Ahead:
    """Lowers cases in other processes, in the order in which they are asked for."""

    def __init__(self, cases: Sequence[Case], machine: str):
        self._pool = ProcessPoolExecutor(max(1, min(6, (os.cpu_count() or 2) // 2)))
        self._found: dict[str, Future[Lowered]] = {str(each): self._pool.submit(lower, each, machine) for each in cases}

    def __getitem__(self, case: Case) -> Lowered | None:
        """None if it failed: then who measures finds out why."""
        try:
            return self._found[str(case)].result()
        except Exception:
            return None

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


# -- those who compile for a minute -------------------------------------------------------------------


@dataclass(frozen=True)
class Warming:
    """A case, and one who compiles for it."""

    case: Case
    who: str


def warmings(cases: Sequence[Case]) -> list[Warming]:
    """What is compiled beforehand; our kernel in Triton is one for all lengths of a width."""
    found: dict[tuple[str, ...], Warming] = {}
    for case in cases:
        for who in (each for each in SLOW if each in PEERS[case.kind]):
            alike = (
                (who, case.kind, str(case.sizes.get("d")))
                if who == "Triton" and "d" in case.sizes
                else (who, str(case))
            )
            found.setdefault(alike, Warming(case, who))
    return list(found.values())


@contextmanager
def caches() -> Iterator[Path]:
    """Where Triton and PyTorch's compiler keep what they make, for this process and those it begins."""
    with tempfile.TemporaryDirectory(prefix="speed-") as folder:
        before = dict(os.environ)
        os.environ |= {"TRITON_CACHE_DIR": f"{folder}/triton", "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor"}
        try:
            yield Path(folder)
        finally:
            for name in ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"):
                os.environ.pop(name)
                if name in before:
                    os.environ[name] = before[name]


def warm(cases: Sequence[Case], script: Path, folder: Path, until: float) -> None:
    """Let each compile for its cases; who is not done in time does it again when it is measured."""
    wanted = warmings(cases)
    alike = [each for each in wanted if each.who in TRIES_NOTHING]
    others = [each for each in wanted if each.who not in TRIES_NOTHING]
    workers = max(2, (os.cpu_count() or 2) * 3 // 4)
    share = max(1, round(workers * len(alike) / max(1, len(wanted)))) if alike else 0
    groups = [(alike[i::share], folder / "inductor") for i in range(share)]
    groups += [(others[i :: workers - share], folder / f"inductor-{i}") for i in range(workers - share)]
    running: list[subprocess.Popen[bytes]] = []
    for group, inductor in groups:
        if not group:
            continue
        environment = os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(inductor), "TORCHINDUCTOR_COMPILE_THREADS": "2"}
        command = [sys.executable, str(script), "--warm", json.dumps([[each.who, str(each.case)] for each in group])]
        running.append(subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    end = min(until, monotonic() + WARM_LIMIT)
    for process in running:
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, end - monotonic()))
        process.kill()
        process.wait()


def warm_here(told: str) -> None:
    """What a process that was begun for it does: each once, without a time."""
    from speed.cases import cases
    from speed.kernels import free_memory, inputs_of, prepare_torch

    known = {str(case): case for case in cases(quick=False)}
    for who, name in json.loads(told):
        with suppress(Exception):
            prepare_torch(known[name], inputs_of(known[name]), who).call()
        free_memory()
