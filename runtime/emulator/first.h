// What is compiled ahead of the kernels, once (build.py).
#include "emulator.h"
