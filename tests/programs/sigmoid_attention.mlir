// Weights are sigmoids divided by their sum. Nothing keeps the largest near 1, so the division must not move
// past the rounding to f16; the accumulator is repaired by the ratio of the sums instead.

!Q = tensor<?x16xf16, #diagram.array<[q, d]>>
!K = tensor<?x16xf16, #diagram.array<[x, d]>>
!V = tensor<?x24xf16, #diagram.array<[x, e]>>
!S = tensor<?x?xf32, #diagram.array<[q, x]>>
!P = tensor<?x?xf16, #diagram.array<[q, x]>>
!r = tensor<?xf32, #diagram.array<[q]>>
!O = tensor<?x24xf32, #diagram.array<[q, e]>>

func.func @sigmoid_attention(%Q: !Q, %K: !K, %V: !V) -> !O attributes {sizes = #diagram.sizes<q = 9, x = 37>} {
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %G = diagram.map (%s = %S : !S) -> !S {
    %one = arith.constant 1.0 : f32
    %n = arith.negf %s : f32
    %e = math.exp %n : f32
    %d = arith.addf %one, %e : f32
    %g = arith.divf %one, %d : f32
    diagram.yield %g : f32
  }
  %l = diagram.reduce add %G over [x] : !S -> !r
  %P = diagram.map (%g = %G : !S, %t = %l : !r) -> !S {
    %p = arith.divf %g, %t : f32
    diagram.yield %p : f32
  }
  %P16 = diagram.cast %P : !S -> !P
  %O = diagram.contract %P16, %V over [x] accumulate f32 : !P, !V -> !O
  func.return %O : !O
}
