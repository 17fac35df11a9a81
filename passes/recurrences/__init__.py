"""Recurrences whose steps are affine in their states: which are, and such ones in chunks."""
