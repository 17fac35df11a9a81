// Decoding attention: one query a head against a long cache of keys, which grows from call to call. There is one group a
// head, far fewer than the machine could run, so the keys are cut into parts that groups stream side by side, and a
// second kernel merges what they found: the maximum, the sum and the weighted values of each part, by the law that the
// stream itself follows. How long a part is, is decided once; how many there are, each launch finds out.
//
//   treadle run examples/attention_decode.mlir --size h=3 --size x=5001

!Q = tensor<?x?x1x64xf16, #diagram.array<[b, h, q, d]>>
!K = tensor<?x?x?x64xf16, #diagram.array<[b, h, x, d]>>
!V = tensor<?x?x?x64xf16, #diagram.array<[b, h, x, e]>>
!S = tensor<?x?x1x?xf32, #diagram.array<[b, h, q, x]>>
!P = tensor<?x?x1x?xf16, #diagram.array<[b, h, q, x]>>
!A = tensor<?x?x1x64xf32, #diagram.array<[b, h, q, e]>>
!O = tensor<?x?x1x64xf16, #diagram.array<[b, h, q, e]>>

func.func @attention_decode(%Q: !Q, %K: !K, %V: !V) -> !O attributes {sizes = #diagram.sizes<b = 1, h = 4, x = 2048>} {
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
