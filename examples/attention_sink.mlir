// Attention with a sink: each head has one more score, learned, that takes its share of the softmax and brings no
// value. So the shares of a row sum up to less than one.
//
//   treadle run examples/attention_sink.mlir --size q=1000 --size x=4096

!Q = tensor<?x?x?x64xf16, #diagram.array<[b, h, q, d]>>
!K = tensor<?x?x?x64xf16, #diagram.array<[b, h, x, d]>>
!V = tensor<?x?x?x64xf16, #diagram.array<[b, h, x, e]>>
!S = tensor<?x?x?x?xf32, #diagram.array<[b, h, q, x]>>
!P = tensor<?x?x?x?xf16, #diagram.array<[b, h, q, x]>>
!A = tensor<?x?x?x64xf32, #diagram.array<[b, h, q, e]>>
!O = tensor<?x?x?x64xf16, #diagram.array<[b, h, q, e]>>
!k = tensor<?xf32, #diagram.array<[h]>>
!r = tensor<?x?x?xf32, #diagram.array<[b, h, q]>>

func.func @attention_sink(%Q: !Q, %K: !K, %V: !V, %sink: !k) -> !O
    attributes {sizes = #diagram.sizes<b = 2, h = 3, q = 200, x = 333>} {
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %T = diagram.map (%s = %S : !S) -> !S {
    %scale = arith.constant 0.125 : f32
    %t = arith.mulf %s, %scale : f32
    diagram.yield %t : f32
  }
  %m = diagram.reduce max %T over [x] : !S -> !r
  %E = diagram.map (%t = %T : !S, %a = %m : !r) -> !S {
    %shifted = arith.subf %t, %a : f32
    %exp = math.exp %shifted : f32
    diagram.yield %exp : f32
  }
  %sum = diagram.reduce add %E over [x] : !S -> !r
  %P = diagram.map (%e = %E : !S, %l = %sum : !r, %a = %m : !r, %k = %sink : !k) -> !S {
    %shifted = arith.subf %k, %a : f32
    %extra = math.exp %shifted : f32
    %all = arith.addf %l, %extra : f32
    %share = arith.divf %e, %all : f32
    diagram.yield %share : f32
  }
  %P16 = diagram.cast %P : !S -> !P
  %A = diagram.contract %P16, %V over [x] accumulate f32 : !P, !V -> !A
  %O = diagram.cast %A : !A -> !O
  func.return %O : !O
}
