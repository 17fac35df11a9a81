// The triangle multiplicative update of a pair representation, outgoing edges: for each channel c the product of what
// leads from i and from j to the same k. Both factors are gated projections of the pairs; Z_j is the same array again.
//
// Channels lie last, so that each element of a channel would come from a sector of its own. At sizes where that counts,
// the factors are saved as `c i k`, and the result is copied from `c i j`: see
//
//   treadle explain examples/triangle_multiplication.mlir --size i=512 --size k=512 --size j=512

!Zi = tensor<?x?x64xbf16, #diagram.array<[i, k, z]>>
!Zj = tensor<?x?x64xbf16, #diagram.array<[j, k, z]>>
!W = tensor<64x64xbf16, #diagram.array<[z, c]>>
!a = tensor<?x?x64xf32, #diagram.array<[i, k, c]>>
!a16 = tensor<?x?x64xbf16, #diagram.array<[i, k, c]>>
!b = tensor<?x?x64xf32, #diagram.array<[j, k, c]>>
!b16 = tensor<?x?x64xbf16, #diagram.array<[j, k, c]>>
!x = tensor<?x?x64xf32, #diagram.array<[i, j, c]>>
!x16 = tensor<?x?x64xbf16, #diagram.array<[i, j, c]>>

func.func @triangle_multiplication(%Z_i: !Zi, %Z_j: !Zj, %W_a: !W, %G_a: !W, %W_b: !W, %G_b: !W) -> !x16
    attributes {sizes = #diagram.sizes<i = 24, k = 40, j = 24>} {
  %a_gate = diagram.contract %Z_i, %G_a over [z] accumulate f32 : !Zi, !W -> !a
  %a_value = diagram.contract %Z_i, %W_a over [z] accumulate f32 : !Zi, !W -> !a
  %a = diagram.map (%g = %a_gate : !a, %v = %a_value : !a) -> !a {
    %one = arith.constant 1.0 : f32
    %negative = arith.negf %g : f32
    %exp = math.exp %negative : f32
    %divisor = arith.addf %one, %exp : f32
    %gated = arith.divf %v, %divisor : f32
    diagram.yield %gated : f32
  }
  %a16 = diagram.cast %a : !a -> !a16
  %b_gate = diagram.contract %Z_j, %G_b over [z] accumulate f32 : !Zj, !W -> !b
  %b_value = diagram.contract %Z_j, %W_b over [z] accumulate f32 : !Zj, !W -> !b
  %b = diagram.map (%g = %b_gate : !b, %v = %b_value : !b) -> !b {
    %one = arith.constant 1.0 : f32
    %negative = arith.negf %g : f32
    %exp = math.exp %negative : f32
    %divisor = arith.addf %one, %exp : f32
    %gated = arith.divf %v, %divisor : f32
    diagram.yield %gated : f32
  }
  %b16 = diagram.cast %b : !b -> !b16
  %x = diagram.contract %a16, %b16 over [k] accumulate f32 : !a16, !b16 -> !x
  %x16 = diagram.cast %x : !x -> !x16
  func.return %x16 : !x16
}
