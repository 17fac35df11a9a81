"""Every deliberate mistake in a pass is caught by running programs through it (`mutations.py` has the mistakes)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mutations import MUTATIONS

MUTANT = Path(__file__).with_name("mutant.py")


def run(*name: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(MUTANT), *name], capture_output=True, text=True, check=False)


def test_there_are_many():
    assert len(MUTATIONS) >= 40


def test_without_a_mistake_all_is_well():
    done = run()
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mistake_is_caught(name: str):
    done = run(name)
    assert "no longer says" not in done.stderr, done.stderr
    assert done.returncode == 1, f"{name}: nobody noticed"
