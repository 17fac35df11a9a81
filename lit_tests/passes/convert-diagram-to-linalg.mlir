// RUN: xdsl-opt -p 'convert-diagram-to-linalg' %s | filecheck %s

!A = tensor<4x8xf16, #diagram.array<[m, k]>>
!B = tensor<6x8xf16, #diagram.array<[n, k]>>
!C = tensor<4x6xf32, #diagram.array<[m, n]>>
!D = tensor<4x6xf16, #diagram.array<[m, n]>>

// CHECK-LABEL: func.func @matmul(%A: tensor<4x8xf16>, %B: tensor<6x8xf16>) -> tensor<4x6xf16> {
// CHECK-NEXT:    %[[zero:.*]] = arith.constant 0.000000e+00 : f32
// CHECK-NEXT:    %[[room:.*]] = tensor.empty() : tensor<4x6xf32>
// CHECK-NEXT:    %[[start:.*]] = linalg.fill ins(%[[zero]] : f32) outs(%[[room]] : tensor<4x6xf32>)
// CHECK-NEXT:    %C = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1)>], iterator_types = ["parallel", "parallel", "reduction"]} ins(%A, %B : tensor<4x8xf16>, tensor<6x8xf16>) outs(%[[start]] : tensor<4x6xf32>) {
// CHECK-NEXT:    ^{{.*}}(%[[a:.*]]: f16, %[[b:.*]]: f16, %[[sum:.*]]: f32):
// CHECK-NEXT:      %[[wa:.*]] = arith.extf %[[a]] : f16 to f32
// CHECK-NEXT:      %[[wb:.*]] = arith.extf %[[b]] : f16 to f32
// CHECK-NEXT:      %[[p:.*]] = arith.mulf %[[wa]], %[[wb]] : f32
// CHECK-NEXT:      %[[next:.*]] = arith.addf %[[sum]], %[[p]] : f32
// CHECK-NEXT:      linalg.yield %[[next]] : f32
// CHECK-NEXT:    } -> tensor<4x6xf32>
// CHECK-NEXT:    %[[out:.*]] = tensor.empty() : tensor<4x6xf16>
// CHECK-NEXT:    %D = linalg.generic {{.*}} ins(%C : tensor<4x6xf32>) outs(%[[out]] : tensor<4x6xf16>) {
// CHECK:           %{{.*}} = arith.truncf %{{.*}} : f32 to f16
// CHECK:         func.return %D : tensor<4x6xf16>
func.func @matmul(%A: !A, %B: !B) -> !D {
  %C = diagram.contract %A, %B over [k] accumulate f32 : !A, !B -> !C
  %D = diagram.cast %C : !C -> !D
  func.return %D : !D
}
