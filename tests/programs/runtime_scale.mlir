// Attention in f32 whose scale is known at launch only, and may be negative: it must not pass the maximum.

!Q = tensor<?x16xf32, #diagram.array<[q, d]>>
!K = tensor<?x16xf32, #diagram.array<[x, d]>>
!V = tensor<?x24xf32, #diagram.array<[x, e]>>
!S = tensor<?x?xf32, #diagram.array<[q, x]>>
!O = tensor<?x24xf32, #diagram.array<[q, e]>>

func.func @runtime_scale(%Q: !Q, %K: !K, %V: !V, %scale: f32) -> !O attributes {sizes = #diagram.sizes<q = 9, x = 37>} {
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %T = diagram.map (%s = %S : !S, %c = %scale : f32) -> !S {
    %t = arith.mulf %s, %c : f32
    diagram.yield %t : f32
  }
  %P = diagram.apply @softmax(%T) over [x] : (!S) -> !S
  %O = diagram.contract %P, %V over [x] accumulate f32 : !S, !V -> !O
  func.return %O : !O
}
