#!/bin/sh
# A wheel of PyCUDA, made where there is no GPU and no driver, for `make gpu PYCUDA=...` on a machine that has them.
#
#   benchmarks/pycuda_wheel.sh [PYTHON] [FOLDER]
#
# PYTHON (default python3) must be of the version that the wheel is for; the wheel goes to FOLDER (default dist). Needs
# g++ and the headers of the CUDA toolkit (CUDA_HOME, default /usr/local/cuda). PyCUDA links against the driver's library,
# which a machine without a driver lacks: a library of its name without contents stands in for it while linking, and
# what is missing in it is looked up where the wheel is loaded.
set -eu
python=${1:-python3}
folder=$(mkdir -p "${2:-dist}" && cd "${2:-dist}" && pwd)
headers=${CUDA_HOME:-/usr/local/cuda}/include
test -f "$headers/cuda.h" || { echo "no cuda.h in $headers: set CUDA_HOME to the CUDA toolkit"; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$python" -m venv "$work/venv"
pip="$work/venv/bin/python -m pip --quiet --disable-pip-version-check --no-input"
$pip install setuptools wheel numpy
(cd "$work" && $pip download --no-deps --no-build-isolation --no-binary :all: pycuda && tar -xzf pycuda-*.tar.gz)
g++ -shared -x c++ /dev/null -o "$work/libcuda.so" -Wl,-soname,libcuda.so.1

cd "$work"/pycuda-*/
cat >siteconf.py <<SITECONF
CUDA_INC_DIR = ["$headers"]
CUDADRV_LIB_DIR = ["$work"]
CUDA_ENABLE_CURAND = False
SITECONF
LDFLAGS="-Wl,--no-as-needed" $pip wheel --no-deps --no-build-isolation --wheel-dir "$work/made" .

wheel=$(ls "$work"/made/*.whl)
"$python" -m zipfile -e "$wheel" "$work/contents"
for library in "$work"/contents/pycuda/_driver*.so; do
    readelf -d "$library" | grep -q 'NEEDED.*libcuda.so.1' || { echo "$(basename "$library") does not ask for libcuda.so.1"; exit 1; }
done
mv "$wheel" "$folder/"
echo "$folder/$(basename "$wheel")"
