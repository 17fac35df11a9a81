#!/bin/sh
# How long `make demo` takes: in a fresh copy, installing everything, and a second time.
#
#   benchmarks/demo_time.sh
#
# Goals: 5 minutes the first time, 20 seconds the second. Takes what git has; changes that are not committed do not count.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
git -C "$root" archive HEAD | tar -x -C "$copy"
export TREADLE_CACHE="$copy/.treadle-cache"   # nothing compiled before

timed() {
    begin=$(date +%s.%N)
    make -C "$copy" demo >"$copy/demo.log" 2>&1 || { cat "$copy/demo.log"; exit 1; }
    end=$(date +%s.%N)
    awk "BEGIN { printf \"%.1f\", $end - $begin }"
}

first=$(timed)
second=$(timed)
grep -h verified "$copy/demo.log"
echo "make demo: $first s the first time (goal 300), $second s the second (goal 20)"
cd "$root/benchmarks"
"$copy/.venv/bin/python" - "$first" "$second" <<'PYTHON'
import sys
import results
first, second = map(float, sys.argv[1:])
path = results.write("demo-time", {"unit": "seconds", "first": first, "goal_first": 300, "second": second, "goal_second": 20})
print(f"written to benchmarks/results/{path.name}")
PYTHON
