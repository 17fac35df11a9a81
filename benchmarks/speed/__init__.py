"""Speed on a GPU beside what else one could use: cases, who is measured, the clock, and the goals."""
