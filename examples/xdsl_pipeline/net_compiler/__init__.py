"""A small compiler of somebody else's: a dialect, a lowering, a pipeline. docs/xdsl.md of treadle explains it."""
