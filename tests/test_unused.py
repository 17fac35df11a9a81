"""Numbers that nothing reads are left out of printed kernels."""

from __future__ import annotations

from treadle.compiler.printer.unused import without_unused


def test_what_nothing_reads_is_left_out() -> None:
    """And what only that reads; but not what a later line of the block, or of a block in it, has."""
    lines = """
{
  const int64_t first = 3;
  const int64_t second = first + 1;
  const uint32_t third = uint32_t(second) % 4;
  const int64_t used = 2;
  if (used) {
    const int64_t turn = used + done;
    const int64_t other = used * 2;
    wait(other);
  }
  for (;;) {
    use(turn);
  }
}""".splitlines()
    gone = ("first = 3", "second = first", "third = ", "turn = ")
    assert without_unused(lines) == [line for line in lines if not any(each in line for each in gone)]


def test_what_does_something_stays() -> None:
    lines = ["{", "  const int found = shuffle(entry, 3);", "  const uint32_t stage = kept(turn % 4);", "}"]
    assert without_unused(lines) == lines


def test_what_stands_before_does_not_read() -> None:
    """A number of a block is another behind it."""
    lines = ["{", "  {", "    const int64_t turn = 1;", "  }", "  use(turn);", "}"]
    assert without_unused(lines) == [lines[0], lines[1], *lines[3:]]


def test_a_line_that_declares_several_stays() -> None:
    lines = ["{", "  const int thread = threadIdx.x, lane = threadIdx.x % 32;", "  use(lane);", "}"]
    assert without_unused(lines) == lines
