"""Sectors of tensor copies: what the algebra computes of boxes is what the emulator counts, box by box in sum, at any
sizes, strides and addresses that a tensor map takes; and it says how many of them are asked for twice."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np
import pytest
from test_clusters import PRODUCT
from test_clusters import made as clustered
from test_coalescing import NONE, Watched, attention_of, counted, half, program
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from treadle.compiler.execution import executed
from treadle.compiler.gates.traffic import traffic_of
from treadle.compiler.layouts import Traffic
from treadle.compiler.layouts.boxes import Rows, TensorCopyOp, box_traffic
from treadle.compiler.pipeline import Options, print_cuda, run_pipeline
from treadle.compiler.source import parse_module
from treadle.dialects import cuda
from treadle.dialects.cuda.kernel import variant_name
from treadle.dialects.diagram.array import axes_of
from treadle.runtime.backend import has_host_compiler
from treadle.runtime.emulator import MappedArray
from treadle.runtime.emulator.arrays import allocation_offset
from treadle.runtime.host import HostExecution
from treadle.runtime.inputs import axis_sizes, make_inputs
from treadle.runtime.interpreter import entry_function

pytestmark = pytest.mark.skipif(not has_host_compiler(), reason="no C++ compiler is installed")


def shifted(array: Any, by: int, beyond: int) -> Any:
    """The same numbers in rows that lie `beyond` elements further apart, begun so many elements behind a sector."""
    *outer, columns = array.shape
    view = np.zeros((*outer, columns + beyond + by), array.dtype)[..., by : by + columns]
    view[...] = array
    return view


def computed(kernel: cuda.KernelOp, aligned: int, blocks: int, arguments: tuple[Any, ...]) -> dict[type[Any], Traffic]:
    """What the tensor copies of a launch move, by the algebra: block by block, as its numbers say."""
    given, numbers = iter(arguments), dict[SSAValue, int]()
    arrays: dict[SSAValue, Any] = {}
    for arg in kernel.body.block.args:
        value = next(given)
        if isinstance(value, MappedArray):
            arrays[arg] = value.array.data
        elif hasattr(value, "pointer"):
            for _ in axes_of(arg.type)[0 if aligned == cuda.ANY_STRIDES else 1 :]:
                next(given)
        else:
            numbers[arg] = getattr(value, "value", value)
    found: dict[type[Any], Traffic] = {cuda.TensorLoadOp: NONE, cuda.TensorStoreOp: NONE}
    for block in range(blocks):
        known = numbers | in_grid(kernel, block, blocks)
        for op in in_all_roles(kernel, known):
            if isinstance(op, cuda.TensorLoadOp | cuda.TensorStoreOp):
                found[type(op)] += of_one(op, arrays[op.map], known, block % kernel.cluster)
    return found


def in_grid(kernel: cuda.KernelOp, block: int, blocks: int) -> dict[SSAValue, int]:
    places = {
        cuda.BlockIndexOp: block,
        cuda.ClusterIndexOp: block // kernel.cluster,
        cuda.BlockInClusterOp: block % kernel.cluster,
        cuda.GridSizeOp: blocks,
    }
    return {op.results[0]: place for op in kernel.walk() for kind, place in places.items() if isinstance(op, kind)}


def in_all_roles(kernel: cuda.KernelOp, known: dict[SSAValue, int]) -> Iterator[Any]:
    for op in executed(kernel.body.block, known):
        if isinstance(op, cuda.RolesOp):
            yield from executed(op.producer.block, known)
            yield from executed(op.consumers.block, known)
        else:
            yield op


def of_one(op: TensorCopyOp, array: Any, known: dict[SSAValue, int], share: int) -> Traffic:
    """One copy, at the places that its numbers say. A map of an axis in several dimensions is of the same memory."""
    axes, at = axes_of(op.map_type.buffer), [known[offset] for offset in op.offsets]
    sizes, strides = array.shape, array.strides
    if op.map_type.multiple is not None:  # joined to one axis again
        first = op.map_type.multiple[0]
        place, count = axes.index(first), len(list(op.boxes.order)) - 1
        sizes = (*sizes[:place], prod(sizes[place : place + count]), *sizes[place + count :])
        strides = (*strides[:place], strides[place + count - 1], *strides[place + count :])
    bytes = array.itemsize
    inside = {axis: Rows(-first, size - first) for axis, first, size in zip(axes, at, sizes, strict=True)}
    wanted: Rows | None = None
    if isinstance(op, cuda.TensorLoadOp) and op.is_by_rows:
        place = next(place for place, side in zip(at, op.map_type.shape, strict=True) if side > 1)
        begin = 0 if op.begin is None else known[op.begin]
        wanted = Rows(begin - place, (2**31 if op.stop is None else known[op.stop]) - place)
    base = allocation_offset(array, array.ctypes.data) + sum(a * b for a, b in zip(at, strides, strict=True))
    return box_traffic(
        op, {a: s // bytes for a, s in zip(axes, strides, strict=True)}, base % 128, inside, share, wanted
    )


def check(text: str, inputs: list[Any]) -> list[dict[type[Any], Traffic]]:
    """Compile for sm_90a, run in the emulator, and hold its counts against the algebra's."""
    module = parse_module(text)
    run_pipeline(module, Options(arch="sm_90a"))
    return check_module(module, inputs)


def check_module(module: ModuleOp, inputs: list[Any]) -> list[dict[type[Any], Traffic]]:
    kernels = {op.sym_name.data: op for op in module.body.block.ops if isinstance(op, cuda.KernelOp)}
    entries = {variant_name(k, a): (k, a) for k in kernels.values() for a in cuda.alignments(k)}
    printed = print_cuda(module)
    backend = Watched(printed, list(entries))
    backend.launched = []
    HostExecution(module, backend).run(entry_function(module), inputs)
    found = list[dict[type[Any], Traffic]]()
    for name, blocks, arguments, report in backend.launched:
        moved = computed(*entries[name], blocks, arguments)
        for kind, row in ((cuda.TensorLoadOp, "tensor_load"), (cuda.TensorStoreOp, "tensor_store")):
            told = [each for each in traffic_of(printed, [report]) if each.kind == row]
            assert (moved[kind].requests, moved[kind].sectors) == counted(report, row)
            assert moved[kind].bytes == sum(each.bytes for each in told)
            assert moved[kind].fewest_sectors == sum(each.fewest_sectors for each in told)
        found.append(moved)
    assert any(moved[cuda.TensorLoadOp].requests for moved in found)
    return found


def inputs_of(text: str, by: int, beyond: int, **sizes: int) -> list[Any]:
    function = entry_function(parse_module(text))
    made = [np.asarray(each) for each in make_inputs(function, axis_sizes(function, sizes), 0)]
    return [shifted(each, by, beyond) if each.ndim > 1 else each.item() if each.ndim == 0 else each for each in made]


@pytest.mark.parametrize("d", [64, 128])
@pytest.mark.parametrize(("q", "x"), [(128, 256), (100, 333), (1, 1)])
def test_aligned_rows_come_in_the_fewest(d: int, q: int, x: int) -> None:
    (moved,) = check(attention_of(d), [half(1, 2, q, d), half(1, 2, x, d), half(1, 2, x, d)])
    for each in moved.values():
        assert each.is_fewest
        assert each.bytes == 32 * each.sectors


@pytest.mark.sample(4)
@pytest.mark.parametrize(("by", "beyond"), [(0, 8), (8, 8), (8, 0), (8, 24)])
@pytest.mark.parametrize("d", [64, 128, 256])
def test_rows_that_begin_in_the_middle_of_a_sector(d: int, by: int, beyond: int) -> None:
    """Boxes of 128 bytes a row share a sector with the next; of single boxes none is asked for twice."""
    text = attention_of(d)
    (moved,) = check(text, inputs_of(text, by, beyond, b=1, h=2, q=100, x=200))
    loaded = moved[cuda.TensorLoadOp]
    assert loaded.is_fewest == (d == 64)
    assert loaded.sectors > loaded.bytes / 32


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("matmul", {"m": 200, "n": 136, "k": 328}),
        ("matmul_tt", {"m": 200, "n": 136, "k": 328}),
        ("matmul_residual", {"t": 200, "j": 136, "i": 328}),
        ("attention_f8", {"q": 100, "x": 208, "h": 1, "b": 1}),
        ("attention_prefix", {"q": 100, "x": 203, "h": 1, "b": 1}),
        ("attention_causal", {"q": 203, "x": 203, "h": 1, "b": 1}),
        ("attention_decode", {"x": 1000, "h": 1, "b": 1}),
        ("attention_window", {"q": 300, "x": 300, "h": 1, "b": 1}),
        ("attention_backward", {"q": 100, "x": 203, "h": 1, "b": 1}),
        ("conv1d", {}),
    ],
)
@pytest.mark.parametrize("beyond", [0, 8])
def test_other_kernels(name: str, sizes: dict[str, int], beyond: int) -> None:
    """Rows in another order, before a position and from one on, transposed."""
    text = program(name)
    known = axis_sizes(entry_function(parse_module(text)), {})
    check(text, inputs_of(text, 0, 2 * beyond, **{axis: size for axis, size in sizes.items() if axis in known}))


@pytest.mark.parametrize(("m", "n", "k"), [(256, 512, 256), (300, 400, 328)])
def test_blocks_of_a_cluster_share_what_they_copy(m: int, n: int, k: int) -> None:
    """Each counts its own share: together they ask for each sector of a tile once."""
    module = clustered(PRODUCT)[1]
    assert any(op.shares > 1 for op in module.walk() if isinstance(op, cuda.TensorLoadOp))
    (moved,) = check_module(module, [half(m, k), half(k, n)])
    assert moved[cuda.TensorLoadOp].is_fewest  # also of rows that begin inside of sectors: one box has all of a row
