// A layer with a residual: Y = X + bias + H W. What is added is loaded once, where the product is finished.
//
//   treadle run examples/matmul_residual.mlir --size t=1000

!H = tensor<?x?xf16, #diagram.array<[t, j]>>
!W = tensor<?x?xf16, #diagram.array<[j, i]>>
!bias = tensor<?xf32, #diagram.array<[i]>>
!X = tensor<?x?xf16, #diagram.array<[t, i]>>
!Z = tensor<?x?xf32, #diagram.array<[t, i]>>

func.func @residual(%H: !H, %W: !W, %bias: !bias, %X: !X) -> !X
    attributes {sizes = #diagram.sizes<t = 200, j = 256, i = 136>} {
  %Z = diagram.contract %H, %W over [j] accumulate f32 : !H, !W -> !Z
  %sum = diagram.map (%z = %Z : !Z, %b = %bias : !bias, %x = %X : !X) -> !Z {
    %wide = arith.extf %x : f16 to f32
    %biased = arith.addf %z, %b : f32
    %y = arith.addf %biased, %wide : f32
    diagram.yield %y : f32
  }
  %Y = diagram.cast %sum : !Z -> !X
  func.return %Y : !X
}
