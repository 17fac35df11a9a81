"""Fragments that go through shared memory where lanes, as they hold elements, would ask for a sector twice."""
