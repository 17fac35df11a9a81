"""Draw the pictures of docs/layouts.md from the layouts themselves: `python docs/make_pictures.py`.

Colours are those of Okabe and Ito, which colour-blind readers can tell apart, and every cell says in words what its
colour says. What stands outside of cells follows the reader's light or dark page."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from treadle.compiler.layouts import Map, Tile, natural_swizzle, tile_rows
from treadle.compiler.layouts.conflicts import chunk_banks
from treadle.compiler.layouts.fragments import accumulator_atom, left_atom
from treadle.dialects.cuda.layout import LANES

HERE = Path(__file__).parent / "pictures"
COLOURS = ("#56B4E9", "#E69F00", "#009E73", "#F0E442", "#CC79A7", "#D55E00", "#999999", "#FFFFFF")
CELL_WIDTH, CELL_HEIGHT, LEFT, TOP = 52, 32, 64, 56

STYLE = """
  text { font-family: ui-sans-serif, system-ui, sans-serif; font-size: 12px; fill: #1b1f24; }
  .cell text { fill: #111; text-anchor: middle; }
  .cell .small { font-size: 9px; }
  .cell rect { stroke: #333; stroke-width: 0.7; }
  .marked rect { stroke: #000; stroke-width: 2.5; }
  .axis { text-anchor: middle; font-size: 11px; }
  .title { font-size: 13px; font-weight: 600; }
  @media (prefers-color-scheme: dark) { text { fill: #e6edf3; } .cell rect { stroke: #ddd; stroke-width: 0.7; }
    .marked rect { stroke: #fff; stroke-width: 2.5; } .cell text { fill: #111; } }
"""


@dataclass(frozen=True)
class Cell:
    """A cell of a grid: where it is, what it says, in small below, and its colour."""

    row: int
    column: int
    text: str
    small: str
    colour: int
    marked: bool = False


def draw(
    title: str, cells: Iterable[Cell], rows: Callable[[int], str], columns: Callable[[int], str], says: str
) -> str:
    """A grid of cells with labels along both sides; `says` describes it to who cannot see it."""
    every = list(cells)
    height, width = 1 + max(cell.row for cell in every), 1 + max(cell.column for cell in every)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + width * CELL_WIDTH + 8}" '
        f'height="{TOP + height * CELL_HEIGHT + 8}" role="img" aria-label="{says}">',
        f"<style>{STYLE}</style>",
        f'<text class="title" x="8" y="20">{title}</text>',
    ]
    for column in range(width):
        x = LEFT + column * CELL_WIDTH + CELL_WIDTH // 2
        lines.append(f'<text class="axis" x="{x}" y="{TOP - 8}">{columns(column)}</text>')
    for row in range(height):
        y = TOP + row * CELL_HEIGHT + CELL_HEIGHT // 2 + 4
        lines.append(f'<text class="axis" x="{LEFT // 2}" y="{y}">{rows(row)}</text>')
    lines += [_cell(cell) for cell in sorted(every, key=lambda cell: cell.marked)]
    return "\n".join([*lines, "</svg>", ""])


def _cell(cell: Cell) -> str:
    x, y = LEFT + cell.column * CELL_WIDTH, TOP + cell.row * CELL_HEIGHT
    middle = x + CELL_WIDTH // 2
    return (
        f'<g class="cell{" marked" if cell.marked else ""}"><rect x="{x}" y="{y}" width="{CELL_WIDTH}" '
        f'height="{CELL_HEIGHT}" fill="{COLOURS[cell.colour]}"/>'
        f'<text x="{middle}" y="{y + 14}">{cell.text}</text>'
        f'<text class="small" x="{middle}" y="{y + 26}">{cell.small}</text></g>'
    )


def fragment_picture(title: str, atom: Map, rows: str, columns: str, says: str) -> str:
    """Which lane holds each element of an atom, and in which register; coloured by the lane modulo 4, lane 5 marked."""
    cells = [
        Cell(at[rows], at[columns], f"lane {lane}", f"reg {register}", lane % 4, marked=lane == 5)
        for lane in range(LANES)
        for register in range(atom.size("register"))
        for at in [atom(lane=lane, register=register)]
    ]
    return draw(title, cells, lambda i: f"{rows} = {i}", lambda i: f"{columns} = {i}", says)


def tile_picture(title: str, tile: Tile, says: str) -> str:
    """Where the chunks of eight rows lie: a line of the picture is 128 bytes of memory, a column four banks; coloured
    by chunk, chunk 0 marked."""
    chunks = tile.rows.pitch.data // tile.chunk
    cells: list[Cell] = []
    for row in range(8):
        for chunk in range(chunks):
            place = tile.address({tile.axes[0]: row, tile.axes[1]: chunk * tile.chunk}) // 16
            assert place % 8 == chunk_banks(tile, row, chunk)
            cells.append(Cell(place // 8, place % 8, f"row {row}", f"chunk {chunk}", chunk % 8, marked=chunk == 0))
    return draw(title, cells, lambda i: f"{128 * i} B", lambda i: f"{4 * i}-{4 * i + 3}", says)


def pictures() -> dict[str, str]:
    """Every picture by file name."""

    def tile(columns: int, swizzled: bool) -> Tile:
        swizzle = natural_swizzle(columns // 8) or () if swizzled else ()
        return Tile(("q", "d"), tile_rows((8, columns), 2, 0, swizzle), 2)

    return {
        "accumulator.svg": fragment_picture(
            "Accumulator of mma.m16n8",
            accumulator_atom("q", "x"),
            "q",
            "x",
            "16 x 8 elements; lane l holds rows l / 4 and l / 4 + 8, columns 2 (l mod 4) and the next",
        ),
        "left_operand.svg": fragment_picture(
            "Left operand of mma.m16n8k16",
            left_atom("q", "d"),
            "q",
            "d",
            "16 x 16 elements; lane l holds the accumulator's elements of two tiles side by side",
        ),
        "tile_plain.svg": tile_picture(
            "64 elements a row, as they come; columns are banks",
            tile(64, False),
            "chunk 0 of all eight rows lies in banks 0 to 3",
        ),
        "tile_swizzled.svg": tile_picture(
            "64 elements a row, swizzle [3, 0]; columns are banks",
            tile(64, True),
            "chunk 0 of the eight rows lies in eight different groups of banks, on a diagonal",
        ),
        "tile_swizzled_48.svg": tile_picture(
            "48 elements a row, swizzle [1, 2]; columns are banks",
            tile(48, True),
            "rows of six chunks follow each other without a gap; chunk 0 meets every group of banks once",
        ),
    }


def main() -> None:
    HERE.mkdir(exist_ok=True)
    for name, picture in pictures().items():
        (HERE / name).write_text(picture)


if __name__ == "__main__":
    main()
