// Causal attention to the blocks of 64 x 64 scores that a table leaves: of a head that other blocks see too.
!Q = tensor<?x?x64xf16, #diagram.array<[h, q, d]>>
!K = tensor<?x?x64xf16, #diagram.array<[h, x, d]>>
!V = tensor<?x?x64xf16, #diagram.array<[h, x, e]>>
!T = tensor<?x?xi32, #diagram.array<[k, l]>>
!M = tensor<?x?xi32, #diagram.array<[q, x]>>
!S = tensor<?x?x?xf32, #diagram.array<[h, q, x]>>
!P = tensor<?x?x?xf16, #diagram.array<[h, q, x]>>
!A = tensor<?x?x64xf32, #diagram.array<[h, q, e]>>
!O = tensor<?x?x64xf16, #diagram.array<[h, q, e]>>

func.func @blocks(%Q: !Q, %K: !K, %V: !V, %table: !T) -> !O
    attributes {sizes = #diagram.sizes<h = 2, q = 200, x = 333, k = 4, l = 6>} {
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %M = diagram.read %table at "q // 64, x // 64" padded : !T -> !M
  %W = diagram.where %S if "m[q, x] > 0 and x <= q + 100" with (m = %M : !M) : !S
  %P = diagram.apply @softmax(%W) over [x] : (!S) -> !S
  %P16 = diagram.cast %P : !S -> !P
  %A = diagram.contract %P16, %V over [x] accumulate f32 : !P, !V -> !A
  %O = diagram.cast %A : !A -> !O
  func.return %O : !O
}
