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

// The size of a window's axis follows from the operand; a diagonal ends where the shorter dimension does.
!X = tensor<?x?xf32, #diagram.array<[a, b]>>
!W = tensor<?x?x3xf32, #diagram.array<[a, t, r]>>
!i = tensor<?xf32, #diagram.array<[i]>>
// CHECK-LABEL: func.func @reads(%X: tensor<?x?xf32>) -> (tensor<?x?x3xf32>, tensor<?xf32>) {
// CHECK:         %[[b:.*]] = tensor.dim %X, %{{.*}} : tensor<?x?xf32>
// CHECK-NEXT:    %[[two:.*]] = arith.constant 2 : index
// CHECK-NEXT:    %[[left:.*]] = arith.subi %[[b]], %[[two]] : index
// CHECK-NEXT:    %[[none:.*]] = arith.constant 0 : index
// CHECK-NEXT:    %t = arith.maxsi %[[left]], %[[none]] : index
// CHECK:         %[[room:.*]] = tensor.empty(%{{.*}}, %t) : tensor<?x?x3xf32>
// CHECK-NEXT:    %W = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, (d1 + d2))>, affine_map<(d0, d1, d2) -> (d0, d1, d2)>]
// CHECK:         %i = arith.minsi %{{.*}}, %{{.*}} : index
// CHECK-NEXT:    %[[square:.*]] = tensor.extract_slice %X[0, 0] [%i, %i] [1, 1] : tensor<?x?xf32> to tensor<?x?xf32>
// CHECK:         %D = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0, d0)>, affine_map<(d0) -> (d0)>], {{.*}}} ins(%[[square]] :
func.func @reads(%X: !X) -> (!W, !i) {
  %W = diagram.read %X at "a, t + r" : !X -> !W
  %D = diagram.read %X at "i, i" : !X -> !i
  func.return %W, %D : !W, !i
}

// A condition is tested where the element that it leaves out would be combined, or leaves the function.
!len = tensor<?xi32, #diagram.array<[a]>>
!a = tensor<?xf32, #diagram.array<[a]>>
// CHECK-LABEL: func.func @sums(%X: tensor<?x?xf32>, %len: tensor<?xi32>)
// CHECK:         %W = linalg.generic {{.*}} ins(%X, %len :
// CHECK:           arith.select
// CHECK:         %s = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d0)>], iterator_types = ["parallel", "reduction"]} ins(%X, %len :
// CHECK-NEXT:    ^bb0(%[[x:.*]]: f32, %[[n:.*]]: i32, %[[sum:.*]]: f32):
// CHECK-NEXT:      %[[loop:.*]] = linalg.index 1 : index
// CHECK-NEXT:      %[[at:.*]] = arith.index_cast %[[loop]] : index to i32
// CHECK:           %[[holds:.*]] = arith.cmpi sle, %{{.*}}, %[[n]] : i32
// CHECK-NEXT:      %[[zero:.*]] = arith.constant 0.000000e+00 : f32
// CHECK-NEXT:      %[[kept:.*]] = arith.select %[[holds]], %[[x]], %[[zero]] : f32
// CHECK-NEXT:      %[[next:.*]] = arith.addf %[[kept]], %[[sum]] : f32
// CHECK-NEXT:      linalg.yield %[[next]] : f32
// CHECK:         func.return %s, %W
func.func @sums(%X: !X, %len: !len) -> (!a, !X) {
  %W = diagram.where %X if "b < len[a]" with (len = %len : !len) : !X
  %s = diagram.reduce add %W over [b] : !X -> !a
  func.return %s, %W : !a, !X
}

// Axes as one axis are merged dimensions.

// CHECK-LABEL: func.func @regrouped
// CHECK-SAME: (%K: tensor<?x3x4xf32>) -> tensor<?x3x4xf32>
// CHECK-NEXT: %flat = tensor.collapse_shape %K {{\[\[}}0 : i64, 1 : i64], [2 : i64]] : tensor<?x3x4xf32> into tensor<?x4xf32>
// CHECK-NEXT: [[zero:%.*]] = arith.constant 0 : index
// CHECK-NEXT: [[x:%.*]] = tensor.dim %K, [[zero]] : tensor<?x3x4xf32>
// CHECK-NEXT: %O = tensor.expand_shape %flat {{\[\[}}0 : i64, 1 : i64], [2 : i64]] output_shape {{\[}}[[x]], 3, 4] : tensor<?x4xf32> into tensor<?x3x4xf32>
// CHECK-NEXT: func.return %O : tensor<?x3x4xf32>
func.func @regrouped(%K: tensor<?x3x4xf32, #diagram.array<[x, y, d]>>) -> tensor<?x3x4xf32, #diagram.array<[x, y, d]>> {
  %flat = diagram.collapse %K [x, y] as z : tensor<?x3x4xf32, #diagram.array<[x, y, d]>> -> tensor<?x4xf32, #diagram.array<[z, d]>>
  %O = diagram.expand %flat z as [x, y] : tensor<?x4xf32, #diagram.array<[z, d]>> -> tensor<?x3x4xf32, #diagram.array<[x, y, d]>>
  func.return %O : tensor<?x3x4xf32, #diagram.array<[x, y, d]>>
}
