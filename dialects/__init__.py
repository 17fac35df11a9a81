"""The dialects of the three levels, high to low: `diagram`, `hierarchy`, `cuda`."""
