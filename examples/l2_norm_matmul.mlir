// Rows of X of length 1, times W, as a cosine similarity: the sum of squares runs beside the product, which is scaled
// once, at the end.
//
//   treadle run examples/l2_norm_matmul.mlir --size t=100 --size i=4096

!X = tensor<?x?xbf16, #diagram.array<[t, i]>>
!W = tensor<?x?xbf16, #diagram.array<[i, o]>>
!wide = tensor<?x?xf32, #diagram.array<[t, i]>>
!r = tensor<?xf32, #diagram.array<[t]>>
!Y = tensor<?x?xf32, #diagram.array<[t, o]>>

func.func @l2_norm_matmul(%X: !X, %W: !W) -> !Y
    attributes {sizes = #diagram.sizes<t = 70, i = 300, o = 136>} {
  %wide = diagram.cast %X : !X -> !wide
  %squares = diagram.map (%x = %wide : !wide) -> !wide {
    %square = arith.mulf %x, %x : f32
    diagram.yield %square : f32
  }
  %power = diagram.reduce add %squares over [i] : !wide -> !r
  %unit = diagram.map (%x = %wide : !wide, %p = %power : !r) -> !wide {
    %length = math.sqrt %p : f32
    %y = arith.divf %x, %length : f32
    diagram.yield %y : f32
  }
  %unit16 = diagram.cast %unit : !wide -> !X
  %Y = diagram.contract %unit16, %W over [i] accumulate f32 : !X, !W -> !Y
  func.return %Y : !Y
}
