"""treadle installs: the distributions hold every file, and what is installed works from anywhere.

The last test, which needs a package index, installs a clone, the wheel and the source distribution on every version of
Python that is here."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from treadle import __version__

ROOT = Path(__file__).parents[1]
LINKED = ("compiler", "dialects", "passes", "runtime")
"""Folders of the repository that are linked into treadle/."""

VERSIONS = ("3.11", "3.12", "3.13")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def run(command: Sequence[str | Path], cwd: Path, **environment: str) -> str:
    """What a command prints, in an environment that knows nothing of this repository."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=kept | environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def tracked() -> list[str]:
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("this is no clone")
    return run(["git", "ls-files", "-z"], ROOT).split("\0")[:-1]


@dataclass(frozen=True)
class Distributions:
    clone: Path
    wheel: Path
    sdist: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    """A clean clone of what is here, and the wheel and the source distribution that it makes."""
    pytest.importorskip("setuptools", "77")
    folder = tmp_path_factory.mktemp("distributions")
    clone = folder / "clone"
    for name in tracked():
        target = clone / name
        if not (ROOT / name).exists():  # removed, and not yet committed
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target, follow_symlinks=False)
    for kind in ("wheel", "sdist"):
        script = f"from setuptools import build_meta; build_meta.build_{kind}({str(folder)!r})"
        run([sys.executable, "-c", script], clone)
        shutil.rmtree(clone / "build", ignore_errors=True)
    (wheel,) = folder.glob("*.whl")
    (sdist,) = folder.glob("*.tar.gz")
    return Distributions(clone, wheel, sdist)


def sources() -> set[str]:
    """Every file of the package, under the names that it is installed with."""
    names = {name if name.startswith("treadle/") else f"treadle/{name}" for name in tracked() if is_source(name)}
    assert {"treadle/py.typed", "treadle/compiler/machines/h100.toml", "treadle/runtime/emulator/memory.hpp"} <= names
    return names


def is_source(name: str) -> bool:
    return name.startswith((*(f"{folder}/" for folder in LINKED), "treadle/")) and not (ROOT / name).is_symlink()


def test_the_wheel_holds_every_file(built: Distributions) -> None:
    with zipfile.ZipFile(built.wheel) as wheel:
        held = {name for name in wheel.namelist() if not name.endswith("/")}
        metadata = wheel.read(f"treadle-{__version__}.dist-info/METADATA").decode()
    extra = {name for name in held - sources() if ".dist-info/" not in name}
    assert sources() - held == set()
    assert extra == set()
    assert f"Version: {__version__}\n" in metadata
    assert "License-Expression: Apache-2.0 WITH LLVM-exception\n" in metadata
    assert f"treadle-{__version__}.dist-info/licenses/LICENSE" in held
    extras = PROJECT["optional-dependencies"]
    assert set(re.findall(r"^Provides-Extra: (\S+)", metadata, re.M)) == set(extras)


def test_the_source_distribution_holds_every_file_and_no_link(built: Distributions) -> None:
    with tarfile.open(built.sdist) as archive:
        members = archive.getmembers()
    assert not [each.name for each in members if each.issym() or each.islnk()]
    held = {each.name.split("/", 1)[1] for each in members if each.isfile()}
    assert sources() - held == set()
    pages = {name for name in tracked() if name.startswith(("examples/", "docs/"))}
    assert pages <= held
    assert {"LICENSE", "README.md", "CHANGELOG.md", "CITATION.cff", "pyproject.toml"} <= held
    assert not [name for name in held if name.startswith(("tests/", "lit_tests/")) or "__pycache__" in name]


def test_the_citation_is_of_this_version() -> None:
    """The citation file format, as far as it is simple: `key: value` at the left margin."""
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    said = dict(re.findall(r"^([\w-]+): (\S.*)$", text, re.M))
    assert said["cff-version"] == "1.2.0"
    assert said["version"] == __version__
    assert said["license"] == PROJECT["license"]
    assert said["title"] == PROJECT["name"]
    assert {"message", "abstract", "authors:"} <= set(said) | set(text.split())
    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def python(version: str) -> str:
    """An interpreter of that version that starts."""
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser()
    candidates = [f"python{version}", *map(str, sorted(pyenv.glob(f"versions/{version}.*/bin/python")))]
    for candidate in candidates:
        found = shutil.which(candidate)
        asked = [found or "", "-c", "import sys, venv; print('%d.%d' % sys.version_info[:2])"]
        if found and subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip() == version:
            return found
    pytest.skip(f"there is no Python {version}")


@pytest.mark.full
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("source", ["clone", "wheel", "sdist"])
def test_what_is_installed_works_from_anywhere(built: Distributions, version: str, source: str, tmp_path: Path) -> None:
    run([python(version), "-m", "venv", tmp_path / "venv"], tmp_path)
    programs = tmp_path / "venv" / "bin"
    run([programs / "pip", "install", "--quiet", "--disable-pip-version-check", getattr(built, source)], tmp_path)
    away = tmp_path / "away"
    away.mkdir()
    attention = ROOT / "examples" / "attention.mlir"
    sizes = ["--size", "b=1", "--size", "h=1", "--size", "q=17", "--size", "x=40"]
    cache = {"TREADLE_CACHE": str(tmp_path / "cache")}

    backend = "emulator" if shutil.which("g++") or shutil.which("clang++") else "interpreter"
    said = run([programs / "treadle", "run", attention, "--backend", backend, *sizes], away, **cache)
    assert f"verified ({backend}): O max error" in said
    run([programs / "treadle", "compile", attention, "--arch", "sm_90a", "--html", "a.html", "-o", "a.cu"], away)
    assert "wgmma" in (away / "a.cu").read_text()
    assert "<html" in (away / "a.html").read_text()
    assert "h100" in run([programs / "treadle", "explain", attention, "--machine", "h100"], away)
    assert "hierarchy.kernel" in run([programs / "xdsl-opt", attention, "-p", "fusion"], away)
    assert run([programs / "treadle-opt", attention, "-p", "fusion"], away)
    assert f"treadle {__version__}\n" in run([programs / "treadle", "doctor"], away, **cache)
    door = "from importlib.metadata import entry_points as e; print(e(group='torch_dynamo_backends')['treadle'].load)"
    assert "treadle.torch.backend" in run([programs / "python", "-c", door], away)
    where = run([programs / "python", "-c", "import treadle.compiler as c; print(c.__file__)"], away).strip()
    assert Path(where).is_relative_to(tmp_path / "venv")
    assert (Path(where).parents[1] / "py.typed").is_file()


@pytest.mark.full
def test_the_oldest_libraries_that_it_asks_for_serve(built: Distributions, tmp_path: Path) -> None:
    oldest = [each.replace(">=", "==") + ".*" for each in PROJECT["dependencies"] if ">=" in each]
    assert len(oldest) >= 4
    run([python(VERSIONS[0]), "-m", "venv", tmp_path / "venv"], tmp_path)
    programs = tmp_path / "venv" / "bin"
    run([programs / "pip", "install", "--quiet", "--disable-pip-version-check", built.wheel, *oldest], tmp_path)
    cache = {"TREADLE_CACHE": str(tmp_path / "cache")}
    backend = "emulator" if shutil.which("g++") or shutil.which("clang++") else "interpreter"
    for name in ("attention_lengths", "conv1d", "attention_f8"):
        example = ROOT / "examples" / f"{name}.mlir"
        said = run([programs / "treadle", "run", example, "--backend", backend], tmp_path, **cache)
        assert f"verified ({backend})" in said
