// Attention in f8: O = softmax(Q K^T / sqrt(d)) V with queries, keys and values in f8E4M3FN, each with a scale.
// Shares of a softmax are at most 1, so they are scaled by 256 to fill the format; the scales of values and shares
// leave the sum with its division. Scales are above zero, which the program says: so the largest score is that of the
// scaled scores, and no score is scaled before its power is taken. Values lie with the keys along rows, as 8-bit products read them.
//
//   treadle run examples/attention_f8.mlir --machine h100

!Q = tensor<?x?x?x64xf8E4M3FN, #diagram.array<[b, h, q, d]>>
!K = tensor<?x?x?x64xf8E4M3FN, #diagram.array<[b, h, x, d]>>
!V = tensor<?x?x64x?xf8E4M3FN, #diagram.array<[b, h, e, x]>>
!S = tensor<?x?x?x?xf32, #diagram.array<[b, h, q, x]>>
!P = tensor<?x?x?x?xf8E4M3FN, #diagram.array<[b, h, q, x]>>
!A = tensor<?x?x?x64xf32, #diagram.array<[b, h, q, e]>>
!O = tensor<?x?x?x64xf16, #diagram.array<[b, h, q, e]>>

func.func @attention_f8(%Q: !Q, %K: !K, %V: !V, %q_scale: f32, %k_scale: f32, %v_scale: f32) -> !O
    attributes {sizes = #diagram.sizes<b = 2, h = 3, q = 120, x = 144>} {
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %T = diagram.map (%s = %S : !S, %a = %q_scale : f32, %b = %k_scale : f32) -> !S {
    %root = arith.constant 0.125 : f32
    %ab = arith.mulf %a, %b : f32
    %product = arith.mulf %ab, %root : f32
    %size = math.absf %product : f32
    %least = arith.constant 1.0e-30 : f32
    %scale = arith.maximumf %size, %least : f32
    %t = arith.mulf %s, %scale : f32
    diagram.yield %t : f32
  }
  %P = diagram.apply @softmax(%T) over [x] : (!S) -> !S
  %large = diagram.map (%p = %P : !S) -> !S {
    %most = arith.constant 256.0 : f32
    %y = arith.mulf %p, %most : f32
    diagram.yield %y : f32
  }
  %P8 = diagram.cast %large : !S -> !P
  %A = diagram.contract %P8, %V over [x] accumulate f32 : !P, !V -> !A
  %B = diagram.map (%a = %A : !A, %c = %v_scale : f32) -> !A {
    %least = arith.constant 0.00390625 : f32
    %scale = arith.mulf %c, %least : f32
    %y = arith.mulf %a, %scale : f32
    diagram.yield %y : f32
  }
  %O = diagram.cast %B : !A -> !O
  func.return %O : !O
}
