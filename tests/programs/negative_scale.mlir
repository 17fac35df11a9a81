// exp(c * s - c * max s) with a negative c: larger than 1, and not neutral where s is -inf. No law, but right.

!S = tensor<?x?xf32, #diagram.array<[q, x]>>
!r = tensor<?xf32, #diagram.array<[q]>>

func.func @negative_scale(%S: !S) -> (!r, !r) attributes {sizes = #diagram.sizes<q = 9, x = 37>} {
  %m = diagram.reduce max %S over [x] : !S -> !r
  %E = diagram.map (%s = %S : !S, %r = %m : !r) -> !S {
    %c = arith.constant -0.5 : f32
    %a = arith.mulf %s, %c : f32
    %b = arith.mulf %r, %c : f32
    %d = arith.subf %a, %b : f32
    %e = math.exp %d : f32
    diagram.yield %e : f32
  }
  %l = diagram.reduce add %E over [x] : !S -> !r
  %T = diagram.map (%s = %S : !S) -> !S {
    %c = arith.constant -0.5 : f32
    %a = arith.mulf %s, %c : f32
    diagram.yield %a : f32
  }
  %n = diagram.reduce max %T over [x] : !S -> !r
  func.return %l, %n : !r, !r
}
