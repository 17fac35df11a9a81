"""One file a pass."""
