"""Pictures of programs at any level, in the notation of arXiv 2412.03317, laid out from the IR alone.

| file | what |
| --- | --- |
| `read.py` | IR of any level -> a `Diagram`: wires (arrays), nodes (functions, level changes), phases |
| `glyphs.py`, `expressions.py` | how an operation is drawn and labelled; what is unknown becomes a labelled box |
| `columns.py` | nodes -> columns of functions between columns of arrays |
| `spacing.py`, `layout.py` | coordinates |
| `paint.py`, `table.py` | shapes: wires, boxes, regions, phases; the table of H and M |
| `svg.py`, `theme.py`, `mathtext.py` | SVG text, colours, axis labels |
| `program.py` | the picture of a module; `before = after`; derivations |
| `timeline.py` | the pipeline picture: warps and units over time |
| `page/` | the HTML page of a compilation |
"""
