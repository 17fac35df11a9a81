// Shares along both axes at once, of scores that a condition leaves: each softmax is streamed along an axis of its own.

!Q = tensor<?x?x64xf16, #diagram.array<[b, q, d]>>
!K = tensor<?x?x64xf16, #diagram.array<[b, x, d]>>
!V = tensor<?x?x64xf16, #diagram.array<[b, x, e]>>
!S = tensor<?x?x?xf32, #diagram.array<[b, q, x]>>
!P = tensor<?x?x?xf16, #diagram.array<[b, q, x]>>
!O = tensor<?x?x64xf32, #diagram.array<[b, q, e]>>
!n = tensor<?xi32, #diagram.array<[b]>>

func.func @masked_dual_softmax(%Q: !Q, %K: !K, %V: !V, %n: !n {diagram.up_to = "x"}) -> !O
    attributes {sizes = #diagram.sizes<b = 2, q = 70, x = 90>} {
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %W = diagram.where %S if "x <= q and x < n[b]" with (n = %n : !n) : !S
  %T = diagram.map (%s = %W : !S) -> !S {
    %scale = arith.constant 0.125 : f32
    %t = arith.mulf %s, %scale : f32
    diagram.yield %t : f32
  }
  %along_x = diagram.apply @softmax(%T) over [x] : (!S) -> !S
  %along_q = diagram.apply @softmax(%T) over [q] : (!S) -> !S
  %D = diagram.map (%a = %along_x : !S, %c = %along_q : !S) -> !S {
    %p = arith.mulf %a, %c : f32
    diagram.yield %p : f32
  }
  %P16 = diagram.cast %D : !S -> !P
  %O = diagram.contract %P16, %V over [x] accumulate f32 : !P, !V -> !O
  func.return %O : !O
}
