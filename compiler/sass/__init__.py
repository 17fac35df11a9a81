"""A small reader of SASS, the machine code of NVIDIA GPUs: instructions, loops, and what a loop is made of.

It reads what `cuobjdump` or `nvdisasm` print of a cubin, so that the quality of a kernel can be judged on a
machine without a GPU."""

from treadle.compiler.sass.classes import CLASSES, PRODUCTS, class_of
from treadle.compiler.sass.flow import Block, Loop, blocks_of, find_loops
from treadle.compiler.sass.listing import Function, Instruction, parse_listing
from treadle.compiler.sass.table import LoopTable, main_loop, table_of
from treadle.compiler.sass.threads import warps_that_reach
from treadle.compiler.sass.tools import DisassemblerUnavailable, disassemble, find_disassembler

__all__ = [
    "CLASSES",
    "PRODUCTS",
    "Block",
    "DisassemblerUnavailable",
    "Function",
    "Instruction",
    "Loop",
    "LoopTable",
    "blocks_of",
    "class_of",
    "disassemble",
    "find_disassembler",
    "find_loops",
    "main_loop",
    "parse_listing",
    "table_of",
    "warps_that_reach",
]
