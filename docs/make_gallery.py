"""Draw every picture of the documentation: `make gallery`, or `python docs/make_gallery.py [--shown] [EXAMPLE ...]`.

Makes the pictures of docs/drawing.md (`--shown`: only those) and, in docs/gallery, a page for each example with its
diagram, derivation, costs and kernel. No picture is made by hand."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import takewhile
from pathlib import Path

from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.arg_spec import ArgSpec

from treadle.compiler.cli.report_code import code_lines, machine_code
from treadle.compiler.cost.timing.schedule import Stage, schedule
from treadle.compiler.counting import counted
from treadle.compiler.draw.page.compilation import Ending, compilation_page
from treadle.compiler.draw.page.record import Record
from treadle.compiler.draw.program import draw_module
from treadle.compiler.draw.sequence import Frames, before_after, derivation_strip, steps_of
from treadle.compiler.draw.svg import Picture
from treadle.compiler.draw.timeline import Labels, draw_timeline
from treadle.compiler.machines import load_machine, machine_of
from treadle.compiler.pipeline import (
    LAST_HIERARCHY_PASS,
    Observer,
    Options,
    PassRun,
    pipeline,
    print_cuda,
    run_passes,
    run_pipeline,
)
from treadle.compiler.progress import progress
from treadle.compiler.source import load_module

HERE = Path(__file__).parent
EXAMPLES = HERE.parent / "examples"
SHOWN = HERE / "pictures" / "drawn"
GALLERY = HERE / "gallery"
DECORATED, EXPLICIT = "hierarchy-choose-sizes", LAST_HIERARCHY_PASS


def drawn(example: str, last: str | None = None, **how: bool) -> Picture:
    module = load_module(EXAMPLES / f"{example}.mlir")
    if last is not None:
        run_pipeline(module, Options(), last=last)
    return draw_module(module, **how)


def rewrite(example: str, name: str) -> Picture:
    """`before = after` of the pass `name`."""
    module = load_module(EXAMPLES / f"{example}.mlir")
    specs = pipeline(Options())
    place = next(i for i, spec in enumerate(specs) if spec.name == name)
    run_passes(module, specs[:place])
    before, told = draw_module(module, table=False, legend=False), len(steps_of(module))
    run_passes(module, [specs[place]])
    return before_after(before, draw_module(module, table=False), name, steps_of(module)[told:])


def hopper_pipeline() -> Picture:
    """The configuration worked out in arXiv 2412.03317: d = 128, Q and K in FP8, V and P in FP16, three warpgroups of
    128 rows, 64 keys a step."""
    rates, d, keys, rows = load_machine("h100").rates, 128, 64, 128
    fp16_flop = 512  # of the vector units, a clock and SM
    scores = rows * 2 * d * keys / rates.tensor["f8"]
    softmax = rows * ((keys + 1) / rates.special + 2 * d / fp16_flop)
    values = rows * 2 * d * keys / rates.tensor["f16"]
    stages = [
        Stage("scores", "tensor", scores, (("softmax", 1),)),
        Stage("softmax", "special", softmax, (("scores", 0),)),
        Stage("values", "tensor", values, (("softmax", 0), ("scores", -1))),
    ]
    title = "attention on h100: d = 128, Q and K in FP8, V and P in FP16, 128 rows a warpgroup, 64 keys a step"
    return draw_timeline(schedule(stages, 3), Labels(title, "warpgroup"))


PICTURES = {
    "product": lambda: drawn("matmul"),
    "product_schedule": lambda: drawn("matmul", DECORATED),
    "softmax_product_regions": lambda: drawn("softmax_matmul", "fusion", table=False),
    "softmax_product_costs": lambda: drawn("softmax_matmul", DECORATED),
    "group_partition": lambda: rewrite("softmax", "tiling"),
    "attention": lambda: drawn("attention"),
    "attention_schedule": lambda: drawn("attention", DECORATED),
    "attention_pseudocode": lambda: drawn("attention", EXPLICIT),
    "grouped_query_attention": lambda: drawn("attention_gqa", DECORATED),
    "hopper_pipeline": hopper_pipeline,
}
"""What docs/drawing.md shows."""


def make_shown() -> None:
    SHOWN.mkdir(parents=True, exist_ok=True)
    for name, make in PICTURES.items():
        (SHOWN / f"{name}.svg").write_text(make().svg())


# -- the gallery -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Entry:
    """What the gallery has of one example."""

    name: str
    says: str
    source: str
    diagram: Picture
    schedule: Picture
    loops: Picture
    derivation: Picture
    costs: str
    cuda: str
    code: str
    """What nvcc made of the kernels."""
    walk: str


class Moments(Observer):
    """Pictures that a page needs while the passes run; the record sees the same passes."""

    def __init__(self, record: Record, frames: Frames):
        self.record, self.frames = record, frames
        self.compares = True
        self.pictures: dict[str, Picture] = {}
        self.done = False

    def before_pass(self, spec: ArgSpec, module: ModuleOp) -> None:
        self.frames.before_pass(spec, module)

    def after_rewrite(self, module: ModuleOp) -> None:
        if not self.done:
            self.frames.after_rewrite(module)

    def after_pass(self, run: PassRun, module: ModuleOp) -> None:
        self.record.after_pass(run, module)
        if not self.done:
            self.frames.after_pass(run, module)
        if run.name in (DECORATED, EXPLICIT):
            self.pictures[run.name] = draw_module(module)
        self.done |= run.name == EXPLICIT


def entry_of(path: Path) -> Entry:
    """One run of the pipeline gives everything."""
    module, source = load_module(path), path.read_text()
    moments = Moments(Record(module, {}), Frames(module, {}))
    diagram = draw_module(module)
    run_pipeline(module, Options(), moments)
    cuda = print_cuda(module)
    machine = machine_of(module)
    code = [*code_lines(module, machine_code(cuda, machine.arch))]
    ending = Ending(f"{path.stem} for {machine.name}", path.name, source, cuda, code)
    return Entry(
        path.stem,
        sentence_of(source),
        source,
        diagram,
        moments.pictures[DECORATED],
        moments.pictures[EXPLICIT],
        derivation_strip(moments.frames.frames, f"derivation of {path.stem}"),
        moments.record.explanation,
        cuda,
        "\n".join(code),
        compilation_page(moments.record, ending),
    )


def sentence_of(source: str) -> str:
    """The first sentence of the comment that a program begins with."""
    comment = takewhile(lambda line: line.startswith("//"), source.splitlines())
    text = " ".join(line[2:].strip() for line in comment)
    return text[: end + 1] if (end := text.find(". ")) >= 0 else text


STYLE = """
:root { --paper: #fff; --ink: #1b1f24; --muted: #5b6570; --line: #d5dae0; --link: #0067a8; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #0d1117; --ink: #e6edf3; --muted: #9aa5b1; --line: #30363d; --link: #6cc0f2; }
}
body { margin: 2rem auto; max-width: 90rem; padding: 0 1.5rem; color: var(--ink); background: var(--paper);
  font: 15px/1.5 ui-sans-serif, system-ui, Arial, sans-serif; }
a { color: var(--link); }
h2 { margin-top: 2rem; }
p { color: var(--muted); }
.picture, pre { overflow: auto; border: 1px solid var(--line); border-radius: 4px; }
.picture img { display: block; max-width: none; }
pre { padding: .6rem .8rem; max-height: 40rem; font: 12px/1.5 ui-monospace, "DejaVu Sans Mono", Menlo, monospace; }
ul { list-style: none; padding: 0; display: grid; gap: 1.2rem;
  grid-template-columns: repeat(auto-fill, minmax(26rem, 1fr)); }
li { border: 1px solid var(--line); border-radius: 4px; padding: .8rem; }
li img { max-width: 100%; max-height: 12rem; }
"""


def page(title: str, body: str) -> str:
    head = (
        f'<meta charset="utf-8">\n<meta name="viewport" content="width=device-width">\n<title>{escape(title)}</title>'
    )
    start = f'<!doctype html>\n<html lang="en">\n{head}\n<style>{STYLE}</style>\n'
    return f"{start}<h1>{escape(title)}</h1>\n{body}\n</html>\n"


def entry_page(entry: Entry) -> str:
    def picture(head: str, kind: str) -> str:
        image = f'<img src="{entry.name}.{kind}.svg" alt="{escape(head)} of {entry.name}">'
        return f'<h2>{head}</h2>\n<div class="picture" tabindex="0">{image}</div>'

    def text(head: str, content: str) -> str:
        return f"<h2>{head}</h2>\n<pre tabindex=0>{escape(content)}</pre>"

    parts = [
        f'<p>{escape(entry.says)} <a href="{entry.name}.walk.html">Walk through its compilation</a>, or go '
        f'<a href="index.html">back to all</a>.</p>',
        picture("Diagram", "diagram"),
        picture("Schedule", "schedule"),
        picture("Loops", "loops"),
        text("Costs", entry.costs),
        picture("Derivation", "derivation"),
        text("Program", entry.source),
        text("Kernel", entry.cuda),
        text("Registers, shared memory, main loop", entry.code),
    ]
    return page(entry.name, "\n".join(parts))


def write_entry(entry: Entry, folder: Path) -> None:
    pictures = {
        "diagram": entry.diagram,
        "schedule": entry.schedule,
        "loops": entry.loops,
        "derivation": entry.derivation,
    }
    for kind, picture in pictures.items():
        (folder / f"{entry.name}.{kind}.svg").write_text(picture.svg())
    (folder / f"{entry.name}.html").write_text(entry_page(entry))
    (folder / f"{entry.name}.walk.html").write_text(entry.walk)


def index_page(entries: Sequence[tuple[str, str]]) -> str:
    items = "\n".join(
        f'<li><a href="{name}.html"><b>{name}</b><br><img src="{name}.diagram.svg" alt=""></a><br>{escape(says)}</li>'
        for name, says in entries
    )
    return page(
        "Gallery",
        f"<p>Every example: its diagram, schedule, loops, costs, derivation and kernel.</p>\n<ul>\n{items}\n</ul>",
    )


def make_gallery(paths: Sequence[Path], folder: Path = GALLERY) -> Iterator[str]:
    """Write a page for each example and the index; gives the names as it goes."""
    folder.mkdir(parents=True, exist_ok=True)
    made: list[tuple[str, str]] = []
    for path in counted(paths, "examples"):
        yield path.stem
        entry = entry_of(path)
        write_entry(entry, folder)
        made.append((entry.name, entry.says))
    (folder / "index.html").write_text(index_page(made))


def main(arguments: Sequence[str]) -> None:
    names = [argument for argument in arguments if not argument.startswith("--")]
    make_shown()
    if "--shown" in arguments:
        return
    paths = [EXAMPLES / f"{name}.mlir" for name in names] or sorted(EXAMPLES.glob("*.mlir"))
    with progress("drawing"):
        for _ in make_gallery(paths):
            pass
    print(f"{GALLERY / 'index.html'}: {len(paths)} examples")


if __name__ == "__main__":
    main(sys.argv[1:])
