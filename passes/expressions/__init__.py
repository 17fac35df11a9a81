"""Scalar expressions of maps, and what can be proved about their values."""
