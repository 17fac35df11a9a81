// Causal linear attention: products of queries with the keys up to each, times values. Nothing but the condition stands
// between the two products. So of all chunks of keys before that of a query, (Q K^T) V is Q (K^T V): each chunk has one
// state, d x e, and Q K^T is made within chunks alone. The time grows with the length, not with its square. Where
// lengths are short it is faster as it stands here.
//
//   treadle run examples/linear_attention_causal.mlir --verbose
//   treadle explain examples/linear_attention_causal.mlir --size h=8 --size q=65536 --size x=65536 --derivation

!Q = tensor<?x?x64xf16, #diagram.array<[h, q, d]>>
!K = tensor<?x?x64xf16, #diagram.array<[h, x, d]>>
!V = tensor<?x?x64xf16, #diagram.array<[h, x, e]>>
!S = tensor<?x?x?xf32, #diagram.array<[h, q, x]>>
!S16 = tensor<?x?x?xf16, #diagram.array<[h, q, x]>>
!A = tensor<?x?x64xf32, #diagram.array<[h, q, e]>>
!O = tensor<?x?x64xf16, #diagram.array<[h, q, e]>>

func.func @linear_attention_causal(%Q: !Q, %K: !K, %V: !V) -> !O
    attributes {sizes = #diagram.sizes<h = 4, q = 2048, x = 2048>} {
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %T = diagram.map (%s = %S : !S) -> !S {
    %scale = arith.constant 0.125 : f32
    %t = arith.mulf %s, %scale : f32
    diagram.yield %t : f32
  }
  %L = diagram.where %T if "x <= q" : !S
  %L16 = diagram.cast %L : !S -> !S16
  %A = diagram.contract %L16, %V over [x] accumulate f32 : !S16, !V -> !A
  %O = diagram.cast %A : !A -> !O
  func.return %O : !O
}
