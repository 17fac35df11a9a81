"""How much runs: `make test` a sample, `make test-all` (`pytest --all`) everything.

`@pytest.mark.full` is for what is too long for every day. `@pytest.mark.sample(n)` over a grid of parameters keeps
about n cases, of a grid of several parameters so many that every value of each is in one; `sample(n, each=False)` keeps
n, with as many values as there can be in them. With `--budget 1`, which `make test` takes, a test that is long by
`seconds.json` runs no more cases than use up one second, unless it is marked `whole`; who runs the tests of one file
runs all of a sample.

`--device cuda` runs the tests that take the fixture `device` with modules and tensors on a GPU; all others are left
out, for they would run on the CPU as ever; `--movable` runs the same tests on the CPU. `--part 2/8` runs the second
eighth of the tests."""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
import sampling
from devices import DEVICES, exact_products, missing_for, skipped_without_transformers

CACHE = Path(os.environ.get("TREADLE_TEST_CACHE") or Path(__file__).parents[1] / ".treadle-cache")
"""Where tests keep compiled kernels: in the checkout, whatever the user's own cache holds, unless $TREADLE_TEST_CACHE
names another place. What a process of the tests starts, workers of xdist and commands, finds it in its environment."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="run full grids and long tests too")
    parser.addoption(
        "--budget", type=float, default=0.0, metavar="SECONDS", help="run of each test as many cases as take so long"
    )
    parser.addoption("--write-seconds", action="store_true", help="write what tests take, which --budget reads")
    parser.addoption("--update-golden", action="store_true", help="write tests/golden anew")
    parser.addoption("--update", action="store_true", help="write what is printed into the pages that show it")
    parser.addoption("--device", choices=DEVICES, default="cpu", help="where modules of PyTorch and their inputs lie")
    parser.addoption("--movable", action="store_true", help="run only what --device cuda would, where it is")
    parser.addoption("--part", metavar="K/N", default="1/1", help="run one of N parts of the tests")


def pytest_configure(config: pytest.Config) -> None:
    os.environ["TREADLE_CACHE"] = str(CACHE)
    config.addinivalue_line("markers", "full: only with --all")
    config.addinivalue_line("markers", "sample(n, each=True): about n cases of a grid, all of them with --all")
    config.addinivalue_line("markers", "whole: all cases, whatever the budget")
    if config.getoption("--write-seconds") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(sampling.Recorder())
    if missing := missing_for(device := str(config.getoption("--device"))):
        raise pytest.UsageError(f"--device {device}: {missing}")
    if float(config.getoption("--budget") or 0) < 0:
        raise pytest.UsageError("--budget: seconds that a test has, or 0 for as many as it takes")
    part, parts = _part(config)
    if not 1 <= part <= parts:
        raise pytest.UsageError("--part: one of N parts is K/N, from 1/N to N/N")


def _part(config: pytest.Config) -> tuple[int, int]:
    """(0, 0) for what is none."""
    part, _, parts = str(config.getoption("--part")).partition("/")
    return (int(part), int(parts)) if part.isdecimal() and parts.isdecimal() else (0, 0)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted = items if config.getoption("--all") else sampling.short(items)
    if budget := float(config.getoption("--budget") or 0):
        wanted = sampling.within(wanted, budget, sampling.read())
    if config.getoption("--device") != "cpu" or config.getoption("--movable"):
        wanted = [item for item in wanted if "device" in getattr(item, "fixturenames", ())]
    part, parts = _part(config)
    kept = set(wanted[part - 1 :: parts])
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


def pytest_collection_finish() -> None:
    """What is imported now stays to the end, and a derivation makes many small objects: looking at them all again and
    again would take a tenth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 10, 10)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    with skipped_without_transformers(str(item.config.getoption("--device"))):
        yield


@pytest.fixture
def device(pytestconfig: pytest.Config) -> Iterator[str]:
    """Where modules and their inputs lie, of `--device`. Who takes it moves all of them there."""
    where = str(pytestconfig.getoption("--device"))
    with exact_products(where):
        yield where


@pytest.fixture
def ready_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of its own for one test, in which there is what every emulated kernel begins and is linked with,
    if it was made before: that takes ten seconds."""
    folder = tmp_path / "ready-cache"
    folder.mkdir(mode=0o700)
    for made in (CACHE / "emulator").glob("first-*"):
        shutil.copytree(made, folder / "emulator" / made.name, ignore=shutil.ignore_patterns(".making-*"))
    for made in (CACHE / "emulator").glob("runtime-*"):
        (folder / "emulator").mkdir(exist_ok=True)
        shutil.copy2(made, folder / "emulator")
    monkeypatch.setenv("TREADLE_CACHE", str(folder))
    return folder
