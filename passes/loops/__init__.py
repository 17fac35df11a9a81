"""Loops over the pieces of an axis, and what can be done a turn ahead of them."""
