// Attention to keys at a stride, to those near, and to those of blocks not far behind: quotients and remainders limit
// what is visited at both ends, and leave out what lies between.
!Q = tensor<?x16xf16, #diagram.array<[q, d]>>
!K = tensor<?x16xf16, #diagram.array<[x, d]>>
!V = tensor<?x16xf16, #diagram.array<[x, e]>>
!S = tensor<?x?xf32, #diagram.array<[q, x]>>
!P = tensor<?x?xf16, #diagram.array<[q, x]>>
!A = tensor<?x16xf32, #diagram.array<[q, e]>>

func.func @strided(%Q: !Q, %K: !K, %V: !V) -> !A attributes {sizes = #diagram.sizes<q = 70, x = 700>} {
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %W = diagram.where %S if "x // 12 - q // 12 <= 25 and 2 * x >= q + q % 32 and ((q - x) % 300 == 0 or x - q < 20)" : !S
  %P = diagram.apply @softmax(%W) over [x] : (!S) -> !S
  %P16 = diagram.cast %P : !S -> !P
  %A = diagram.contract %P16, %V over [x] accumulate f32 : !P, !V -> !A
  func.return %A : !A
}
