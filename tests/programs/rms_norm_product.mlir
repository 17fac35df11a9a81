// Root-mean-square normalisation of the rows of X, then a product with W: the norm can follow the product.

!X = tensor<?x?xf16, #diagram.array<[t, k]>>
!F = tensor<?x?xf32, #diagram.array<[t, k]>>
!W = tensor<?x?xf16, #diagram.array<[k, n]>>
!r = tensor<?xf32, #diagram.array<[t]>>
!Y = tensor<?x?xf32, #diagram.array<[t, n]>>

func.func @rms_norm_product(%X: !X, %W: !W) -> !Y attributes {sizes = #diagram.sizes<t = 9, k = 37, n = 11>} {
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
  %N = diagram.map (%a = %F : !F, %b = %norm : !r) -> !F {
    %c = arith.mulf %a, %b : f32
    diagram.yield %c : f32
  }
  %N16 = diagram.cast %N : !F -> !X
  %Y = diagram.contract %N16, %W over [k] accumulate f32 : !X, !W -> !Y
  func.return %Y : !Y
}
