// A sum of products over a batch, whose factors are scaled for each index of the batch and each of the depth.

!A = tensor<?x5x64xf16, #diagram.array<[b, m, k]>>
!B = tensor<?x64x7xf16, #diagram.array<[b, k, n]>>
!s = tensor<?x64xf16, #diagram.array<[b, k]>>
!w = tensor<64xf16, #diagram.array<[k]>>
!P = tensor<?x5x7xf32, #diagram.array<[b, m, n]>>
!C = tensor<5x7xf32, #diagram.array<[m, n]>>

func.func @summed_products(%A: !A, %B: !B, %s: !s, %w: !w) -> !C attributes {sizes = #diagram.sizes<b = 3>} {
  %A_scaled = diagram.map (%a = %A : !A, %c = %s : !s, %u = %w : !w) -> !A {
    %t = arith.mulf %a, %c : f16
    %v = arith.mulf %t, %u : f16
    diagram.yield %v : f16
  }
  %P = diagram.contract %A_scaled, %B over [k] accumulate f32 : !A, !B -> !P
  %C = diagram.reduce add %P over [b] : !P -> !C
  func.return %C : !C
}
