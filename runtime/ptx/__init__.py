"""A machine that runs the PTX that nvcc makes of a printed file, without a GPU (docs/ptx.md)."""
