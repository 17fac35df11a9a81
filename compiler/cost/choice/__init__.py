"""The sizes that a kernel may have, and which of them it gets."""
