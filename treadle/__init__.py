"""treadle: derive fast GPU kernels from deep-learning algorithms drawn as diagrams."""

__version__ = "0.1.0"
