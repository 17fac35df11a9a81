// RMS norm, then a product, in one kernel: Y = rms_norm(X) W. What divides a row of X divides the row of the product as
// well, so the product runs beside the sum of squares and is scaled once, at the end. The gains of the norm are
// taken into W. Where o is long, each of its groups would sum the squares again: of large matrices an H100 is predicted
// to be faster with two kernels, and gets them.
//
//   treadle run examples/rms_norm_matmul.mlir --size t=100 --size i=4096

!X = tensor<?x?xf16, #diagram.array<[t, i]>>
!W = tensor<?x?xf16, #diagram.array<[i, o]>>
!wide = tensor<?x?xf32, #diagram.array<[t, i]>>
!r = tensor<?xf32, #diagram.array<[t]>>
!Y = tensor<?x?xf32, #diagram.array<[t, o]>>
!Y16 = tensor<?x?xf16, #diagram.array<[t, o]>>

func.func @rms_norm_matmul(%X: !X, %W: !W) -> !Y16
    attributes {sizes = #diagram.sizes<t = 70, i = 300, o = 136>} {
  %wide = diagram.cast %X : !X -> !wide
  %power = diagram.apply @mean_square(%wide) over [i] : (!wide) -> !r
  %normal = diagram.map (%x = %wide : !wide, %p = %power : !r) -> !wide {
    %epsilon = arith.constant 1.0e-5 : f32
    %safe = arith.addf %p, %epsilon : f32
    %scale = math.rsqrt %safe : f32
    %y = arith.mulf %x, %scale : f32
    diagram.yield %y : f32
  }
  %normal16 = diagram.cast %normal : !wide -> !X
  %Y = diagram.contract %normal16, %W over [i] accumulate f32 : !X, !W -> !Y
  %Y16 = diagram.cast %Y : !Y -> !Y16
  func.return %Y16 : !Y16
}
