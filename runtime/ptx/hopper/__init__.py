"""What Hopper adds: barriers in shared memory, tensor copies, and products of warpgroups."""
