"""FileCheck tests: `lit lit_tests`, in an environment where treadle is installed."""

import os
import sys

import lit.formats

config.name = "treadle"  # noqa: F821
config.test_format = lit.formats.ShTest()  # noqa: F821
config.suffixes = [".mlir"]  # noqa: F821
config.test_source_root = os.path.dirname(__file__)  # noqa: F821
# The tools are those of the Python that runs lit, whatever the path of the shell says.
config.environment["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])  # noqa: F821
# As the other tests: compiled kernels are kept in the checkout.
root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
config.environment["TREADLE_CACHE"] = os.path.join(root, ".treadle-cache")  # noqa: F821
if "PYTHONPATH" in os.environ:  # another checkout than the installed one
    config.environment["PYTHONPATH"] = os.environ["PYTHONPATH"]  # noqa: F821
