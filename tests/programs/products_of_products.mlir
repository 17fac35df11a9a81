// Products of products with factors in between: of a row, of what is summed, and constants; all of them, and later ones.

!Q = tensor<?x16xf16, #diagram.array<[q, d]>>
!K = tensor<?x16xf16, #diagram.array<[x, d]>>
!V = tensor<?x24xf16, #diagram.array<[x, e]>>
!S = tensor<?x?xf32, #diagram.array<[q, x]>>
!S16 = tensor<?x?xf16, #diagram.array<[q, x]>>
!r = tensor<?xf32, #diagram.array<[q]>>
!g = tensor<?xf32, #diagram.array<[x]>>
!O = tensor<?x24xf32, #diagram.array<[q, e]>>
!U = tensor<?x24xf32, #diagram.array<[x, e]>>
!W = tensor<?x24xf16, #diagram.array<[q, e]>>

func.func @products(%Q: !Q, %K: !K, %V: !V, %W: !W, %r: !r, %g: !g) -> (!O, !O, !U)
    attributes {sizes = #diagram.sizes<q = 23, x = 20>} {
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %T = diagram.map (%s = %S : !S, %a = %r : !r, %b = %g : !g) -> !S {
    %two = arith.constant 2.0 : f32
    %rows = arith.mulf %s, %a : f32
    %weighed = arith.mulf %b, %rows : f32
    %t = arith.divf %weighed, %two : f32
    diagram.yield %t : f32
  }
  %T16 = diagram.cast %T : !S -> !S16
  %A = diagram.contract %T16, %V over [x] accumulate f32 : !S16, !V -> !O
  %S_b = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %L_b = diagram.where %S_b if "q < x" : !S
  %T_b = diagram.map (%s = %L_b : !S, %a = %r : !r, %b = %g : !g) -> !S {
    %weighed = arith.mulf %s, %b : f32
    %t = arith.mulf %weighed, %a : f32
    diagram.yield %t : f32
  }
  %T16_b = diagram.cast %T_b : !S -> !S16
  %B = diagram.contract %T16_b, %V over [x] accumulate f32 : !S16, !V -> !O
  %S_c = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %L_c = diagram.where %S_c if "x <= q" : !S
  %L16_c = diagram.cast %L_c : !S -> !S16
  %C = diagram.contract %L16_c, %W over [q] accumulate f32 : !S16, !W -> !U
  func.return %A, %B, %C : !O, !O, !U
}
