// A product of numbers of 8 bits whose blocks of 128 along the sum have scales: of each row of A, and of each row of B.
// A step takes one block, a product of matrices, and adds it to the sums in f32 with its scales.

!A = tensor<?x?x128xf8E4M3FN, #diagram.array<[t, b, k]>>
!a = tensor<?x?xf32, #diagram.array<[t, b]>>
!B = tensor<?x?x128xf8E4M3FN, #diagram.array<[n, b, k]>>
!s = tensor<?x?xf32, #diagram.array<[n, b]>>
!P = tensor<?x?x?xf32, #diagram.array<[t, b, n]>>
!C = tensor<?x?xf32, #diagram.array<[t, n]>>
!R = tensor<?x?xbf16, #diagram.array<[t, n]>>

func.func @scaled_blocks(%A: !A, %a: !a, %B: !B, %s: !s) -> !R attributes {sizes = #diagram.sizes<t = 70, n = 100, b = 5>} {
  %P = diagram.contract %A, %B over [k] accumulate f32 : !A, !B -> !P
  %scaled = diagram.map (%p = %P : !P, %x = %a : !a, %y = %s : !s) -> !P {
    %q = arith.mulf %p, %x : f32
    %r = arith.mulf %q, %y : f32
    diagram.yield %r : f32
  }
  %C = diagram.reduce add %scaled over [b] : !P -> !C
  %R = diagram.cast %C : !C -> !R
  func.return %R : !R
}
