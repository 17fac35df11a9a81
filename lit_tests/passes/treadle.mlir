// RUN: xdsl-opt %s -p treadle | filecheck %s
// RUN: xdsl-opt %s -p 'treadle{machine=h100 sizes="n=64" last=hierarchy-choose-sizes}' | filecheck %s --check-prefix=PART
// RUN: xdsl-opt %s -p treadle -t cuda-c | filecheck %s --check-prefix=CUDA
// RUN: not treadle-opt %s -p 'treadle{last=fuson}' 2>&1 | filecheck %s --check-prefix=UNKNOWN

!x = tensor<?xf32, #diagram.array<[n]>>

// CHECK: builtin.module attributes {machine = {name = "a100"
// CHECK: cuda.kernel @negate_kernel (%x: memref<?xf32
// CHECK: func.func @negate(%x: memref<?xf32
// CHECK: %y = memref.alloc(%n)
// CHECK: cuda.launch @negate_kernel grid %blocks
// CHECK-SAME: (%x, %y, %n

// PART: builtin.module attributes {machine = {name = "h100"
// PART: func.func @negate(%x: tensor<64xf32, #diagram.array<[n]>>) -> tensor<64xf32, #diagram.array<[n]>>
// PART: %y = hierarchy.kernel @{{[a-z]+}} (%x_1 = %x : tensor<64xf32, #diagram.array<[n]>> as tensor<64xf32, #diagram.array<[n], level = device>>) -> (tensor<64xf32, #diagram.array<[n]>>) schedule #hierarchy.schedule<group = [n = {{[0-9]+}}]

// CUDA: extern "C" __global__ void
// CUDA-SAME: negate_kernel(

// UNKNOWN: pass 'treadle': the pipeline has no pass 'fuson'
func.func @negate(%x: !x) -> !x attributes {sizes = #diagram.sizes<n = 8>} {
  %y = diagram.map (%a = %x : !x) -> !x {
    %b = arith.negf %a : f32
    diagram.yield %b : f32
  }
  func.return %y : !x
}
