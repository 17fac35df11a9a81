"""`treadle bench predict`: predictions held against what a GPU does. Without one it says so, and claims nothing."""

from __future__ import annotations

import json
from argparse import Namespace
from datetime import date
from math import inf
from pathlib import Path
from typing import Any

from treadle.compiler.bench.predict import Row, compare, summary
from treadle.compiler.bench.rates import Rates
from treadle.compiler.errors import TreadleError
from treadle.compiler.explain.text import aligned, sizes_text
from treadle.compiler.files import check_output, write_whole
from treadle.compiler.machines import Machine, load_machine
from treadle.compiler.progress import progress

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PROGRAMS = ("attention", "attention_bf16", "matmul", "matmul_epilogue", "softmax", "sin2cos2", "rms_norm")
RESULTS = Path("benchmarks/results")


def command(arguments: Namespace) -> int:
    files = _files(arguments.files)
    machine = load_machine(arguments.machine) if arguments.machine else None
    check_output(arguments.output)
    if arguments.minutes is not None and not arguments.minutes > 0:
        raise TreadleError(f"--minutes is {arguments.minutes:g}: give a positive number of minutes")
    from treadle.runtime.gpu import missing_for_gpu

    if (missing := missing_for_gpu()) is not None:
        raise TreadleError(f"{missing}; nothing was measured, and nothing is claimed")
    from treadle.compiler.bench.gpu import Gpu

    device = Gpu()
    machine = machine or machine_called(device.name)
    path = arguments.output or str(_kept(device.name))
    rates, rows = None, list[Row]()
    text = ""
    with progress("measuring"):
        for found in compare(files, machine, device, arguments.minutes or inf):
            if isinstance(found, Row):
                rows.append(found)
            else:
                rates = found
            text = written_text(device.name, machine, rates, rows)
            write_whole(path, text)  # after each, so that nothing is lost
    print(text if arguments.json else "\n".join([*rows_text(rows), summary(rows), f"written to {path}"]))
    return 0


def written_text(device: str, machine: Machine, rates: Rates | None, rows: list[Row]) -> str:
    """What is kept of a run, as JSON."""
    data: dict[str, Any] = {
        "what": "predict",
        "machine": device,
        "model": machine.name,
        "date": date.today().isoformat(),
        "rates": None if rates is None else rates.as_dict(),
        "summary": summary(rows),
        "rows": [row.as_dict() for row in rows],
    }
    return json.dumps(data, indent=2) + "\n"


def machine_called(device: str) -> Machine:
    """The machine file that describes a device, by the name that its driver gives (TreadleError)."""
    for part, name in (
        ("H200", "h200"),
        ("H100 NVL", "h100-nvl"),
        ("H100 PCIe", "h100-pcie"),
        ("H100", "h100"),
        ("A100-PCIE", "a100-pcie"),
        ("A100 80GB PCIe", "a100-pcie"),
        ("A100-SXM4-40GB", "a100-40gb"),
        ("A100", "a100"),
    ):
        if part in device:
            return load_machine(name)
    raise TreadleError(f"no machine file describes '{device}': name one, as --machine h100, or a .toml file")


def rows_text(rows: list[Row]) -> list[str]:
    head = ("program", "sizes", "predicted us", "measured us", "off by", "why")
    cells = [
        (
            row.program,
            sizes_text(row.sizes),
            f"{row.predicted_us:.4g}",
            f"{row.measured_us:.4g}",
            f"{row.error:+.0%}",
            "" if row.is_hit else row.why,
        )
        for row in rows
    ]
    return aligned([head, *cells], left={0, 1, 5})


def _files(given: list[str]) -> list[Path]:
    if given:
        missing = [name for name in given if not Path(name).is_file()]
        if missing:
            raise TreadleError(f"no such file: {missing[0]}")
        return [Path(name) for name in given]
    for folder in (EXAMPLES, Path("examples")):  # of an installation in place, or of the clone that it was made from
        found = [folder / f"{name}.mlir" for name in PROGRAMS]
        if all(path.is_file() for path in found):
            return found
    raise TreadleError("the examples are not here: name programs, as in treadle bench predict attention.mlir")


def _kept(device: str) -> Path:
    """Where results are kept, if the folder is here; else beside."""
    slug = "-".join("".join(c if c.isalnum() else " " for c in device.lower()).split())
    name = f"predict-{slug}-{date.today().isoformat()}.json"
    return RESULTS / name if RESULTS.is_dir() else Path(name)
