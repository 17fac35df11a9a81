"""Between which the numbers of a machine can be right: a mistake of a unit or of a digit lies outside."""

from __future__ import annotations

from collections.abc import Mapping

from treadle.compiler.machines.machine import WARP
from treadle.compiler.machines.tables import Bounds

SMS = Bounds("multiprocessors", 1, 1024, "the largest GPUs have less than 200")
GPCS = Bounds("clusters of multiprocessors", 1, 64, "the largest GPUs have 12")
CLOCK = Bounds("clocks a second, as in 1.41e9", 2e8, 5e9, "GPUs run at 1 to 3 GHz")
LAUNCH = Bounds(
    "seconds from one kernel of a stream to the next, as in 0.9e-6",
    1e-7,
    1e-4,
    "launches in flight take about a microsecond",
)

CAPACITY: Mapping[str, Bounds] = {
    "device": Bounds("bytes", 1e8, 4e12, "GPUs have 1 to 300 GB, as in 80_000_000_000"),
    "l2": Bounds("bytes", 65_536, 4e9, "GPUs have 1 to 130 MB, as in 41_943_040"),
    "shared": Bounds("bytes of one multiprocessor", 16_384, 4_194_304, "GPUs have 64 to 256 KiB"),
    "register": Bounds("bytes of one multiprocessor", 32_768, 4_194_304, "GPUs have 256 KiB"),
}
BANDWIDTH: Mapping[str, Bounds] = {
    "device": Bounds("bytes a second, as in 2.039e12", 1e10, 1e14, "GPUs have 0.1 to 8 TB/s"),
    "l2": Bounds("bytes a second", 1e11, 1e15, "GPUs have 1 to 20 TB/s"),
    "shared": Bounds("bytes a second of one multiprocessor", 1e10, 1e13, "32 banks of 4 bytes a clock are 0.2 TB/s"),
}
LATENCY = Bounds("clocks until the first byte of a load arrives", 50, 10_000, "GPUs take 200 to 900")

THREADS_OF_BLOCK = Bounds("threads", WARP, 1024, "the hardware takes no larger block")
THREADS_OF_SM = Bounds("threads", WARP, 4096, "GPUs hold 1024 to 2048")
BLOCKS = Bounds("blocks", 1, 128, "GPUs hold 16 to 32")
SHARED_OF_BLOCK = Bounds("bytes", 1024, 4_194_304, "GPUs give 48 to 227 KiB")
RESERVED = Bounds("bytes of each block", 0, 65_536, "the system keeps 1024")
REGISTERS_OF_SM = Bounds("registers of 4 bytes", 8192, 1_048_576, "GPUs have 65536")
REGISTERS_OF_THREAD = Bounds("registers", 16, 255, "instructions name no more than 255")
REGISTER_UNIT = Bounds("registers", 1, 4096, "a warp takes them in units of 256")
PARTITIONS = Bounds("parts of the register file", 1, 16, "GPUs have 4")
GRID = Bounds("blocks", 1, 2**31 - 1, "the hardware takes no larger grid")

FLOAT = Bounds("results a clock of one multiprocessor", 8, 1024, "GPUs make 64 to 128")
SPECIAL = Bounds("results a clock of one multiprocessor", 1, 256, "GPUs make 16")
ADDITIONS = Bounds("atomic additions at one address, a clock", 0.01, 64, "GPUs make about one")
TENSOR = Bounds("FLOP a clock of one multiprocessor", 32, 131_072, "GPUs make 512 to 16384")
PART = Bounds(
    "a part of the rates of rates.tensor", 0.05, 1, "warpgroups reach all of it, single warps about 0.6 or all"
)
POWER = Bounds("a part of the power of products", 0.01, 0.95, "the memory of an H100 takes about half of it")
COALESCED = Bounds("a part of what blocks read alike", 0.01, 1, "GPUs that merge such reads leave half of them or more")

EXP2 = Bounds("results a second of the whole machine", 1e10, 1e15, "GPUs make about 4e12")
FLOP = Bounds("FLOP a second of the whole machine", 1e11, 1e18, "GPUs make 1e14 to 5e15")

UNREAD: Mapping[str, Mapping[str, str]] = {
    level: {
        "granularity": "memories move sectors of 32 bytes and lines of 128 on every machine",
        **({} if level in ("device", "l2") else {"latency": "steps wait for device memory, levels.device.latency"}),
    }
    for level in ("device", "l2", "shared", "register")
}
"""Keys of the levels that earlier files had."""
OF_REGISTERS = "operands in registers are read as fast as they are used"
UNREAD_TENSOR = {"i4": "no product multiplies numbers of 4 bits"}
