// Cumulative sums of what is computed, as products with ones under an order of two positions: with the element itself, and
// without it.

!S = tensor<?x?xf32, #diagram.array<[q, x]>>
!U = tensor<?x?xf32, #diagram.array<[q, u]>>
!T = tensor<?x?xf32, #diagram.array<[x, u]>>

func.func @cumulative_sums(%S: !S, %R: !S) -> (!S, !S) attributes {sizes = #diagram.sizes<q = 7, x = 23>} {
  %P = diagram.map (%s = %S : !S) -> !S {
    %p = math.exp %s : f32
    diagram.yield %p : f32
  }
  %P_u = diagram.read %P at "q, u" : !S -> !U
  %R_u = diagram.read %R at "q, u" : !S -> !U
  %one = diagram.fill 1.0 : f32 -> !T
  %until = diagram.where %one if "u <= x" : !T
  %A = diagram.contract %until, %P_u over [u] accumulate f32 : !T, !U -> !S
  %before = diagram.where %one if "u < x" : !T
  %B = diagram.contract %before, %R_u over [u] accumulate f32 : !T, !U -> !S
  func.return %A, %B : !S, !S
}
