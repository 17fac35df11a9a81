"""`treadle check`: whether the stream of a law computes what its meaning says."""
