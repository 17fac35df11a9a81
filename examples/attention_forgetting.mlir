// Forgetting attention: causal attention in which each position has a gate. The weight of x for q is multiplied by all
// gates after x up to q, so that scores have the bias c[q] - c[x], with c the cumulative sums of the logarithms of the
// gates. A cumulative sum is a sum under a condition, c[x] = sum over y <= x of g[y]: it is made in chunks where it is
// long, and the attention is a stream over keys with a bias.
//
//   treadle run examples/attention_forgetting.mlir --verbose
//   treadle explain examples/attention_forgetting.mlir --size h=8 --size q=16384 --size x=16384 --derivation

!Q = tensor<?x?x64xf16, #diagram.array<[h, q, d]>>
!K = tensor<?x?x64xf16, #diagram.array<[h, x, d]>>
!V = tensor<?x?x64xf16, #diagram.array<[h, x, e]>>
!g = tensor<?x?xf32, #diagram.array<[h, x]>>
!g_y = tensor<?x?xf32, #diagram.array<[h, y]>>
!c_q = tensor<?x?xf32, #diagram.array<[h, q]>>
!ones = tensor<?x?xf32, #diagram.array<[x, y]>>
!S = tensor<?x?x?xf32, #diagram.array<[h, q, x]>>
!P = tensor<?x?x?xf16, #diagram.array<[h, q, x]>>
!A = tensor<?x?x64xf32, #diagram.array<[h, q, e]>>
!O = tensor<?x?x64xf16, #diagram.array<[h, q, e]>>

func.func @attention_forgetting(%Q: !Q, %K: !K, %V: !V, %gate: !g) -> !O
    attributes {sizes = #diagram.sizes<h = 4, q = 333, x = 333>} {
  %gate_y = diagram.read %gate at "h, y" : !g -> !g_y
  %g_y = diagram.map (%z = %gate_y : !g_y) -> !g_y {
    %minus = arith.negf %z : f32
    %power = math.exp %minus : f32
    %l = math.log1p %power : f32
    %log = arith.negf %l : f32
    diagram.yield %log : f32
  }
  %one = diagram.fill 1.0 : f32 -> !ones
  %until = diagram.where %one if "y <= x" : !ones
  %c_x = diagram.contract %until, %g_y over [y] accumulate f32 : !ones, !g_y -> !g
  %c_q = diagram.read %c_x at "h, q" padded : !g -> !c_q
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %T = diagram.map (%s = %S : !S, %at_q = %c_q : !c_q, %at_x = %c_x : !g) -> !S {
    %scale = arith.constant 0.125 : f32
    %t = arith.mulf %s, %scale : f32
    %since = arith.subf %at_q, %at_x : f32
    %biased = arith.addf %t, %since : f32
    diagram.yield %biased : f32
  }
  %L = diagram.where %T if "x <= q" : !S
  %P = diagram.apply @softmax(%L) over [x] : (!S) -> !S
  %P16 = diagram.cast %P : !S -> !P
  %A = diagram.contract %P16, %V over [x] accumulate f32 : !P, !V -> !A
  %O = diagram.cast %A : !A -> !O
  func.return %O : !O
}
