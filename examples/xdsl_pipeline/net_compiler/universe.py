"""What the stock `xdsl-opt` sees of this compiler."""

from __future__ import annotations

from xdsl.dialects.builtin import Dialect
from xdsl.passes import ModulePass
from xdsl.universe import Universe


def net() -> Dialect:
    from net_compiler.dialect import Net

    return Net


def convert_net_to_diagram() -> type[ModulePass]:
    from net_compiler.convert_net_to_diagram import ConvertNetToDiagramPass

    return ConvertNetToDiagramPass


def net_to_cuda() -> type[ModulePass]:
    from net_compiler.net_to_cuda import NetToCudaPass

    return NetToCudaPass


NET_UNIVERSE = Universe(
    all_dialects={"net": net},
    all_passes={"convert-net-to-diagram": convert_net_to_diagram, "net-to-cuda": net_to_cuda},
)
