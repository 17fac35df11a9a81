"""The reader of machine code, on listings kept in `tests/sass` and on code compiled here."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from treadle.compiler.sass import (
    CLASSES,
    Block,
    DisassemblerUnavailable,
    Function,
    Instruction,
    Loop,
    blocks_of,
    class_of,
    disassemble,
    find_disassembler,
    find_loops,
    main_loop,
    parse_listing,
    table_of,
)
from treadle.compiler.sass.listing import parse_instruction
from treadle.runtime.nvcc import compile_cubin

LISTINGS = Path(__file__).parent / "sass"
NAMES = ("small_sm_80", "small_sm_90a", "small_labels")


def functions(name: str) -> dict[str, Function]:
    return {each.name: each for each in parse_listing((LISTINGS / f"{name}.sass").read_text(encoding="utf-8"))}


def code(text: str) -> Function:
    """A function from `address: instruction` lines, 16 bytes apart."""
    lines = [f"        /*{16 * i:04x}*/  {line.strip()} ;" for i, line in enumerate(text.strip().splitlines())]
    return parse_listing("\n".join(["\tFunction : test", *lines]))[0]


def only_loop(function: Function) -> tuple[dict[int, Block], Loop]:
    blocks = blocks_of(function)
    (loop,) = find_loops(blocks)
    return blocks, loop


# -- instructions --------------------------------------------------------------------------------------


def test_an_instruction() -> None:
    parsed = parse_instruction(0x40, "@!P2 LDG.E.128.CONSTANT R4, [R50.64+0x10]")
    assert parsed == Instruction(0x40, "!P2", "LDG.E.128.CONSTANT", ("R4", "[R50.64+0x10]"))
    assert (parsed.name, parsed.modifiers) == ("LDG", ("E", "128", "CONSTANT"))
    assert str(parsed) == "@!P2 LDG.E.128.CONSTANT R4, [R50.64+0x10]"
    assert parse_instruction(0, "EXIT") == Instruction(0, "", "EXIT", ())
    assert parse_instruction(0, ".word 3") is None


@pytest.mark.parametrize(
    ("text", "target", "always"),
    [
        ("BRA 0x200", 0x200, True),
        ("@P0 BRA 0x200", 0x200, False),
        ("@!P2 BRA P1, 0x1b90", 0x1B90, False),
        ("BRA.U UP0, 0x30", 0x30, False),
        ("CALL.REL.NOINC 0x12690", None, True),  # comes back
        ("@P0 CALL.REL.NOINC 0x8480", 0x8480, False),  # a far branch
        ("EXIT", None, True),
    ],
)
def test_where_a_branch_goes(text: str, target: int | None, always: bool) -> None:
    parsed = parse_instruction(0, text)
    assert parsed is not None
    assert parsed.target == target
    assert parsed.always == always


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("HMMA.16816.F32 R4, R8, R14, R4", "products"),
        ("HGMMA.64x128x16.F32 R24, gdesc[UR4]", "products"),
        ("MUFU.EX2 R5, R8", "special"),
        ("FFMA R5, R8, R2, R4", "float"),
        ("FMNMX R5, R8, R2, !PT", "max"),
        ("F2FP.PACK_AB R5, R8, R2", "convert"),
        ("LDSM.16.MT88.4 R84, [R9+0x6c00]", "ldmatrix"),
        ("STS.128 [R14], R8", "shared"),
        ("LDGSTS.E.BYPASS.128 [R15+0x4000], [R4.64]", "async copies"),
        ("LDG.E.128 R8, [R8.64]", "global"),
        ("STL [R7], R2", "local"),
        ("SHFL.BFLY PT, R17, R16, 0x1, 0x1f", "shuffle"),
        ("LDGDEPBAR", "wait"),
        ("DEPBAR.LE SB0, 0x0", "wait"),
        ("IMAD.WIDE.U32 R8, R8, R9, c[0x0][0x160]", "integer"),
        ("IMAD.MOV.U32 R8, RZ, RZ, R9", "move"),
        ("HFMA2.MMA R0, -RZ, RZ, 0, 0", "move"),
        ("HFMA2.MMA R0, R1, R2, R3", "float"),
        ("@!PT LDS RZ, [RZ]", "other"),  # never runs: ptxas keeps copies apart with it
        ("BRA 0x20", "branch"),
        ("NOP", "other"),
        ("NEWOP.X R1", "other"),
    ],
)
def test_classes(text: str, kind: str) -> None:
    parsed = parse_instruction(0, text)
    assert parsed is not None
    assert class_of(parsed) == kind
    assert kind in CLASSES


# -- listings ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_functions_of_a_listing(name: str) -> None:
    found = functions(name)
    assert set(found) == {"multiply", "gather"}
    multiply = found["multiply"]
    assert multiply.count("HMMA") == 2
    assert multiply.count("LDG") == 3
    assert multiply.instructions[-1].name == "EXIT"  # the padding is gone
    assert found["gather"].count("LDL", "STL") == 2
    assert [each.address for each in multiply.instructions] == [16 * i for i in range(len(multiply.instructions))]


def test_labels_mean_the_addresses() -> None:
    """What nvdisasm writes as labels, cuobjdump writes as addresses."""
    by_address, by_label = functions("small_sm_80"), functions("small_labels")
    for name in by_address:
        targets = [[each.target for each in found[name].instructions] for found in (by_address, by_label)]
        assert targets[0] == targets[1]


def test_a_listing_without_code() -> None:
    assert parse_listing("") == ()
    assert parse_listing("Fatbin elf code:\n\tFunction : nothing\n") == ()
    assert blocks_of(Function("nothing", ())) == {}
    assert find_loops({}) == []
    assert main_loop(Function("nothing", ())) is None


# -- loops ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_loops_of_a_kernel(name: str) -> None:
    """The loop over turns holds the two ways of filling the tile."""
    blocks = blocks_of(functions(name)["multiply"])
    (outer,) = find_loops(blocks)
    assert outer.trips is None
    assert [loop.trips for loop in outer.inner] == [15, None]  # one of 16 peeled; one that nvcc counts oddly
    assert all(loop.blocks < outer.blocks for loop in outer.inner)
    assert not outer.own & outer.inner[0].blocks
    (simple,) = find_loops(blocks_of(functions(name)["gather"]))
    assert simple.trips == 64


@pytest.mark.parametrize("name", NAMES)
def test_the_table_follows_the_wide_way(name: str) -> None:
    table = main_loop(functions(name)["multiply"])
    assert table is not None
    assert (table.products, table.count("ldmatrix"), table.count("wait")) == (2, 1, 2)
    assert table.of("global") == {"LDG": 1}
    assert table.unknown == 1
    assert table.total == table.products + table.others == sum(table.count(kind) for kind in CLASSES)
    text = "\n".join(table.lines(2, "product"))
    assert "LDSM 1" in text
    assert f"not products{table.others:7}" in text
    assert "1 inner loops of unknown length" in text
    assert main_loop(functions(name)["gather"]) is None


def test_a_loop_that_a_block_far_away_belongs_to() -> None:
    function = code(
        """
        MOV R0, RZ
        IADD3 R0, R0, 0x1, RZ
        @P1 BRA 0x60
        ISETP.NE.AND P0, PT, R0, 0x8, PT
        @P0 BRA 0x10
        EXIT
        FADD R1, R1, R2
        BRA 0x30
        """
    )
    _, loop = only_loop(function)
    assert loop.header == 0x10
    assert loop.blocks == {0x10, 0x30, 0x60}
    assert loop.trips is None or loop.trips == 8


@pytest.mark.parametrize(
    ("start", "step", "test", "guard", "trips"),
    [
        ("IMAD.MOV.U32 R0, RZ, RZ, RZ", "0x4", "NE.AND P0, PT, R0, 0x8, PT", "@P0", 2),
        ("MOV R0, 0x2", "0x1", "LT.AND P0, PT, R0, 0x10, PT", "@P0", 14),
        ("CS2R R0, SRZ", "0x1", "GE.U32.AND P0, PT, R0, 0x10, PT", "@!P0", 16),
        ("MOV R0, 0x20", "-0x8", "GT.AND P0, PT, R0, RZ, PT", "@P0", 4),
        ("MOV R0, R9", "0x1", "NE.AND P0, PT, R0, 0x8, PT", "@P0", None),
        ("MOV R0, RZ", "0x1", "NE.AND P0, PT, R0, R5, PT", "@P0", None),
        ("MOV R0, RZ", "R7", "NE.AND P0, PT, R0, 0x8, PT", "@P0", None),
        ("MOV R0, RZ", "0x0", "NE.AND P0, PT, R0, 0x8, PT", "@P0", None),  # endless
    ],
)
def test_how_often_a_loop_runs(start: str, step: str, test: str, guard: str, trips: int | None) -> None:
    function = code(
        f"""
        {start}
        FADD R4, R4, R5
        IADD3 R0, R0, {step}, RZ
        ISETP.{test}
        {guard} BRA 0x10
        EXIT
        """
    )
    assert only_loop(function)[1].trips == trips


def test_a_test_before_the_step() -> None:
    function = code(
        """
        MOV R0, RZ
        ISETP.LT.AND P0, PT, R0, 0x7, PT
        IADD3 R0, R0, 0x1, RZ
        @P0 BRA 0x10
        EXIT
        """
    )
    assert only_loop(function)[1].trips == 8  # tested are 0 to 7


def test_an_inner_loop_counts_as_often_as_it_runs() -> None:
    function = code(
        """
        MOV R9, RZ
        MOV R0, RZ
        LDG.E.128 R4, [R8.64]
        IADD3 R0, R0, 0x1, RZ
        ISETP.NE.AND P0, PT, R0, 0x3, PT
        @P0 BRA 0x20
        HMMA.16816.F32 R4, R8, R14, R4
        @P1 BRA 0x10
        EXIT
        """
    )
    table = main_loop(function)
    assert table is not None
    assert table.of("global") == {"LDG": 3}
    assert (table.products, table.unknown, table.total) == (1, 0, 3 * 4 + 3)


def test_a_way_that_copies_is_not_the_one_that_skips_the_copy() -> None:
    """Fewest instructions would leave out what all turns but the last do."""
    function = code(
        """
        NOP
        @P2 BRA 0x30
        LDGSTS.E.BYPASS.128 [R15], [R4.64]
        HMMA.16816.F32 R4, R8, R14, R4
        @P1 BRA 0x10
        EXIT
        """
    )
    blocks, loop = only_loop(function)
    assert table_of(blocks, loop).of("async copies") == {"LDGSTS": 1}


def test_of_two_loops_that_multiply_the_main_one_has_more_products() -> None:
    function = code(
        """
        NOP
        HMMA.16816.F32 R4, R8, R14, R4
        @P1 BRA 0x10
        HMMA.16816.F32 R4, R8, R14, R4
        HMMA.16816.F32 R4, R8, R14, R4
        @P1 BRA 0x30
        EXIT
        """
    )
    table = main_loop(function)
    assert table is not None
    assert (table.address, table.products) == (0x30, 2)


# -- the real programs ---------------------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
@pytest.mark.skipif(find_disassembler() is None, reason="neither cuobjdump nor nvdisasm is installed")
@pytest.mark.parametrize(
    ("text", "waits", "stretches"),
    [
        ("HGMMA HGMMA WAIT MUFU WAIT FMUL", 2, 1),
        ("MUFU WAIT FMUL HGMMA HGMMA WAIT", 2, 1),
        ("HGMMA WAIT MUFU WAIT FMUL HGMMA", 2, 1),  # a turn goes on as the next one begins
        ("HGMMA WAIT MUFU HGMMA WAIT FMUL", 2, 2),
        ("HGMMA WAIT HGMMA WAIT HGMMA WAIT", 3, 3),
        ("HGMMA HGMMA", 0, 1),
    ],
)
def test_waits_for_products(text: str, waits: int, stretches: int) -> None:
    """Cut where the loop waits, products stand in so many stretches."""
    opcodes = {
        "HGMMA": "HGMMA.64x128x16.F32 R24, gdesc[UR4]",
        "WAIT": "WARPGROUP.DEPBAR.LE gsb0, 0x1",
        "MUFU": "MUFU.EX2 R0, R0",
        "FMUL": "FMUL R0, R0, R1",
    }
    table = main_loop(code("\n".join(["NOP", *(opcodes[each] for each in text.split()), "@P0 BRA 0x10", "EXIT"])))
    assert table is not None
    assert (table.waits, table.stretches) == (waits, stretches)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_what_nvcc_makes_today(arch: str) -> None:
    cubin = compile_cubin((LISTINGS / "small.cu").read_text(encoding="utf-8"), arch)
    found = {each.name: each for each in disassemble(cubin.path)}
    table = main_loop(found["multiply"])
    assert table is not None
    assert table.products == 2
    assert found["gather"].count("LDL", "STL") >= 2


def test_what_is_no_machine_code(tmp_path: Path) -> None:
    if find_disassembler() is None:
        pytest.skip("neither cuobjdump nor nvdisasm is installed")
    path = tmp_path / "not.cubin"
    path.write_text("nothing")
    with pytest.raises(DisassemblerUnavailable):
        disassemble(path)
