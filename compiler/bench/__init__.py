"""Predictions held against measurement: `treadle bench predict`, on a GPU.

`rates.py` measures what the machine sustains, `predict.py` compares kernels over sizes, `counters.py` reads the
profiler's bytes. What decides is free of the GPU and tested without one; `gpu.py` is the device itself."""
