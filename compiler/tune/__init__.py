"""Other ways to make a program's kernels than the model's choice, measured on a GPU one after another; the fastest is a
derivation that can be replayed."""
