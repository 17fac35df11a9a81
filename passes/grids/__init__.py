"""Blocks that share what they copy, or take one piece after another."""
