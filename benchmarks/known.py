"""What results hold already of a device, so that a run may begin with what nobody measured."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import results

OURS = "treadle"


def folders() -> list[Path]:
    """Where results are kept, and where this run writes them."""
    return list(dict.fromkeys((results.KEPT, results.RESULTS)))


def speeds(device: str) -> set[str]:
    """The cases of which there is a time of ours."""
    return {
        row["case"]
        for data in _files("gpu", device)
        for row in data.get("speed", ())
        if any(each["who"] == OURS and "seconds" in each for each in row.get("kernels", ()))
    }


def predicted(device: str) -> Counter[str]:
    """How many rows of `treadle bench predict` there are of each program, each set of sizes once."""
    rows = {
        (row["program"], tuple(sorted(row["sizes"].items())))
        for data in _files("*predict*", device)
        for row in data.get("rows", ())
    }
    return Counter(program for program, _ in rows)


def checked(device: str) -> set[tuple[str, str]]:
    """What compute-sanitizer found nothing in: the command, and a digest of the code that ran."""
    return {
        (row["what"], row["code"])
        for data in _files("gpu", device)
        for row in data.get("sanitizer", ())
        if isinstance(row, dict) and row.get("ok") and row.get("code")
    }


def taken_apart(device: str) -> set[str]:
    """The programs of which there are times without passes."""
    return {
        case
        for data in _files("ablation", device)
        for case, found in data.get("cases", {}).items()
        if any("seconds" in each for each in found.get("ways", {}).values())
    }


def _files(what: str, device: str) -> Iterator[Any]:
    """Of a device: another of its kind, or another day, counts as well."""
    for folder in folders():
        for path in sorted(folder.glob(f"{what}-{results.slug(device)}-*.json")):
            try:
                yield json.loads(path.read_text(encoding="utf-8"))
            except ValueError:
                continue  # cut off: as if it were not there


def programs_in(path: Path) -> set[str]:
    """Those of which a file of predictions has rows."""
    try:
        return {row["program"] for row in json.loads(path.read_text(encoding="utf-8"))["rows"]}
    except (OSError, ValueError, KeyError):
        return set()


def first_unknown(names: Sequence[str], known: Counter[str]) -> list[str]:
    """Those of which least is known first; else in their order."""
    return sorted(names, key=lambda name: known[name])
