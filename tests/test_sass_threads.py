"""Which warps come to an instruction: on short listings, and on code compiled here of which it is known."""

from __future__ import annotations

import shutil

import pytest

from treadle.compiler.sass import Function, disassemble, find_disassembler, parse_listing, warps_that_reach
from treadle.runtime.nvcc import compile_cubin

COPY = ("UTMALDG", "UBLKCP")
ALL = tuple(range(12))


def reached(text: str) -> tuple[int, ...]:
    """Warps of a block of 384 threads that come to a copy, of instructions 16 bytes apart."""
    lines = [f"        /*{16 * i:04x}*/  {line.strip()} ;" for i, line in enumerate(text.strip().splitlines())]
    (function,) = parse_listing("\n".join(["\tFunction : test", *lines]))
    return warps_that_reach(function, COPY, 384)


ROLES = """
S2R R13, SR_TID.X
SHF.R.U32.HI R2, RZ, 0x7, R13
ISETP.NE.AND P0, PT, R13, RZ, PT
SHFL.IDX PT, R2, R2, RZ, 0x1f
R2UR UR12, R2
UISETP.GE.AND UP0, UPT, UR12, 0x1, UPT
PLOP3.LUT P1, PT, PT, PT, UP0, 0x80, 0x0
@P1 EXIT
@P0 EXIT
UTMALDG.2D [UR4], [UR6]
EXIT
"""


def test_a_producer_is_one_thread() -> None:
    assert reached(ROLES) == (0,)


@pytest.mark.parametrize(
    ("instead", "of", "warps"),
    [
        ("NOP", "@P0 EXIT", (0, 1, 2, 3)),
        ("NOP", "@P1 EXIT", (0,)),
        ("@!P1 EXIT", "@P1 EXIT", ()),
        ("@P0 IADD3 R3, P1, R4, R5, RZ", "@P0 EXIT", (0, 1, 2, 3)),
        ("ISETP.NE.AND P0, PT, R40, RZ, PT", "ISETP.NE.AND P0, PT, R13, RZ, PT", (0, 1, 2, 3)),
        ("ISETP.GE.U32.AND P0, PT, R13, 0x21, PT", "ISETP.NE.AND P0, PT, R13, RZ, PT", (0, 1)),
        ("SHF.R.U32.HI R2, RZ, 0x5, R13", "SHF.R.U32.HI R2, RZ, 0x7, R13", (0,)),
        ("LDG.E R2, [R4.64]", "SHF.R.U32.HI R2, RZ, 0x7, R13", (0,)),
        ("LDS.128 R12, [R4]", "NOP", (0,)),
        ("VOTEU.ALL UP1, P0\n@UP1 EXIT", "@P0 EXIT", (0,)),
        ("VOTEU.ALL UP0, P0\nVOTEU.ALL UP1, P0\n@UP1 EXIT", "@P0 EXIT", (0,)),
        ("VOTEU.ANY UP1, P0\n@UP1 EXIT", "@P0 EXIT", (0, 1, 2, 3)),
        ("ISETP.NE.AND P0, PT, R40, RZ, PT\nVOTEU.ALL UP1, P0\n@UP1 EXIT", "@P0 EXIT", (0, 1, 2, 3)),
    ],
)
def test_what_decides(instead: str, of: str, warps: tuple[int, ...]) -> None:
    """Conditions on the thread's number are followed; of all else a thread may come by either way."""
    assert reached(ROLES.replace(of, instead, 1)) == warps


def test_a_comparison_writes_no_register_that_it_compares() -> None:
    compares = "ISETP.NE.AND P0, PT, R13, RZ, PT"
    assert reached(ROLES.replace(compares, f"ISETP.GT.AND P5, PT, R13, 0xdf, PT\n{compares}", 1)) == (0,)


@pytest.mark.parametrize(
    "between",
    [
        "LDS.128 R12, [R4]",  # R12 to R15
        "LDG.E.64 R12, [R4.64]",
        "FSETP.GT.AND P0, PT, R4, R5, PT",
        "IADD3 R3, P0, R4, R5, RZ",
        "LOP3.LUT P0, R3, R4, R5, RZ, 0xc0, !PT",
        "@P2 IMAD.MOV.U32 R13, RZ, RZ, R7",
        "R2P PR, R4, 0x7f",
        "CALL.REL.NOINC 0x1000",
        "HGMMA.64x64x16.F32 R8, gdesc[UR8], R8",
    ],
)
def test_what_another_instruction_writes_is_forgotten(between: str) -> None:
    compares = "ISETP.NE.AND P0, PT, R13, RZ, PT"
    where = (
        f"{between}\n{compares}"
        if "R13" in between or "R12" in between or "HGMMA" in between
        else f"{compares}\n{between}"
    )
    text = f"S2R R13, SR_TID.X\n{where}\n@P0 EXIT\nUTMALDG.2D [UR4], [UR6]\nEXIT"
    assert reached(text) == ALL
    assert reached(text.replace(between, "SEL R20, R21, R22, P0")) == (0,)


def test_a_branch_to_a_computed_address_may_go_anywhere() -> None:
    assert reached(ROLES.replace("@P1 EXIT", "@P1 BRX R4")) == ALL


def test_a_copy_with_a_predicate() -> None:
    text = "S2R R1, SR_TID.X\nISETP.EQ.AND P0, PT, R1, 0x40, PT\n@P0 UBLKCP [UR4], [UR6], UR8\nEXIT"
    assert reached(text) == (2,)


def test_a_loop_and_both_ways_into_it() -> None:
    """What is the same by all ways to a block is known there, what differs is not."""
    text = """
        S2R R1, SR_TID.X
        ISETP.GE.AND P1, PT, R1, 0x80, PT
        MOV R2, 0x1
        @P3 MOV R2, 0x1
        {set}
        ISETP.NE.AND P0, PT, R2, 0x1, PT
        @P0 EXIT
        @P1 EXIT
        UTMALDG.2D [UR4], [UR6]
        @P2 BRA 0x50
        EXIT
    """
    assert reached(text.format(set="NOP")) == (0, 1, 2, 3)
    assert reached(text.format(set="MOV R2, 0x2")) == ()
    assert reached(text.format(set="@P3 MOV R2, 0x2")) == (0, 1, 2, 3)


KERNELS = {
    "one_thread": ("threadIdx.x == 0", (0,)),
    "one_thread_of_another_warp": ("threadIdx.x == 70", (2,)),
    "a_thread_of_each_warpgroup": ("threadIdx.x % 128 == 0", (0, 4, 8)),
    "a_warpgroup": ("__shfl_sync(~0u, threadIdx.x / 128, 0) == 1", (4, 5, 6, 7)),
    "who_knows": ("data[threadIdx.x] != 0", ALL),
}


@pytest.fixture(scope="module")
def compiled() -> dict[str, Function]:
    copy = 'asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 16, [%2];"'
    text = "".join(
        f'extern "C" __global__ void __launch_bounds__(384) {name}(const int* data) {{\n'
        f"  __shared__ alignas(16) int tile[8];\n  const unsigned at = __cvta_generic_to_shared(tile);\n"
        f'  if ({condition}) {copy} ::"r"(at), "l"(data), "r"(at + 16) : "memory");\n}}\n'
        for name, (condition, _) in KERNELS.items()
    )
    return {each.name: each for each in disassemble(compile_cubin(text, "sm_90a").path)}


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
@pytest.mark.skipif(find_disassembler() is None, reason="neither cuobjdump nor nvdisasm is installed")
@pytest.mark.parametrize("name", KERNELS)
def test_compiled_conditions(compiled: dict[str, Function], name: str) -> None:
    found = set(warps_that_reach(compiled[name], COPY, 384))
    assert compiled[name].count(*COPY) > 0
    assert found >= set(KERNELS[name][1])
    if name != "a_thread_of_each_warpgroup":  # a remainder is not followed
        assert found == set(KERNELS[name][1])
