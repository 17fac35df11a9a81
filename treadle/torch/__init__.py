# pyright: standard
"""The PyTorch front end: `torch.compile(model, backend="treadle")`, `treadle.explain`, and kernels as
operators (`operator`). Importing this imports torch."""

from treadle.torch.backend import backend
from treadle.torch.explain import explain
from treadle.torch.library import operator
from treadle.torch.report import GraphReport, Left, Report, Taken

__all__ = ["GraphReport", "Left", "Report", "Taken", "backend", "explain", "operator"]
