"""HTML pages that open from disk: one file each, nothing fetched."""
