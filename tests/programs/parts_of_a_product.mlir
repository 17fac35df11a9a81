// Parts of what is computed, read at other positions: halves of a product with a bias that are combined, one of them
// backwards, and a row of maxima under a condition, with its position.

!X = tensor<?x16xf16, #diagram.array<[t, i]>>
!W = tensor<2x7x16xf16, #diagram.array<[s, j, i]>>
!b = tensor<2x7xf32, #diagram.array<[s, j]>>
!P = tensor<?x2x7xf32, #diagram.array<[t, s, j]>>
!H = tensor<?x7xf32, #diagram.array<[t, j]>>
!Q = tensor<2x6x16xf16, #diagram.array<[h, q, d]>>
!K = tensor<?x16xf16, #diagram.array<[x, d]>>
!S = tensor<2x6x?xf32, #diagram.array<[h, q, x]>>
!r = tensor<2x6xf32, #diagram.array<[h, q]>>
!at = tensor<6xi32, #diagram.array<[q]>>
!rows = tensor<2xf32, #diagram.array<[h]>>

func.func @parts_of_a_product(%X: !X, %W: !W, %bias: !b, %Q: !Q, %K: !K) -> (!H, !rows)
    attributes {sizes = #diagram.sizes<t = 5, x = 9>} {
  %XW = diagram.contract %X, %W over [i] accumulate f32 : !X, !W -> !P
  %P = diagram.map (%p = %XW : !P, %q = %bias : !b) -> !P {
    %sum = arith.addf %p, %q : f32
    diagram.yield %sum : f32
  }
  %gate = diagram.read %P at "t, 0, j" : !P -> !H
  %value = diagram.read %P at "t, 1, 6 - j" padded : !P -> !H
  %H = diagram.map (%g = %gate : !H, %v = %value : !H) -> !H {
    %h = arith.mulf %g, %v : f32
    diagram.yield %h : f32
  }
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %kept = diagram.where %S if "x <= q" : !S
  %at = diagram.index -> !at
  %m = diagram.reduce max %kept over [x] : !S -> !r
  %R = diagram.map (%a = %m : !r, %n = %at : !at) -> !r {
    %f = arith.sitofp %n : i32 to f32
    %y = arith.addf %a, %f : f32
    diagram.yield %y : f32
  }
  %row = diagram.read %R at "h, 4" : !r -> !rows
  func.return %H, %row : !H, !rows
}
