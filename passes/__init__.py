"""The passes, one file each, with the name of the pass; folders hold what several passes share."""
