"""What instructions mean, one file for each topic of the ISA."""
