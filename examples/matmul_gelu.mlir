// A layer with GELU: Y = gelu(X W + bias), gelu(z) = z/2 (1 + erf(z / sqrt 2)).
//
//   treadle run examples/matmul_gelu.mlir --size t=1000

!X = tensor<?x?xbf16, #diagram.array<[t, i]>>
!W = tensor<?x?xbf16, #diagram.array<[o, i]>>
!bias = tensor<?xf32, #diagram.array<[o]>>
!Z = tensor<?x?xf32, #diagram.array<[t, o]>>
!Y = tensor<?x?xbf16, #diagram.array<[t, o]>>

func.func @gelu_layer(%X: !X, %W: !W, %bias: !bias) -> !Y
    attributes {sizes = #diagram.sizes<t = 200, i = 256, o = 136>} {
  %Z = diagram.contract %X, %W over [i] accumulate f32 : !X, !W -> !Z
  %gelu = diagram.map (%z = %Z : !Z, %b = %bias : !bias) -> !Z {
    %one = arith.constant 1.0 : f32
    %half = arith.constant 0.5 : f32
    %root = arith.constant 0.70710678118 : f32
    %s = arith.addf %z, %b : f32
    %inner = arith.mulf %s, %root : f32
    %erf = math.erf %inner : f32
    %gate = arith.addf %one, %erf : f32
    %scaled = arith.mulf %s, %gate : f32
    %y = arith.mulf %scaled, %half : f32
    diagram.yield %y : f32
  }
  %Y = diagram.cast %gelu : !Z -> !Y
  func.return %Y : !Y
}
