// The gradients of attention: of queries, keys and values, from the result O and what it counts, dO. Scores are summed
// along x for dQ and along q for dK and dV; they are written once, and made again in the kernel of each sum, as
// FlashAttention's backward does: no array of scores is ever saved.
//
//   treadle run examples/attention_backward.mlir --size q=500 --size x=700

!Q = tensor<?x?x?x64xf16, #diagram.array<[b, h, q, d]>>
!K = tensor<?x?x?x64xf16, #diagram.array<[b, h, x, d]>>
!V = tensor<?x?x?x64xf16, #diagram.array<[b, h, x, e]>>
!O = tensor<?x?x?x64xf16, #diagram.array<[b, h, q, e]>>
!S = tensor<?x?x?x?xf32, #diagram.array<[b, h, q, x]>>
!P = tensor<?x?x?x?xf16, #diagram.array<[b, h, q, x]>>
!aQ = tensor<?x?x?x64xf32, #diagram.array<[b, h, q, d]>>
!aK = tensor<?x?x?x64xf32, #diagram.array<[b, h, x, d]>>
!aV = tensor<?x?x?x64xf32, #diagram.array<[b, h, x, e]>>
!r = tensor<?x?x?xf32, #diagram.array<[b, h, q]>>

func.func @attention_backward(%Q: !Q, %K: !K, %V: !V, %O: !O, %dO: !O) -> (!Q, !K, !V)
    attributes {sizes = #diagram.sizes<b = 2, h = 3, q = 200, x = 333>} {
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %T = diagram.map (%s = %S : !S) -> !S {
    %scale = arith.constant 0.125 : f32
    %t = arith.mulf %s, %scale : f32
    diagram.yield %t : f32
  }
  %P = diagram.apply @softmax(%T) over [x] : (!S) -> !S
  %P16 = diagram.cast %P : !S -> !P
  %dV = diagram.contract %P16, %dO over [q] accumulate f32 : !P, !O -> !aV
  %dP = diagram.contract %dO, %V over [e] accumulate f32 : !O, !V -> !S
  %D = diagram.contract %O, %dO over [e] accumulate f32 : !O, !O -> !r
  %dS = diagram.map (%p = %P : !S, %g = %dP : !S, %mean = %D : !r) -> !S {
    %scale = arith.constant 0.125 : f32
    %apart = arith.subf %g, %mean : f32
    %share = arith.mulf %p, %apart : f32
    %t = arith.mulf %share, %scale : f32
    diagram.yield %t : f32
  }
  %dS16 = diagram.cast %dS : !S -> !P
  %dQ = diagram.contract %dS16, %K over [x] accumulate f32 : !P, !K -> !aQ
  %dK = diagram.contract %dS16, %Q over [q] accumulate f32 : !P, !Q -> !aK
  %dQ16 = diagram.cast %dQ : !aQ -> !Q
  %dK16 = diagram.cast %dK : !aK -> !K
  %dV16 = diagram.cast %dV : !aV -> !V
  func.return %dQ16, %dK16, %dV16 : !Q, !K, !V
}
