// A sum of powers that is told from the maximum, and nothing else: what it is told from may not lag behind.

!S = tensor<?x?xf32, #diagram.array<[q, x]>>
!V = tensor<?x32xf32, #diagram.array<[x, e]>>
!m = tensor<?xf32, #diagram.array<[q]>>
!A = tensor<?x32xf32, #diagram.array<[q, e]>>

func.func @told_from_a_maximum(%S: !S, %V: !V) -> !A
    attributes {sizes = #diagram.sizes<q = 9, x = 37>} {
  %m = diagram.reduce max %S over [x] : !S -> !m
  %e = diagram.map (%s = %S : !S, %most = %m : !m) -> !S {
    %d = arith.subf %s, %most : f32
    %p = math.exp %d : f32
    diagram.yield %p : f32
  }
  %A = diagram.contract %e, %V over [x] accumulate f32 : !S, !V -> !A
  func.return %A : !A
}
