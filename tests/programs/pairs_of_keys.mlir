// 2-simplicial attention: scores of a query and of pairs of keys, shares of all pairs before a query, and values of pairs.
// No array has both axes of pairs.

!Q = tensor<?x16xf16, #diagram.array<[q, d]>>
!X = tensor<?x16xf16, #diagram.array<[x, d]>>
!Y = tensor<5x16xf16, #diagram.array<[y, d]>>
!KL = tensor<?x5x16xf16, #diagram.array<[x, y, d]>>
!S = tensor<?x?x5xf32, #diagram.array<[q, x, y]>>
!P = tensor<?x?x5xf16, #diagram.array<[q, x, y]>>
!m = tensor<?xf32, #diagram.array<[q]>>
!O = tensor<?x16xf32, #diagram.array<[q, d]>>

func.func @pairs_of_keys(%Q: !Q, %K: !X, %L: !Y, %V: !X, %W: !Y) -> !O
    attributes {sizes = #diagram.sizes<q = 13, x = 9>} {
  %KL = diagram.map (%k = %K : !X, %l = %L : !Y) -> !KL {
    %kl = arith.mulf %k, %l : f16
    diagram.yield %kl : f16
  }
  %S = diagram.contract %Q, %KL over [d] accumulate f32 : !Q, !KL -> !S
  %kept = diagram.where %S if "x <= q and y <= x + 1" : !S
  %m = diagram.reduce max %kept over [x, y] : !S -> !m
  %E = diagram.map (%s = %kept : !S, %n = %m : !m) -> !S {
    %t = arith.subf %s, %n : f32
    %e = math.exp %t : f32
    diagram.yield %e : f32
  }
  %l = diagram.reduce add %E over [x, y] : !S -> !m
  %P = diagram.cast %E : !S -> !P
  %VW = diagram.map (%v = %V : !X, %w = %W : !Y) -> !KL {
    %vw = arith.mulf %v, %w : f16
    diagram.yield %vw : f16
  }
  %A = diagram.contract %P, %VW over [x, y] accumulate f32 : !P, !KL -> !O
  %O = diagram.map (%a = %A : !O, %b = %l : !m) -> !O {
    %o = arith.divf %a, %b : f32
    diagram.yield %o : f32
  }
  func.return %O : !O
}
