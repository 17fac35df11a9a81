// Grouped-query attention: the g query heads of a group share one key head and one value head h. The axis g stands in
// Q alone, and nothing else is said about it.
//
//   treadle run examples/attention_gqa.mlir --size h=2 --size g=8 --size q=100

!Q = tensor<?x?x?x?x64xf16, #diagram.array<[b, h, g, q, d]>>
!K = tensor<?x?x?x64xf16, #diagram.array<[b, h, x, d]>>
!V = tensor<?x?x?x64xf16, #diagram.array<[b, h, x, e]>>
!S = tensor<?x?x?x?x?xf32, #diagram.array<[b, h, g, q, x]>>
!P = tensor<?x?x?x?x?xf16, #diagram.array<[b, h, g, q, x]>>
!A = tensor<?x?x?x?x64xf32, #diagram.array<[b, h, g, q, e]>>
!O = tensor<?x?x?x?x64xf16, #diagram.array<[b, h, g, q, e]>>

func.func @attention_gqa(%Q: !Q, %K: !K, %V: !V) -> !O
    attributes {sizes = #diagram.sizes<b = 2, h = 2, g = 4, q = 50, x = 200>} {
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %T = diagram.map (%s = %S : !S) -> !S {
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
