"""Turns that take their powers before they know their maximum."""
