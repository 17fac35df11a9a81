// Attention with an additive bias that all batches share: softmax(Q K^T / sqrt(d) + B) V. The bias is loaded piece by
// piece beside the keys.
//
//   treadle run examples/attention_bias.mlir --size q=1000 --size x=4096

!Q = tensor<?x?x?x64xf16, #diagram.array<[b, h, q, d]>>
!K = tensor<?x?x?x64xf16, #diagram.array<[b, h, x, d]>>
!V = tensor<?x?x?x64xf16, #diagram.array<[b, h, x, e]>>
!S = tensor<?x?x?x?xf32, #diagram.array<[b, h, q, x]>>
!P = tensor<?x?x?x?xf16, #diagram.array<[b, h, q, x]>>
!A = tensor<?x?x?x64xf32, #diagram.array<[b, h, q, e]>>
!O = tensor<?x?x?x64xf16, #diagram.array<[b, h, q, e]>>
!B = tensor<?x?x?xf16, #diagram.array<[h, q, x]>>

func.func @attention_bias(%Q: !Q, %K: !K, %V: !V, %B: !B) -> !O
    attributes {sizes = #diagram.sizes<b = 2, h = 3, q = 200, x = 333>} {
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %T = diagram.map (%s = %S : !S, %b = %B : !B) -> !S {
    %scale = arith.constant 0.125 : f32
    %bias = arith.extf %b : f16 to f32
    %scaled = arith.mulf %s, %scale : f32
    %t = arith.addf %scaled, %bias : f32
    diagram.yield %t : f32
  }
  %P = diagram.apply @softmax(%T) over [x] : (!S) -> !S
  %P16 = diagram.cast %P : !S -> !P
  %A = diagram.contract %P16, %V over [x] accumulate f32 : !P, !V -> !A
  %O = diagram.cast %A : !A -> !O
  func.return %O : !O
}
