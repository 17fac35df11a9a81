// Spherical attention: the scores of a row divided by their length, in place of softmax. The state is a plain sum of
// squares, no exponential is taken, and the division moves past the product with the values.
//
//   treadle run examples/attention_spherical.mlir --size q=1000 --size x=4096

!Q = tensor<?x?x?x64xf16, #diagram.array<[b, h, q, d]>>
!K = tensor<?x?x?x64xf16, #diagram.array<[b, h, x, d]>>
!V = tensor<?x?x?x64xf16, #diagram.array<[b, h, x, e]>>
!S = tensor<?x?x?x?xf32, #diagram.array<[b, h, q, x]>>
!P = tensor<?x?x?x?xf16, #diagram.array<[b, h, q, x]>>
!A = tensor<?x?x?x64xf32, #diagram.array<[b, h, q, e]>>
!O = tensor<?x?x?x64xf16, #diagram.array<[b, h, q, e]>>
!r = tensor<?x?x?xf32, #diagram.array<[b, h, q]>>

func.func @attention_spherical(%Q: !Q, %K: !K, %V: !V) -> !O
    attributes {sizes = #diagram.sizes<b = 2, h = 3, q = 200, x = 333>} {
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %S16 = diagram.cast %S : !S -> !P
  %squares = diagram.map (%s = %S : !S) -> !S {
    %square = arith.mulf %s, %s : f32
    diagram.yield %square : f32
  }
  %power = diagram.reduce add %squares over [x] : !S -> !r
  %P = diagram.map (%s = %S16 : !P, %p = %power : !r) -> !S {
    %wide = arith.extf %s : f16 to f32
    %length = math.sqrt %p : f32
    %share = arith.divf %wide, %length : f32
    diagram.yield %share : f32
  }
  %P16 = diagram.cast %P : !S -> !P
  %A = diagram.contract %P16, %V over [x] accumulate f32 : !P, !V -> !A
  %O = diagram.cast %A : !A -> !O
  func.return %O : !O
}
