// Cross-attention of a decoder to an encoder: q runs over what is written, x over what was read, each of a length of
// its own; heads lie behind the lengths in memory, as a projection leaves them.
//
//   treadle run examples/cross_attention.mlir --size q=20 --size x=1500

!Q = tensor<?x?x?x64xbf16, #diagram.array<[b, q, h, d]>>
!K = tensor<?x?x?x64xbf16, #diagram.array<[b, x, h, d]>>
!V = tensor<?x?x?x64xbf16, #diagram.array<[b, x, h, e]>>
!S = tensor<?x?x?x?xf32, #diagram.array<[b, h, q, x]>>
!P = tensor<?x?x?x?xbf16, #diagram.array<[b, h, q, x]>>
!A = tensor<?x?x?x64xf32, #diagram.array<[b, q, h, e]>>
!O = tensor<?x?x?x64xbf16, #diagram.array<[b, q, h, e]>>

func.func @cross_attention(%Q: !Q, %K: !K, %V: !V) -> !O
    attributes {sizes = #diagram.sizes<b = 2, h = 3, q = 40, x = 500>} {
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %T = diagram.map (%s = %S : !S) -> !S {
    %scale = arith.constant 0.125 : f32
    %t = arith.mulf %s, %scale : f32
    diagram.yield %t : f32
  }
  %P = diagram.apply @softmax(%T) over [x] : (!S) -> !S
  %P16 = diagram.cast %P : !S -> !P
  %A = diagram.contract %P16, %V over [x] accumulate f32 : !P, !V -> !A
  %O = diagram.cast %A : !A -> !O
  func.return %O : !O
}
