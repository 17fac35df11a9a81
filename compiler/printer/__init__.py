"""CUDA C from the `cuda` dialect, as a person would have written it."""
