// RMS norm: every row of X divided by the root of the mean of its squares, then scaled by gamma.
//
//   treadle run examples/rms_norm.mlir --size t=7 --size i=5000

!X = tensor<?x?xf16, #diagram.array<[t, i]>>
!g = tensor<?xf32, #diagram.array<[i]>>
!W = tensor<?x?xf32, #diagram.array<[t, i]>>
!r = tensor<?xf32, #diagram.array<[t]>>

func.func @rms_norm(%X: !X, %gamma: !g) -> !X
    attributes {sizes = #diagram.sizes<t = 50, i = 700>} {
  %wide = diagram.cast %X : !X -> !W
  %power = diagram.apply @mean_square(%wide) over [i] : (!W) -> !r
  %Y = diagram.map (%x = %wide : !W, %p = %power : !r, %g = %gamma : !g) -> !W {
    %epsilon = arith.constant 1.0e-5 : f32
    %safe = arith.addf %p, %epsilon : f32
    %scale = math.rsqrt %safe : f32
    %normal = arith.mulf %x, %scale : f32
    %y = arith.mulf %normal, %g : f32
    diagram.yield %y : f32
  }
  %Y16 = diagram.cast %Y : !W -> !X
  func.return %Y16 : !X
}
