"""What kind of work an instruction does, by its opcode."""

from __future__ import annotations

from treadle.compiler.sass.listing import Instruction

PRODUCTS = "products"

_NAMES = {
    PRODUCTS: "HMMA IMMA DMMA BMMA QMMA OMMA HGMMA IGMMA BGMMA QGMMA",
    "special": "MUFU",
    "float": "FFMA FMUL FADD HADD2 HFMA2 HMUL2 DADD DMUL DFMA",
    "max": "FMNMX FMNMX3 HMNMX2 IMNMX VIMNMX",
    "select": "FSEL SEL FSETP USEL FSET HSETP2 FCHK",
    "convert": "F2FP F2F F2I I2F I2FP F2IP I2IP FRND",
    "ldmatrix": "LDSM",
    "shared": "LDS STS STSM ATOMS",
    "async copies": "LDGSTS UTMALDG UTMASTG UBLKCP",
    "global": "LDG STG ATOMG ATOM RED LD ST",
    "local": "LDL STL",
    "shuffle": "SHFL REDUX CREDUX VOTE VOTEU",
    "wait": "BAR DEPBAR LDGDEPBAR SYNCS WARPSYNC WARPGROUP MEMBAR ERRBAR FENCE CCTL ARRIVES UTMACMDFLUSH NANOSLEEP",
    "integer": "IMAD IADD IADD3 IADD32I VIADD UIMAD UIADD3 UVIADD LOP3 ULOP3 PLOP3 UPLOP3 LEA ULEA SHF USHF ISETP "
    "UISETP IABS POPC FLO BREV UFLO UBREV UPOPC SGXT BMSK PRMT UPRMT P2R R2P IDP ISCADD XMAD SHL SHR USGXT UBMSK",
    "move": "MOV UMOV CS2R S2R S2UR R2UR LDC ULDC MOVM CS2UR UMOV32I MOV32I",
    "branch": "BRA BRX JMP CALL RET EXIT BSSY BSYNC BREAK BMOV YIELD WARPSYNC KILL RPCMOV PREEXIT ACQBULK",
}

CLASSES = (*_NAMES, "other")
"""Every class, in the order in which a table shows them."""

_CLASS_OF = {name: kind for kind, names in _NAMES.items() for name in names.split()}


def is_move(instruction: Instruction) -> bool:
    """IMAD moves where it says so, and HFMA2.MMA where it multiplies zeros."""
    if instruction.name == "IMAD":
        return instruction.modifiers[:1] == ("MOV",)
    return instruction.opcode == "HFMA2.MMA" and instruction.operands[1:3] == ("-RZ", "RZ")


def class_of(instruction: Instruction) -> str:
    """The class of an instruction. What never runs (ptxas keeps copies apart with such) is `other`; some arithmetic
    only moves."""
    if instruction.predicate in ("!PT", "!UPT"):
        return "other"
    if is_move(instruction):
        return "move"
    return _CLASS_OF.get(instruction.name, "other")
