// Operands in 8 bits whose neighbours lie across the sum: one that the program is given, of which a condition leaves a
// part, one that is summed along both axes, and one that the program makes, and gives, too.

!A = tensor<?x?xi8, #diagram.array<[m, k]>>
!B = tensor<?x?xi8, #diagram.array<[k, n]>>
!C = tensor<?x?xi32, #diagram.array<[m, n]>>
!E = tensor<?x?xi8, #diagram.array<[j, n]>>
!F = tensor<?x?xi32, #diagram.array<[k, j]>>
!F8 = tensor<?x?xi8, #diagram.array<[k, j]>>
!G = tensor<?x?xi32, #diagram.array<[m, j]>>

func.func @across_the_sum(%A: !A, %B: !B, %E: !E, %some: i32) -> (!C, !F, !G, !F8)
    attributes {sizes = #diagram.sizes<m = 20, k = 40, n = 36, j = 24>} {
  %W = diagram.where %B if "k < some" with (some = %some : i32) : !B
  %C = diagram.contract %A, %W over [k] accumulate i32 : !A, !B -> !C
  %F = diagram.contract %B, %E over [n] accumulate i32 : !B, !E -> !F
  %least = diagram.map (%f = %F : !F) -> !F {
    %most = arith.constant 100 : i32
    %low = arith.constant -100 : i32
    %a = arith.minsi %f, %most : i32
    %b = arith.maxsi %a, %low : i32
    diagram.yield %b : i32
  }
  %F8 = diagram.cast %least : !F -> !F8
  %G = diagram.contract %A, %F8 over [k] accumulate i32 : !A, !F8 -> !G
  func.return %C, %F, %G, %F8 : !C, !F, !G, !F8
}
