// As rms_norm_product, with a gain for each column: what would stay behind may overflow f16.

!X = tensor<?x?xf16, #diagram.array<[t, k]>>
!F = tensor<?x?xf32, #diagram.array<[t, k]>>
!W = tensor<?x?xf16, #diagram.array<[k, n]>>
!r = tensor<?xf32, #diagram.array<[t]>>
!G = tensor<?xf32, #diagram.array<[k]>>
!Y = tensor<?x?xf32, #diagram.array<[t, n]>>

func.func @rms_gain_product(%X: !X, %W: !W, %G: !G) -> !Y attributes {sizes = #diagram.sizes<t = 9, k = 37, n = 11>} {
  %F = diagram.cast %X : !X -> !F
  %squares = diagram.map (%a = %F : !F) -> !F {
    %b = arith.mulf %a, %a : f32
    diagram.yield %b : f32
  }
  %total = diagram.reduce add %squares over [k] : !F -> !r
  %norm = diagram.map (%a = %total : !r) -> !r {
    %share = arith.constant 0.03125 : f32
    %epsilon = arith.constant 0.00001 : f32
    %mean = arith.mulf %a, %share : f32
    %safe = arith.addf %mean, %epsilon : f32
    %b = math.rsqrt %safe : f32
    diagram.yield %b : f32
  }
  %N = diagram.map (%a = %F : !F, %b = %norm : !r, %g = %G : !G) -> !F {
    %d = arith.mulf %a, %g : f32
    %c = arith.mulf %d, %b : f32
    diagram.yield %c : f32
  }
  %N16 = diagram.cast %N : !F -> !X
  %Y = diagram.contract %N16, %W over [k] accumulate f32 : !X, !W -> !Y
  func.return %Y : !Y
}
