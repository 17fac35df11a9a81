"""Which operations become one kernel, and what one kernel may do with each axis."""
