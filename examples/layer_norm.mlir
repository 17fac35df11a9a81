// Layer norm: every row of X to mean 0 and variance 1, then scaled by gamma and shifted by beta.
//
//   treadle run examples/layer_norm.mlir --size t=7 --size i=5000

!X = tensor<?x?xf16, #diagram.array<[t, i]>>
!g = tensor<?xf32, #diagram.array<[i]>>
!W = tensor<?x?xf32, #diagram.array<[t, i]>>
!r = tensor<?xf32, #diagram.array<[t]>>

func.func @layer_norm(%X: !X, %gamma: !g, %beta: !g) -> !X
    attributes {sizes = #diagram.sizes<t = 50, i = 700>} {
  %wide = diagram.cast %X : !X -> !W
  %mean = diagram.apply @mean(%wide) over [i] : (!W) -> !r
  %variance = diagram.apply @variance(%wide) over [i] : (!W) -> !r
  %Y = diagram.map (%x = %wide : !W, %m = %mean : !r, %v = %variance : !r, %g = %gamma : !g, %b = %beta : !g) -> !W {
    %epsilon = arith.constant 1.0e-5 : f32
    %centred = arith.subf %x, %m : f32
    %safe = arith.addf %v, %epsilon : f32
    %scale = math.rsqrt %safe : f32
    %normal = arith.mulf %centred, %scale : f32
    %scaled = arith.mulf %normal, %g : f32
    %y = arith.addf %scaled, %b : f32
    diagram.yield %y : f32
  }
  %Y16 = diagram.cast %Y : !W -> !X
  func.return %Y16 : !X
}
