"""A PyTorch graph with treadle's kernels in it."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush
from operator import getitem
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch.fx import Graph, GraphModule, Node

from treadle.compiler.machines import load_machine
from treadle.compiler.progress import progress
from treadle.torch.groups import ALONE, grouped
from treadle.torch.lookups import LOOKUPS
from treadle.torch.mistakes import Mistakes
from treadle.torch.options import Options
from treadle.torch.outputs import members_read, outputs_of
from treadle.torch.pieces import LEFT, Piece, best_pieces
from treadle.torch.program import Entries, Program, translate
from treadle.torch.report import GraphReport, Left, Taken, said, source
from treadle.torch.simplified import simplify
from treadle.torch.symbols import Symbols, recording, symbols_of
from treadle.torch.tensors import Indivisible, Unsupported

if TYPE_CHECKING:
    from treadle.compiled import Kernel
    from treadle.texts import Estimate


DEVICES = ("cpu", "cuda")
"""Where kernels run: in the emulator or interpreter, and on a GPU."""

KNOWN = 1024
"""At how many combinations of sizes a launch keeps how it looks at its tensors."""

LAUNCH_US = 3.0
"""What starting one kernel more costs, in microseconds, about as much as CUDA needs between two small ones."""


MEMORY_US = 0.25
"""What each megabyte of each array that a kernel reads or writes costs beside its time, where a graph is trained, in
microseconds: about as long as it takes to move it once more. Memory is what training lacks, and arrays that grow with
the square of a length are the first that it lacks it for."""

KEPT = 256
"""Kernels that are kept by the text of their program. Layers are alike, and a graph that is trained is compiled twice:
to find what its kernels hold near, and with what it saves."""

_KERNELS: OrderedDict[tuple[str, ...], Kernel] = OrderedDict()


class Launch(torch.nn.Module):
    """A kernel in a PyTorch graph."""

    def __init__(self, kernel: Kernel, program: Program, backend: str, symbols: Sequence[Any] = ()):
        super().__init__()
        self.kernel = kernel
        self.program = program
        self.backend = backend
        self.symbols = tuple(symbols)
        """Whose values come before the tensors."""
        self._known: dict[tuple[int, ...], Program] = {}

    def forward(self, *arguments: Any) -> Any:
        values, tensors = arguments[: len(self.symbols)], arguments[len(self.symbols) :]
        program = self._at(values) if values else self.program
        given = [each.of(tensor) for each, tensor in zip(program.inputs, tensors, strict=True)]
        results = self.kernel.run(*given, *program.numbers, backend=self.backend)
        several: list[Any] = [*results] if isinstance(results, tuple) else [results]
        made = [each.of(result) for each, result in zip(program.outputs, several, strict=True)]
        return made[0] if len(made) == 1 else tuple(made)

    def _at(self, values: tuple[int, ...]) -> Program:
        """The program's tensors at these values of the symbols. Threads may find the same at once."""
        if (program := self._known.get(values)) is None:
            program = self.program.at(dict(zip(self.symbols, values, strict=True)))
            if len(self._known) >= KNOWN:
                self._known = {}
            self._known[values] = program
        return program


Attempt: TypeAlias = "Piece[Program]"


def with_kernels(
    module: GraphModule,
    options: Options,
    report: GraphReport,
    sizes: Sequence[Node] = (),
) -> GraphModule:
    """The same graph, its groups replaced by kernels; what happened is written into the report. Where
    sizes are symbols, the nodes `sizes` give their values in a call."""
    symbols = symbols_of(module.graph.nodes)
    left, pieces = pieces_of(module.graph, options, report.kind != "inference", makes=True)
    for node, reason in left.items():
        report.left.append(Left(said(node), source(node), reason))
    launches: list[tuple[Program, Launch, list[Node]]] = []
    for piece in pieces:
        if piece.made is None:
            report.left.extend(Left(said(node), source(node), piece.reason) for node in piece.nodes)
            continue
        program = piece.made
        values = () if symbols is None else tuple(symbols.values)
        launch = Launch(_kernel_of(program, options), program, options.backend, values)
        launches.append((program, launch, list(piece.nodes)))
        if symbols is not None:
            symbols.required |= dict.fromkeys(program.conditions)
        if program.fixed:
            anew = (Left(said(node), source(node), program.fixed) for node in piece.nodes)
            report.anew.extend(each for each in anew if each not in report.anew)
        report.taken.append(Taken(launch.kernel, tuple(map(said, piece.nodes)), _sources(piece.nodes)))
    return _put_in(module, launches, sizes)


def pieces_of(
    graph: Graph, options: Options, trains: bool, makes: bool = False
) -> tuple[dict[Node, str], list[Attempt]]:
    """The nodes that stay with PyTorch, and why, and the pieces that the others are cut into; the graph is simplified.
    Memory counts where it is trained; `makes`: the kernels of the pieces can be made."""
    _simplified(graph)
    attempts = _Attempts(options, trains)
    groups = grouped(graph, attempts.mistakes)
    found: list[Attempt] = []
    with progress("treadle derives the kernels of a graph"):
        for nodes in groups.taken:
            pieces = best_pieces(nodes, attempts)
            while makes and not attempts.are_made(pieces):
                pieces = best_pieces(nodes, attempts)
            found += pieces
    attempts.mistakes.tell()
    return groups.left, found


def _simplified(graph: Graph) -> None:
    """What was asked of the sizes that are there has to hold of all that the graph serves."""
    with recording(graph.nodes) as symbols:
        try:
            simplify(graph)
        except Exception as error:  # each rewrite is whole or was not begun: what is left is longer, and as right
            graph.eliminate_dead_code()
            told = f"treadle failed to simplify a graph ({type(error).__name__}: {error}): please report it"
            warnings.warn(told, RuntimeWarning, stacklevel=2)
        if symbols is not None:
            symbols.required |= dict.fromkeys(symbols.found)


class _Attempts:
    """What becomes of nodes as one program; its kernels are made only where it is chosen."""

    def __init__(self, options: Options, trains: bool):
        self._options = options
        self._trains = trains
        self.mistakes = Mistakes()
        self._known: dict[tuple[Node, ...], Attempt] = {}

    def __call__(self, nodes: Sequence[Node], makes: bool = False) -> Attempt:
        key = tuple(nodes)
        if makes or key not in self._known:
            self._known[key] = _attempt(nodes, self._options, self._trains, makes, self.mistakes)
        return self._known[key]

    def are_made(self, pieces: Sequence[Attempt]) -> bool:
        """Whether kernels of all pieces can be made; what is known of others changes."""
        made = [self._is_made(piece) for piece in pieces]
        return all(made)

    def _is_made(self, piece: Attempt) -> bool:
        if piece.made is None:
            return True
        try:
            _kernel_of(piece.made, self._options)
        except Exception:  # as if it had been known before
            self(piece.nodes, makes=True)
            return False
        return True


def _attempt(nodes: Sequence[Node], options: Options, trains: bool, makes: bool, mistakes: Mistakes) -> Attempt:
    symbols = symbols_of(nodes)
    try:
        if symbols is None:
            program, cost = _judged(nodes, options, makes)
        else:
            program, cost = _for_all_sizes(nodes, options, makes, symbols, mistakes)
    except Exception as error:
        return Piece(nodes, None, LEFT * len(nodes), mistakes.note(nodes, error), not isinstance(error, Indivisible))
    if cost.time_us is None:
        return Piece(nodes, None, LEFT * len(nodes), "a kernel of it needs more than the machine has")
    if all(node.target in LOOKUPS for node in nodes):  # PyTorch does the same without a check before
        return Piece(nodes, None, cost.time_us + LAUNCH_US * cost.kernels, ALONE)
    checks = sum(isinstance(each, Entries) for each in program.inputs)
    charged = LAUNCH_US * (cost.kernels + checks) + (MEMORY_US * cost.device_bytes / 1e6 if trains else 0.0)
    return Piece(nodes, program, cost.time_us + charged)


def _for_all_sizes(
    nodes: Sequence[Node], options: Options, makes: bool, symbols: Symbols, mistakes: Mistakes
) -> tuple[Program, Estimate]:
    """Of a class; or, where that is refused, for the sizes that are there (Unsupported, TreadleError)."""
    try:
        with symbols.recording():
            return _judged(nodes, options, makes, symbols)
    except Indivisible:
        raise
    except Exception as error:
        why = mistakes.note(nodes, error)
        with symbols.recording():
            symbols.fix_all()
            program, cost = _judged(nodes, options, makes, symbols)
        return replace(program, fixed=why), cost


def _judged(
    nodes: Sequence[Node], options: Options, makes: bool, symbols: Symbols | None = None
) -> tuple[Program, Estimate]:
    """The program of these nodes, and what it costs (Unsupported, TreadleError)."""
    from treadle.estimated import estimate

    program = _translated(nodes)
    if symbols is not None:
        program = replace(program, conditions=symbols.found, fixed=symbols.why_fixed)
    outputs = [each.node for each in program.outputs]
    if not program.inputs:
        raise Indivisible("it reads no tensor: where a kernel runs is where its arguments lie")
    device = outputs[0].meta["val"].device
    if any(node.meta["val"].device != device for node in (*outputs, *(each.node for each in program.inputs))):
        raise Unsupported("its tensors lie on several devices")
    if device.type not in DEVICES:
        raise Indivisible(f"its tensors lie on the device '{device.type}', where no kernel runs")
    options.check_work(nodes, device)
    if makes:
        _kernel_of(program, options)
    return program, estimate(program.module, machine=options.machine, arch=options.arch)


def _kernel_of(program: Program, options: Options) -> Kernel:
    """(TreadleError)"""
    from treadle.compiled import compile

    machine = "" if options.machine is None else repr(load_machine(options.machine))  # a file may have been edited
    key = str(program.module), machine, str(options.arch)
    if (known := _KERNELS.get(key)) is None:
        known = _KERNELS[key] = compile(program.module, machine=options.machine, arch=options.arch)
        if len(_KERNELS) > KEPT:
            _KERNELS.popitem(last=False)
    return known


def _translated(nodes: Sequence[Node]) -> Program:
    """(Unsupported)"""
    outputs, plain = outputs_of(nodes), members_read(nodes)
    try:
        return translate(nodes, outputs, "program")
    except Unsupported:
        if outputs == plain:
            raise
        return translate(nodes, plain, "program")


def _put_in(
    module: GraphModule, launches: Sequence[tuple[Program, Launch, list[Node]]], sizes: Sequence[Node]
) -> GraphModule:
    """Every group becomes one node; the rest keeps its order where it can."""
    graph = module.graph
    made: dict[Node, Node] = {}
    for i, (program, launch, nodes) in enumerate(launches):
        module.add_submodule(f"kernel{i}", launch)
        with graph.inserting_after(nodes[-1]):
            given = (made.get(each.node, each.node) for each in program.inputs)
            result = graph.call_module(f"kernel{i}", (*sizes, *given))
        for k, output in enumerate(program.outputs):
            made[output.node] = result
            if len(program.outputs) > 1:
                with graph.inserting_after(result):
                    made[output.node] = graph.call_function(getitem, (result, k))
            made[output.node].meta.update(output.node.meta)
            output.node.replace_all_uses_with(made[output.node])
    _sort(graph)
    graph.eliminate_dead_code()
    module.recompile()
    return module


def _sort(graph: Graph) -> None:
    """Every node after those that it reads; of several, the first stays first. An assignment to an argument, which
    PyTorch writes at the end, thus stays behind whatever reads the argument."""
    nodes = list(graph.nodes)
    place = {node: i for i, node in enumerate(nodes)}
    waiting = {node: len(node.all_input_nodes) for node in nodes}
    ready = [place[node] for node in nodes if not waiting[node]]
    heapify(ready)
    last = graph._root  # pyright: ignore[reportPrivateUsage]  # before the first node; the list is a ring
    while ready:
        node = nodes[heappop(ready)]
        last.append(node)
        last = node
        for user in node.users:
            waiting[user] -= 1
            if not waiting[user]:
                heappush(ready, place[user])


def _sources(nodes: Sequence[Node]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(filter(None, map(source, nodes))))


__all__ = ["Launch", "pieces_of", "with_kernels"]
