// Scores of many heads that share keys, made positive, weighted and summed over the heads: what DeepSeek-V3.2 finds keys
// with. A step takes one head, a product of matrices, and keeps the sums in registers; the keys stay where they are.

!Q = tensor<?x?x64xf16, #diagram.array<[q, h, d]>>
!K = tensor<?x64xf16, #diagram.array<[x, d]>>
!W = tensor<?x?xf32, #diagram.array<[q, h]>>
!S = tensor<?x?x?xf32, #diagram.array<[q, h, x]>>
!I = tensor<?x?xf32, #diagram.array<[q, x]>>
!R = tensor<?x?xf16, #diagram.array<[q, x]>>

func.func @summed_heads(%Q: !Q, %K: !K, %W: !W) -> !R attributes {sizes = #diagram.sizes<q = 70, x = 100, h = 5>} {
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %weighted = diagram.map (%s = %S : !S, %w = %W : !W) -> !S {
    %zero = arith.constant 0.0 : f32
    %positive = arith.maximumf %s, %zero : f32
    %r = arith.mulf %positive, %w : f32
    diagram.yield %r : f32
  }
  %I = diagram.reduce add %weighted over [h] : !S -> !I
  %R = diagram.cast %I : !I -> !R
  func.return %R : !R
}
