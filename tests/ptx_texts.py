"""Small kernels in PTX, for tests of single instructions: a body in a frame, run on arrays."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from treadle.runtime.cuda_driver import EncodedMap
from treadle.runtime.gpu import DeviceArray
from treadle.runtime.ptx.launch import launch
from treadle.runtime.ptx.memory import allocate
from treadle.runtime.ptx.module import Entry
from treadle.runtime.ptx.module_parser import parse_module

_REGISTERS = {"p": "pred", "h": "b16", "r": "b32", "f": "f32", "d": "b64"}
SHARED = "shared_bytes"
"""The kernel's dynamic shared memory; `%tid` is the thread, `%out` the first parameter, `%m0`, `%m1` the maps."""


def entry(body: str, *, maps: int = 0, inputs: int = 0, bounds: str = ".maxntid 1024, 1, 1\n.minnctapersm 1") -> Entry:
    """A kernel k(out, inputs, maps). Registers `%p1`, `%h1`, `%r1`, `%f1`, `%d1` and so on need no declaration."""
    parameters = [f".param .u64 k_{i}" for i in range(1 + inputs)]
    parameters += [f".param .align 64 .b8 k_{1 + inputs + i}[128]" for i in range(maps)]
    head = ["mov.u32 %tid, %tid.x;", "ld.param.u64 %out, [k_0];", "cvta.to.global.u64 %out, %out;"]
    for i in range(inputs):
        head += [f"ld.param.u64 %in{i}, [k_{1 + i}];", f"cvta.to.global.u64 %in{i}, %in{i};"]
    for i in range(maps):
        head += [f"mov.b64 %m{i}, k_{1 + inputs + i};", f"cvta.param.u64 %m{i}, %m{i};"]
    named = [f"%in{i}" for i in range(inputs)] + [f"%m{i}" for i in range(maps)]
    declared = [".reg .b32 %tid;", *(f".reg .b64 {name};" for name in ("%out", *named))]
    for letter, type in _REGISTERS.items():
        used = [int(number) for number in re.findall(rf"%{letter}(\d+)", body)]
        declared.append(f".reg .{type} %{letter}<{max(used, default=0) + 1}>;")
    lines = "\n".join([*declared, *head, body, "ret;"])
    text = f".version 8.8\n.target sm_90a\n.address_size 64\n.extern .shared .align 1024 .b8 {SHARED}[];\n"
    listed = ",\n".join(parameters)
    text += f".visible .entry k(\n{listed}\n)\n{bounds}\n{{\n{lines}\n}}\n"
    return parse_module(text).entries["k"]


def device(array: np.ndarray[Any, Any], *, writable: bool = False) -> DeviceArray:
    made = allocate(array.nbytes, writable=writable)
    made.data[:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return DeviceArray(made.address, array.shape, array.strides, array.dtype, made)


def result_of(
    kernel: Entry,
    out: np.ndarray[Any, Any],
    arguments: Sequence[DeviceArray | EncodedMap] = (),
    *,
    threads: int = 32,
    blocks: int = 1,
    cluster: int = 1,
    shared_bytes: int = 0,
    seed: int = 0,
) -> np.ndarray[Any, Any]:
    """What the kernel leaves in an array that is full of what `out` has."""
    target = device(out, writable=True)
    shape = (blocks, 1, 1), (threads, 1, 1)
    launch(kernel, *shape, shared_bytes, [target, *arguments], cluster=cluster, seed=seed)
    allocation: Any = target.allocation
    return allocation.data.view(out.dtype).reshape(out.shape)
