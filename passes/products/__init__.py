"""Products of products: in which order they are multiplied, and in which chunks of axes that a condition orders."""
