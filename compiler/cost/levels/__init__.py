"""H and M: what passes between two levels of memory, and what a group holds at each."""
