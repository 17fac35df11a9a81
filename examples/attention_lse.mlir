// Attention that also returns the logarithm of the sum of the exponentials of each row of scores, as training and the
// merging of parts need it: two results of one kernel.
//
//   treadle run examples/attention_lse.mlir --size q=1000 --size x=4096

!Q = tensor<?x?x?x64xf16, #diagram.array<[b, h, q, d]>>
!K = tensor<?x?x?x64xf16, #diagram.array<[b, h, x, d]>>
!V = tensor<?x?x?x64xf16, #diagram.array<[b, h, x, e]>>
!S = tensor<?x?x?x?xf32, #diagram.array<[b, h, q, x]>>
!P = tensor<?x?x?x?xf16, #diagram.array<[b, h, q, x]>>
!A = tensor<?x?x?x64xf32, #diagram.array<[b, h, q, e]>>
!O = tensor<?x?x?x64xf16, #diagram.array<[b, h, q, e]>>
!r = tensor<?x?x?xf32, #diagram.array<[b, h, q]>>

func.func @attention_lse(%Q: !Q, %K: !K, %V: !V) -> (!O, !r)
    attributes {sizes = #diagram.sizes<b = 2, h = 3, q = 200, x = 333>} {
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %T = diagram.map (%s = %S : !S) -> !S {
    %scale = arith.constant 0.125 : f32
    %t = arith.mulf %s, %scale : f32
    diagram.yield %t : f32
  }
  %L = diagram.apply @log_sum_exp(%T) over [x] : (!S) -> !r
  %P = diagram.apply @softmax(%T) over [x] : (!S) -> !S
  %P16 = diagram.cast %P : !S -> !P
  %A = diagram.contract %P16, %V over [x] accumulate f32 : !P, !V -> !A
  %O = diagram.cast %A : !A -> !O
  func.return %O, %L : !O, !r
}
