// Queries of which only the first part of their width is there: keys are not read beyond it.

!Q = tensor<?x?x?x64xf16, #diagram.array<[b, h, q, d]>>
!K = tensor<?x?x?x64xf16, #diagram.array<[b, h, x, d]>>
!V = tensor<?x?x?x64xf16, #diagram.array<[b, h, x, e]>>
!len = tensor<?xi32, #diagram.array<[b]>>
!S = tensor<?x?x?x?xf32, #diagram.array<[b, h, q, x]>>
!P = tensor<?x?x?x?xf16, #diagram.array<[b, h, q, x]>>
!A = tensor<?x?x?x64xf32, #diagram.array<[b, h, q, e]>>
!O = tensor<?x?x?x64xf16, #diagram.array<[b, h, q, e]>>

func.func @part_of_the_width(%Q: !Q, %K: !K, %V: !V, %len: !len {diagram.up_to = "q"}) -> !O
    attributes {sizes = #diagram.sizes<b = 2, h = 3, q = 200, x = 333>} {
  %R = diagram.where %Q if "d < len[b]" with (len = %len : !len) : !Q
  %S = diagram.contract %R, %K over [d] accumulate f32 : !Q, !K -> !S
  %W = diagram.where %S if "x <= q" : !S
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
