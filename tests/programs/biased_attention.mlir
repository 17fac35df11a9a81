// Attention with a bias on the scores, which may be -inf; gives the log-sum-exp of each row as well.

!Q = tensor<?x16xf16, #diagram.array<[q, d]>>
!K = tensor<?x16xf16, #diagram.array<[x, d]>>
!V = tensor<?x24xf16, #diagram.array<[x, e]>>
!S = tensor<?x?xf32, #diagram.array<[q, x]>>
!P = tensor<?x?xf16, #diagram.array<[q, x]>>
!r = tensor<?xf32, #diagram.array<[q]>>
!O = tensor<?x24xf32, #diagram.array<[q, e]>>

func.func @biased_attention(%Q: !Q, %K: !K, %V: !V, %bias: !S) -> (!O, !r) attributes {sizes = #diagram.sizes<q = 9, x = 37>} {
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %T = diagram.map (%s = %S : !S, %b = %bias : !S) -> !S {
    %scale = arith.constant 0.25 : f32
    %u = arith.mulf %s, %scale : f32
    %t = arith.addf %u, %b : f32
    diagram.yield %t : f32
  }
  %m = diagram.reduce max %T over [x] : !S -> !r
  %E = diagram.map (%s = %T : !S, %r = %m : !r) -> !S {
    %d = arith.subf %s, %r : f32
    %e = math.exp %d : f32
    diagram.yield %e : f32
  }
  %l = diagram.reduce add %E over [x] : !S -> !r
  %P = diagram.map (%e = %E : !S, %t = %l : !r) -> !S {
    %p = arith.divf %e, %t : f32
    diagram.yield %p : f32
  }
  %P16 = diagram.cast %P : !S -> !P
  %O = diagram.contract %P16, %V over [x] accumulate f32 : !P, !V -> !O
  %L = diagram.map (%r = %m : !r, %t = %l : !r) -> !r {
    %g = math.log %t : f32
    %y = arith.addf %r, %g : f32
    diagram.yield %y : f32
  }
  func.return %O, %L : !O, !r
}
