// Attention whose queries and keys all heads share, each of which multiplies the scores by a number of its own:
// softmax(Q K^T t[h]) V. The product of the scores lacks the axis of the heads, of which there are three.

!Q = tensor<?x?x64xf16, #diagram.array<[b, q, d]>>
!K = tensor<?x?x64xf16, #diagram.array<[b, x, d]>>
!V = tensor<?x?x64xf16, #diagram.array<[b, x, e]>>
!t = tensor<3xf32, #diagram.array<[h]>>
!S = tensor<?x?x?xf32, #diagram.array<[b, q, x]>>
!T = tensor<?x3x?x?xf32, #diagram.array<[b, h, q, x]>>
!P = tensor<?x3x?x?xf16, #diagram.array<[b, h, q, x]>>
!A = tensor<?x3x?x64xf32, #diagram.array<[b, h, q, e]>>
!O = tensor<?x3x?x64xf16, #diagram.array<[b, h, q, e]>>

func.func @scores_by_heads(%Q: !Q, %K: !K, %V: !V, %t: !t) -> !O
    attributes {sizes = #diagram.sizes<b = 2, q = 70, x = 200>} {
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %T = diagram.map (%s = %S : !S, %a = %t : !t) -> !T {
    %y = arith.mulf %s, %a : f32
    diagram.yield %y : f32
  }
  %P = diagram.apply @softmax(%T) over [x] : (!T) -> !T
  %P16 = diagram.cast %P : !T -> !P
  %A = diagram.contract %P16, %V over [x] accumulate f32 : !P, !V -> !A
  %O = diagram.cast %A : !A -> !O
  func.return %O : !O
}
