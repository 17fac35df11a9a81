"""What kernels did for torch tensors of one geometry, done again: only addresses are written, and the driver is asked
once for each launch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any, TypeAlias

from treadle.compiler.errors import TreadleError
from treadle.dialects.diagram.formats import NUMBER_FORMATS
from treadle.runtime.cuda_driver import DriverFailure
from treadle.runtime.formats import DTYPES
from treadle.runtime.prepared import Prepared
from treadle.runtime.replay import Launch, Plan
from treadle.runtime.torch_geometry import Key, Recent, geometry

TORCH_NAMES = {DTYPES[name]: each.dtype for name, each in NUMBER_FORMATS.items()}
"""What torch calls the formats of elements."""

GEOMETRIES = 256
"""For how many geometries of its arguments a kernel keeps what it does."""

TRIES = 8
"""How often tensors of one geometry are told to `Recent`: other modes of PyTorch, as inference, ask for another check,
and one that never holds (of one tensor that is given twice) is given up."""

Empty: TypeAlias = Callable[[tuple[int, ...], tuple[int, ...], Any], Any]
Again: TypeAlias = Callable[[Sequence[Any], list[int]], Any]


class Replay:
    """What a kernel does for tensors of one geometry, ready to be done again."""

    def __init__(self, plan: Plan, prepare: Callable[[Launch], Prepared], device: Any, stream: Callable[[], int]):
        import torch

        self._prepare = lambda: [prepare(launch).again for launch in plan.launches]
        self._free = [self._prepare()]
        """Launches that no thread is starting: a call takes what lies here, or makes others, and lays them back."""
        self._results = plan.results
        self._shapes = plan.shapes
        self._made = [(shape, _rows(shape), getattr(torch, TORCH_NAMES[dtype])) for shape, dtype in plan.allocations]
        self._empty = _empty_on(device)
        self._stream = stream
        self.tries = 0 if plan.results_are_apart else TRIES
        """How often tensors of this geometry were taken for what will be met again; never where results share memory,
        which PyTorch is to refuse of an operator."""
        self.again: Again = self._filled() if plan.fills_one else self._all
        """The result, or a tuple of them, of arguments that lie there; behind them, where the results lie, is added
        (DriverFailure)."""

    def _filled(self) -> Again:
        """Of most kernels, with all that is asked for at hand."""
        (room,), empty, stream, free, take = self._made, self._empty, self._stream, self._free, self._free.pop

        def again(arguments: Sequence[Any], addresses: list[int]) -> Any:
            made = empty(*room)
            addresses.append(made.data_ptr())
            try:
                launches = take()
            except IndexError:
                launches = self._prepare()
            launches[0](addresses, stream())
            free.append(launches)
            return made

        return again

    def _all(self, arguments: Sequence[Any], addresses: list[int]) -> Any:
        tensors, empty = [*arguments], self._empty
        for shape, strides, dtype in self._made:
            made = empty(shape, strides, dtype)
            tensors.append(made)
            addresses.append(made.data_ptr())
        stream = self._stream()
        try:
            launches = self._free.pop()
        except IndexError:
            launches = self._prepare()
        for launch in launches:
            launch(addresses, stream)
        self._free.append(launches)
        results = [tensors[number] for number in self._results]
        for number, shape in self._shapes:
            results[number] = results[number].view(shape)
        return results[0] if len(results) == 1 else tuple(results)


class Replays:
    """What one kernel did, by the geometry of its arguments; of too many, those that were made last."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = Lock()
        self._known: dict[Key, Replay] = {}
        self._recent = Recent()
        self._straight = Recent()
        """The same, of those on which PyTorch would leave an operator alone."""
        self.get = self._known.get

    def at_once(self, arguments: Sequence[Any]) -> Any:
        """The result, or a tuple of them; None for tensors of which more is to be asked than whether they are as others
        were lately (TreadleError)."""
        if (found := self._recent.of(arguments)) is None:
            return None
        try:
            return found[0](arguments, found[1])
        except Exception as error:
            self._tell(error)
            raise

    def straight(self, arguments: Sequence[Any]) -> Any:
        """The same; None, too, where PyTorch would do more with an operator than ask for its derivative, or run it, as
        far as keys of its dispatcher tell (TreadleError)."""
        if (found := self._straight.of(arguments)) is None:
            return None
        try:
            return found[0](arguments, found[1])
        except Exception as error:
            self._tell(error)
            raise

    def again(self, arguments: Sequence[Any]) -> Any:
        """The result, or a tuple of them; None for a geometry that is new (TypeError for what has none;
        TreadleError)."""
        key, addresses = geometry(arguments)
        if (known := self._known.get(key)) is None:
            return None
        if known.tries < TRIES:
            known.tries += 1
            self._recent.add(arguments, addresses, known.again)
            self._straight.add(arguments, addresses, known.again, straight=True)
        try:
            return known.again(arguments, addresses)
        except Exception as error:
            self._tell(error)
            raise

    def _tell(self, error: Exception) -> None:
        """As errors of a call are told (TreadleError)."""
        from treadle.runtime.call import tell

        if isinstance(error, DriverFailure):
            raise TreadleError(f"gpu: the kernels of {self._name} cannot be launched: {error}") from error
        tell(error, "gpu")

    def keep(self, key: Key, replay: Replay) -> None:
        with self._lock:
            self._known[key] = replay
            if len(self._known) > GEOMETRIES:
                del self._known[next(iter(self._known))]


def _empty_on(device: Any) -> Empty:
    """Memory of that shape, strides and format. What PyTorch's own compiler calls for it takes a third of the public
    function; it is for the one device that a process sees, and where a version has it no more, that serves."""
    import torch

    alone = device.type == "cpu" or torch.cuda.device_count() == 1
    guards = sys.modules.get("torch._C._dynamo.guards")
    quick = getattr(guards, f"_empty_strided_{device.type}", None) if alone else None
    if quick is not None:
        return quick
    return lambda shape, strides, dtype: torch.empty_strided(shape, strides, dtype=dtype, device=device)


def _rows(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of contiguous rows, in elements."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.insert(0, step)
        step *= max(size, 1)
    return tuple(strides)
