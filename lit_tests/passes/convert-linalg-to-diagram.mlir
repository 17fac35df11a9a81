// RUN: xdsl-opt -p 'convert-linalg-to-diagram' %s | filecheck %s

#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#kept = affine_map<(i, j) -> (i, 0)>

// CHECK-LABEL: func.func @matmul
// CHECK-SAME:    (%A: tensor<4x8xf32, #diagram.array<[d0, d1]>>, %B: tensor<8x6xf32, #diagram.array<[d1, d2]>>)
// CHECK-NEXT:    %C = diagram.contract %A, %B over [d1] accumulate f32 : {{.*}} -> tensor<4x6xf32, #diagram.array<[d0, d2]>>
// CHECK-NEXT:    func.return %C
func.func @matmul(%A: tensor<4x8xf32>, %B: tensor<8x6xf32>) -> tensor<4x6xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<4x6xf32>
  %start = linalg.fill ins(%zero : f32) outs(%empty : tensor<4x6xf32>) -> tensor<4x6xf32>
  %C = linalg.matmul ins(%A, %B : tensor<4x8xf32>, tensor<8x6xf32>) outs(%start : tensor<4x6xf32>) -> tensor<4x6xf32>
  func.return %C : tensor<4x6xf32>
}

// A start that is not neutral is added; a transposition is the order of memory.
// CHECK-LABEL: func.func @into
// CHECK-SAME:    %T: tensor<6x8xf32, #diagram.array<[d0, d1]>>, %A: tensor<4x8xf32, #diagram.array<[d2, d1]>>
// CHECK-NEXT:    %B = diagram.cast %T : {{.*}} -> tensor<8x6xf32, #diagram.array<[d1, d0]>>
// CHECK-NEXT:    %C = diagram.contract %A, %B over [d1] accumulate f32 into %D :
func.func @into(%T: tensor<6x8xf32>, %A: tensor<4x8xf32>, %D: tensor<4x6xf32>) -> tensor<4x6xf32> {
  %empty = tensor.empty() : tensor<8x6xf32>
  %B = linalg.transpose ins(%T : tensor<6x8xf32>) outs(%empty : tensor<8x6xf32>) permutation = [1, 0]
  %C = linalg.matmul ins(%A, %B : tensor<4x8xf32>, tensor<8x6xf32>) outs(%D : tensor<4x6xf32>) -> tensor<4x6xf32>
  func.return %C : tensor<4x6xf32>
}

// A row of size 1 that is read at 0 has no axis, but where it leaves the function; positions are i32.
// CHECK-LABEL: func.func @kept
// CHECK-NEXT:    %m = diagram.reduce max %X over [d1] : {{.*}} -> tensor<?xf32, #diagram.array<[d0]>>
// CHECK-NEXT:    %at_d1 = diagram.index -> tensor<?xi32, #diagram.array<[d1]>>
// CHECK-NEXT:    %Y = diagram.map (%[[x:.*]] = %X : {{.*}}, %[[m:.*]] = %m : {{.*}}, %[[j:.*]] = %at_d1 : {{.*}}) -> {{.*}} {
// CHECK-NEXT:      %[[f:.*]] = arith.sitofp %[[j]] : i32 to f32
// CHECK-NEXT:      %[[d:.*]] = arith.subf %[[x]], %[[m]] : f32
// CHECK-NEXT:      %[[p:.*]] = arith.mulf %[[d]], %[[f]] : f32
// CHECK-NEXT:      diagram.yield %[[p]] : f32
// CHECK:         %{{.*}} = diagram.map (%{{.*}} = %m : {{.*}}) -> tensor<?x1xf32, #diagram.array<[d0, one1]>>
func.func @kept(%X: tensor<?x?xf32>, %e: tensor<?x1xf32>) -> (tensor<?x?xf32>, tensor<?x1xf32>) {
  %low = arith.constant 0xFF800000 : f32
  %start = linalg.fill ins(%low : f32) outs(%e : tensor<?x1xf32>) -> tensor<?x1xf32>
  %m = linalg.generic {indexing_maps = [#id, #kept], iterator_types = ["parallel", "reduction"]}
      ins(%X : tensor<?x?xf32>) outs(%start : tensor<?x1xf32>) {
  ^bb0(%x: f32, %sofar: f32):
    %next = arith.maximumf %x, %sofar : f32
    linalg.yield %next : f32
  } -> tensor<?x1xf32>
  %Y = linalg.generic {indexing_maps = [#id, #kept, #id], iterator_types = ["parallel", "parallel"]}
      ins(%X, %m : tensor<?x?xf32>, tensor<?x1xf32>) outs(%X : tensor<?x?xf32>) {
  ^bb0(%x: f32, %top: f32, %unused: f32):
    %j = linalg.index 1 : index
    %i32 = arith.index_cast %j : index to i32
    %f = arith.sitofp %i32 : i32 to f32
    %d = arith.subf %x, %top : f32
    %p = arith.mulf %d, %f : f32
    linalg.yield %p : f32
  } -> tensor<?x?xf32>
  func.return %Y, %m : tensor<?x?xf32>, tensor<?x1xf32>
}

// X X^T would have one axis twice, and a window is a sum of two: both are read.
// CHECK-LABEL: func.func @gram
// CHECK-NEXT:    %[[Y:.*]] = diagram.read %X at "d2, d1" : tensor<4x8xf32, #diagram.array<[d0, d1]>> -> tensor<4x8xf32, #diagram.array<[d2, d1]>>
// CHECK-NEXT:    %G = diagram.contract %X, %[[Y]] over [d1] accumulate f32
func.func @gram(%X: tensor<4x8xf32>) -> tensor<4x4xf32> {
  %zero = arith.constant dense<0.0> : tensor<4x4xf32>
  %G = linalg.generic {indexing_maps = [affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> (j, k)>,
                                        affine_map<(i, j, k) -> (i, j)>],
                       iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%X, %X : tensor<4x8xf32>, tensor<4x8xf32>) outs(%zero : tensor<4x4xf32>) {
  ^bb0(%a: f32, %b: f32, %sum: f32):
    %p = arith.mulf %a, %b : f32
    %next = arith.addf %sum, %p : f32
    linalg.yield %next : f32
  } -> tensor<4x4xf32>
  func.return %G : tensor<4x4xf32>
}

// What cannot be raised stays, and the derivation says why; the rest is raised around it.
// CHECK-LABEL: func.func @stays
// CHECK-SAME:    #hierarchy.step<"convert-linalg-to-diagram", "%top", "linalg.generic stays", "elements are combined by arith.maxnumf, which is no reduction
// CHECK:         %[[plain:.*]] = builtin.unrealized_conversion_cast %E : tensor<4x8xf32, #diagram.array<[d0, d1]>> to tensor<4x8xf32>
// CHECK-NEXT:    %top = linalg.generic
// CHECK-SAME:      ins(%[[plain]] : tensor<4x8xf32>)
func.func @stays(%X: tensor<4x8xf32>, %start: tensor<4xf32>) -> tensor<4xf32> {
  %E = linalg.exp ins(%X : tensor<4x8xf32>) outs(%X : tensor<4x8xf32>) -> tensor<4x8xf32>
  %top = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%E : tensor<4x8xf32>) outs(%start : tensor<4xf32>) {
  ^bb0(%x: f32, %sofar: f32):
    %next = arith.maxnumf %x, %sofar : f32
    linalg.yield %next : f32
  } -> tensor<4xf32>
  func.return %top : tensor<4xf32>
}

// A loop along merged dimensions is one for each of them, also where it is reduced; the other operands are split.
// CHECK-LABEL: func.func @merged(%X: tensor<2x3x8xf32, #diagram.array<[d0, d1, d2]>>, %W: tensor<24x5xf32, #diagram.array<[d3, d4]>>) -> tensor<2x5xf32, #diagram.array<[d0, d4]>> {
// CHECK-NEXT:    %[[split:.*]] = diagram.read %W at "8 * d1 + d2, d4" : tensor<24x5xf32, #diagram.array<[d3, d4]>> -> tensor<3x8x5xf32, #diagram.array<[d1, d2, d4]>>
// CHECK-NEXT:    %Y = diagram.contract %X, %[[split]] over [d1, d2] accumulate f32
// CHECK-NEXT:    func.return %Y
func.func @merged(%X: tensor<2x3x8xf32>, %W: tensor<24x5xf32>) -> tensor<2x5xf32> {
  %zero = arith.constant dense<0.0> : tensor<2x5xf32>
  %M = tensor.collapse_shape %X [[0], [1, 2]] : tensor<2x3x8xf32> into tensor<2x24xf32>
  %Y = linalg.matmul ins(%M, %W : tensor<2x24xf32>, tensor<24x5xf32>) outs(%zero : tensor<2x5xf32>) -> tensor<2x5xf32>
  func.return %Y : tensor<2x5xf32>
}

// Where a body asks for its place along merged dimensions of an argument, they are one axis.
// CHECK-LABEL: func.func @place
// CHECK-NEXT:    %M = diagram.collapse %X [d1, d2] as d3 : tensor<2x3x8xi32, #diagram.array<[d0, d1, d2]>> -> tensor<2x24xi32, #diagram.array<[d0, d3]>>
// CHECK-NEXT:    %[[at:.*]] = diagram.index -> tensor<24xi32, #diagram.array<[d3]>>
// CHECK-NEXT:    %I = diagram.map (%x = %M : {{.*}}, %i = %[[at]] :
func.func @place(%X: tensor<2x3x8xi32>) -> tensor<2x24xi32> {
  %M = tensor.collapse_shape %X [[0], [1, 2]] : tensor<2x3x8xi32> into tensor<2x24xi32>
  %E = tensor.empty() : tensor<2x24xi32>
  %I = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%M : tensor<2x24xi32>) outs(%E : tensor<2x24xi32>) {
  ^bb0(%x: i32, %out: i32):
    %i = linalg.index 1 : index
    %j = arith.index_cast %i : index to i32
    %y = arith.addi %x, %j : i32
    linalg.yield %y : i32
  } -> tensor<2x24xi32>
  func.return %I : tensor<2x24xi32>
}

// Merged dimensions of a result that is computed are a view of it, and an array again; of an argument they stay.
// CHECK-LABEL: func.func @left_merged(%X: tensor<2x3x8xf32, #diagram.array<[d0, d1, d2]>>, %Y: tensor<2x3x8xf32>) -> (tensor<2x24xf32, #diagram.array<[d0, d1_d2]>>, tensor<2x24xf32>) {
// CHECK-NEXT:    %E = diagram.map (%[[x:.*]] = %X : tensor<2x3x8xf32, #diagram.array<[d0, d1, d2]>>) -> tensor<2x3x8xf32, #diagram.array<[d0, d1, d2]>> {
// CHECK:         %[[plain:.*]] = builtin.unrealized_conversion_cast %E : tensor<2x3x8xf32, #diagram.array<[d0, d1, d2]>> to tensor<2x3x8xf32>
// CHECK-NEXT:    %M = tensor.collapse_shape %[[plain]]
// CHECK-NEXT:    %N = tensor.collapse_shape %Y
// CHECK-NEXT:    %[[merged:.*]] = builtin.unrealized_conversion_cast %M : tensor<2x24xf32> to tensor<2x24xf32, #diagram.array<[d0, d1_d2]>>
// CHECK-NEXT:    func.return %[[merged]], %N
func.func @left_merged(%X: tensor<2x3x8xf32>, %Y: tensor<2x3x8xf32>) -> (tensor<2x24xf32>, tensor<2x24xf32>) {
  %0 = tensor.empty() : tensor<2x3x8xf32>
  %E = linalg.exp ins(%X : tensor<2x3x8xf32>) outs(%0 : tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  %M = tensor.collapse_shape %E [[0], [1, 2]] : tensor<2x3x8xf32> into tensor<2x24xf32>
  %N = tensor.collapse_shape %Y [[0], [1, 2]] : tensor<2x3x8xf32> into tensor<2x24xf32>
  func.return %M, %N : tensor<2x24xf32>, tensor<2x24xf32>
}

// A constant is rounded where a body narrows it, and a small whole power is written as products.
// CHECK-LABEL: func.func @narrowed
// CHECK:         %[[square:.*]] = arith.mulf %x, %x : f32
// CHECK-NEXT:    %cube = arith.mulf %x, %[[square]] : f32
// CHECK-NEXT:    %small = arith.constant 1.000000e-05 : f32
// CHECK-NEXT:    %y = arith.addf %cube, %small : f32
func.func @narrowed(%X: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %epsilon = arith.constant 1.0e-5 : f64
  %three = arith.constant 3 : i64
  %Y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%X : tensor<4x8xf32>) outs(%X : tensor<4x8xf32>) {
  ^bb0(%x: f32, %out: f32):
    %cube = math.fpowi %x, %three : f32, i64
    %small = arith.truncf %epsilon : f64 to f32
    %y = arith.addf %cube, %small : f32
    linalg.yield %y : f32
  } -> tensor<4x8xf32>
  func.return %Y : tensor<4x8xf32>
}

// Dimensions of an argument are merged, of sizes that only a call tells.

// CHECK-LABEL: func.func @merged_argument
// CHECK-NEXT: %flat = diagram.collapse %x [d0, d1] as d3 : tensor<?x?x8xf32, #diagram.array<[d0, d1, d2]>> -> tensor<?x8xf32, #diagram.array<[d3, d2]>>
// CHECK-NEXT: %y = diagram.contract %flat, %g over [d3] accumulate f32
// CHECK-NEXT: func.return %y : tensor<8xf32, #diagram.array<[d2]>>
func.func @merged_argument(%x: tensor<?x?x8xf32>, %g: tensor<8xf32>) -> tensor<8xf32> {
  %zero = arith.constant 0.000000e+00 : f32
  %flat = tensor.collapse_shape %x [[0, 1], [2]] : tensor<?x?x8xf32> into tensor<?x8xf32>
  %room = tensor.empty() : tensor<8xf32>
  %start = linalg.fill ins(%zero : f32) outs(%room : tensor<8xf32>) -> tensor<8xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(r, k) -> (r, k)>, affine_map<(r, k) -> (k)>, affine_map<(r, k) -> (k)>], iterator_types = ["reduction", "parallel"]} ins(%flat, %g : tensor<?x8xf32>, tensor<8xf32>) outs(%start : tensor<8xf32>) {
  ^bb0(%a: f32, %b: f32, %sum: f32):
    %product = arith.mulf %a, %b : f32
    %next = arith.addf %sum, %product : f32
    linalg.yield %next : f32
  } -> tensor<8xf32>
  return %y : tensor<8xf32>
}
