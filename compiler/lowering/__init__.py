"""From explicit groups and streams to blocks, fragments and products: what `convert-hierarchy-to-cuda` is made of."""
