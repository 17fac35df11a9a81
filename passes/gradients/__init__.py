"""Reverse-mode differentiation of diagrams."""
