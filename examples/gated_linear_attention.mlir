// Gated linear attention as its definition: O[q] = sum over x <= q of S[q, x] V[x], with S[q, x] = sum over d of Q[q,
// d] K[x, d] exp(a[q, d] - a[x, d]). Each column d of queries and keys forgets at rates of its own; `a` are the sums
// of the logarithms of its gates up to a position, given under the name of either axis. The weight varies along d,
// which the first product sums, so S is no product of two arrays. In chunks, powers are told from the largest -a[x, d]
// of each, and each chunk has a state, d x e, whose rows decay from chunk to chunk by themselves. Within a chunk the
// same is done for parts of 16 positions, so that only pairs in one part take a power for each d.
// Where lengths are short it is faster as it stands here.
//
//   treadle run examples/gated_linear_attention.mlir --verbose
//   treadle explain examples/gated_linear_attention.mlir --size h=8 --size q=16384 --size x=16384 --derivation

!Q = tensor<?x?x64xf16, #diagram.array<[h, q, d]>>
!K = tensor<?x?x64xf16, #diagram.array<[h, x, d]>>
!V = tensor<?x?x64xf16, #diagram.array<[h, x, e]>>
!a_q = tensor<?x?x64xf32, #diagram.array<[h, q, d]>>
!a_x = tensor<?x?x64xf32, #diagram.array<[h, x, d]>>
!W = tensor<?x?x?x64xf32, #diagram.array<[h, q, x, d]>>
!S = tensor<?x?x?xf32, #diagram.array<[h, q, x]>>
!S16 = tensor<?x?x?xf16, #diagram.array<[h, q, x]>>
!A = tensor<?x?x64xf32, #diagram.array<[h, q, e]>>
!O = tensor<?x?x64xf16, #diagram.array<[h, q, e]>>

func.func @gated_linear_attention(%Q: !Q, %K: !K, %V: !V, %a_q: !a_q, %a_x: !a_x) -> !O
    attributes {sizes = #diagram.sizes<h = 2, q = 333, x = 333>} {
  %W = diagram.map (%q = %Q : !Q, %k = %K : !K, %at_q = %a_q : !a_q, %at_x = %a_x : !a_x) -> !W {
    %q32 = arith.extf %q : f16 to f32
    %k32 = arith.extf %k : f16 to f32
    %since = arith.subf %at_q, %at_x : f32
    %decay = math.exp %since : f32
    %product = arith.mulf %q32, %k32 : f32
    %w = arith.mulf %product, %decay : f32
    diagram.yield %w : f32
  }
  %S = diagram.reduce add %W over [d] : !W -> !S
  %L = diagram.where %S if "x <= q" : !S
  %L16 = diagram.cast %L : !S -> !S16
  %A = diagram.contract %L16, %V over [x] accumulate f32 : !S16, !V -> !A
  %O = diagram.cast %A : !A -> !O
  func.return %O : !O
}
