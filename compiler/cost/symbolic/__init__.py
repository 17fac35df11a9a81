"""Costs as expressions in sizes; what needs sympy."""
