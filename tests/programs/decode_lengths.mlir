// Decoding as it is served: queries in groups that share keys, caches of lengths of their own, and the log-sum-exp.
!Q = tensor<?x?x8x64xf16, #diagram.array<[b, h, g, d]>>
!K = tensor<?x?x?x64xf16, #diagram.array<[b, h, x, d]>>
!V = tensor<?x?x?x64xf16, #diagram.array<[b, h, x, e]>>
!S = tensor<?x?x8x?xf32, #diagram.array<[b, h, g, x]>>
!P = tensor<?x?x8x?xf16, #diagram.array<[b, h, g, x]>>
!A = tensor<?x?x8x64xf32, #diagram.array<[b, h, g, e]>>
!O = tensor<?x?x8x64xf16, #diagram.array<[b, h, g, e]>>
!n = tensor<?xi32, #diagram.array<[b]>>
!L = tensor<?x?x8xf32, #diagram.array<[b, h, g]>>
func.func @decode(%Q: !Q, %K: !K, %V: !V, %len: !n) -> (!O, !L) attributes {sizes = #diagram.sizes<b = 2, h = 2, x = 3000>} {
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %T = diagram.map (%s = %S : !S) -> !S {
    %scale = arith.constant 0.125 : f32
    %t = arith.mulf %s, %scale : f32
    diagram.yield %t : f32
  }
  %W = diagram.where %T if "x < len[b]" with (len = %len : !n) : !S
  %P = diagram.apply @softmax(%W) over [x] : (!S) -> !S
  %L = diagram.apply @log_sum_exp(%W) over [x] : (!S) -> !L
  %P16 = diagram.cast %P : !S -> !P
  %A = diagram.contract %P16, %V over [x] accumulate f32 : !P, !V -> !A
  %O = diagram.cast %A : !A -> !O
  func.return %O, %L : !O, !L
}
