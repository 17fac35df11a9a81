// A layer of a network: Y = silu(X W + bias), where silu(z) = z / (1 + exp(-z)). The weights lie
// transposed, [o, i], as PyTorch keeps them: the order of the axes in a type is the order in memory, and
// the product names its axes.
//
//   treadle run examples/matmul_epilogue.mlir --size t=1000

!X = tensor<?x?xf16, #diagram.array<[t, i]>>
!W = tensor<?x?xf16, #diagram.array<[o, i]>>
!bias = tensor<?xf32, #diagram.array<[o]>>
!Z = tensor<?x?xf32, #diagram.array<[t, o]>>
!Y = tensor<?x?xf16, #diagram.array<[t, o]>>

func.func @layer(%X: !X, %W: !W, %bias: !bias) -> !Y
    attributes {sizes = #diagram.sizes<t = 200, i = 256, o = 136>} {
  %Z = diagram.contract %X, %W over [i] accumulate f32 : !X, !W -> !Z
  %silu = diagram.map (%z = %Z : !Z, %b = %bias : !bias) -> !Z {
    %one = arith.constant 1.0 : f32
    %s = arith.addf %z, %b : f32
    %negative = arith.negf %s : f32
    %exp = math.exp %negative : f32
    %divisor = arith.addf %one, %exp : f32
    %y = arith.divf %s, %divisor : f32
    diagram.yield %y : f32
  }
  %Y = diagram.cast %silu : !Z -> !Y
  func.return %Y : !Y
}
