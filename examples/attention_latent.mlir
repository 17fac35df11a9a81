// Latent attention: all heads share one array C of compressed keys, 512 wide, which are the values, too, and one narrow
// array R of keys with positions. A group holds scores and sums of 64 heads: two warpgroups share the columns of the
// sums, more than one has registers for, and each makes all scores for itself. So C is read once, for both products.
//
//   treadle run examples/attention_latent.mlir --size h=20 --size x=777

!Q = tensor<?x?x512xf16, #diagram.array<[b, h, c]>>
!U = tensor<?x?x64xf16, #diagram.array<[b, h, r]>>
!C = tensor<?x?x512xf16, #diagram.array<[b, x, c]>>
!R = tensor<?x?x64xf16, #diagram.array<[b, x, r]>>
!S = tensor<?x?x?xf32, #diagram.array<[b, h, x]>>
!P = tensor<?x?x?xf16, #diagram.array<[b, h, x]>>
!A = tensor<?x?x512xf32, #diagram.array<[b, h, c]>>

func.func @attention_latent(%Q: !Q, %U: !U, %C: !C, %R: !R) -> !Q
    attributes {sizes = #diagram.sizes<b = 32, h = 64, x = 128>} {
  %S_latent = diagram.contract %Q, %C over [c] accumulate f32 : !Q, !C -> !S
  %S_rotated = diagram.contract %U, %R over [r] accumulate f32 : !U, !R -> !S
  %S = diagram.map (%s = %S_latent : !S, %t = %S_rotated : !S) -> !S {
    %scale = arith.constant 0.0721687836 : f32
    %both = arith.addf %s, %t : f32
    %scaled = arith.mulf %both, %scale : f32
    diagram.yield %scaled : f32
  }
  %P = diagram.apply @softmax(%S) over [x] : (!S) -> !S
  %P16 = diagram.cast %P : !S -> !P
  %A = diagram.contract %P16, %C over [x] accumulate f32 : !P, !C -> !A
  %O = diagram.cast %A : !A -> !Q
  func.return %O : !Q
}
