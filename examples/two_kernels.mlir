// Two layers of a network: Y = relu(X W1) W2. Both contracted axes, i and j, are symbolic, and only one
// axis of a kernel can be streamed: the second product needs all of j, whose size is unknown. So there are
// two kernels, with H between them.
//
//   treadle run examples/two_kernels.mlir --size t=100 --size j=1000

!X = tensor<?x?xf16, #diagram.array<[t, i]>>
!W1 = tensor<?x?xf16, #diagram.array<[i, j]>>
!W2 = tensor<?x?xf16, #diagram.array<[j, o]>>
!Z = tensor<?x?xf32, #diagram.array<[t, j]>>
!H = tensor<?x?xf16, #diagram.array<[t, j]>>
!Y = tensor<?x?xf32, #diagram.array<[t, o]>>

func.func @two_layers(%X: !X, %W1: !W1, %W2: !W2) -> !Y
    attributes {sizes = #diagram.sizes<t = 100, i = 96, j = 200, o = 72>} {
  %Z = diagram.contract %X, %W1 over [i] accumulate f32 : !X, !W1 -> !Z
  %relu = diagram.map (%z = %Z : !Z) -> !Z {
    %zero = arith.constant 0.0 : f32
    %h = arith.maximumf %z, %zero : f32
    diagram.yield %h : f32
  }
  %H = diagram.cast %relu : !Z -> !H
  %Y = diagram.contract %H, %W2 over [j] accumulate f32 : !H, !W2 -> !Y
  func.return %Y : !Y
}
