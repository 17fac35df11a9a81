"""The three levels, high to low: `diagram`, `hierarchy`, `cuda`."""
