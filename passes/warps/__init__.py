"""Roles of warps: a producer that copies, consumers that compute, and whose turn it is."""
