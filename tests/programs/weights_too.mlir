// Attention in bf16 that gives its weights as well: they need a second stream over the keys.

!Q = tensor<?x16xbf16, #diagram.array<[q, d]>>
!K = tensor<?x16xbf16, #diagram.array<[x, d]>>
!V = tensor<?x24xbf16, #diagram.array<[x, e]>>
!S = tensor<?x?xf32, #diagram.array<[q, x]>>
!P = tensor<?x?xbf16, #diagram.array<[q, x]>>
!O = tensor<?x24xf32, #diagram.array<[q, e]>>

func.func @weights_too(%Q: !Q, %K: !K, %V: !V) -> (!O, !P) attributes {sizes = #diagram.sizes<q = 9, x = 37>} {
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %P = diagram.apply @softmax(%S) over [x] : (!S) -> !S
  %W = diagram.cast %P : !S -> !P
  %O = diagram.contract %W, %V over [x] accumulate f32 : !P, !V -> !O
  func.return %O, %W : !O, !P
}
