// What `linalg` cannot say at once: conditions, windows whose number follows from the operand, a diagonal that ends early.

!X = tensor<?x?xf32, #diagram.array<[m, n]>>
!W = tensor<?x3xf32, #diagram.array<[t, r]>>
!w = tensor<?xf32, #diagram.array<[w]>>
!t = tensor<?xf32, #diagram.array<[t]>>
!S = tensor<5x8xf32, #diagram.array<[a, b]>>
!i = tensor<5xf32, #diagram.array<[i]>>
!m = tensor<?xf32, #diagram.array<[m]>>
!n = tensor<?xf32, #diagram.array<[n]>>
!at = tensor<?xi32, #diagram.array<[n]>>
!len = tensor<?xi32, #diagram.array<[m]>>
!Y = tensor<?x?xf32, #diagram.array<[n, p]>>
!Z = tensor<?x?xf32, #diagram.array<[m, p]>>
func.func @to_linalg_where(%X: !X, %len: !len {diagram.up_to = "n"}, %w: !w, %S: !S, %Y: !Y, %far: i32)
    -> (!X, !m, !m, !m, !Z, !t, !i, !n, !at) attributes {sizes = #diagram.sizes<m = 6, n = 7, w = 9, p = 2>} {
  %A = diagram.where %X if "n < len[m] or n == m" with (len = %len : !len) : !X
  %largest = diagram.reduce max %A over [n] : !X -> !m
  %E = diagram.map (%x = %A : !X, %m = %largest : !m) -> !X {
    %d = arith.subf %x, %m : f32
    %e = math.exp %d : f32
    diagram.yield %e : f32
  }
  %sum = diagram.reduce add %E over [n] : !X -> !m
  %L = diagram.where %X if "n < len[m]" with (len = %len : !len) : !X
  %B = diagram.where %L if "n <= far" with (far = %far : i32) : !X
  %product = diagram.contract %B, %Y over [n] accumulate f32 : !X, !Y -> !Z
  %times = diagram.reduce mul %A over [n] : !X -> !m
  %windows = diagram.read %w at "2 * t + r" : !w -> !W
  %sums = diagram.reduce add %windows over [r] : !W -> !t
  %diagonal = diagram.read %S at "i, i" : !S -> !i
  %C = diagram.where %X if "n >= len[m]" with (len = %len : !len) : !X
  %column = diagram.reduce min %C over [m] : !X -> !n
  %at = diagram.index -> !at
  func.return %A, %sum, %largest, %times, %product, %sums, %diagonal, %column, %at
      : !X, !m, !m, !m, !Z, !t, !i, !n, !at
}
