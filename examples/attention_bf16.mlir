// Attention in bf16 over a batch, 128 wide, without heads: the same diagram with other axes and formats.
//
//   treadle run examples/attention_bf16.mlir --size b=4 --size x=1000

!Q = tensor<?x?x128xbf16, #diagram.array<[b, q, d]>>
!K = tensor<?x?x128xbf16, #diagram.array<[b, x, d]>>
!V = tensor<?x?x128xbf16, #diagram.array<[b, x, e]>>
!S = tensor<?x?x?xf32, #diagram.array<[b, q, x]>>
!P = tensor<?x?x?xbf16, #diagram.array<[b, q, x]>>
!A = tensor<?x?x128xf32, #diagram.array<[b, q, e]>>
!O = tensor<?x?x128xbf16, #diagram.array<[b, q, e]>>

func.func @attention_bf16(%Q: !Q, %K: !K, %V: !V) -> !O
    attributes {sizes = #diagram.sizes<b = 4, q = 129, x = 257>} {
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %T = diagram.map (%s = %S : !S) -> !S {
    %scale = arith.constant 0.08838834764 : f32
    %t = arith.mulf %s, %scale : f32
    diagram.yield %t : f32
  }
  %P = diagram.apply @softmax(%T) over [x] : (!S) -> !S
  %P16 = diagram.cast %P : !S -> !P
  %A = diagram.contract %P16, %V over [x] accumulate f32 : !P, !V -> !A
  %O = diagram.cast %A : !A -> !O
  func.return %O : !O
}
