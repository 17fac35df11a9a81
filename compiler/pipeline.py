"""The pipeline, on one screen, and the one way to run it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import getdoc
from time import perf_counter

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.passes import ModulePass
from xdsl.utils.arg_spec import ArgSpec
from xdsl.utils.exceptions import DiagnosticException, VerifyException

from treadle.compiler.counting import counted
from treadle.compiler.derivation.line import at_line
from treadle.compiler.errors import InternalError, TreadleError, describe, failing_operation, label_of, mistake
from treadle.compiler.machines import DEFAULT_MACHINE
from treadle.compiler.overrides import check_options, overridden
from treadle.compiler.source import make_context
from treadle.compiler.synchronised import check_synchronised
from treadle.compiler.universe import PASSES, loader
from treadle.dialects.hierarchy.schedule import StepAttr
from treadle.passes._decisions import Decision, Kernel, listening
from treadle.passes._functions import watching

MACHINE_OF_ARCH = {"sm_80": "a100", "sm_89": "l40s", "sm_90": "h100", "sm_90a": "h100"}
"""The machine to optimise for where only an architecture is named."""

LOWERINGS = ("fusion", "convert-hierarchy-to-cuda")
"""The passes that begin a level: what they are given is verified, and what the last pass leaves."""

LAST_DIAGRAM_PASS = "diagram-compose-maps"
LAST_PASS_OF_SEVERAL = "hierarchy-transpose-arrays"
"""The last pass that asks of a kernel which others make and read its arrays."""
CHOOSING_PASS = "hierarchy-choose-sizes"
LAST_DECORATING_PASS = "hierarchy-subloop"
LAST_HIERARCHY_PASS = "hierarchy-expand-streams"

NEEDED = (
    "set-machine",
    "diagram-set-sizes",
    "diagram-expand-laws",
    "fusion",
    "streaming",
    "tiling",
    CHOOSING_PASS,
    LAST_HIERARCHY_PASS,
    "convert-hierarchy-to-cuda",
    "coalescing",
)
"""The passes without which there is no kernel, or none for this machine; each of the others may be left out."""


@dataclass(frozen=True)
class Options:
    """What a user may decide about a compilation."""

    machine: str | None = None
    """Name of a machine that ships with treadle, or a file that describes one."""
    arch: str | None = None
    """`sm_80`, `sm_90a`: code for that architecture, which the machine must be able to run."""
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    """Sizes of axes, made static."""
    fusion: bool = True
    """Whether operations may share a kernel; without, each is one of its own."""
    passes: tuple[ArgSpec, ...] = ()
    """The passes of a derivation to replay in place of the pipeline's own."""
    overrides: tuple[ArgSpec, ...] = ()
    """Options of single passes, over those that the pipeline, or the derivation, gives them."""


def pipeline(options: Options) -> tuple[ArgSpec, ...]:
    """Every pass, in order, with its options (TreadleError if options are given for one that is not there)."""
    return overridden(_replayed(options) if options.passes else _in_order(options), options.overrides)


def _in_order(options: Options) -> tuple[ArgSpec, ...]:
    """The passes of the pipeline, and why there."""
    return (
        _set_machine(options),
        _set_sizes(options),
        _step("diagram-expand-laws"),  # so that no later pass knows a law by name
        # once laws are maps and sums, of which a step is affine or not; before anything looks at axes, then in chunks
        _step("diagram-chunk-recurrences"),
        _step("diagram-raise-scans"),  # once sums stand alone; before masks, which may stand before what is scanned
        _step("diagram-split-orders"),  # before maps that find an order are composed
        # once reductions stand alone, which say what may be absent; before axes are merged, which positions keep apart
        _step("diagram-raise-masks"),
        _step("diagram-raise-scatters"),  # once choices are conditions; before axes are one, which data keep apart
        # once reductions stand alone; before anything looks at axes, which finds one where there were two
        _step("diagram-merge-axes"),
        # once axes are one that will be; before factors are hoisted, which each of the products then has its own of
        _step("diagram-split-depths"),
        # while terms still stand alone; before factors are hoisted, which each of the products then has its own of
        _step("diagram-distribute-products"),
        _step("diagram-hoist-factors"),  # before maps are composed, while factors still stand alone
        _step("diagram-reassociate"),  # while factors and casts still stand alone; before maps are composed with sums
        # once products are in their order; before maps are composed, with what is then computed of parts
        _step("diagram-bubble-up-reads"),
        _step("diagram-compose-maps"),
        # once maps are composed, which choose halves; before axes are one, as are then those of what is swapped
        _step("diagram-raise-swaps"),
        # once maps are composed; before axes are one, which would be fed whole rows of the inner one
        _step("diagram-tile-windows"),
        # once maps are composed, of which some lack an axis; before products are looked at, which then sum one axis
        _step("diagram-merge-reduced-axes"),
        # once maps are composed, which are what kernels will compute; before axes are one, which then lie side by side
        _step("diagram-copy-operands"),
        # once maps are composed, which are what kernels will compute; before anything looks at kernels
        _step("diagram-merge-free-axes"),
        _step("diagram-merge-depths"),  # once those are one that lie side by side, which need no pieces
        # once products of several axes read their own operands, of the same rows
        _step("diagram-repeat-operands"),
        # once axes are one that will be; before fusion, which decides whether kernels find ranges for themselves
        _step("diagram-find-ranges"),
        # once maps are composed, so that it is seen what is made of a number; before sizes, whose costs then are those
        _step("diagram-allow-approximations"),
        _step("diagram-transpose-operands"),  # once maps are composed, which are what kernels will compute
        _step("diagram-widen-operands"),  # before fusion, so that what is widened is widened where it is used
        *_recompute(options),  # before fusion, which cannot join what sums one array along different axes
        _fusion(options),  # decides what is one kernel: everything below looks at one at a time
        # once arrays between kernels are known; before anything depends on how long an access to them takes
        _step("hierarchy-transpose-arrays"),
        _step("hierarchy-split-streams"),  # before streaming, which then sees the parts as one more axis
        _step("streaming"),
        _step("tiling"),  # after streaming: what is not fed in pieces can be cut into groups
        # once it is known what is streamed, which begins; before sizes, which leave room for one accumulator
        _step("hierarchy-join-sums"),
        _step("hierarchy-promote-sums"),  # once groups and streams are known; before sizes, which leave room for it
        # once streams are known, along which neighbours lie; before sizes, which count what is left
        _step("hierarchy-share-reciprocals"),
        _step("hierarchy-rescale-lazily"),  # once streams are known, and which sums follow what; before sizes, too
        _step("hierarchy-choose-sizes"),  # all sizes together: they compete for the same memory
        _step("hierarchy-subloop"),  # once it is known what a group holds; while the contractions still stand alone
        _step("hierarchy-expand-streams"),
        _step("diagram-expand-approximations"),  # after the streams; before powers, whose factors come together
        _step("diagram-exp-to-exp2"),  # after the streams, whose laws are stated for exp
        _step("diagram-fuse-multiply-adds"),  # after the powers, in which sums and products are taken apart
        _step("convert-hierarchy-to-cuda"),
        _step("warp-specialization"),  # before pipelining, which makes copies asynchronous another way
        _step("pipelining"),  # on the loops of the streams, while their copies still stand in them
        _step("cuda-store-tensors"),  # before coalescing, which then has no such copy to make wide
        _step("cuda-cluster"),  # before blocks take one piece after another: those of a cluster then take neighbours
        _step("cuda-persist"),  # after the results have their way out, which must not lie under the next piece
        _step("cuda-overlap-pieces"),  # once blocks take several, whose results have places of their own
        _step("cuda-order-blocks"),  # of the grids that are left: a block for each piece
        _step("cuda-ping-pong"),  # once the loops around are there: turns are given from one piece to the next
        _step("cuda-speculate"),  # once everybody who looks at a turn has seen what it makes in its order
        _step("coalescing"),
    )


class Observer:
    """What may be watched while passes run; every method may be left as it is."""

    compares: bool = False
    """Whether it asks which passes changed something: finding out costs as much as a pass."""

    def before_pass(self, spec: ArgSpec, module: ModuleOp) -> None:
        """`module` is about to be rewritten by the pass `spec`."""

    def after_rewrite(self, module: ModuleOp) -> None:
        """A step more stands in the derivation of `module`, which is whole; the pass that made it goes on."""

    def after_pass(self, run: PassRun, module: ModuleOp) -> None:
        """`module` was rewritten."""


class Observers(Observer):
    """Several at once."""

    def __init__(self, *observers: Observer):
        self.observers = observers
        self.compares = any(observer.compares for observer in observers)

    def before_pass(self, spec: ArgSpec, module: ModuleOp) -> None:
        for observer in self.observers:
            observer.before_pass(spec, module)

    def after_rewrite(self, module: ModuleOp) -> None:
        for observer in self.observers:
            observer.after_rewrite(module)

    def after_pass(self, run: PassRun, module: ModuleOp) -> None:
        for observer in self.observers:
            observer.after_pass(run, module)


@dataclass(frozen=True)
class PassRun:
    """One pass that has run."""

    spec: ArgSpec
    seconds: float
    changed: bool
    """Whether the module is another than before; always true where no observer compares."""
    decisions: tuple[Decision, ...] = ()
    """What it has decided of each kernel, one after another."""

    @property
    def name(self) -> str:
        return self.spec.name


def run_pipeline(
    module: ModuleOp,
    options: Options,
    observer: Observer | None = None,
    *,
    context: Context | None = None,
    last: str | None = None,
) -> list[PassRun]:
    """Rewrite `module` in place, through the pass named `last` or to the end (TreadleError). Passes in an order of the
    user's own must leave kernels whose threads wait for each other all the same."""
    runs = run_passes(module, through(options, last), observer, context=context)
    if options.passes or options.overrides:
        check_synchronised(module)
    return runs


def through(options: Options, last: str | None) -> list[ArgSpec]:
    """The passes through the one named `last`, or all (TreadleError)."""
    return list(_through(pipeline(options), last))


def run_passes(
    module: ModuleOp,
    specs: Sequence[ArgSpec],
    observer: Observer | None = None,
    *,
    context: Context | None = None,
) -> list[PassRun]:
    """Rewrite `module` in place by one pass after another (TreadleError).

    It is verified at the end of each level: after each pass would take four times as long. Where something goes
    wrong the passes run again on what was given, verified one by one, so that the pass at fault is named.
    """
    context = context or make_context()
    given = module.clone()
    try:
        return _rewrite(module, specs, observer or Observer(), context)
    except Exception as error:
        if _may_be_a_mistake(error):
            _rewrite(given, specs, Observer(), context, each=True)
        raise


def try_passes(module: ModuleOp, specs: Sequence[ArgSpec]) -> None:
    """Rewrite `module` in place to find what would become of it (TreadleError): nothing is verified, and nobody
    watches."""
    context = make_context()
    for spec in specs:
        _apply(spec, make_pass(spec), context, module)


def _rewrite(
    module: ModuleOp, specs: Sequence[ArgSpec], observer: Observer, context: Context, *, each: bool = False
) -> list[PassRun]:
    passes = [(spec, make_pass(spec)) for spec in specs]
    verified = [each or i + 1 == len(specs) or specs[i + 1].name in LOWERINGS for i in range(len(specs))]
    runs: list[PassRun] = []
    text = str(module) if observer.compares else ""

    def rewritten(function: FuncOp, _: StepAttr) -> None:
        if function.get_toplevel_object() is module:  # what a pass tries on a copy is no rewrite
            observer.after_rewrite(module)

    def decided(kernel: Kernel, decision: Decision) -> None:
        if kernel.get_toplevel_object() is module:
            decisions.append(decision)

    for (spec, instance), verifies in zip(counted(passes, "passes"), verified, strict=True):
        observer.before_pass(spec, module)
        decisions: list[Decision] = []
        start = perf_counter()
        with watching(rewritten), listening(decided):
            _apply(spec, instance, context, module)
        if verifies:
            _verify(instance, module)
        seconds = perf_counter() - start
        previous, text = text, str(module) if observer.compares else ""
        runs.append(PassRun(spec, seconds, previous != text or not observer.compares, tuple(decisions)))
        observer.after_pass(runs[-1], module)
    return runs


def make_pass(spec: ArgSpec) -> ModulePass:
    """A pass of treadle's by its name and options, or else one of xDSL's (TreadleError)."""
    factory = loader(PASSES[spec.name]) if spec.name in PASSES else _upstream_pass(spec.name)
    try:
        made = factory()
        check_options(made, spec)
        return made.from_spec(spec)
    except (ValueError, ImportError, AttributeError) as error:
        raise TreadleError(f"pass '{spec.name}': {error}") from error


def pass_sentence(spec: ArgSpec) -> str:
    """The first sentence of a pass's docstring, on one line."""
    text = " ".join((getdoc(type(make_pass(spec))) or "").split("\n\n")[0].split())
    end = text.find(". ")
    return (text if end < 0 else text[:end]).rstrip(".:")


def print_cuda(module: ModuleOp) -> str:
    """CUDA C of a module at `cuda` level (TreadleError)."""
    from treadle.compiler.printer.cuda_c import print_cuda_c

    try:
        return print_cuda_c(module)
    except DiagnosticException as error:
        raise describe(error, module) from error


def _apply(spec: ArgSpec, instance: ModulePass, context: Context, module: ModuleOp) -> None:
    try:
        instance.apply(context, module)
    except VerifyException as error:
        raise _in_pass(spec, mistake(error, module)) from error
    except Exception as error:
        told = describe(error, module)
        if instance.name not in PASSES and isinstance(told, InternalError):
            told = TreadleError(f"xDSL's pass cannot be run here ({error}): leave it out", told.location)
        raise _in_pass(spec, told) from error


def _verify(instance: ModulePass, module: ModuleOp) -> None:
    try:
        module.verify()
    except VerifyException as error:
        raise _invalid(instance.name, module, error) from error


def _may_be_a_mistake(error: Exception) -> bool:
    """Whether a pass before may have left what the error is about, so that it is no refusal of the program."""
    return (
        not isinstance(error, TreadleError)
        or isinstance(error, InternalError)
        or isinstance(error.__cause__, VerifyException)
    )


def _in_pass(spec: ArgSpec, error: TreadleError) -> TreadleError:
    """The message with the pass, and with its line of a derivation before the place in the program."""
    told = at_line(spec, error)
    return type(told)(f"pass '{spec.name}': {told.message}", told.location, told.excerpt)


def _invalid(name: str, module: ModuleOp, error: VerifyException) -> InternalError:
    """A pass must leave valid IR, so this is a mistake of the pass and not of its input."""
    failing = failing_operation(module)
    where = "" if failing is None else f" at {label_of(failing[0])}"
    return InternalError(
        f"pass '{name}' left invalid IR{where}: {' '.join(str(error).split())} "
        f"(a mistake of the pass; '--print-before {name}' shows what it was given)"
    )


def _through(specs: Sequence[ArgSpec], last: str | None) -> Iterator[ArgSpec]:
    if last is not None and all(spec.name != last for spec in specs):
        raise TreadleError(f"the pipeline has no pass '{last}'")
    for i, spec in enumerate(specs):
        yield spec
        if spec.name == last and all(later.name != last for later in specs[i + 1 :]):
            return


def _replayed(options: Options) -> tuple[ArgSpec, ...]:
    """The passes of a derivation, for the machine and the sizes that are asked for now."""
    asked = options.machine or options.arch
    own = [spec for spec in options.passes if spec.name == "set-machine"]
    rest = [spec for spec in options.passes if spec.name != "set-machine"]
    first = [_set_machine(options)] if asked or not own else own
    return (*first, *([_set_sizes(options)] if options.sizes else []), *rest)


def _set_machine(options: Options) -> ArgSpec:
    machine = options.machine or MACHINE_OF_ARCH.get(options.arch or "", DEFAULT_MACHINE)
    is_file = machine.endswith(".toml") or "/" in machine
    return _step("set-machine", **{"file" if is_file else "name": machine}, arch=options.arch)


def _recompute(options: Options) -> tuple[ArgSpec, ...]:
    return (_step("diagram-recompute"),) if options.fusion else ()


def _fusion(options: Options) -> ArgSpec:
    return _step("fusion", together=None if options.fusion else False)


def _set_sizes(options: Options) -> ArgSpec:
    texts = tuple(f"{axis}={size}" for axis, size in options.sizes.items())
    return ArgSpec("diagram-set-sizes", {"sizes": texts} if texts else {})


def _step(pass_name: str, /, **options: str | bool | None) -> ArgSpec:
    return ArgSpec(pass_name, {key: (value,) for key, value in options.items() if value is not None})


def _upstream_pass(name: str) -> Callable[[], type[ModulePass]]:
    from xdsl.transforms import get_all_passes

    found = get_all_passes().get(name)
    if found is None:
        raise TreadleError(f"there is no pass '{name}' (treadle's are {', '.join(sorted(PASSES))})")
    return found
