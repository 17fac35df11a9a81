// A selective state space (Mamba-2) as its definition: y[q] = sum over x <= q of (C[q] B[x]) exp(a[q] - a[x]) dt[x] X[x].
// All heads share B and C; each has decays of its own, and `a` are the sums of their logarithms up to a position, given
// under the name of either axis. Neither exp(a[q]) nor exp(-a[x]) need be a number of f32. So powers are told from the
// largest -a[x] of a chunk; then each chunk has one state, n x p, as in linear_attention_causal.mlir, and states decay
// from chunk to chunk.
//
//   treadle run examples/state_space.mlir --verbose
//   treadle explain examples/state_space.mlir --size h=8 --size q=65536 --size x=65536 --derivation

!C = tensor<?x64xf16, #diagram.array<[q, n]>>
!B = tensor<?x64xf16, #diagram.array<[x, n]>>
!X = tensor<?x?x64xf16, #diagram.array<[h, x, p]>>
!a_q = tensor<?x?xf32, #diagram.array<[h, q]>>
!a_x = tensor<?x?xf32, #diagram.array<[h, x]>>
!S = tensor<?x?xf32, #diagram.array<[q, x]>>
!T = tensor<?x?x?xf32, #diagram.array<[h, q, x]>>
!T16 = tensor<?x?x?xf16, #diagram.array<[h, q, x]>>
!A = tensor<?x?x64xf32, #diagram.array<[h, q, p]>>
!Y = tensor<?x?x64xf16, #diagram.array<[h, q, p]>>

func.func @state_space(%C: !C, %B: !B, %X: !X, %a_q: !a_q, %a_x: !a_x, %dt: !a_x) -> !Y
    attributes {sizes = #diagram.sizes<h = 4, q = 2048, x = 2048>} {
  %S = diagram.contract %C, %B over [n] accumulate f32 : !C, !B -> !S
  %T = diagram.map (%s = %S : !S, %at_q = %a_q : !a_q, %at_x = %a_x : !a_x, %t = %dt : !a_x) -> !T {
    %since = arith.subf %at_q, %at_x : f32
    %decay = math.exp %since : f32
    %weight = arith.mulf %decay, %t : f32
    %w = arith.mulf %s, %weight : f32
    diagram.yield %w : f32
  }
  %L = diagram.where %T if "x <= q" : !T
  %L16 = diagram.cast %L : !T -> !T16
  %A = diagram.contract %L16, %X over [x] accumulate f32 : !T16, !X -> !A
  %Y = diagram.cast %A : !A -> !Y
  func.return %Y : !Y
}
