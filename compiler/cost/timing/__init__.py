"""How long a kernel takes on a machine: its units, its warps, the grid, memory and caches."""
