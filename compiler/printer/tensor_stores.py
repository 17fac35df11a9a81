"""Print how a tile leaves by tensor copies: fragments written to its boxes, the fence, the copies, the wait."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Operation

from treadle.compiler.errors import Refusal
from treadle.compiler.printer.indices import add, scaled, warp_place
from treadle.compiler.printer.scalars import bare, c_type, term
from treadle.compiler.printer.writer import KernelWriter
from treadle.dialects import cuda
from treadle.dialects.cuda.boxes import BoxesAttr, cut
from treadle.dialects.cuda.layout import Mode, is_interleaved
from treadle.dialects.cuda.roles import WARPGROUP
from treadle.dialects.cuda.tensor_maps import shared_axis
from treadle.dialects.cuda.tiles import boxes_of, format_bytes, layout_of
from treadle.dialects.cuda.warpgroups import result_axes
from treadle.dialects.diagram.array import axes_of

WORD = 4
"""Bytes of elements that lanes write themselves."""

MATRICES = 4
"""8 x 8 matrices that a warp stores at once: 16 rows and 16 columns."""


def print_on_the_way_out(writer: KernelWriter, op: Operation) -> bool:
    """Print an operation, if it is one of these."""
    match op:
        case cuda.TensorFenceOp():
            writer.text.line(f"{writer.call('fence_proxy_async')}();")
        case cuda.TensorStoreOp():
            _store(writer, op)
        case cuda.TensorWaitOp():
            writer.text.line(f"{_one(op)} {writer.call('tensor_store_wait')}<{op.pending.data}>();")
        case _:
            return False
    return True


def print_boxed_write(writer: KernelWriter, op: cuda.WriteOp) -> None:
    """Fragments of an accumulator to a tile in boxes: words in pairs, others four matrices at a time (`stmatrix`)."""
    if format_bytes(op.value.type) == WORD:
        return _write_words(writer, op)
    layout, boxes = layout_of(op.value.type), boxes_of(op.destination.type)
    axes, bytes = result_axes(layout), format_bytes(op.value.type)
    part, parts = op.which
    count = next(iter(layout.register)).size // parts
    if axes is None or is_interleaved(layout) or (count % 2 and parts > 1) or bytes != 2:
        raise Refusal(op, "only 16-bit fragments of an accumulator of warpgroups are written to a tile in boxes")
    turned = axes_of(op.destination.type)[boxes.row_axis] == axes[0]
    in_boxes = f"{writer.call('in_boxes')}<{boxes.span.data}, {boxes.rows}, {bytes}>"
    own = warp_place(layout, axes[1])

    def place(column: str) -> str:
        """Of the row that a lane gives, of matrices from that column on."""
        row, further = _of_turn(writer, warp_place(layout, axes[0], "lane % 16")), add([own, column])
        if turned:
            row, further = (
                add([own, column, _of_turn(writer, "lane % 8")]),
                warp_place(layout, axes[0], "lane / 8 % 2 * 8"),
            )
        return f"&{writer.values[op.destination]}[{in_boxes}({row}, {further})]"

    def stored(number: str, column: str, count: int) -> str:
        """The store of so many matrices, from those columns of eight on."""
        name = writer.call(f"store_matrix_x{count}{'_trans' if turned else ''}")
        held = f"{writer.values[op.value]}[{number}]"
        registers = f"reinterpret_cast<const {c_type(op.value.type)}(&)[{count}][2]>({held})"
        return f"{name}({place(column)}, {registers});"

    with writer.names.scope():
        n = writer.names.fresh(f"{axes[1]}8")
        if count > 1:
            writer.text.line(f"UNROLL for (int {n} = 0; {n} < {count // 2 * 2}; {n} += 2)")
            number = add([str(part * count), n])
            writer.text.line(f"  {stored(number, f'{n} * 8 + lane / 16 * 8', MATRICES)}")
        if count % 2:  # the last eight columns
            writer.text.line(stored(str(count - 1), str(count * 8 - 8), MATRICES // 2))


def _write_words(writer: KernelWriter, op: cuda.WriteOp) -> None:
    """Each lane its pairs, or one by one where rows of the accumulator run across those of the boxes."""
    layout, boxes = layout_of(op.value.type), boxes_of(op.destination.type)
    axes, (part, parts) = result_axes(layout), op.which
    if axes is None or is_interleaved(layout):
        raise Refusal(op, "only fragments of an accumulator of warpgroups are written to a tile in boxes")
    count = next(iter(layout.register)).size // parts
    turned = axes_of(op.destination.type)[boxes.row_axis] == axes[0]
    in_boxes = f"{writer.call('in_boxes')}<{boxes.span.data}, {boxes.rows}, {WORD}>"
    store, tile, value = writer.call("store_shared"), writer.values[op.destination], writer.values[op.value]
    with writer.names.scope():
        n, m, one = (writer.names.fresh(name) for name in (f"{axes[1]}8", f"{axes[0]}8", f"{axes[1]}1"))
        row = _of_turn(writer, warp_place(layout, axes[0], "lane / 4"))
        column = add([f"{n} * 8", _of_turn(writer, warp_place(layout, axes[1], "lane % 4 * 2"))])
        held = f"{value}[{add([str(part * count), n])}][{m}]"
        headers = [f"for (int {n} = 0; {n} < {count}; ++{n})", f"for (int {m} = 0; {m} < 2; ++{m})"]
        if turned:
            headers.append(f"for (int {one} = 0; {one} < 2; ++{one})")
            place = f"&{tile}[{in_boxes}({column} + {one}, {row} + {m} * 8)]"
            statement = f"{store}({place}, {writer.number(op.value, f'{held}[{one}]')});"
        else:
            place = f"{writer.call('vec')}<2>(&{tile}[{in_boxes}({row} + {m} * 8, {column})])"
            statement = f"{store}({place}, {writer.call('pack')}<2>({held}));"
        writer.text.nest([f"UNROLL {header}" for header in headers], [statement])


def _of_turn(writer: KernelWriter, text: str) -> str:
    """What depends on the lane alone, as a number of the turn of a loop around: else the compiler makes the places of
    all matrices before that loop, and they are alive beside the sums of all turns."""
    return text if writer.loop is None else f"{writer.call('kept')}({text})"


def _store(writer: KernelWriter, op: cuda.TensorStoreOp) -> None:
    tile, offsets = writer.values[op.tile], [writer.values[each] for each in op.offsets]
    if op.by_groups is not None:
        axis, rows = shared_axis(op.boxes), op.boxes.rows // op.shares
        offsets[axis] = add([term(offsets[axis]), scaled("warpgroup", op.map_type.shape[axis])])
        tile = add([tile, scaled("warpgroup", rows * op.boxes.span.data)])
    with writer.names.scope(), writer.text.block(_one(op)):
        box = writer.names.fresh("box")
        tile, at = box_place(tile, op.boxes, offsets, box)
        print_for_each_box(
            writer, op.boxes, box, f"{writer.call('tensor_store')}({writer.values[op.map]}, {tile}, {at});"
        )
        writer.text.line(f"{writer.call('tensor_store_commit')}();")


def _one(op: cuda.TensorStoreOp | cuda.TensorWaitOp) -> str:
    """The condition of the thread that does it, for all consumers or for its warpgroup."""
    return "if (thread == 0)" if op.by_groups is None else f"if (thread % {WARPGROUP} == 0)"


def print_for_each_box(writer: KernelWriter, boxes: BoxesAttr, box: str, statement: str) -> None:
    count = boxes.count * len(boxes.firsts)
    if count > 1:
        writer.text.line(f"UNROLL for (int {box} = 0; {box} < {count}; ++{box})")
    writer.text.line(f"{'  ' * (count > 1)}{statement}")


def box_place(tile: str, boxes: BoxesAttr, offsets: list[str], box: str) -> tuple[str, str]:
    """Where copy number `box` of a tile lands in shared memory, and its coordinates in the array, innermost first. With
    an order of its rows a box comes in several copies, one after another."""
    at = [text if text.isdigit() else f"int({text})" for text in map(bare, offsets)]
    parts = len(boxes.firsts)
    if boxes.count * parts > 1:
        tile = f"{tile} + {box} * {boxes.elements // (boxes.count * parts)}"
    if boxes.count > 1:
        number = box if parts == 1 else f"{box} / {parts}"
        at[boxes.row_axis] = add([at[boxes.row_axis], f"{number} * {boxes.span.data}"])
    if inner := cut(tuple(boxes.order)):
        part, step = (box if boxes.count == 1 else f"{box} % {parts}"), boxes.firsts[1]
        ordered = next(i for i, extent in enumerate(boxes.shape) if extent != 1)
        at[ordered : ordered + 1] = _in_dimensions(at[ordered], part, step, inner)
    return tile, f"{{{', '.join(reversed(at))}}}"


def _in_dimensions(offset: str, part: str, step: int, inner: Sequence[Mode]) -> list[str]:
    """The coordinates of `offset + part * step` in the dimensions that an axis became; the offset is a multiple of the
    slowest stride."""
    slowest, *faster = inner
    found = ["0" if offset == "0" else f"{offset} / {slowest.stride}"]
    reach = slowest.stride
    for mode in faster:
        inside = step % reach // mode.stride  # what a part adds along this dimension
        found.append(scaled(part, inside) if inside else "0")
        reach = mode.stride
    return found
