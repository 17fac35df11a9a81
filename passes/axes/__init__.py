"""Axes that are one axis: which may be, what has to be joined before, and how a function is written then."""
