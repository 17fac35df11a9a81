"""Masks by positions: what a choice asks, and what becomes of the elements that it does not choose."""
