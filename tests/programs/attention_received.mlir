// Causal attention, and what each key received of it: the second sum is along the other axis, so it is a kernel of its
// own, which asks again where the condition holds.

!Q = tensor<?x?x64xf16, #diagram.array<[b, q, d]>>
!K = tensor<?x?x64xf16, #diagram.array<[b, x, d]>>
!V = tensor<?x?x64xf16, #diagram.array<[b, x, e]>>
!S = tensor<?x?x?xf32, #diagram.array<[b, q, x]>>
!P = tensor<?x?x?xf16, #diagram.array<[b, q, x]>>
!O = tensor<?x?x64xf32, #diagram.array<[b, q, e]>>
!R = tensor<?x?xf32, #diagram.array<[b, x]>>

func.func @attention_received(%Q: !Q, %K: !K, %V: !V) -> (!O, !R)
    attributes {sizes = #diagram.sizes<b = 2, q = 70, x = 90>} {
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %W = diagram.where %S if "x <= q" : !S
  %T = diagram.map (%s = %W : !S) -> !S {
    %scale = arith.constant 0.125 : f32
    %t = arith.mulf %s, %scale : f32
    diagram.yield %t : f32
  }
  %P = diagram.apply @softmax(%T) over [x] : (!S) -> !S
  %P16 = diagram.cast %P : !S -> !P
  %O = diagram.contract %P16, %V over [x] accumulate f32 : !P, !V -> !O
  %R = diagram.reduce add %P over [q] : !S -> !R
  func.return %O, %R : !O, !R
}
