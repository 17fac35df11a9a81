"""Axes that are taken a piece at a time: stages, states, their repair, and the ranges of positions that are visited."""
