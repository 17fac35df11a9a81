"""What lies in the cache is executed: it is whole, it is the user's own, and a folder that cannot serve is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import program, refused

from treadle.compiler import main as cli
from treadle.runtime import nvcc
from treadle.runtime.cache import CacheUnavailable, cache_directory, cached_file

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


def test_a_damaged_kernel_is_compiled_again(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TREADLE_CACHE", "cache")
    assert cli.main(["run", program(), "--backend", "emulator", *SMALL]) == 0
    for kept in Path("cache/emulator").glob("*.so"):
        kept.unlink()  # this process has it mapped: cut off in place, it would crash
        kept.write_bytes(b"")
    assert cli.main(["run", "p.mlir", "--backend", "emulator", *SMALL]) == 0
    assert capsys.readouterr().out.count("verified (emulator)") == 2


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
