"""What machine code holds is read once: the disassembler and its long listing are for the first report only."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from treadle.compiler.gates import code
from treadle.compiler.gates.code import codes_of, codes_of_cubin
from treadle.compiler.sass import DisassemblerUnavailable, Function, LoopTable, parse_listing
from treadle.runtime.cache import entries

LISTING = Path(__file__).parent / "sass" / "small_sm_80.sass"
Disassembles: TypeAlias = Callable[[Path], tuple[Function, ...]]


@pytest.fixture
def cubin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TREADLE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "cubin" / "0123.cubin"


def listed(_: Path) -> tuple[Function, ...]:
    return parse_listing(LISTING.read_text(encoding="utf-8"))


def refusing(_: Path) -> tuple[Function, ...]:
    raise DisassemblerUnavailable("cuobjdump was not found")


def test_what_is_kept_is_what_was_read(cubin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code, "disassemble", listed)
    first = codes_of_cubin(cubin)
    assert first == codes_of(listed(cubin))
    tables = [each.loop for each in first.values() if each.loop is not None]
    assert any(isinstance(table, LoopTable) and table.products for table in tables)
    monkeypatch.setattr(code, "disassemble", refusing)
    again = codes_of_cubin(cubin)
    assert again == first
    for name, each in first.items():
        if each.loop is not None:
            kept = again[name].loop
            assert kept is not None
            assert list(kept.lines()) == list(each.loop.lines())
    assert len(entries()) == 1


def test_nothing_is_kept_where_nothing_was_read(cubin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code, "disassemble", refusing)
    with pytest.raises(DisassemblerUnavailable):
        codes_of_cubin(cubin)
    assert entries() == []


def test_another_reader_reads_again(cubin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A version of treadle that reads listings otherwise shows nothing that an older one made of them."""
    monkeypatch.setattr(code, "disassemble", listed)
    codes_of_cubin(cubin)
    monkeypatch.setattr(code, "_reader", lambda: "other")
    monkeypatch.setattr(code, "disassemble", refusing)
    with pytest.raises(DisassemblerUnavailable):
        codes_of_cubin(cubin)


@pytest.mark.parametrize("damage", ["", "{", '{"small": {}}'])
def test_a_damaged_file_is_read_again(damage: str, cubin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code, "disassemble", listed)
    first = codes_of_cubin(cubin)
    ((kept, _, _),) = entries()
    kept.write_text(damage, encoding="utf-8")
    assert codes_of_cubin(cubin) == first
