// Shares along one axis, summed over another with weights: too much for a kernel that holds the products of all of both.

!S = tensor<?x?x4xf32, #diagram.array<[q, x, g]>>
!P = tensor<?x?x4xf16, #diagram.array<[q, x, g]>>
!N = tensor<4x4xf16, #diagram.array<[g, f]>>
!R = tensor<?x?x4xf32, #diagram.array<[q, x, f]>>
!R16 = tensor<?x?x4xf16, #diagram.array<[q, x, f]>>
!V = tensor<4x?x64xf16, #diagram.array<[f, x, e]>>
!O = tensor<4x?x64xf32, #diagram.array<[f, q, e]>>

func.func @f(%S: !S, %N: !N, %V: !V) -> !O attributes {sizes = #diagram.sizes<q = 17, x = 33>} {
  %P = diagram.apply @softmax(%S) over [x] : (!S) -> !S
  %P16 = diagram.cast %P : !S -> !P
  %R = diagram.contract %P16, %N over [g] accumulate f32 : !P, !N -> !R
  %R16 = diagram.cast %R : !R -> !R16
  %O = diagram.contract %R16, %V over [x] accumulate f32 : !R16, !V -> !O
  func.return %O : !O
}
