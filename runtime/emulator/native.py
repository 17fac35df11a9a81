"""The structures that emulator.cpp and Python share; keep them in step with it."""

from __future__ import annotations

import ctypes

MAX_DIMENSIONS = 3


class Region(ctypes.Structure):
    """One array: `Region` in regions.hpp."""

    low: int
    high: int
    owners: int | None
    granule: int
    argument: int
    writable: int
    _fields_ = [
        ("low", ctypes.c_uint64),
        ("high", ctypes.c_uint64),
        ("owners", ctypes.c_void_p),
        ("granule", ctypes.c_uint32),
        ("argument", ctypes.c_int32),
        ("writable", ctypes.c_int32),
    ]


class FaultRecord(ctypes.Structure):
    """`FaultRecord` in faults.hpp."""

    kind: bytes
    message: bytes
    block: ctypes.Array[ctypes.c_uint32]
    thread: int
    line: int
    _fields_ = [
        ("kind", ctypes.c_char * 24),
        ("message", ctypes.c_char * 488),
        ("block", ctypes.c_uint32 * MAX_DIMENSIONS),
        ("thread", ctypes.c_int32),
        ("line", ctypes.c_int32),
    ]


class OperationRecord(ctypes.Structure):
    """`OperationRecord` in traffic.hpp."""

    operation: int
    line: int
    requests: int
    bytes: int
    sectors: int
    conflicts: int
    distinct: int
    _fields_ = [
        ("operation", ctypes.c_int32),
        ("line", ctypes.c_int32),
        ("requests", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64),
        ("sectors", ctypes.c_uint64),
        ("conflicts", ctypes.c_uint64),
        ("distinct", ctypes.c_uint64),
    ]


class Launch(ctypes.Structure):
    """`Launch` in emulator.cpp: what to run, then what came of it."""

    kernel: int | None
    arguments: int | None
    grid: ctypes.Array[ctypes.c_uint32]
    block: ctypes.Array[ctypes.c_uint32]
    shared_bytes: int
    seed: int
    time_limit: float
    regions: int | None
    region_count: int
    checks: int
    cluster: int
    resident: int
    seconds: float
    faults: int
    faults_kept: int
    operations: int
    blocks_done: int
    _fields_ = [
        ("kernel", ctypes.c_void_p),
        ("arguments", ctypes.c_void_p),
        ("grid", ctypes.c_uint32 * MAX_DIMENSIONS),
        ("block", ctypes.c_uint32 * MAX_DIMENSIONS),
        ("shared_bytes", ctypes.c_uint64),
        ("seed", ctypes.c_uint64),
        ("time_limit", ctypes.c_double),
        ("regions", ctypes.c_void_p),
        ("region_count", ctypes.c_int32),
        ("checks", ctypes.c_int32),
        ("cluster", ctypes.c_uint32),
        ("resident", ctypes.c_uint32),
        ("seconds", ctypes.c_double),
        ("faults", ctypes.c_uint64),
        ("faults_kept", ctypes.c_int32),
        ("operations", ctypes.c_int32),
        ("blocks_done", ctypes.c_uint64),
    ]
