// Attention with an L2 normalisation in place of softmax (arXiv 2505.09326): its state is a plain sum.

!Q = tensor<?x16xf16, #diagram.array<[q, d]>>
!K = tensor<?x16xf16, #diagram.array<[x, d]>>
!V = tensor<?x24xf16, #diagram.array<[x, e]>>
!S = tensor<?x?xf32, #diagram.array<[q, x]>>
!W = tensor<?x24xf32, #diagram.array<[x, e]>>
!r = tensor<?xf32, #diagram.array<[q]>>
!O = tensor<?x24xf32, #diagram.array<[q, e]>>

func.func @spherical_attention(%Q: !Q, %K: !K, %V: !V) -> !O attributes {sizes = #diagram.sizes<q = 9, x = 37>} {
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %n = diagram.contract %S, %S over [x] accumulate f32 : !S, !S -> !r
  %P = diagram.map (%s = %S : !S, %t = %n : !r) -> !S {
    %root = math.sqrt %t : f32
    %p = arith.divf %s, %root : f32
    diagram.yield %p : f32
  }
  %W = diagram.cast %V : !V -> !W
  %O = diagram.contract %P, %W over [x] accumulate f32 : !S, !W -> !O
  func.return %O : !O
}
