"""Reads of what a product gave that only swap neighbouring blocks along an axis."""
