// What `linalg` can say: a product and a sum that start from something, windows, positions, sizes, every kind of reduction.

!A = tensor<5x7xf16, #diagram.array<[m, k]>>
!B = tensor<7x5xf16, #diagram.array<[k, n]>>
!C = tensor<5x5xf32, #diagram.array<[m, n]>>
!C16 = tensor<5x5xf16, #diagram.array<[m, n]>>
!N = tensor<5x5xi32, #diagram.array<[m, n]>>
!m = tensor<5xf32, #diagram.array<[m]>>
!at = tensor<5xi32, #diagram.array<[n]>>
!n = tensor<5xi32, #diagram.array<[n]>>
!w = tensor<11xf32, #diagram.array<[w]>>
!windows = tensor<5x3xf32, #diagram.array<[m, t]>>
func.func @to_linalg(%A: !A, %B: !B, %C: !C, %N: !N, %w: !w) -> (!C, !C16, !C16, !m, !m, !m, !m, !n, !n, !n, !C, !m, !C)
    {
  %AB = diagram.contract %A, %B over [k] accumulate f32 into %C : !A, !B -> !C
  %AB16 = diagram.contract %A, %B over [k] accumulate f32 : !A, !B -> !C16
  %more = diagram.contract %A, %B over [k] accumulate f32 into %AB16 : !A, !B -> !C16
  %windows = diagram.read %w at "2 * m + t" : !w -> !windows
  %largest = diagram.reduce max %windows over [t] : !windows -> !m
  %least = diagram.reduce min %windows over [t] : !windows -> !m
  %times = diagram.reduce mul %windows over [t] : !windows -> !m
  %onto = diagram.reduce add %windows over [t] into %largest : !windows -> !m
  %whole_least = diagram.reduce min %N over [m] : !N -> !n
  %whole_largest = diagram.reduce max %N over [m] : !N -> !n
  %whole = diagram.reduce add %N over [m] : !N -> !n
  %at = diagram.index -> !at
  %k = diagram.extent "k" : i32
  %placed = diagram.map (%ab = %AB : !C, %n = %at : !at, %of = %k : i32) -> !C {
    %left = arith.subi %of, %n : i32
    %far = arith.sitofp %left : i32 to f32
    %power = math.exp %ab : f32
    %scaled = arith.divf %power, %far : f32
    diagram.yield %scaled : f32
  }
  %zeros = diagram.fill 0.0 : f32 -> !m
  %above = diagram.reduce max %windows over [t] into %zeros : !windows -> !m
  %wide = diagram.map (%value = %times : !m) -> !C {
    diagram.yield %value : f32
  }
  func.return %AB, %AB16, %more, %largest, %least, %times, %onto, %whole_least, %whole_largest, %whole, %placed, %above, %wide
    : !C, !C16, !C16, !m, !m, !m, !m, !n, !n, !n, !C, !m, !C
}
