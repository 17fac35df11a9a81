"""Factors that move past reductions: what they are, what stays behind, and which rows have elements."""
