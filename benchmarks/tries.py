"""Ways to make a kernel that somebody wonders about, beside each other on a GPU: what docs/limits.md calls not
measured.

    python benchmarks/tries.py --list
    python benchmarks/tries.py [--cases PATTERN] [--minutes N]
    python benchmarks/tries.py --prepare h200 --archive tries.tar.xz [--cases PATTERN]
    python benchmarks/tries.py --prepared tries.tar.xz --minutes 13

The questions are data (`questions.py`): a case, ways to make its kernels, which are options of passes and passes that
are left out, and who else is measured beside them. All ways of a question run on the same arrays. First each result is
compared with that of the first way, which is the pipeline's own; then all are measured in turns, 9 rounds in random
orders, each a sample of 30 ms right behind as many that are not timed. A way that is refused, prints the same code as
one before, or is wrong, is told with its reason and not measured; none stops the others.

On a machine without a GPU it says so, claims nothing and writes nothing. Some questions at a time are compiled, with as
many processes as there are cores, and then measured while nothing else runs. `--prepare` compiles them beforehand,
without a GPU, into the cache ($TREADLE_CACHE), and packs it into a file for `--prepared`. The result is written anew
after each question, to `benchmarks/results` or $TREADLE_RESULTS; a second run of a day has `-2` in its name."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import ablation
import carried
import checks
import preparing
import results
from questions import Changes, Question, questions
from ways import OWN, Way, kept_path, kept_ways, make_way, reason

if TYPE_CHECKING:
    from speed.found import Found


def main(arguments: Sequence[str] | None = None) -> int:
    parsed = _parser().parse_args(arguments)
    chosen = [each for each in questions() if re.search(parsed.cases, str(each))]
    if parsed.list:
        print("\n\n".join(map(told, chosen)))
        return 0
    if parsed.prepare:
        capability = preparing.capability_of(parsed.prepare)
        return prepare(chosen, parsed.prepare, capability, parsed.workers, parsed.archive)[1]
    from treadle.runtime.gpu import missing_for_gpu

    if (missing := missing_for_gpu()) is not None:
        print(f"{missing}: nothing was measured")
        return 0
    if parsed.prepared:
        carried.unpack(parsed.prepared)
    return Run(parsed.workers, monotonic() + 60 * parsed.minutes).all(chosen)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print the questions and their ways, and do nothing")
    parser.add_argument(
        "--cases",
        metavar="PATTERN",
        default="",
        help="only questions that hold this regular expression, in their words or the names of their cases",
    )
    parser.add_argument("--minutes", type=float, default=checks.FOREVER, help="begin nothing after so many")
    parser.add_argument(
        "--workers", type=int, default=os.cpu_count() or 1, help="processes that compile (default: one a core)"
    )
    parser.add_argument(
        "--prepare", metavar="MACHINE", help="compile what would be measured there, and measure nothing"
    )
    parser.add_argument("--archive", type=Path, metavar="FILE", help="with --prepare: pack it, as tries.tar.xz")
    parser.add_argument("--prepared", type=Path, metavar="FILE", help="such a file: unpack it first")
    return parser


def told(question: Question) -> str:
    machine = f", for {question.machine}" if question.machine else ""
    beside = [f"    beside {', '.join(question.beside)}"] if question.beside else []
    ways = [f"    {label}{_unless(label, changes)}" for label, changes in every(question)]
    return "\n".join([question.asked, f"  {question.case}{machine}", *ways, *beside])


def _unless(label: str, changes: Changes) -> str:
    """What is changed, unless the label says it."""
    return f": {changes}" if str(changes) not in ("", label) else ""


def every(question: Question) -> Iterator[tuple[str, Changes]]:
    """Its ways, the pipeline's own first."""
    yield OWN, Changes()
    yield from question.ways.items()


# -- compiling -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Try:
    """One way of a question, made for a machine: kept in the cache."""

    question: Question
    label: str
    changes: Changes
    machine: str

    @property
    def path(self) -> Path:
        return kept_path(self.question.case, self.machine, f"{self.label}: {self.changes}")

    def way(self) -> Way:
        """Or why there is none."""
        (way,) = kept_ways(self.path, lambda: [self._made()])
        return way

    def _made(self) -> Way:
        from treadle.compiler.pipeline import Options, pipeline

        case = self.question.case
        try:
            passes = self.changes.applied(pipeline(Options(self.machine, sizes=case.open_sizes)))
            return make_way(case, self.label, passes)
        except Exception as error:  # options that no pass has, or whatever goes wrong: the others are made all the same
            return Way(self.label, refused=reason(error))

    def cuda(self) -> str:
        return self.way().cuda

    def __str__(self) -> str:
        return f"{self.question.case}, {self.label}"


def tries_of(question: Question, machine: str) -> list[Try]:
    return [Try(question, label, changes, question.machine or machine) for label, changes in every(question)]


def made(tries: Sequence[Sequence[Try]], workers: int) -> list[list[Way]]:
    """The ways of each question, some made at a time; told as they come."""
    with ProcessPoolExecutor(workers) as pool:
        found = iter(pool.map(Try.way, [each for several in tries for each in several]))
        return [_told_of(several[0].question, told_apart([next(found) for _ in several])) for several in tries]


def _told_of(question: Question, found: list[Way]) -> list[Way]:
    refused = [f"    {each.what}: {each.refused}" for each in found if each.refused]
    print("\n".join([f"{len(found) - len(refused)} ways of {question.case}", *refused]), flush=True)
    return found


def told_apart(found: Sequence[Way]) -> list[Way]:
    """A way that prints the same code as one before is none."""
    first: dict[str, str] = {}
    for each in found:
        if not each.refused:
            first.setdefault(each.cuda, each.what)
    same = {each.what: first.get(each.cuda, each.what) for each in found}
    return [
        each if same[each.what] == each.what else replace(each, refused=f"it prints the same as '{same[each.what]}'")
        for each in found
    ]


def prepare(
    chosen: Sequence[Question],
    machine: str,
    capability: tuple[int, int],
    workers: int,
    archive: Path | None = None,
) -> tuple[list[list[Way]], int]:
    """The ways of each question, whose machine code is in the cache then, and packed into a file, if one is named; 1 if
    nvcc refuses something."""
    tries = [tries_of(each, machine) for each in chosen]
    ways = made(tries, workers)
    every_try, every_way = chain.from_iterable(tries), chain.from_iterable(ways)
    wanted = [each for each, way in zip(every_try, every_way, strict=True) if not way.refused]
    kept = [file for each in chain.from_iterable(tries) for file in carried.with_checksum(each.path)]
    return ways, preparing.prepare(capability, workers, wanted, archive, kept)


# -- measuring -----------------------------------------------------------------------------------------


class Run:
    """What is known of all questions, written down each time that there is more. It uses the device itself nowhere."""

    def __init__(self, workers: int, until: float):
        from speed.conditions import Conditions

        from treadle.runtime.gpu_facts import gpus

        gpu = gpus()[0]
        self._device, self._capability = gpu.name, gpu.capability
        self._machine = preparing.machines_for(preparing.machine_of_device(gpu.name), gpu.capability)[0]
        self._workers, self._until = workers, until
        self._conditions = Conditions()
        self._ended: list[checks.Done] = []
        self.data: dict[str, Any] = {"cases": {}, "not begun": [], "failed": []}
        os.environ[results.LABEL] = results.free_label(self._device, os.environ.get(results.LABEL, ""))

    def all(self, chosen: Sequence[Question]) -> int:
        """0 if nothing stopped a process that measured; what was refused or wrong is said in the file."""
        from speed.watch import Watch

        self.data["not begun"] = [str(each.case) for each in chosen]
        path = self._keep()
        command = ablation.child_command
        with self._conditions, closing(Watch(command, self._until, self._found, self._end)) as watch:
            for some in batches(chosen, self._workers):
                if monotonic() >= self._until:
                    break
                found, _ = prepare(some, self._machine, self._capability, self._workers)
                for question, ways in zip(some, found, strict=True):
                    if monotonic() < self._until:
                        self._measure(question, ways, watch)
        print(f"written to {path}")
        return 0 if all(each.ok for each in self._ended) else 1

    def _measure(self, question: Question, ways: Sequence[Way], watch: Any) -> None:
        from speed.news import Job

        case = str(question.case)
        self.data["not begun"].remove(case)
        self.data["cases"][case] = {
            "asked": question.asked,
            "for": question.machine or self._machine,
            "changes": {label: str(changes) for label, changes in question.ways.items()},
            "refused": {each.what: each.refused for each in ways if each.refused},
            "model us": {each.what: each.model_us for each in ways if each.model_us is not None},
        }
        lowered = {each.what: each.lowered for each in ways if not each.refused}
        if lowered:
            watch.measure(Job(question.case, ways=lowered, beside=question.beside))
        self._keep()
        rows = ablation.measured_rows(self.data["cases"][case])
        print(f"{question.asked}\n{results.table(ablation.MEASURED_HEAD, rows)}", flush=True)

    def _found(self, found: Found, whole: bool) -> None:
        self.data["cases"][str(found.case)] |= ablation.as_json(found, self._conditions)
        self._keep()

    def _end(self, done: checks.Done) -> None:
        self._ended.append(done)
        print(done.told(), flush=True)

    def _keep(self) -> Path:
        self.data["failed"] = [each.as_json() for each in self._ended if not each.ok]
        return results.write("tries", self.data, self._device)


def batches(chosen: Sequence[Question], workers: int) -> Iterator[list[Question]]:
    """So many questions together that every process has something to compile."""
    some: list[Question] = []
    for each in chosen:
        some.append(each)
        if sum(len(question.ways) + 1 for question in some) >= workers:
            yield some
            some = []
    if some:
        yield some


if __name__ == "__main__":
    sys.exit(main())
