"""What one kernel moves, computes and holds, and what its products and arrays are."""
