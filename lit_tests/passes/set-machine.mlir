// RUN: xdsl-opt %s -p 'set-machine{name=h100}' | filecheck %s
// RUN: xdsl-opt %s -p set-machine | filecheck %s --check-prefix DEFAULT
// RUN: xdsl-opt %s -p 'set-machine{name=h100},set-machine{name=h200}' | filecheck %s --check-prefix AGAIN
// RUN: xdsl-opt %s --verify-diagnostics -p 'set-machine{name=v100}' | filecheck %s --check-prefix UNKNOWN

// CHECK:      builtin.module attributes {machine = {name = "h100", arch = "sm_90a", sms = 132 : i64, clock = 1.830000e+09 : f64
// CHECK-SAME: device = {scope = "machine", capacity = 80000000000 : i64, bandwidth = 3.350000e+12 : f64
// CHECK-SAME: shared = {scope = "sm", capacity = 233472 : i64, bandwidth = 2.342400e+11 : f64
// CHECK-SAME: shared_per_block = 232448 : i64
// CHECK-SAME: registers_per_thread = 255 : i64
// CHECK-SAME: tensor = {f16 = 4.096000e+03 : f64, bf16 = 4.096000e+03 : f64

// DEFAULT: name = "a100"

// AGAIN:     name = "h200"
// AGAIN-NOT: name = "h100"

// UNKNOWN: unknown machine 'v100': known are a100, a100-40gb, a100-pcie, h100, h100-nvl, h100-pcie, h200, h200-nvl, l40s, or give the path of a .toml file

func.func private @nothing()
