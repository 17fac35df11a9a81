"""Ten thousand random programs through every prefix of the pipeline, each run at every level after every pass that
changed it (tests/random_prefixes.py); or programs of products (tests/random_products.py), whose kernels run as they are
at last. Failures are made small and kept as files.

python benchmarks/random_programs.py [--kind any|products] [--first N] [--count N] [--workers N] [--failures FOLDER]
    [--resume RECORD]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from time import perf_counter
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import results

ROOT = Path(__file__).resolve().parent.parent
BLOCK = 50
"""Seeds a process: long enough for what it imports, short enough for the kernels that it loads."""


def block(first: int, count: int, kind: str, caches: SimpleQueue[Path]) -> dict[str, Any]:
    """What became of the programs of some seeds, compiled into a cache that nobody else uses meanwhile."""
    cache = caches.get()
    try:
        clear(cache)
        return outcome_of(first, count, kind, cache)
    finally:
        caches.put(cache)


def outcome_of(first: int, count: int, kind: str, cache: Path) -> dict[str, Any]:
    """A process that dies is a failure of its own."""
    environment = {**os.environ, "TREADLE_CACHE": str(cache), "TREADLE_CACHE_LIMIT": str(2**27)}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), environment.get("PYTHONPATH", "")])
    command = [sys.executable, str(ROOT / "tests" / "random_prefixes.py"), str(first), str(count), kind]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    try:
        return json.loads(done.stdout)
    except json.JSONDecodeError:
        said = done.stderr.strip()[-2000:]
        trouble = f"one of {count} from here on: the process ended with {done.returncode}: {said}"
        return {"tally": {}, "failed": [{"seed": first, "trouble": trouble, "small": ""}]}


def clear(cache: Path) -> None:
    """No kernel is met again in another block, and whenever one is made, all that are kept are looked through."""
    for kernel in cache.glob("emulator/*.so*"):
        kernel.unlink()


def keep(found: dict[str, Any], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"seed_{found['seed']}.mlir"
    told = "".join(f"// {line}\n" for line in found["trouble"].splitlines())
    file.write_text(f"// seed {found['seed']}\n{told}{found['small']}\n", encoding="utf-8")
    print(f"seed {found['seed']}: {found['trouble'][:300]}\n  {file}", flush=True)


@dataclass
class Record:
    """What is known of a run so far, kept so that one that is broken off can be gone on with."""

    first: int
    seeds: int
    kind: str = "any"
    tried: int = 0
    commits: list[str] = field(default_factory=list[str])
    failed: list[int] = field(default_factory=list[int])
    seconds: float = 0.0
    worked: float = 0.0
    ran: Counter[str] = field(default_factory=Counter[str])

    @classmethod
    def kept(cls, file: Path) -> Record:
        data = json.loads(file.read_text(encoding="utf-8"))
        ran = Counter[str](data["ran"])
        names = ("first", "seeds", "tried", "failed", "seconds", "worked")
        more = {"kind": data.get("kind", "any"), "commits": data.get("commits", [])}
        return cls(**{name: data[name] for name in names}, **more, ran=ran)

    def keep(self, since: float) -> Path:
        now = commit()
        data = {
            "kind": self.kind,
            "first": self.first,
            "seeds": self.seeds,
            "tried": self.tried,
            "commits": [*self.commits, *([now] if now not in self.commits else [])],
            "failed": sorted(self.failed),
            "seconds": round(self.seconds + perf_counter() - since),
            "worked": round(self.worked + sum(os.times()[2:4])),
            "ran": dict(sorted(self.ran.items())),
        }
        return results.write("random-programs" if self.kind == "any" else f"random-{self.kind}", data)


def commit() -> str:
    """Of the compiler that is tried, `-dirty` where anything but results is another; `unknown` outside of a clone."""
    try:
        name = git("describe", "--always")
        changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":(exclude)benchmarks/results")
    except OSError:
        return "unknown"
    return f"{name}-dirty" if name and changed else name or "unknown"


def git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=["any", "products"], default="any", help="what the programs are made of")
    parser.add_argument("--first", type=int, default=24, help="the first seed (24: those before are the daily sample)")
    parser.add_argument("--count", type=int, default=10_000, help="how many seeds")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--failures", type=Path, default=Path("random-failures"), help="where small programs go")
    parser.add_argument(
        "--resume", type=Path, metavar="RECORD", help="the record of a run to go on with, seeds and all"
    )
    given = parser.parse_args()
    known = Record.kept(given.resume) if given.resume else Record(given.first, given.count, given.kind)
    start, end = perf_counter(), known.first + known.seeds
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(given.workers) as pool:
        caches: SimpleQueue[Path] = SimpleQueue()
        for worker in range(given.workers):
            caches.put(Path(folder) / str(worker))
        starts = range(known.first + known.tried, end, BLOCK)
        blocks = [pool.submit(block, first, min(BLOCK, end - first), known.kind, caches) for first in starts]
        for done, (first, future) in enumerate(zip(starts, blocks, strict=True), 1):
            outcome = future.result()
            known.tried = min(first + BLOCK, end) - known.first
            known.ran.update(outcome["tally"])
            known.failed += [found["seed"] for found in outcome["failed"]]
            for found in outcome["failed"]:
                keep(found, given.failures)
            if done % 10 == 0:
                known.keep(start)
                took = f"{perf_counter() - start:.0f} s"
                print(f"{known.tried} of {known.seeds}, {len(known.failed)} failed, {took}", flush=True)
    print(known.keep(start))
    return 1 if known.failed else 0


if __name__ == "__main__":
    sys.exit(main())
