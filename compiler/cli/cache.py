"""`treadle cache`: what is kept on disk between runs."""

from __future__ import annotations

from argparse import Namespace
from collections import defaultdict

from treadle.runtime.cache import cache_directory, entries, limit, shrink

KINDS = {
    "kernels": "compiled programs",
    "estimates": "estimates of compiled programs",
    "emulator": "kernels compiled for the emulator",
    "cubin": "machine code of nvcc",
    "ptx": "PTX of nvcc",
}


def command(arguments: Namespace) -> int:
    folder, allowed = cache_directory(), limit()
    found = entries()
    kinds: dict[str, list[int]] = defaultdict(list)
    for path, size, _ in found:
        kinds[path.relative_to(folder).parts[0]].append(size)
    print(f"{folder}: {sum(size for _, size, _ in found):,} bytes of at most {allowed:,}")
    for kind, sizes in sorted(kinds.items()):
        print(f"  {KINDS[kind]}: {len(sizes):,} files, {sum(sizes):,} bytes")
    if arguments.clear:
        print(f"removed {shrink(0):,} bytes")
    return 0
