// A two-layer MLP: Y = gelu(X W1 + b1) W2 + b2. The input is 64 wide, so a group holds it whole, and the hidden axis j is
// streamed: the hidden layer never leaves the block.
//
//   treadle run examples/mlp.mlir --size t=1000 --size j=1024

!X = tensor<?x64xf16, #diagram.array<[t, i]>>
!W1 = tensor<64x?xf16, #diagram.array<[i, j]>>
!b1 = tensor<?xf32, #diagram.array<[j]>>
!W2 = tensor<?x64xf16, #diagram.array<[j, o]>>
!b2 = tensor<64xf32, #diagram.array<[o]>>
!Z = tensor<?x?xf32, #diagram.array<[t, j]>>
!H = tensor<?x?xf16, #diagram.array<[t, j]>>
!U = tensor<?x64xf32, #diagram.array<[t, o]>>
!Y = tensor<?x64xf16, #diagram.array<[t, o]>>

func.func @mlp(%X: !X, %W1: !W1, %b1: !b1, %W2: !W2, %b2: !b2) -> !Y
    attributes {sizes = #diagram.sizes<t = 100, j = 256>} {
  %Z = diagram.contract %X, %W1 over [i] accumulate f32 : !X, !W1 -> !Z
  %gelu = diagram.map (%z = %Z : !Z, %b = %b1 : !b1) -> !Z {
    %one = arith.constant 1.0 : f32
    %half = arith.constant 0.5 : f32
    %root = arith.constant 0.70710678118 : f32
    %s = arith.addf %z, %b : f32
    %inner = arith.mulf %s, %root : f32
    %erf = math.erf %inner : f32
    %gate = arith.addf %one, %erf : f32
    %scaled = arith.mulf %s, %gate : f32
    %h = arith.mulf %scaled, %half : f32
    diagram.yield %h : f32
  }
  %H = diagram.cast %gelu : !Z -> !H
  %U = diagram.contract %H, %W2 over [j] accumulate f32 : !H, !W2 -> !U
  %biased = diagram.map (%u = %U : !U, %b = %b2 : !b2) -> !U {
    %y = arith.addf %u, %b : f32
    diagram.yield %y : f32
  }
  %Y = diagram.cast %biased : !U -> !Y
  func.return %Y : !Y
}
