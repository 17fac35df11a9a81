// Several causal sequences in one: a key is seen by later queries of its own sequence.

!Q = tensor<?x?x?x64xf16, #diagram.array<[b, h, q, d]>>
!K = tensor<?x?x?x64xf16, #diagram.array<[b, h, x, d]>>
!V = tensor<?x?x?x64xf16, #diagram.array<[b, h, x, e]>>
!sq = tensor<?xi32, #diagram.array<[q]>>
!sx = tensor<?xi32, #diagram.array<[x]>>
!S = tensor<?x?x?x?xf32, #diagram.array<[b, h, q, x]>>
!P = tensor<?x?x?x?xf16, #diagram.array<[b, h, q, x]>>
!A = tensor<?x?x?x64xf32, #diagram.array<[b, h, q, e]>>
!O = tensor<?x?x?x64xf16, #diagram.array<[b, h, q, e]>>
func.func @packed_causal(
    %Q: !Q, %K: !K, %V: !V,
    %of_q: !sq {diagram.up_to = "x", diagram.ascending}, %of_x: !sx {diagram.up_to = "x", diagram.ascending}) -> !O
    attributes {sizes = #diagram.sizes<b = 2, h = 3, q = 333, x = 333>} {
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %W = diagram.where %S if "of_x[x] == of_q[q] and x <= q" with (of_x = %of_x : !sx, of_q = %of_q : !sq) : !S
  %T = diagram.map (%s = %W : !S) -> !S {
    %scale = arith.constant 0.125 : f32
    %t = arith.mulf %s, %scale : f32
    diagram.yield %t : f32
  }
  %P = diagram.apply @softmax(%T) over [x] : (!S) -> !S
  %P16 = diagram.cast %P : !S -> !P
  %A = diagram.contract %P16, %V over [x] accumulate f32 : !P, !V -> !A
  %O = diagram.cast %A : !A -> !O
  func.return %O : !O
}
