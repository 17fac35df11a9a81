"""`linalg` on tensors, read and written."""
