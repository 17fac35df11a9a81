"""Kernels around a few instructions of PTX, for tests: what they leave in an array."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treadle.runtime.cuda_driver import EncodedMap
from treadle.runtime.gpu import DeviceArray
from treadle.runtime.ptx.machine.launch import launch
from treadle.runtime.ptx.machine.memory import Allocation, allocate
from treadle.runtime.ptx.text.module import Entry
from treadle.runtime.ptx.text.module_parser import parse_module

Array = NDArray[Any]

_REGISTERS = {"p": "pred", "h": "b16", "r": "b32", "f": "f32", "d": "b64", "g": "f64"}

FIRST_LINE = 20
"""Of a body, in its file."""


BOUNDS = ".maxntid 1024, 1, 1"


def frame(
    body: str,
    arrays: tuple[str, ...],
    file: str = "",
    target: str = "sm_90a",
    maps: tuple[str, ...] = (),
    bounds: str = BOUNDS,
) -> str:
    """A file with a kernel k(out, arrays, maps): its registers %p1, %h1, %r1, %f1, %d1, %g1 and so on are declared,
    %tid is the thread, and the name of each array, and of each tensor map, a register with its address. `file` is what
    the file declares besides."""
    registers: list[str] = [".reg .b32 %tid;"]
    for letter, type in _REGISTERS.items():
        most = max((int(number) for number in re.findall(rf"%{letter}(\d+)", body)), default=0)
        registers.append(f".reg .{type} %{letter}<{most + 1}>;")
    names = ("out", *arrays)
    registers.append("".join(f".reg .b64 %{name}; " for name in (*names, *maps)))
    loads = "".join(f"ld.param.u64 %{n}, [k_{i}]; cvta.to.global.u64 %{n}, %{n}; " for i, n in enumerate(names))
    behind = list(enumerate(maps, len(names)))
    loads += "".join(f"mov.b64 %{name}, k_{i}; cvta.param.u64 %{name}, %{name}; " for i, name in behind)
    head = f".version 9.0\n.target {target}\n.address_size 64\n"
    shared = ".extern .shared .align 1024 .b8 shared_bytes[];"
    plain = [f".param .u64 k_{i}" for i in range(len(names))]
    parameters = ", ".join([*plain, *(f".param .align 64 .b8 k_{i}[128]" for i, _ in behind)])
    start = [f"{shared} {' '.join(file.split())}", f".visible .entry k({parameters})", bounds, "{"]
    lines = [*start, *registers, loads, "mov.u32 %tid, %tid.x;"]
    filled = lines + [""] * (FIRST_LINE - 1 - 3 - len(lines))
    return head + "\n".join(filled) + f"\n{body.strip()}\nret;\n}}\n"


def entry(body: str, arrays: tuple[str, ...] = (), file: str = "", **how: Any) -> Entry:
    return parse_module(frame(body, arrays, file, **how)).entries["k"]


def device(array: Array, writable: bool) -> DeviceArray:
    made = allocate(array.nbytes, writable)
    made.data[:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return DeviceArray(made.address, array.shape, array.strides, array.dtype, made)


def run(
    body: str,
    out: Array,
    *,
    threads: int = 32,
    blocks: int = 1,
    cluster: int = 1,
    shared: int = 0,
    seed: int = 0,
    file: str = "",
    bounds: str = BOUNDS,
    maps: Mapping[str, EncodedMap] | None = None,
    **arrays: Array,
) -> Array:
    """What a body leaves in an array that begins as `out`."""
    maps = maps or {}
    kernel = entry(body, tuple(arrays), file, maps=tuple(maps), bounds=bounds)
    result = device(out, writable=True)
    given = [result, *(device(each, writable=False) for each in arrays.values()), *maps.values()]
    launch(kernel, (blocks, 1, 1), (threads, 1, 1), shared, given, cluster=cluster, seed=seed)
    assert isinstance(result.allocation, Allocation)
    return result.allocation.data.view(out.dtype).reshape(out.shape)


def compute(instructions: str, out: Any, **operands: Array) -> Array:
    """Instructions on one element a thread: `x` of the type `out` from `a`, `b`, ..., arrays of one length."""
    count = len(next(iter(operands.values())))
    types = {name: each.dtype for name, each in operands.items()} | {"x": np.dtype(out)}
    body = ["mul.wide.u32 %d0, %tid, 1;"]
    for name, dtype in types.items():
        kind = "f" if dtype.kind == "f" and dtype.itemsize > 2 else "b"
        body.append(f".reg .{kind}{max(16, 8 * dtype.itemsize)} {name};")
    for name in operands:
        size = types[name].itemsize
        body.append(f"mad.lo.u64 %d1, %d0, {size}, %{name}; ld.global.{_kind(types[name])}{8 * size} {name}, [%d1];")
    size = types["x"].itemsize
    body += [instructions, f"mad.lo.u64 %d1, %d0, {size}, %out; st.global.{_kind(types['x'])}{8 * size} [%d1], x;"]
    return run("\n".join(body), np.zeros(count, out), threads=count, **operands)


def _kind(dtype: np.dtype[Any]) -> str:
    return "f" if dtype.kind == "f" and dtype.itemsize > 2 else "b"
