"""The first few of an order: which reductions find them, and how they are found part by part."""
