"""What lies in the cache is executed: it is whole, it is the user's own, and a folder that cannot serve is refused."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from commands import program, refused

import treadle
from treadle.compiler import main as cli
from treadle.runtime import nvcc
from treadle.runtime.cache import (
    FOLDERS,
    IN_USE_SECONDS,
    MAKING,
    CacheUnavailable,
    cache_directory,
    cached_file,
    entries,
    shrink,
)
from treadle.store import keep_estimate, kept_estimate
from treadle.texts import Estimate

SMALL = ["--size", "m=3", "--size", "n=5"]


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_file_is_made_once(tmp_path: Path) -> None:
    made: list[Path] = []

    def make(target: Path) -> None:
        made.append(target)
        target.write_bytes(b"code")

    for _ in range(2):
        assert cached_file(tmp_path / "cache" / "x.so", make).read_bytes() == b"code"
    assert len(made) == 1


def test_every_folder_is_told_and_cleared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TREADLE_CACHE", str(tmp_path / "cache"))
    for folder in FOLDERS:
        cached_file(cache_directory() / folder / "x", lambda target: target.write_bytes(b"code") and None)
    assert cli.main(["cache", "--clear"]) == 0
    head, *kinds, removed = capsys.readouterr().out.splitlines()
    assert len({kind.partition(":")[0] for kind in kinds}) == len(FOLDERS)
    assert head.partition(": ")[2].startswith(removed.removeprefix("removed "))
    assert not list(entries())


@pytest.mark.parametrize("damage", [b"", b"cod", b"evil"])
def test_a_file_that_is_not_whole_is_made_again(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "x.so"
    cached_file(path, lambda target: target.write_bytes(b"code") and None)
    path.write_bytes(damage)
    assert cached_file(path, lambda target: target.write_bytes(b"code") and None).read_bytes() == b"code"


def test_nothing_is_kept_of_a_file_that_fails(tmp_path: Path) -> None:
    def make(target: Path) -> None:
        target.write_bytes(b"half")
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        cached_file(tmp_path / "x.so", make)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_kernel_is_compiled_again(capsys: pytest.CaptureFixture[str], ready_cache: Path) -> None:
    assert cli.main(["run", program(), "--backend", "emulator", *SMALL]) == 0
    for kept in (ready_cache / "emulator").glob("*.so"):
        kept.unlink()  # this process has it mapped: cut off in place, it would crash
        kept.write_bytes(b"")
    assert cli.main(["run", "p.mlir", "--backend", "emulator", *SMALL]) == 0
    assert capsys.readouterr().out.count("verified (emulator)") == 2


def test_a_changed_compilation_is_made_again(ready_cache: Path) -> None:
    """One that can still be read would be a wrong kernel, or a wrong estimate, and nobody would know."""
    known = treadle.compile(name := program(), machine="a100")
    (path,) = (ready_cache / "kernels").glob("*.json")
    path.write_text(path.read_text().replace("+", "-"))
    assert treadle.compile(name, machine="a100").cuda == known.cuda
    keep_estimate(path.stem, Estimate(1, 2.0, 3.0))
    (path,) = (ready_cache / "estimates").glob("*.json")
    path.write_text(path.read_text().replace("2.0", "9.0"))
    assert kept_estimate(path.stem) is None


@pytest.mark.parametrize(
    ("name", "why"),
    [("file", "it is no folder"), ("shared", "others may write to it"), ("file/below", "not a directory")],
)
def test_a_chosen_folder_that_cannot_serve_is_refused(
    name: str, why: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("file").touch()
    Path("shared").mkdir()
    Path("shared").chmod(0o777)
    monkeypatch.setenv("TREADLE_CACHE", name)
    with pytest.raises(CacheUnavailable, match=why):
        cache_directory()
    for arguments in (["run"], *([["compile", "--cubin", "x.cubin"]] if nvcc.find_nvcc() else [])):
        said = refused(capsys, *arguments, program())
        assert why in said
        assert "TREADLE_CACHE" in said


def test_a_default_folder_that_cannot_serve_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TREADLE_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_directory() == tmp_path / "treadle"
    (tmp_path / "treadle").rmdir()
    (tmp_path / "treadle").touch()
    assert cache_directory().is_dir()


@pytest.mark.full
def test_a_limit_below_what_one_program_needs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a kernel is linked with stays until it is linked; a later run removes it."""
    monkeypatch.setenv("TREADLE_CACHE", "cache")
    monkeypatch.setenv("TREADLE_CACHE_LIMIT", "1")
    assert cli.main(["run", program(), "--backend", "emulator", *SMALL]) == 0
    kept = [path for path, _, _ in entries()]
    assert sorted(path.suffix for path in kept) == [".gch", ".o", ".o", ".so"]
    for path in kept:
        os.utime(path, (0, 0))
    cached_file(Path("cache/kernels/x.json").absolute(), lambda target: target.write_bytes(b"code") and None)
    assert [path.name for path, _, _ in entries()] == ["x.json"]
    assert "verified (emulator)" in capsys.readouterr().out


def test_a_limit_that_is_no_number_is_refused_where_nothing_new_is_kept(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, ready_cache: Path
) -> None:
    assert cli.main(["run", program(), "--backend", "emulator", *SMALL]) == 0
    capsys.readouterr()
    monkeypatch.setenv("TREADLE_CACHE_LIMIT", "1GB")
    assert "'1GB': give a number of bytes" in refused(capsys, "run", "p.mlir", "--backend", "emulator", *SMALL)


def test_a_process_that_was_killed_leaves_nothing_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREADLE_CACHE", str(Path("cache").absolute()))
    kernels = cache_directory() / "kernels"
    code = f"""
import os, signal
from pathlib import Path
from treadle.runtime.cache import cached_file
def make(target):
    target.write_bytes(b"half")
    os.kill(os.getpid(), signal.SIGKILL)
cached_file(Path({str(kernels / "x.json")!r}), make)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    (left,) = kernels.glob(f"{MAKING}*")
    assert entries() == []
    made = cached_file(kernels / "x.json", lambda target: target.write_bytes(b"whole") and None)
    assert made.read_bytes() == b"whole"
    assert left.exists()  # it could be another process at work
    os.utime(left, (time.time() - 2 * IN_USE_SECONDS,) * 2)
    shrink(2**30)
    assert not left.exists()
    assert made.exists()


def test_folders_that_others_remove_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What another process has finished is gone while this one looks for what is left."""
    monkeypatch.setenv("TREADLE_CACHE", str(tmp_path / "cache"))
    kernels, over = cache_directory() / FOLDERS[0], threading.Event()
    kernels.mkdir(parents=True, exist_ok=True)

    def work() -> None:
        while not over.is_set():
            (kernels / f"{MAKING}other").mkdir()
            (kernels / f"{MAKING}other").rmdir()

    other = threading.Thread(target=work)
    other.start()
    try:
        for _ in range(500):
            shrink(2**30)
    finally:
        over.set()
        other.join()


@pytest.mark.parametrize("name", ["x.so", "x.so.sha256"])
def test_a_folder_where_a_file_would_be(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(CacheUnavailable, match="cannot take another file: is a directory"):
        cached_file(tmp_path / "x.so", lambda target: target.write_text("made") and None)


def test_a_file_where_a_folder_would_be(tmp_path: Path) -> None:
    (tmp_path / "emulator").touch()
    with pytest.raises(CacheUnavailable, match="cannot take another file: file exists"):
        cached_file(tmp_path / "emulator" / "x.so", lambda target: target.write_text("made") and None)


def test_a_disk_that_takes_no_more(tmp_path: Path) -> None:
    """The system's own refusal, by a limit on the size of files: a compilation goes on without a cache; where a
    file must be written, one message says why it is not."""
    text = (Path(__file__).parents[1] / "examples" / "softmax.mlir").read_text()
    code = f"""
import resource
from pathlib import Path
import treadle
from treadle.runtime.cache import CacheUnavailable, cache_directory, cached_file, entries
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
print(treadle.compile({text!r}).name, entries())
try:
    cached_file(cache_directory() / "emulator" / "x.so", lambda target: target.write_bytes(bytes(3000)) and None)
except CacheUnavailable as error:
    print(error)
print(list((cache_directory() / "emulator").iterdir()))
"""
    environment = {**os.environ, "TREADLE_CACHE": str(tmp_path / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    first, second, third = done.stdout.splitlines()
    assert first == "softmax_rows []"
    assert "cannot take another file: file too large; make room, or name another folder with TREADLE_CACHE" in second
    assert third == "[]"


@pytest.mark.full
def test_processes_at_once_in_a_cache_that_is_too_small(tmp_path: Path) -> None:
    """None removes what another is about to load."""
    path = str(Path(program()).absolute())
    command = [sys.executable, "-m", "treadle.compiler.main", "run", path, "--backend", "emulator"]
    environment = {**os.environ, "TREADLE_CACHE": str(tmp_path / "cache"), "TREADLE_CACHE_LIMIT": "1"}
    running = [
        subprocess.Popen(
            [*command, "--size", f"m={m}", "--size", "n=5"], stdout=subprocess.PIPE, text=True, env=environment
        )
        for m in (3, 4)
    ]
    assert all("verified (emulator)" in process.communicate()[0] for process in running)
