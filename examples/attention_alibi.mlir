// Causal attention with linear biases (ALiBi): each head has a slope by which it prefers near keys to far ones. The
// bias is made from positions; no array of biases exists.
//
//   treadle run examples/attention_alibi.mlir --size q=1000 --size x=1000

!Q = tensor<?x?x?x64xf16, #diagram.array<[b, h, q, d]>>
!K = tensor<?x?x?x64xf16, #diagram.array<[b, h, x, d]>>
!V = tensor<?x?x?x64xf16, #diagram.array<[b, h, x, e]>>
!slope = tensor<?xf32, #diagram.array<[h]>>
!at_q = tensor<?xi32, #diagram.array<[q]>>
!at_x = tensor<?xi32, #diagram.array<[x]>>
!S = tensor<?x?x?x?xf32, #diagram.array<[b, h, q, x]>>
!P = tensor<?x?x?x?xf16, #diagram.array<[b, h, q, x]>>
!A = tensor<?x?x?x64xf32, #diagram.array<[b, h, q, e]>>
!O = tensor<?x?x?x64xf16, #diagram.array<[b, h, q, e]>>

func.func @attention_alibi(%Q: !Q, %K: !K, %V: !V, %slope: !slope) -> !O
    attributes {sizes = #diagram.sizes<b = 2, h = 3, q = 333, x = 333>} {
  %at_q = diagram.index -> !at_q
  %at_x = diagram.index -> !at_x
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %W = diagram.where %S if "x <= q" : !S
  %T = diagram.map (%s = %W : !S, %m = %slope : !slope, %i = %at_q : !at_q, %j = %at_x : !at_x) -> !S {
    %scale = arith.constant 0.125 : f32
    %scaled = arith.mulf %s, %scale : f32
    %distance = arith.subi %j, %i : i32
    %far = arith.sitofp %distance : i32 to f32
    %bias = arith.mulf %m, %far : f32
    %t = arith.addf %scaled, %bias : f32
    diagram.yield %t : f32
  }
  %P = diagram.apply @softmax(%T) over [x] : (!S) -> !S
  %P16 = diagram.cast %P : !S -> !P
  %A = diagram.contract %P16, %V over [x] accumulate f32 : !P, !V -> !A
  %O = diagram.cast %A : !A -> !O
  func.return %O : !O
}
