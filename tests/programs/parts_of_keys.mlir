// Keys of which two parts are values, side by side, with some columns before and behind them.

!Q = tensor<?x40xf16, #diagram.array<[q, d]>>
!K = tensor<?x40xf16, #diagram.array<[x, d]>>
!V = tensor<?x16xf16, #diagram.array<[x, c]>>
!U = tensor<?x8xf16, #diagram.array<[x, e]>>
!S = tensor<?x?xf32, #diagram.array<[q, x]>>
!P = tensor<?x?xf16, #diagram.array<[q, x]>>
!O = tensor<?x16xf32, #diagram.array<[q, c]>>
!R = tensor<?x8xf32, #diagram.array<[q, e]>>

func.func @parts_of_keys(%Q: !Q, %K: !K) -> (!O, !R) attributes {sizes = #diagram.sizes<q = 7, x = 37>} {
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %V = diagram.read %K at "x, c + 4" : !K -> !V
  %U = diagram.read %K at "x, e + 20" : !K -> !U
  %P = diagram.apply @softmax(%S) over [x] : (!S) -> !S
  %P16 = diagram.cast %P : !S -> !P
  %O = diagram.contract %P16, %V over [x] accumulate f32 : !P, !V -> !O
  %R = diagram.contract %P16, %U over [x] accumulate f32 : !P, !U -> !R
  func.return %O, %R : !O, !R
}
