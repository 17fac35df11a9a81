"""Derivations as text: the rewrites that were applied, each with its law and the cost before and after.

A derivation is a list of passes with their options, one a line, and comments. `record.py` writes it from a run of the
pipeline, with every decision (streamed axes, sizes) as an option; `replay.py` reads it again, for the same file or
another, as it was or edited."""
