// Sums of what data send to a place: of rows, where another condition holds, too; of ones, which counts; in a product
// with ones where they are equal; and along an axis that says nothing of where.

!X = tensor<?x?xf32, #diagram.array<[t, c]>>
!Y = tensor<?x?x?xf32, #diagram.array<[t, r, c]>>
!R = tensor<?x?xf32, #diagram.array<[r, c]>>
!T = tensor<?xi32, #diagram.array<[t]>>
!N = tensor<?x?xi32, #diagram.array<[t, r]>>
!n = tensor<?xi32, #diagram.array<[r]>>
!O = tensor<?x?xf32, #diagram.array<[t, r]>>
!r = tensor<?xf32, #diagram.array<[r]>>

func.func @scattered_sums(%X: !X, %table: !T {diagram.up_to = "r"}, %kind: !T, %W: !R) -> (!R, !n, !R, !r)
    attributes {sizes = #diagram.sizes<t = 40, c = 12, r = 9>} {
  %Y = diagram.map (%x = %X : !X) -> !Y {
    %y = math.sin %x : f32
    diagram.yield %y : f32
  }
  %kept = diagram.where %Y if "table[t] == r and kind[t] < c" with (table = %table : !T, kind = %kind : !T) : !Y
  %S = diagram.reduce add %kept over [t] : !Y -> !R
  %one = diagram.fill 1 : i32 -> !N
  %those = diagram.where %one if "r == table[t] + 1" with (table = %table : !T) : !N
  %count = diagram.reduce add %those over [t] : !N -> !n
  %ones = diagram.fill 1.0 : f32 -> !O
  %equal = diagram.where %ones if "table[t] == r" with (table = %table : !T) : !O
  %product = diagram.contract %equal, %X over [t] accumulate f32 : !O, !X -> !R
  %M = diagram.map (%s = %S : !R, %p = %product : !R, %w = %W : !R) -> !R {
    %a = arith.mulf %p, %w : f32
    %b = arith.addf %a, %s : f32
    diagram.yield %b : f32
  }
  %all = diagram.where %Y if "table[t] == r" with (table = %table : !T) : !Y
  %rows = diagram.reduce add %all over [t, c] : !Y -> !r
  func.return %S, %count, %M, %rows : !R, !n, !R, !r
}
