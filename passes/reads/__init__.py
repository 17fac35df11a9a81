"""Reads of what is computed: as reads of what it is computed from."""
