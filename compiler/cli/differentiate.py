"""`treadle differentiate`: the gradient of a program, as a program."""

from __future__ import annotations

import os
from argparse import Namespace

from treadle.compiler.errors import TreadleError
from treadle.compiler.files import check_output, write_whole
from treadle.compiler.gradient import gradient_of, readable
from treadle.compiler.progress import progress
from treadle.compiler.raised import raised
from treadle.compiler.source import load_module, only_function


def command(arguments: Namespace) -> int:
    check_output(arguments.output)
    if arguments.output is not None and os.path.realpath(arguments.output) == os.path.realpath(arguments.file):
        raise TreadleError(f"cannot write {arguments.output}: it is the program itself too; give it another name")
    with progress(f"reading {os.path.basename(arguments.file)}"):
        module = raised(load_module(arguments.file))
    only_function(module, arguments.file)
    text = readable(gradient_of(module, arguments.of))
    if arguments.output is None:
        print(text, end="")
    else:
        write_whole(arguments.output, text)
    return 0
